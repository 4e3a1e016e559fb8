"""A device that has its task from a folder hears before it is charged that its shuffler can't take
a window.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from shoal.clients.agent import Agent
from shoal.clients.core import ReportState
from shoal.clients.feeds.pauses import FRESH_S, SUFFIX
from shoal.clients.owner.policy import Policy
from shoal.clients.settings.config import AgentConfig
from shoal.clocks.clock import FakeClock
from shoal.crypto.signing import SigningKey
from shoal.crypto.tlscerts import make_authority
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.mqtt.settings import BrokerSettings
from shoal.protos import directory_pb2
from shoal.rpc.call import Call
from shoal.rpc.server import Method, RpcServer, Service
from tests.cases import for_each
from tests.worlds.devices.clients import START, TLS, WEEK, make_world

AUTHORITY = SigningKey.generate()


@dataclass
class Far:
    """A shuffler's directory, and nothing else of it."""

    address: str = ""
    paused: dict[TaskId, list[int]] = field(default_factory=dict)
    asked: list[directory_pb2.PageRequest] = field(default_factory=list)
    silent: bool = False
    met: asyncio.Event = field(default_factory=asyncio.Event)

    async def page(self, request: bytes, _: Call) -> bytes:
        asked = directory_pb2.PageRequest.FromString(request)
        self.asked.append(asked)
        self.met.set()
        if self.silent:
            await asyncio.Event().wait()
        paused = [
            directory_pb2.Paused(task_id=task.raw, windows=windows)
            for task, windows in self.paused.items()
        ]
        data = directory_pb2.Catalogue(paused=paused).SerializeToString()
        digest = Digest.of(data).raw
        offset = asked.offset if asked.digest == digest else 0
        return directory_pb2.PageReply(
            digest=digest, total=len(data), offset=offset, data=data[offset:]
        ).SerializeToString()


@asynccontextmanager
async def serving() -> AsyncIterator[Far]:
    far = Far()
    server = RpcServer(
        "127.0.0.1:0",
        [Service("shoal.v1.Directory", {"Page": Method(1024, handler=far.page)})],
        TLS,
    )
    far.address = f"localhost:{await server.start()}"
    try:
        yield far
    finally:
        await server.stop(0.0)


@dataclass
class Home:
    """A device's folder with one task, from a file."""

    config: AgentConfig
    clock: FakeClock
    task_id: TaskId

    def more(self, address: str, name: str, consent: str, ca: bytes | None = None) -> TaskId:
        """Another task of that shuffler, with its own purpose."""
        world = make_world(address, authority=AUTHORITY, name=name, purpose=f"to plan {name}")
        if ca is not None:
            world.task = replace(world.task, shuffler_ca=ca)
            world.sign()
        world.write(self.config.tasks)
        purposes = {**self.config.policy.purposes, world.task.purpose: consent}
        self.config = replace(self.config, policy=replace(self.config.policy, purposes=purposes))
        return world.task_id

    @classmethod
    def at(
        cls,
        folder: Path,
        address: str,
        consent: str = "allowed",
        *,
        memoized: bool = False,
        lifetime: float = math.inf,
    ) -> Home:
        world = make_world(address, authority=AUTHORITY)
        world.task = replace(world.task, memoized=memoized)
        world.sign()
        world.write(folder / "tasks")
        policy = Policy(
            world.authorities, 4.0, 2, {world.task.purpose: consent}, lifetime_epsilon=lifetime
        )
        config = AgentConfig(
            folder / "tasks",
            folder / "outbox.db",
            policy,
            deadline_s=5.0,
            retry_first_s=0.01,
            retry_most_s=0.01,
        )
        return cls(config, FakeClock(START + 100.0), world.task_id)

    async def report(self, value: int = 3, *, send: bool = True) -> ReportState:
        async with Agent(self.config, background=False, clock=self.clock) as agent:
            return (await agent.report("visits", value, send=send)).state

    async def charged(self) -> int:
        async with Agent(self.config, background=False, clock=self.clock) as agent:
            return len(agent.memory.commitments.charges())


async def test_a_paused_window_is_not_charged(tmp_path: Path) -> None:
    """Nor answered; asked once for all programs of a device in a while, and for no task by name;
    and answered when it is taken again.

    Planted: no look before the claim -> it is charged; what was read not kept -> asked again.
    """
    async with serving() as far:
        home = Home.at(tmp_path, far.address)
        far.paused = {home.task_id: [0]}
        for _ in range(3):
            with pytest.raises(ShoalError) as refused:
                await home.report()
            assert refused.value.kind is Kind.UNAVAILABLE
        assert await home.charged() == 0
        assert [(one.digest, one.offset) for one in far.asked] == [(b"", 0)]
        far.paused = {home.task_id: [1]}
        home.clock.advance(FRESH_S)
        assert await home.report() is ReportState.QUEUED  # nobody takes submissions there
        assert (await home.charged(), len(far.asked)) == (1, 2)
        home.clock.advance(FRESH_S)
        far.paused = {home.task_id: []}
        assert await home.report() is ReportState.QUEUED  # it has its answer: nobody is asked
        assert (await home.charged(), len(far.asked)) == (1, 2)


async def test_who_can_not_be_asked_keeps_nobody_away(tmp_path: Path) -> None:
    """Planted: the failure of the look let through -> no report without a network."""
    home = Home.at(tmp_path, "127.0.0.1:1")
    assert await home.report() is ReportState.QUEUED
    assert await home.charged() == 1


async def test_who_gives_up_waiting_has_answered(tmp_path: Path) -> None:
    """The shuffler says nothing, and its owner ends the command: the answer waits on disk. Planted:
    cancelled as a whole -> none.
    """
    async with serving() as far:
        far.silent = True
        home = Home.at(tmp_path, far.address)
        async with Agent(home.config, background=False, clock=home.clock) as agent:
            reporting = asyncio.create_task(agent.report("visits", 3))
            await far.met.wait()
            reporting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reporting
            (held,) = await agent.outcomes()
            assert (held.state, held.attempts) == (ReportState.QUEUED, 0)


@pytest.mark.parametrize("how", ["denied", "queued", "uplink"])
async def test_nobody_is_asked_needlessly(tmp_path: Path, how: str) -> None:
    """Without consent, with --queue, or where reports go through a broker. Planted: each of the
    three conditions left out.
    """
    async with serving() as far:
        home = Home.at(tmp_path, far.address, "denied" if how == "denied" else "allowed")
        if how == "uplink":
            home.config = replace(
                home.config, mqtt=BrokerSettings("127.0.0.1", 1, insecure=True), uplink=True
            )
        async with Agent(home.config, background=False, clock=home.clock) as agent:
            if how == "denied":
                with pytest.raises(
                    ShoalError
                ):  # not by ``report``, which asks the owner before it looks for a certificate
                    await agent.pauses.check(agent.tasks.all()[0], 0, ask=True)
            else:
                await agent.pauses.check(agent.tasks.all()[0], 0, ask=how == "uplink")
        assert far.asked == []


async def test_the_service_looks_at_moments_of_its_own(tmp_path: Path) -> None:
    """At every shuffler that it answers to, but those that a feed reads; what it said is told.
    Planted: ``but`` ignored -> asked.
    """
    async with serving() as far:
        home = Home.at(tmp_path, far.address)
        far.paused = {home.task_id: [0]}
        told: list[tuple[str, dict[TaskId, frozenset[int]]]] = []
        async with Agent(home.config, background=False, clock=home.clock) as agent:
            await agent.pauses.look(
                5.0, lambda *one: told.append((one[0], dict(one[1]))), {far.address}
            )
            assert (told, far.asked) == ([], [])
            stop = asyncio.Event()

            def hear(address: str, paused: Mapping[TaskId, frozenset[int]], ca: bytes) -> None:
                agent.tasks.pause(address, paused, ca)
                stop.set()

            await agent.pauses.run(stop, hear, (), agent._entropy)
            (status,) = agent.status()
            assert "can't take this window now" in status.refusal
        assert len(far.asked) == 1


@pytest.mark.parametrize("name", ["aaa", "zzz"])
async def test_a_task_that_is_denied_hides_no_other_of_its_shuffler(
    tmp_path: Path, name: str
) -> None:
    """Wherever it stands in the list. Planted: the last, or the first, task of an address decides
    -> nobody is asked.
    """
    async with serving() as far:
        home = Home.at(tmp_path, far.address)
        home.more(far.address, name, "denied")
        far.paused = {home.task_id: [0]}
        async with Agent(home.config, background=False, clock=home.clock) as agent:
            await agent.pauses.look(5.0, agent.tasks.pause)
            refusals = {one.assignment.task.name: one.refusal for one in agent.status()}
        assert "can't take this window now" in refusals["visits"]
        assert len(far.asked) == 1


@pytest.mark.parametrize("name", ["aaa", "zzz"])
async def test_each_ca_of_an_address_is_asked_for_its_own_tasks(tmp_path: Path, name: str) -> None:
    """A task under a CA that nobody there has does not keep the others from being told, and is told
    nothing by them, by what is kept neither. Planted: one CA for an address -> nobody can be asked;
    what was said kept by address alone -> the stranger's task is paused.
    """
    async with serving() as far:
        home = Home.at(tmp_path, far.address)
        other = home.more(
            far.address, name, "allowed", make_authority("another authority").cert_pem
        )
        far.paused = {home.task_id: [0], other: [0]}
        for _ in range(2):
            async with Agent(home.config, background=False, clock=home.clock) as agent:
                await agent.pauses.look(5.0, agent.tasks.pause)
                refusals = {one.assignment.task_id: one.refusal for one in agent.status()}
            assert "can't take this window now" in refusals[home.task_id]
            assert refusals[other] == ""
        assert len(far.asked) == 1


@for_each("memoized", [False, True])
@for_each("value", [3, 0])
async def test_who_can_not_pay_asks_nobody(tmp_path: Path, value: int, memoized: bool) -> None:
    """Neither a command nor the service: a look without a submission would tell. Planted: no look
    at the budget before -> asked.
    """
    async with serving() as far:
        home = Home.at(tmp_path, far.address, memoized=memoized, lifetime=2.0)
        for _ in range(2):
            with pytest.raises(ShoalError) as refused:
                await home.report(value)
            assert refused.value.kind is Kind.REFUSED
            async with Agent(home.config, background=False, clock=home.clock) as agent:
                await agent.pauses.look(5.0, agent.tasks.pause)
        assert (await home.charged(), far.asked) == (0, [])


@pytest.mark.parametrize("value", [3, 0])
async def test_a_memoized_task_asks_whatever_the_value(tmp_path: Path, value: int) -> None:
    """Its budget pays for one draw: the same value again needs none, and for another one the last
    report is used. Both ask, and both are answered. Planted: the price of a draw asked for in every
    case -> neither is.
    """
    async with serving() as far:
        home = Home.at(tmp_path, far.address, memoized=True, lifetime=4.0)
        assert await home.report(3) is ReportState.QUEUED
        home.clock.advance(WEEK)
        assert await home.report(value) is ReportState.QUEUED
        assert (await home.charged(), len(far.asked)) == (2, 2)


@pytest.mark.parametrize("whose", ["own", "another"])
async def test_a_pause_is_looked_at_again_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """Not an hour later; not before what was said is old; and whosever task is paused, or the
    shuffler would learn which is this device's. Planted: ``every_s`` in every case -> fails; sooner
    for this device's tasks alone -> "another" fails.
    """
    async with serving() as far:
        home = Home.at(tmp_path, far.address)
        far.paused = {home.task_id if whose == "own" else TaskId(bytes(32)): [0]}
        waits: list[float] = []

        async def waited(_: asyncio.Event, seconds: float) -> bool:
            waits.append(seconds)
            # each look is one: nothing is read again that counts
            assert len(far.asked) == len(waits)
            if len(waits) == 2:
                far.paused = {}
            home.clock.advance(seconds)
            return len(waits) == 3

        monkeypatch.setattr("shoal.clients.feeds.pauses.waited", waited)
        async with Agent(home.config, background=False, clock=home.clock) as agent:
            await agent.pauses.run(asyncio.Event(), agent.tasks.pause, (), SeededEntropy(1))
        assert all(FRESH_S <= one <= 2 * FRESH_S for one in waits[:2])
        assert waits[2] >= home.config.feeds.every_s / 2


async def test_one_shuffler_is_not_told_what_another_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has its own moments. Planted: all asked again when one is due -> the second is, though
    nothing is paused there.
    """
    async with serving() as far, serving() as quiet:
        home = Home.at(tmp_path, far.address)
        home.more(quiet.address, "zzz", "allowed")
        far.paused = {home.task_id: [0]}
        looks = 0

        async def waited(_: asyncio.Event, seconds: float) -> bool:
            nonlocal looks
            looks += 1
            home.clock.advance(seconds)
            return looks == 3

        monkeypatch.setattr("shoal.clients.feeds.pauses.waited", waited)
        async with Agent(home.config, background=False, clock=home.clock) as agent:
            await agent.pauses.run(asyncio.Event(), agent.tasks.pause, (), SeededEntropy(1))
        assert (len(far.asked), len(quiet.asked)) == (3, 1)


async def test_what_is_kept_is_not_trusted(tmp_path: Path) -> None:
    """A changed file is as none: the shuffler is asked again. Planted: no seal -> a window paused
    for ever, or never.
    """
    async with serving() as far:
        home = Home.at(tmp_path, far.address)
        far.paused = {home.task_id: [0]}
        with pytest.raises(ShoalError):
            await home.report()
        kept = Path(f"{home.config.outbox}{SUFFIX}")
        for data in (kept.read_bytes().replace(b"[0]", b"[1]"), b"", b"{}\n", b"\xff" * 99):  # noqa: ASYNC240 - one small file
            asked = len(far.asked)
            kept.write_bytes(data)  # noqa: ASYNC240 - one small file
            with pytest.raises(ShoalError):
                await home.report()
            assert len(far.asked) == asked + 1
        assert kept.stat().st_mode & 0o777 == 0o600  # noqa: ASYNC240 - one small file
