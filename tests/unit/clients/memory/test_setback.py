"""A memory that was set back answers nothing, by no way, until its owner confirms; then it counts
too much, never too little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.clients.agent import Agent
from shoal.clients.core import ReportState
from shoal.clients.feeds.known_tasks import KnownTasks
from shoal.clients.memory.commitments import NANO, WindowCharge
from shoal.clients.memory.device_memory import Memory
from shoal.clients.memory.ledger import LedgerEvent
from shoal.clients.memory.rounds_ledger import Answered, RoundStanding
from shoal.clients.memory.setback import confirm, examine
from shoal.clients.owner.book import verified
from shoal.clients.owner.policy import Policy
from shoal.clients.reports.answering import Terms, charge_sum
from shoal.clients.rounds.agent import RoundsAgent
from shoal.clients.settings.config import AgentConfig
from shoal.clients.transports.rounds_transport import RoundTransport
from shoal.clocks.clock import FakeClock
from shoal.crypto.admission.enrolment import DeviceIdentity, issue
from shoal.crypto.signing import SigningKey
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError
from shoal.task import Task
from tests.worlds.devices.clients import START, WEEK, DirectTransport, FarEnd, make_world
from tests.worlds.devices.runner import HOUR, Place


class Device:
    """A device with a task of weekly windows, whose shuffler is a far end without a network."""

    def __init__(self, folder: Path, *, memoized: bool = False) -> None:
        self.folder, self.world = folder, make_world(count=20)
        self.world.task = replace(self.world.task, memoized=memoized)
        self.world.sign()
        self.world.write(folder / "tasks")
        self.clock, self.far = FakeClock(START + 100.0), FarEnd([self.world.hop])
        self.transport = DirectTransport(self.far)
        policy = Policy(
            self.world.authorities,
            4.0,
            2,
            {self.world.task.purpose: "allowed"},
            lifetime_epsilon=30.0,
        )
        self.config = AgentConfig(
            folder / "tasks", folder / "outbox.db", policy, retry_first_s=0.01, retry_most_s=0.01
        )

    @property
    def store(self) -> Path:
        return self.config.outbox

    @property
    def head(self) -> Path:
        return self.store.with_name(self.store.name + ".head")

    def agent(self) -> Agent:
        def way(task: Task, insecure: bool) -> DirectTransport:
            self.transport.closed = False
            return self.transport

        return Agent(self.config, background=False, clock=self.clock, transports=way)

    async def weeks(self, count: int, value: object = 3) -> None:
        for _ in range(count):
            async with self.agent() as agent:
                await agent.report("visits", value)  # type: ignore[arg-type]
            self.clock.advance(WEEK)

    def confirm(self) -> float:
        """Epsilon that is taken as lost."""
        memory = Memory(self.config, self.clock, SYSTEM)
        try:
            found = examine(memory, self.known, self.clock.now())
            assert found is not None
            confirm(memory, found, self.clock.now())
            assert examine(memory, list, self.clock.now()) is None
            return found.nano / NANO
        finally:
            memory.close()

    def known(self) -> list[Any]:
        memory = Memory(self.config, self.clock, SYSTEM)
        try:
            commitments = KnownTasks(
                self.config.tasks, self.config.policy, memory.outbox, self.config.learnt_folder
            )
            commitments.refresh()
            return list(commitments.all())
        finally:
            memory.close()


@pytest.fixture
def device(tmp_path: Path, quick: None) -> Device:
    return Device(tmp_path)


def restored(device: Device, kept: bytes) -> None:
    device.store.write_bytes(kept)  # a clean end leaves nothing in the -wal file


def removed(device: Device, kept: bytes) -> None:
    device.store.unlink()


def headless(device: Device, kept: bytes) -> None:
    restored(device, kept)
    device.head.unlink()


def torn(device: Device, kept: bytes) -> None:
    device.head.write_bytes(device.head.read_bytes()[:-9])


WAYS = {"restored": restored, "removed": removed, "headless": headless, "torn head": torn}


@pytest.mark.parametrize("way", WAYS)
async def test_nothing_is_answered_or_sent_until_the_owner_confirms(
    device: Device, way: str
) -> None:
    """By no call: report, queue, flush. Nothing is charged, drawn, entered or sent; the next window
    after the owner's word is.

    Planted: ``Permit.check`` without its look at the memory, ``reserve`` without the chain ->
    answered.
    """
    await device.weeks(1)
    device.transport.down = True
    await device.weeks(1)  # waits
    kept = device.store.read_bytes()
    await device.weeks(3)
    WAYS[way](device, kept)
    device.transport.down = False
    frames = len(device.far.frames)
    async with device.agent() as agent:
        before = (
            agent.memory.commitments.spent(),
            agent.memory.commitments.charges(),
            len(agent.memory.commitments.entries()),
        )
        for send in (True, False):
            with pytest.raises(ShoalError) as caught:
                await agent.report("visits", 3, send=send)
            assert caught.value.kind is Kind.MISMATCH
            assert "--confirm-set-back" in caught.value.message
        assert all(
            one.state is not ReportState.ACKED or not one.fresh for one in await agent.flush()
        )
        assert "--confirm-set-back" in agent.status()[0].refusal
        with pytest.raises(ShoalError):
            agent.memory.commitments.charge(agent.tasks.find("visits").task_id, 9, 1, None)
        assert before == (
            agent.memory.commitments.spent(),
            agent.memory.commitments.charges(),
            len(agent.memory.commitments.entries()),
        )
    assert len(device.far.frames) == frames
    device.confirm()
    async with device.agent() as agent:
        with pytest.raises(ShoalError) as caught:
            await agent.report("visits", 3)
        # this window may have been answered in what was lost
        assert caught.value.kind is Kind.CONFLICT
        assert agent.answered(agent.tasks.find("visits").task_id, 5)
        device.clock.advance(WEEK)
        assert (await agent.report("visits", 3)).state is ReportState.ACKED
        await agent.verify()


async def test_a_task_of_sums_is_not_charged_either(device: Device) -> None:
    """Its charge is asked for in the middle of a round. Planted: no look at what was lost in
    ``charge_sum`` -> the window is charged.
    """
    await device.weeks(2)
    kept = device.store.read_bytes()
    await device.weeks(1)
    restored(device, kept)
    async with device.agent() as agent:
        one = agent.tasks.find("visits")
        terms = Terms(None)
        with pytest.raises(ShoalError, match="set-back"):
            charge_sum(one, 5, agent.memory.commitments, terms, device.clock.now())
    device.confirm()
    async with device.agent() as agent:
        with pytest.raises(ShoalError, match="set back"):
            charge_sum(one, 2, agent.memory.commitments, terms, device.clock.now())
        assert charge_sum(one, 9, agent.memory.commitments, terms, device.clock.now()) > 0


@pytest.mark.parametrize("behind", [0, 1])
async def test_a_window_that_a_clock_ahead_answered_is_not_answered_again(
    device: Device, behind: int
) -> None:
    """The clock is ahead by the tolerated skew, so the shuffler takes the report before the window
    begins. Then the memory is set back, and the clock set right (or behind, by as much). What the
    device took as answered was what had begun by the clock that is right. Planted: the window's
    start alone compared -> both cases answer twice; one skew -> the second does.
    """
    await device.weeks(1)
    kept, plan = device.store.read_bytes(), device.world.task.windows
    begin, skew = float(plan.start_of(1)), float(plan.skew_s)
    true = begin - skew  # a shuffler takes reports of the window from here on
    device.clock.time = true + skew
    async with device.agent() as agent:
        assert (await agent.report("visits", 3)).state is ReportState.ACKED
    task_id = device.world.task_id
    restored(device, kept)
    device.clock.time = true - behind * skew
    device.confirm()
    device.clock.time = begin
    async with device.agent() as agent:
        assert agent.answered(task_id, 1)
        assert not agent.answered(task_id, 2)
        with pytest.raises(ShoalError, match="set back"):
            await agent.report("visits", 3)


async def test_such_a_window_is_paid_for_where_nothing_says_what_was_spent(device: Device) -> None:
    """Planted: the window's start alone compared -> 0 in both cases."""
    await device.weeks(1)
    device.head.unlink()
    plan = device.world.task.windows
    memory = Memory(device.config, device.clock, SYSTEM)
    try:
        begin = float(plan.start_of(1) - 2 * plan.skew_s)
        (one,) = [charge.nano for charge in memory.commitments.charges()]
        for now, nano in ((begin - 1.0, 0), (begin, one)):
            found = examine(memory, device.known, now)
            assert found is not None
            assert found.nano == nano
    finally:
        memory.close()


@pytest.mark.parametrize("late", [0, 1])
async def test_a_window_of_before_the_last_entry_may_have_been_answered_after_it(
    device: Device, late: int
) -> None:
    """The last entry was made with a clock ahead, the answer after it with one behind, each by as
    much as is tolerated: windows that ended by less before it are paid for. Planted: one skew, or
    none -> the first case is 0; no look at the last entry -> the second is not.
    """
    await device.weeks(1)
    plan = device.world.task.windows
    device.clock.time = float(plan.deadline_of(1) + 2 * plan.skew_s + late)
    async with device.agent() as agent:
        assert (await agent.report("visits", 3)).state is ReportState.ACKED
    device.head.unlink()
    memory = Memory(device.config, device.clock, SYSTEM)
    try:
        charges = {charge.window: charge.nano for charge in memory.commitments.charges()}
        assert set(charges) == {0, 2}
        found = examine(memory, device.known, device.clock.now())
        assert found is not None
        assert found.nano == (0 if late else charges[0])
    finally:
        memory.close()


@pytest.mark.parametrize("way", ["restored", "removed", "headless"])
async def test_what_was_spent_in_what_is_lost_is_never_counted_too_little(
    device: Device, way: str
) -> None:
    """Five windows were charged, two of them are known: afterwards at least five are spent, and at
    most two more.

    Planted: ``confirm`` without ``lose``; a head without what was spent (nothing known beyond the
    file) -> too little.
    """
    await device.weeks(2)
    kept = device.store.read_bytes()
    await device.weeks(3)
    async with device.agent() as agent:
        spent = agent.memory.commitments.spent()
        one = agent.memory.commitments.charges()[0].nano
    WAYS[way](device, kept)
    device.confirm()
    async with device.agent() as agent:
        assert spent <= agent.memory.commitments.spent() <= spent + 2 * one
        (entry,) = [
            row.entry for row in await agent.ledger() if row.entry.event is LedgerEvent.SET_BACK
        ]
        assert entry.details["epsilon_spent_after"] == agent.memory.commitments.spent() / NANO


async def test_a_memory_that_went_on_elsewhere_counts_for_both(device: Device) -> None:
    """Another copy answered more windows than this device noted: what both spent is added up.
    Planted: the larger of both -> too little.
    """
    await device.weeks(1)
    kept, head = device.store.read_bytes(), device.head.read_bytes()
    await device.weeks(1)
    mine = device.head.read_bytes()
    restored(device, kept)
    device.head.write_bytes(head)
    await device.weeks(4)  # on another machine, say
    device.head.write_bytes(mine)
    async with device.agent() as agent:
        theirs = agent.memory.commitments.spent()
        one = agent.memory.commitments.charges()[0].nano
    device.confirm()
    async with device.agent() as agent:
        assert agent.memory.commitments.spent() >= theirs + 2 * one


async def test_a_memoized_answer_that_was_lost_is_paid_for_again(
    tmp_path: Path, quick: None
) -> None:
    """The permanent report drawn in what is lost can't be found: another one is drawn, and both are
    spent; without budget, none is.

    Planted: what is lost not part of ``spent`` -> the second draw is within a budget that it is
    not.
    """
    device = Device(tmp_path, memoized=True)
    await device.weeks(1, 3)
    kept = device.store.read_bytes()
    await device.weeks(1, 0)
    restored(device, kept)
    device.confirm()
    device.clock.advance(WEEK)
    async with device.agent() as agent:
        before = agent.memory.commitments.spent()
        await agent.report("visits", 0)
        (first, second) = agent.memory.commitments.charges()
        assert second.nano == first.nano > 0
        assert agent.memory.commitments.spent() == before + second.nano
        assert before >= 2 * first.nano
    limited = replace(
        device.config.policy, lifetime_epsilon=before / NANO + 2 * second.nano / NANO - 0.001
    )
    device.config = replace(device.config, policy=limited)
    device.clock.advance(WEEK)
    async with device.agent() as agent:
        await agent.report("visits", 5)
        assert [row.entry.details.get("memoized") for row in await agent.ledger()][-2:] == [
            "kept",
            None,
        ]


async def test_what_is_spent_is_noted_before_it_is(device: Device) -> None:
    """At every commit the head's sum is at least what is charged, whatever of the head lags.
    Planted: no ``reserve`` -> it lags too.
    """
    memory = Memory(device.config, device.clock, SYSTEM)
    memory.store._head_pause_s = 3_600.0
    for window in range(40):
        memory.commitments.charge(device.world.task_id, window, 1 + window % 7, None)
        noted = memory.noted()
        assert noted is not None
        assert noted.spent is not None
        assert memory.commitments.spent() <= noted.spent <= memory.commitments.spent() + 8 * 7
    memory.close()


async def test_a_window_that_was_charged_is_answered_whatever_the_ledger_of_rounds_says(
    device: Device,
) -> None:
    """Its file was lost, or is an older copy: no second masked vector, and the entry is there again
    afterwards.

    Planted: the ledger of rounds asked alone -> a second vector, for nothing.
    """
    (one,) = device.known()
    key = SigningKey.generate()
    identity = DeviceIdentity(key, issue(SigningKey.generate(), key.public, START, START + WEEK))
    rounds = RoundsAgent(device.config, device.clock, SYSTEM, never)
    charges: list[int] = []
    window, answered, fresh = await rounds.report(
        one, identity, [1.0], charges.append, charged=lambda window: window == 0
    )
    assert (window, fresh, charges) == (0, False, [])
    assert isinstance(answered, Answered)
    assert (answered.standing, [known.window for known in await rounds.answers()]) == (
        RoundStanding.LOST,
        [0],
    )
    await rounds.close()


def never(task: Task, insecure: bool) -> RoundTransport:
    raise AssertionError("nothing is sent")


# --- the service ----------------------------------------------------------------------------------


async def test_the_service_goes_on_and_says_so_once(
    place: Place, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    """It reads, waits, and answers the next window after the owner's word, without a restart.

    Planted: the service ends; a line per look.
    """
    store = place.folder / "outbox.db"
    async with place.running():
        await place.until(lambda: place.windows() == [0])
    kept = store.read_bytes()
    async with place.running():
        await place.until(lambda: place.windows() == [0, 1])
    store.write_bytes(kept)
    place.clock.time = START + 2 * HOUR + 10.0
    async with place.running() as service:
        await place.until(lambda: place.clock.now() > START + 3 * HOUR)
        assert place.windows() == [0, 1]
        assert not service.done()
        told = [one for one in logged() if "set back" in str(one)]
        assert len([one for one in told if one.get("where") == "set back"]) == 1
        memory = Memory(place.config, place.clock, SYSTEM)
        found = examine(memory, list, place.clock.now())
        assert found is not None
        confirm(memory, found, place.clock.now())
        memory.close()
        await place.until(lambda: 4 in place.windows())
        assert place.windows() == [0, 1, 4]


async def test_a_single_pass_says_so_and_fails(place: Place) -> None:
    """Planted: the pass ends as if there was nothing to do -> a timer's owner never learns of
    it.
    """
    runner = place.runner()
    assert len(await runner.once(place.config)) == 1
    kept = (place.folder / "outbox.db").read_bytes()
    place.clock.advance(HOUR)
    await runner.once(place.config)
    (place.folder / "outbox.db").write_bytes(kept)
    place.clock.advance(HOUR)
    with pytest.raises(ShoalError, match="confirm-set-back"):
        await runner.once(place.config)
    assert place.windows() == [0, 1]


async def test_what_an_agent_did_fits_its_ledger(device: Device) -> None:
    """Reports of every end, a withdrawal, consents: no difference where there is none. Planted:
    ``outcome`` read as queued -> one.
    """
    await device.weeks(2)
    device.transport.down = True
    await device.weeks(1)
    device.transport.down = False
    device.far.script = lambda _n, _f: ShoalError(Kind.WINDOW_FULL, "full")
    await device.weeks(1)
    device.far.script = lambda _n, _f: None
    device.transport.down = True
    device.config = replace(device.config, policy=replace(device.config.policy, purposes={}))
    async with device.agent() as agent:
        await agent.consent(device.world.task.purpose, "allowed")
        await agent.accept("visits", 3.5)
        await agent.report("visits", 3)
        await agent.consent(device.world.task.purpose, "denied")
        assert isinstance(agent.memory.commitments.charges()[0], WindowCharge)
    memory = Memory(device.config, device.clock, SYSTEM)
    assert verified(memory.store).count > 10
    memory.close()
