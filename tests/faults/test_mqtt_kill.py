"""kill -9 of the shuffler and of the broker, again and again, under devices that report over MQTT;
then what was acknowledged is counted.

Real processes and sockets. A device sends the same bytes until it reads its reply; a kill comes at
a random number of replies. What MQTT promises (QoS 1: at least once up to the shuffler) is not
relied upon: neither the broker nor the bridge keeps anything.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from shoal.clocks.clock import FakeClock
from shoal.crypto.envelope import seal_frame
from shoal.mqtt import link
from shoal.shuffler.core import WindowState
from shoal.shuffler.service import Shuffler
from tests.faults.conftest import Forge
from tests.faults.shuffler_child import EAGER
from tests.sizes import size
from tests.worlds.mqtt.broker import Broker
from tests.worlds.mqtt.devices import PATIENCE_S, Devices, table
from tests.worlds.ports import free_port
from tests.worlds.services.shuffler import AnalyzerEnd, Published, World

pytestmark = pytest.mark.campaign
KILLS = size(6, 30, 200)
CLIENTS = 24
AGAIN_S = 0.4  # after which a device sends again


class Fleet:
    """``acked``: reports whose reply said "stored"; ``sent``: all that were ever published."""

    def __init__(self, published: Published, devices: Devices) -> None:
        self.published, self.devices = published, devices
        self.sent: set[bytes] = set()
        self.acked: set[bytes] = set()
        self.stopping = False
        self.changed = asyncio.Condition()

    async def client(self) -> None:
        while not self.stopping:
            report = self.published.sealed()
            content = self.published.content(report)
            self.sent.add(report)
            status = await self.devices.submit(
                seal_frame(self.published.hop.config, content), content.ack_key, AGAIN_S
            )
            assert status == 0
            self.acked.add(report)
            async with self.changed:
                self.changed.notify_all()

    async def reach(self, acks: int) -> None:
        async with asyncio.timeout(PATIENCE_S), self.changed:
            await self.changed.wait_for(lambda: len(self.acked) >= acks)


async def kills(
    forge: Forge, world: World, broker: Broker, fleet: Fleet, rng: random.Random
) -> None:
    """KILLS times: the shuffler, the broker, or both. Then both end as an operator ends them."""
    pid = await asyncio.to_thread(forge.start, "serve eagerly", world.folder)
    for _ in range(KILLS):
        await fleet.reach(len(fleet.acked) + rng.randrange(1, 120))
        victim = rng.choice(("shuffler", "broker", "both"))
        if victim != "shuffler":
            await broker.kill()
        if victim != "broker":
            os.kill(pid, signal.SIGKILL)
            assert await asyncio.to_thread(forge.wait) == -9
            pid = await asyncio.to_thread(forge.start, "serve eagerly", world.folder)
        if victim != "shuffler":
            await broker.start()
    await fleet.reach(len(fleet.acked) + 1)
    os.kill(pid, signal.SIGTERM)
    assert await asyncio.to_thread(forge.wait) == 0


@pytest.mark.timeout(3_600)
async def test_kill_9_of_broker_and_shuffler(
    forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acknowledged => delivered exactly once; everything else at most once.

    Planted: replies before a commit that takes half a second -> lost reports, fails. (Before one of
    some milliseconds it is hard to hit: replies wait for the next 50 ms anyway.)
    """
    monkeypatch.setattr(link, "LIMITS", EAGER)
    world, rng = World(tmp_path), random.Random(25)  # noqa: S311 - when to kill is no secret
    published = world.publish(start_s=int(time.time()) - 60, count=1, length_s=3_600, min_batch=2)
    analyzer = AnalyzerEnd(world)
    analyzer_at = await analyzer.start()
    async with Broker(tls=False) as broker:
        world.write_config(
            analyzer_at, listen=f"127.0.0.1:{free_port()}", mqtt=table(broker.settings)
        )
        async with Devices(broker.settings, world.shuffler.public) as devices:
            fleet = Fleet(published, devices)
            clients = [asyncio.create_task(fleet.client()) for _ in range(CLIENTS)]
            try:
                await kills(forge, world, broker, fleet, rng)
            finally:
                for client in clients:
                    client.cancel()
                results = await asyncio.gather(*clients, return_exceptions=True)
    assert not [result for result in results if isinstance(result, Exception)]
    outcomes = await finish(world, analyzer_at)
    await analyzer.stop()
    assert outcomes == [WindowState.ACKNOWLEDGED]
    counted = Counter(row for rows in analyzer.delivered.values() for row in rows)
    assert [report for report in fleet.acked if counted[report] != 1] == []
    assert max(counted.values()) == 1
    assert set(counted) <= fleet.sent
    assert len(fleet.acked) > 10 * KILLS


async def finish(world: World, analyzer_at: str) -> list[WindowState | None]:
    """What is on disk, brought to its end after the last deadline; the windows' outcomes."""
    clock = FakeClock(time.time() + 5 * 86_400)
    async with Shuffler(world.config(analyzer_at), clock=clock) as shuffler:
        for _ in range(60):
            await shuffler.lifecycle.tick()
            await shuffler.lifecycle.settle()
            clock.advance(300)
            if all(
                record.state is WindowState.SHREDDED for record in shuffler.store.records().values()
            ):
                break
        return [record.outcome for record in shuffler.store.records().values()]
