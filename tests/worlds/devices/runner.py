"""The service over its seams: real memory, real cryptography, a clock and sleeps that the test
moves, a far end without a network.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest

from shoal import codec
from shoal.clients.agent import Agent
from shoal.clients.memory.database_thread import StoreThread
from shoal.clients.memory.device_memory import Memory
from shoal.clients.memory.ledger import LedgerEntry, LedgerEvent
from shoal.clients.service.runner import Runner
from shoal.clients.settings.config import AgentConfig
from shoal.clients.sources import read
from shoal.clients.sources.spec import SourceSpec
from shoal.clocks.clock import FakeClock
from shoal.codec import TaskBundle
from shoal.domain import Value
from shoal.entropy import SYSTEM
from shoal.task import Task
from tests.worlds.devices.clients import START, DirectTransport, FarEnd, World, make_world

HOUR = 3_600
T = TypeVar("T")


_to_thread, _stored, _read = asyncio.to_thread, StoreThread.run, read._read
_resting: list[asyncio.Future[None]] = []  # who waits until there are none of these:
# calls that a thread works on now: time must not go on before they are done, however busy the
# machine is
_in_threads = 0


async def _counted(work: Callable[..., Any], *arguments: Any) -> Any:
    return await _while_counted(_to_thread(work, *arguments))


async def _counted_store(thread: StoreThread, step: Callable[[], Any]) -> Any:
    return await _while_counted(_stored(thread, step))


async def _counted_read(spec: SourceSpec, timeout_s: float) -> Value:
    return await _while_counted(_read(spec, timeout_s))


async def _while_counted(call: Coroutine[Any, Any, T]) -> T:
    global _in_threads  # noqa: PLW0603 - one event loop at a time
    _in_threads += 1
    try:
        return await call
    finally:
        _in_threads -= 1
        while not _in_threads and _resting:
            if not (rested := _resting.pop()).done():  # not of a test that was broken off
                rested.set_result(None)


def quicken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate of each task takes a third of a second, and is shown elsewhere. Naps are
    long: the clock is the test's.
    """
    monkeypatch.setattr(asyncio, "to_thread", _counted)
    monkeypatch.setattr(StoreThread, "run", _counted_store)
    monkeypatch.setattr(read, "_read", _counted_read)  # a thread or a process of its own
    monkeypatch.setattr("shoal.clients.service.measuring._NAP_S", 900.0)
    monkeypatch.setattr("shoal.clients.service.runner.LOOK_S", 900.0)
    monkeypatch.setattr("shoal.clients.owner.explain_cost.guaranteed_epsilon", lambda _: 0.25)
    monkeypatch.setattr("shoal.clients.owner.guarantees.Guarantees.epsilon", lambda *_: 0.25)


def bundle(world: World) -> bytes:
    return codec.encode_bundle(TaskBundle(world.signed_task, world.signed_schedule))


@dataclass
class Place:
    """A device's folder, its clock, and the service on it. Time goes on only in ``until``: to
    whoever sleeps shortest.
    """

    folder: Path
    world: World
    clock: FakeClock = field(default_factory=lambda: FakeClock(START + 10.0))

    def __post_init__(self) -> None:
        self.world.write(self.folder / "tasks")
        self.far = FarEnd([self.world.hop])
        self.transport = DirectTransport(self.far)
        self.sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self.numbers = count()
        self.stop, self.reload = asyncio.Event(), asyncio.Event()
        (self.folder / "state.json").write_text('{"visits": 3}')
        self.text: dict[str, str] = {}
        self.write()

    def write(self, *, consent: str = "allowed", policy: str = "", more: str = "") -> None:
        source = '[sources.visits]\nkind = "json"\nfile = "state.json"\npointer = "/visits"\n'
        (self.folder / "agent.toml").write_text(
            'tasks = "tasks"\noutbox = "outbox.db"\n[policy]\nauthorities = '
            f'["{self.world.authority.public.hex()}"]\nmax_epsilon0 = 4.0\n'
            f'min_batch_floor = 100\n{policy}\n[policy.purposes]\n"{self.world.task.purpose}" = '
            f'"{consent}"\n'
            "[send]\nretry_first_s = 0.01\nretry_most_s = 0.01\ngap_s = 0\n[measure]\nmean_s = "
            f"200\n{source}{more}\n"
        )

    def config_text(self) -> str:
        return (self.folder / "agent.toml").read_text()

    @property
    def config(self) -> AgentConfig:
        return AgentConfig.load(self.folder / "agent.toml")

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self.sleepers, (self.clock.now() + seconds, next(self.numbers), future))
        await future

    def agents(self, config: AgentConfig, background: bool) -> Agent:
        self.transport.closed = False

        def way(task: Task, insecure: bool) -> DirectTransport:
            return self.transport

        return Agent(config, background=background, clock=self.clock, transports=way)

    def runner(self) -> Runner:
        self.stop.clear()
        return Runner(
            self.folder / "agent.toml",
            self.stop,
            self.reload,
            clock=self.clock,
            sleep=self.sleep,
            agents=self.agents,
        )

    @asynccontextmanager
    async def running(self) -> Any:
        """The service, stopped at the end as SIGTERM would."""
        service = asyncio.create_task(self.runner().run(self.config))
        try:
            yield service
            self.stop.set()
            await service
        finally:
            service.cancel()
            await asyncio.gather(service, return_exceptions=True)

    async def settle(self) -> None:
        """Let threads and callbacks come to rest."""
        calm = 0
        while calm < 12:
            if _in_threads:
                calm = 0
                _resting.append(asyncio.get_running_loop().create_future())
                await _resting[-1]
            await _to_thread(lambda: None)
            calm += 1

    async def until(self, wanted: Callable[[], bool]) -> None:
        """Let time pass until it is so (the test's own time limit is the bound)."""
        while True:
            await self.settle()
            if wanted():
                return
            while self.sleepers:
                at, _, future = heapq.heappop(self.sleepers)
                if not future.done():
                    self.clock.time = max(self.clock.time, at)
                    future.set_result(None)
                    break

    def windows(self) -> list[int]:
        """Of the reports that the far end has."""
        return sorted(content.window for content in self.far.contents.values())

    def entries(self, *events: LedgerEvent) -> list[LedgerEntry]:
        memory = Memory(self.config, self.clock, SYSTEM)
        try:
            memory.commitments.verify()
            return [one.entry for one in memory.commitments.entries() if one.entry.event in events]
        finally:
            memory.close()


def place_at(folder: Path) -> Place:
    """Six windows of an hour."""
    return Place(folder, make_world(length=HOUR, count=6))


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """What was logged so far."""
    return [vars(record)["shoal"] for record in caplog.records if record.name == "shoal.agent"]
