"""kill -9 of the running service, again and again, under concurrent clients; then what was
acknowledged is counted.

Real processes, TLS and sockets; windows fill up, close, are sealed, delivered and shredded while
the kills go on. A kill comes at a random number of acknowledgements after a start, so at any moment
of whatever else is going on. (A kill does not test fsync: the page cache survives the process.
tests/faults/test_shuffler_power.py does.)
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from shoal.clocks.clock import FakeClock
from shoal.errors import Kind, ShoalError
from shoal.rpc.channel import build_channel, call
from shoal.shuffler.core import WindowState
from shoal.shuffler.service import Shuffler
from tests.faults.conftest import Forge
from tests.sizes import size
from tests.worlds.ports import free_port
from tests.worlds.services.shuffler import CA, AnalyzerEnd, Published, World, submit, submit_batch

pytestmark = pytest.mark.campaign
KILLS = size(15, 100, 1_000)
CLIENTS = 16
MAX_BATCH = 120
# enough that the clients never run out of them: a round takes about 75 acknowledgements
WINDOWS = size(200, 400, 1_200)


@dataclass
class History:
    """Per report: its window, and what its sender knows: "acked", "refused" at the first try, or
    "unknown".
    """

    window: dict[bytes, int] = field(default_factory=dict)
    fate: dict[bytes, str] = field(default_factory=dict)
    acks: int = 0
    acked: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def ack(self, reports: list[bytes]) -> None:
        for report in reports:
            self.fate[report] = "acked"
        self.acks += len(reports)
        async with self.acked:
            self.acked.notify_all()

    async def reach(self, acks: int) -> None:
        async with self.acked:
            await self.acked.wait_for(lambda: self.acks >= acks)


class Fleet:
    """Clients that submit report after report, with identical bytes until each is acknowledged or
    refused.
    """

    def __init__(self, published: Published, address: str) -> None:
        self.published, self.history = published, History()
        self.current = 0
        self.stopping = False
        self.channels = [build_channel(address, CA.cert_pem, private_pool=True) for _ in range(4)]

    async def client(self, number: int) -> None:
        channel = self.channels[number % len(self.channels)]
        while not self.stopping and self.current < WINDOWS:
            window = self.current
            reports = [self.published.sealed() for _ in range(5 if number % 4 == 0 else 1)]
            frames = [self.published.frame(report, window) for report in reports]
            for report in reports:
                self.history.window[report], self.history.fate[report] = window, "unknown"
            await self._submit(channel, window, reports, frames)

    async def _submit(
        self, channel: grpc.aio.Channel, window: int, reports: list[bytes], frames: list[bytes]
    ) -> None:
        first = True
        while not self.stopping:
            try:
                statuses = await self._call(channel, frames)
            except ShoalError as error:
                if error.kind in (Kind.WINDOW_FULL, Kind.WINDOW_CLOSED):
                    statuses = [error.kind]
                else:
                    assert error.kind in (Kind.UNAVAILABLE, Kind.DEADLINE, Kind.OVERLOADED), (  # noqa: PT017
                        error.kind
                    )
                    first = False
                    await channel.channel_ready()
                    continue
            await self.history.ack(
                [report for report, status in zip(reports, statuses, strict=True) if status is None]
            )
            for report, status in zip(reports, statuses, strict=True):
                if status is not None:
                    assert status in (Kind.WINDOW_FULL, Kind.WINDOW_CLOSED)
                    self.history.fate[report] = "refused" if first else "unknown"
                    self.current = max(self.current, window + 1)
            return

    async def _call(self, channel: grpc.aio.Channel, frames: list[bytes]) -> list[Kind | None]:
        from shoal.protos.submit_pb2 import SubmitBatchReply

        if len(frames) == 1:
            await call(channel, "/shoal.v1.Ingress/Submit", submit(frames[0]), 5)
            return [None]
        reply = SubmitBatchReply.FromString(
            await call(channel, "/shoal.v1.Ingress/SubmitBatch", submit_batch(frames), 5)
        )
        return [Kind(receipt.status) if receipt.status else None for receipt in reply.receipts]

    async def close(self) -> None:
        for channel in self.channels:
            await channel.close()


async def rounds(forge: Forge, world: World, fleet: Fleet, rng: random.Random) -> None:
    """KILLS times: start, wait for a random number of acknowledgements, kill. Then once more, ended
    by SIGTERM.
    """
    for number in range(KILLS + 1):
        pid = await asyncio.to_thread(forge.start, "serve", world.folder)
        goal = fleet.history.acks + rng.randrange(1, 150)
        await asyncio.wait_for(fleet.history.reach(goal), 60)
        last = number == KILLS
        os.kill(pid, signal.SIGTERM if last else signal.SIGKILL)
        assert await asyncio.to_thread(forge.wait) == (0 if last else -9)
    fleet.stopping = True


async def finish(world: World, analyzer_at: str) -> dict[int, WindowState | None]:
    """Everything that is still on disk, brought to its end after the last deadline. Outcome per
    window.
    """
    clock = FakeClock(time.time() + 10 * 86_400)
    async with Shuffler(world.config(analyzer_at), clock=clock) as shuffler:
        for _ in range(60):
            await shuffler.lifecycle.tick()
            await shuffler.lifecycle.settle()
            clock.advance(300)
            if all(
                record.state is WindowState.SHREDDED for record in shuffler.store.records().values()
            ):
                break
        return {
            window.window: record.outcome for window, record in shuffler.store.records().items()
        }


@pytest.mark.timeout(3_600)  # a thousand kills take some minutes
async def test_kill_9_under_load(forge: Forge, tmp_path: Path) -> None:
    """Acknowledged => exactly once in the delivered batch of its window; refused => never; unknown
    => at most once.

    Planted: answering before the commit -> lost reports, fails. Planted: a new inbox secret at
    every start -> duplicates, fails.
    """
    world, rng = World(tmp_path), random.Random(20)  # noqa: S311 - when to kill is no secret
    published = world.publish(
        start_s=int(time.time()) - 1_000,
        length_s=1,
        count=WINDOWS,
        grace_s=86_400,
        skew_s=1,
        min_batch=2,
        max_batch=MAX_BATCH,
    )
    analyzer = AnalyzerEnd(world)
    analyzer_at = await analyzer.start()
    address = f"127.0.0.1:{free_port()}"
    world.write_config(analyzer_at, listen=address)
    fleet = Fleet(published, address)
    clients = [asyncio.create_task(fleet.client(number)) for number in range(CLIENTS)]
    try:
        await rounds(forge, world, fleet, rng)
    finally:
        fleet.stopping = True
        for client in clients:
            client.cancel()
        results = await asyncio.gather(*clients, return_exceptions=True)
        await fleet.close()
    assert not [result for result in results if isinstance(result, Exception)]
    outcomes = await finish(world, analyzer_at)
    await analyzer.stop()
    counted = Counter(
        (window, row) for (_, window), rows in analyzer.delivered.items() for row in rows
    )
    withheld = {window for window, outcome in outcomes.items() if outcome is WindowState.WITHHELD}
    fates, window_of = fleet.history.fate, fleet.history.window
    times = {report: counted[window_of[report], report] for report in fates}
    lost = [
        r
        for r, fate in fates.items()
        if fate == "acked" and window_of[r] not in withheld and times[r] == 0
    ]
    risen = [r for r, fate in fates.items() if fate == "refused" and times[r]]
    assert (len(lost), len(risen)) == (0, 0)
    assert max(counted.values()) == 1
    # every row is a report that was sent, in the window that it was sent for
    assert sum(counted.values()) == sum(times.values())
    assert all(len(rows) <= MAX_BATCH for rows in analyzer.delivered.values())
    assert sum(fate == "acked" for fate in fates.values()) >= 15 * KILLS
    # windows were closed, sealed and delivered while the kills went on
    assert len(analyzer.delivered) >= KILLS // 10
