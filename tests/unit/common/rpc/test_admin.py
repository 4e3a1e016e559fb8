"""The operator's window: loopback alone, four pages, and no word of a bug's details."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter

from shoal.conditions import Condition, Conditions
from shoal.errors import Kind, ShoalError
from shoal.rpc.admin import Admin

CANARY = "canary-7f3a91"


def no_status() -> dict[str, Any]:
    return {}


@asynccontextmanager
async def running(
    conditions: Conditions | None = None,
    status: Callable[[], dict[str, Any]] = no_status,
    registry: CollectorRegistry | None = None,
    host: str = "127.0.0.1",
) -> AsyncIterator[int]:
    admin = Admin(f"{host}:0", conditions or Conditions(), status, registry or CollectorRegistry())
    port = await admin.start()
    try:
        yield port
    finally:
        await admin.stop()


async def get(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str, str]:
    """Status, headers and body, by hand: no client library between."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    answer = (await asyncio.wait_for(reader.read(), 30.0)).decode()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), head, body


async def test_the_four_pages() -> None:
    registry = CollectorRegistry()
    Counter("shoal_reports_accepted", "Reports on disk.", registry=registry).inc(3)
    async with running(status=lambda: {"tasks": 3, "windows": {"open": 1}}, registry=registry) as port:
        assert (await get(port, "/healthz"))[::2] == (200, "ok\n")
        assert (await get(port, "/readyz"))[::2] == (200, "ready\n")
        assert "shoal_reports_accepted_total 3.0" in (await get(port, "/metrics"))[2]
        shown = json.loads((await get(port, "/status"))[2])
        assert shown == {"tasks": 3, "windows": {"open": 1}, "ready": None, "conditions": []}
        for nothing in ("/", "/docs", "/openapi.json", "/healthz/../status?x", "/debug"):
            assert (await get(port, nothing))[0] == 404


async def test_ready_status_and_metrics_agree() -> None:
    """Alive is not ready: an orchestrator must not restart what only waits. Planted: /readyz answering like /healthz, or a page
    that reads another list -> this fails.
    """
    conditions = Conditions()
    async with running(conditions) as port:

        async def shown() -> tuple[int, str | None, list[str], bool]:
            status, _, text = await get(port, "/readyz")
            page = json.loads((await get(port, "/status"))[2])
            metrics = (await get(port, "/metrics"))[2]
            assert (text == "ready\n") == (page["ready"] is None) == ("shoal_ready 1.0" in metrics)
            counted = 'shoal_conditions{code="clock",stops="yes"} 1.0' in metrics
            return status, page["ready"], [one["code"] for one in page["conditions"]], counted

        assert await shown() == (200, None, [], False)
        conditions.set(Condition("broker", "", "frames are taken over gRPC alone", stops=False))
        assert await shown() == (200, None, ["broker"], False)
        conditions.set(Condition("clock", "", "the clock went back"))
        assert await shown() == (503, "the clock went back", ["clock", "broker"], True)
        assert (await get(port, "/healthz"))[0] == 200
        conditions.clear("clock")
        assert await shown() == (200, None, ["broker"], False)


async def test_a_bug_tells_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    def broken() -> dict[str, Any]:
        raise ValueError(CANARY)

    async with running(status=broken) as port:
        status, head, body = await get(port, "/status")
        assert status == 500
        assert CANARY not in head + body
        assert "server:" not in head.lower()
        assert (await get(port, "/healthz"))[0] == 200
    shown = capfd.readouterr()
    assert CANARY not in shown.out


@pytest.mark.parametrize("address", ["0.0.0.0:9464", "10.0.0.1:9464", "[::]:9464", "shuffler.example:9464"])
def test_only_on_loopback(address: str) -> None:
    """Counts are an operator's, not the world's. Planted: no check -> this fails."""
    with pytest.raises(ShoalError, match="only a loopback address") as caught:
        Admin(address, Conditions(), no_status, CollectorRegistry())
    assert caught.value.kind is Kind.CONFIG


async def test_a_port_in_use() -> None:
    async with running() as port:
        second = Admin(f"127.0.0.1:{port}", Conditions(), no_status, CollectorRegistry())
        with pytest.raises(ShoalError, match="another process has the port") as caught:
            await second.start()
        assert caught.value.kind is Kind.PORT_IN_USE
        await second.stop()
        assert (await get(port, "/healthz"))[0] == 200


async def test_stopping_frees_the_port() -> None:
    async with running() as port:
        pass
    async with running() as _:
        with pytest.raises(OSError, match="Connect"):
            await get(port, "/healthz")


async def test_signals_stay_with_the_service() -> None:
    """uvicorn would take SIGTERM for itself, and the service would never drain. Planted: uvicorn's own capture_signals -> this fails."""
    import signal

    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    async with running() as port:
        assert (await get(port, "/healthz"))[0] == 200
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
