"""The operator's window: loopback alone, four pages, and no word of a bug's details."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter

from shoal.errors import Kind, ShoalError
from shoal.rpc.access import Access
from shoal.rpc.admin import Admin
from shoal.services.conditions import Condition, Conditions
from tests.cases import for_each
from tests.unit.common.rpc.world import OURS, authority, identity, server_identity

CANARY = "canary-7f3a91"


def no_status() -> dict[str, Any]:
    return {}


@asynccontextmanager
async def running(
    conditions: Conditions | None = None,
    status: Callable[[], dict[str, Any]] = no_status,
    registry: CollectorRegistry | None = None,
    host: str = "127.0.0.1",
    access: Access | None = None,
) -> AsyncIterator[int]:
    admin = Admin(
        f"{host}:0", conditions or Conditions(), status, registry or CollectorRegistry(), access
    )
    port = await admin.start()
    try:
        yield port
    finally:
        await admin.stop()


async def get(
    port: int,
    path: str,
    host: str = "127.0.0.1",
    *,
    headers: str = "Host: localhost\r\n",
    tls: ssl.SSLContext | None = None,
) -> tuple[int, str, str]:
    """Status, headers and body, by hand: no client library between."""
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    writer.write(f"GET {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n".encode())
    answer = (await asyncio.wait_for(reader.read(), 30.0)).decode()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), head, body


async def test_the_four_pages() -> None:
    registry = CollectorRegistry()
    Counter("shoal_reports_accepted", "Reports on disk.", registry=registry).inc(3)
    async with running(
        status=lambda: {"tasks": 3, "windows": {"open": 1}}, registry=registry
    ) as port:
        assert (await get(port, "/healthz"))[::2] == (200, "ok\n")
        assert (await get(port, "/readyz"))[::2] == (200, "ready\n")
        assert "shoal_reports_accepted_total 3.0" in (await get(port, "/metrics"))[2]
        shown = json.loads((await get(port, "/status"))[2])
        assert shown == {"tasks": 3, "windows": {"open": 1}, "ready": None, "conditions": []}
        for nothing in ("/", "/docs", "/openapi.json", "/healthz/../status?x", "/debug"):
            assert (await get(port, nothing))[0] == 404


async def test_ready_status_and_metrics_agree() -> None:
    """Alive is not ready: an orchestrator must not restart what only waits. Planted: /readyz
    answering like /healthz, or a page that reads another list -> this fails.
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


@for_each("address", ["0.0.0.0:9464", "10.0.0.1:9464", "[::]:9464", "shuffler.example:9464"])
def test_only_on_loopback(address: str) -> None:
    """Counts are an operator's, not the world's. Planted: no check -> this fails."""
    with pytest.raises(ShoalError, match="only a loopback address") as caught:
        Admin(address, Conditions(), no_status, CollectorRegistry())
    assert caught.value.kind is Kind.CONFIG


@for_each(
    "host, status",
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:9464", 200),
        ("LOCALHOST:1", 200),
        ("[::1]:9464", 200),
        ("shuffler.internal:9464", 200),
        ("rebound.example", 421),
        ("localhost.rebound.example", 421),
        ("127.0.0.1.rebound.example:9464", 421),
        ("[::1", 421),
        ("[::1]x", 421),
        ("[::1]:9464@rebound.example", 421),
        ("[::1]:", 421),
        ("", 421),
        ("localhost:", 421),
        ("localhost:9464x", 421),
        ("localhost:rebound.example", 421),
        ("localhost:1:2", 421),
        ("127.0.0.1:946400", 421),
        ("127.0.0.1:9464/status", 421),
    ],
)
async def test_only_under_its_own_names(host: str, status: int) -> None:
    """A web site's name that leads to 127.0.0.1 gets nothing. Planted: no look at the Host header
    -> this fails. Planted: anything taken for a port -> this fails.
    """
    async with running(
        status=lambda: {"canary": CANARY}, access=Access(hosts=frozenset({"Shuffler.internal"}))
    ) as port:
        got, _, body = await get(port, "/status", headers=f"Host: {host}\r\n")
    assert got == status
    assert (CANARY in body) == (status == 200)


async def test_beyond_loopback_with_a_token(tmp_path: Path) -> None:
    """Planted: a token that is only compared in part, or not at all -> this fails."""
    token = "t0ken-" + "x" * 40
    path = tmp_path / "token"
    path.write_text(token + "\n")
    path.chmod(0o600)
    access = Access.load(token_file=path)
    assert token not in repr(access)
    async with running(host="0.0.0.0", access=access) as port:
        for shown, status in (
            ("", 401),
            (f"Authorization: Bearer {token}\r\n", 200),
            (f"Authorization: Bearer {token[:-1]}\r\n", 401),
            (f"Authorization: Bearer {token}x\r\n", 401),
            (f"Authorization: Basic {token}\r\n", 401),
            (f"Authorization: Bearer {token}\r\nAuthorization: Bearer x\r\n", 401),
        ):
            got, head, body = await get(port, "/metrics", headers=f"Host: localhost\r\n{shown}")
            assert got == status, shown
            assert ("shoal_ready" in body) == (status == 200)
            assert ("www-authenticate: Bearer" in head) == (status == 401)
        assert (await get(port, "/healthz"))[::2] == (200, "ok\n")
        assert (
            await get(
                port,
                "/metrics",
                headers=f"Host: rebound.example\r\nAuthorization: Bearer {token}\r\n",
            )
        )[0] == 421


@for_each(
    "text, mode, kind",
    [
        ("x" * 31, 0o600, Kind.CONFIG),
        ("x" * 20 + " " + "x" * 20, 0o600, Kind.CONFIG),
        ("x" * 40, 0o640, Kind.KEY_FILE),
        (None, 0, Kind.KEY_FILE),
    ],
)
def test_a_token_that_is_none(tmp_path: Path, text: str | None, mode: int, kind: Kind) -> None:
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    with pytest.raises(ShoalError) as caught:
        Access.load(token_file=path)
    assert caught.value.kind is kind
    assert text is None or text not in caught.value.message


async def test_beyond_loopback_with_a_certificate(tmp_path: Path) -> None:
    """Planted: client certificates optional -> a reader without one is served, and this fails."""
    ours, reader = identity(("127.0.0.1",), server=True), identity(("prometheus",), client=True)
    files = {
        "certificate": ours.certificate,
        "key": ours.key,
        "client_ca": authority(OURS).cert_pem,
        "own": reader.certificate + reader.key,
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        (tmp_path / name).chmod(0o600)
    access = Access.load(
        certificate=tmp_path / "certificate", key=tmp_path / "key", client_ca=tmp_path / "client_ca"
    )
    context = ssl.create_default_context(cadata=authority(OURS).cert_pem.decode())
    async with running(host="0.0.0.0", access=access) as port:
        with pytest.raises((ssl.SSLError, OSError, IndexError)):
            await get(port, "/metrics", tls=context)
        context.load_cert_chain(tmp_path / "own")
        assert "shoal_ready" in (await get(port, "/metrics", tls=context))[2]


def test_a_certificate_alone_proves_nothing_about_readers(tmp_path: Path) -> None:
    """TLS without client_ca tells readers who we are, not us who they are. Planted: any TLS is
    enough -> this fails.
    """
    ours = server_identity()
    for name, data in {"certificate": ours.certificate, "key": ours.key}.items():
        (tmp_path / name).write_bytes(data)
        (tmp_path / name).chmod(0o600)
    access = Access.load(certificate=tmp_path / "certificate", key=tmp_path / "key")
    Admin("127.0.0.1:0", Conditions(), no_status, CollectorRegistry(), access)
    with pytest.raises(ShoalError, match="only a loopback address"):
        Admin("0.0.0.0:0", Conditions(), no_status, CollectorRegistry(), access)
    with pytest.raises(ShoalError, match="wants certificate and key"):
        Access.load(client_ca=tmp_path / "certificate")


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
    """uvicorn would take SIGTERM for itself, and the service would never drain. Planted: uvicorn's
    own capture_signals -> this fails.
    """
    import signal

    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    async with running() as port:
        assert (await get(port, "/healthz"))[0] == 200
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
