"""TLS files replaced under a running shuffler: what it shows, and what devices notice."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from shoal.clocks.clock import FakeClock
from shoal.crypto.tlscerts import Identity, issue, make_authority
from shoal.rpc.channel import build_channel, call
from shoal.shuffler.service import Shuffler
from tests.sizes import size
from tests.worlds.services.shuffler import CA, START, AnalyzerEnd, World, submit
from tests.worlds.services.shuffler import SHUFFLER_NAME as CALLER

SUBMIT = "/shoal.v1.Ingress/Submit"
TIMES = "shoal_shuffler_answer_seconds"


async def page(port: int, path: str) -> Any:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    return json.loads(answer.partition("\r\n\r\n")[2])


def answered(shuffler: Shuffler) -> str:
    """Calls whose times are shown."""
    shown = generate_latest(shuffler.registry).decode()
    (line,) = [line for line in shown.splitlines() if line.startswith(f"{TIMES}_count")]
    return line.split()[1]


async def test_renewed_files_are_taken_up_under_traffic_and_no_call_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both of its certificates move to a new authority, one call after the other meanwhile; each
    file is replaced by itself, with a look in between. Planted: nobody registered for the renewal
    -> new connections that trust the new authority alone fail. Planted: the answer's time shown
    while its window is open -> fails.
    """
    monkeypatch.setattr("shoal.shuffler.reports.lifecycle.TICK_S", 3_600.0)
    new = make_authority("new")
    world, clock = World(tmp_path), FakeClock(START + 10)
    published = world.publish()
    analyzer = AnalyzerEnd(world)
    config = world.config(await analyzer.start())
    async with Shuffler(config, clock=clock) as shuffler:
        address, both = f"127.0.0.1:{shuffler.port}", CA.cert_pem + new.cert_pem
        failures: list[BaseException] = []
        stop = asyncio.Event()

        async def traffic() -> int:
            sent = 0
            while not stop.is_set() or sent < size(30, 300):
                channel = build_channel(address, both, private_pool=bool(sent % 2))
                try:
                    await call(channel, SUBMIT, submit(published.frame()), 10)
                except Exception as error:  # noqa: BLE001 - counted
                    failures.append(error)
                await channel.close()
                sent += 1
            return sent

        callers = [asyncio.create_task(traffic()) for _ in range(2)]

        async def replace(name: str, made: Identity) -> None:
            (tmp_path / f"{name}.pem").write_bytes(made.cert_pem)
            shuffler.certificates.look()
            await asyncio.sleep(0)
            (tmp_path / f"{name}.key").write_bytes(made.key_pem)
            assert shuffler.certificates.look()

        own = issue(new, "front", ["127.0.0.1"], server=True, client=False, days=20)
        await replace("front", own)
        client = issue(new, CALLER, [CALLER], server=False, client=True, days=200)
        await replace("caller", client)
        strict = build_channel(address, new.cert_pem, private_pool=True)
        await call(strict, SUBMIT, submit(published.frame()), 10)
        await strict.close()
        stop.set()
        sent = sum([await one for one in callers])
        assert not failures, failures[0]
        status = await page(shuffler.admin_port, "/status")
        assert [(row["role"], row["days_left"]) for row in status["certificates"]] == [
            ("analyzer.ca", 3649),
            ("analyzer.certificate", 199),
            ("tls.certificate", 19),
        ]
        assert [one["subject"] for one in status["conditions"]] == ["tls.certificate"]
        assert status["disk"]["total_bytes"] > 0

        assert answered(shuffler) == "0.0"
        clock.advance(8 * 3_600)
        await shuffler.lifecycle.tick()
        await shuffler.lifecycle.settle()
        assert answered(shuffler) == f"{sent + 1}.0"
    await analyzer.stop()
