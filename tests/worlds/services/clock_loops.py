"""Services whose machine's clocks a test moves, and how often their own loops came round."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from shoal.analyzer.batches import processing
from shoal.analyzer.batches.shredding import Shredder
from shoal.analyzer.rounds import window_ends
from shoal.clocks import timekeeper
from shoal.clocks.timekeeper import Timekeeper
from shoal.errors import Kind, ShoalError
from shoal.protos import directory_pb2, submit_pb2
from shoal.rpc.channel import build_channel, call
from shoal.shuffler import peer_clock
from shoal.shuffler.core import WindowState
from shoal.shuffler.reports import lifecycle
from shoal.shuffler.reports.lifecycle import Lifecycle
from shoal.shuffler.service import Shuffler
from tests.worlds.clock import Machine
from tests.worlds.services.shuffler import CA, AnalyzerEnd, Published, World, submit

QUICK_S = 0.005
LOOKS = 12  # of a loop, after which it has seen whatever there is to see


class Loops:
    """Counts what the loops did. ``passed``: until each of them came round again, several times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: Counter[str] = Counter()
        for owner, name in (
            (lifecycle, "TICK_S"),
            (processing, "_SWEEP_S"),
            (window_ends, "_SWEEP_S"),
            (timekeeper, "LOOK_S"),
        ):
            monkeypatch.setattr(owner, name, QUICK_S)
        for name in ("ASK_S", "DISPUTED_ASK_S"):
            monkeypatch.setattr(peer_clock, name, QUICK_S)
        self._count(monkeypatch, Timekeeper, "look")
        self._count(monkeypatch, Shredder, "sweep")
        self._count_async(monkeypatch, Lifecycle, "tick")
        self._count_async(monkeypatch, peer_clock.AnalyzerClock, "ask")

    def _count(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        whole = getattr(owner, name)

        def counted(one: object) -> object:
            found = whole(one)
            self.seen[name] += 1
            return found

        monkeypatch.setattr(owner, name, counted)

    def _count_async(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        whole = getattr(owner, name)

        async def counted(one: object) -> object:
            found = await whole(one)
            self.seen[name] += 1
            return found

        monkeypatch.setattr(owner, name, counted)

    async def passed(self, *names: str) -> None:
        before = dict(self.seen)
        await until(lambda: all(self.seen[name] >= before.get(name, 0) + LOOKS for name in names))


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not happened():  # noqa: ASYNC110 - the services tell nobody how far they are
            await asyncio.sleep(QUICK_S)


class Bench:
    """A shuffler that keeps the time of a machine, and an analyzer's end that is there or not."""

    def __init__(self, world: World, machine: Machine) -> None:
        self.world, self.machine, self.analyzer = world, machine, AnalyzerEnd(world)
        self.address = ""
        self.shuffler: Shuffler

    async def start(self, **changes: object) -> None:
        self.address = self.address or await self.analyzer.start()
        self.shuffler = Shuffler(self.world.config(self.address, **changes), readings=self.machine)
        await self.shuffler.__aenter__()
        self.channel = build_channel(
            f"127.0.0.1:{self.shuffler.port}", CA.cert_pem, private_pool=True
        )

    async def stop(self) -> None:
        await self.channel.close()
        await self.shuffler.stop()

    async def submit(self, published: Published, window: int = 0) -> Kind | None:
        try:
            await call(
                self.channel, "/shoal.v1.Ingress/Submit", submit(published.frame(window=window)), 10
            )
        except ShoalError as error:
            return error.kind
        return None

    async def batch(self, published: Published, window: int = 0) -> list[int]:
        data = submit_pb2.SubmitBatchRequest(
            frames=[published.frame(window=window)] * 2
        ).SerializeToString()
        try:
            reply = await call(self.channel, "/shoal.v1.Ingress/SubmitBatch", data, 10)
        except ShoalError as error:
            return [error.kind.value]
        return [
            receipt.status for receipt in submit_pb2.SubmitBatchReply.FromString(reply).receipts
        ]

    async def catalogue(self) -> int:
        """Bytes of it."""
        reply = await call(
            self.channel,
            "/shoal.v1.Directory/Page",
            directory_pb2.PageRequest().SerializeToString(),
            10,
        )
        return directory_pb2.PageReply.FromString(reply).total

    def states(self, published: Published) -> dict[int, WindowState]:
        return {
            one.window: record.state
            for one, record in self.shuffler.store.records().items()
            if one.task_id == published.task_id
        }
