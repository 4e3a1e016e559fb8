"""A device of a discovery with fresh devices: which one window it draws, and that it answers no
other, whatever becomes of its memory.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from shoal.clients.agent import Agent
from shoal.clients.core import Assignment, ReportState, assign
from shoal.clients.memory.commitments import NANO, Commitments
from shoal.clients.memory.commitments_memory import MemoryCommitments
from shoal.clients.memory.commitments_sqlite import SqliteCommitments
from shoal.clients.memory.database import AgentStore
from shoal.clients.memory.ledger import LedgerEvent
from shoal.clients.memory.outbox import MemoryOutbox
from shoal.clients.owner.explain import explain
from shoal.clients.owner.policy import NEVER, Policy
from shoal.clients.reports.answering import Terms, is_answered
from shoal.clients.reports.own_window import OwnWindow, check_own, draw_window, own_window
from shoal.clients.settings.config import AgentConfig
from shoal.clocks.clock import FakeClock
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from tests.worlds.devices.answers import given, refusal
from tests.worlds.services.analyzer import LENGTH, START, World
from tests.worlds.words import SMALL, step_of, words_world

FRESH = replace(SMALL, fresh=True)
WINDOWS = 6
TERMS = Terms(4 * NANO, central=lambda: 0.5)


@cache
def world() -> World:
    return words_world(FRESH, WINDOWS)


def assignment() -> Assignment:
    trusted = trust_task(world().signed_task, {world().authority.public})
    made = assign(trusted, trust_schedule(world().signed_schedule, trusted))
    for window in range(1, WINDOWS):
        made.steps[window] = step_of(world(), window, FRESH.level(0), None)
    return made


def willing(memory: Commitments) -> Commitments:
    memory.accept(assignment().campaign.promise, float("inf"))
    return memory


def drawn(memory: Commitments, seed: str = "one") -> int:
    own = draw_window(assignment(), memory, SeededEntropy(seed), START)
    assert own is not None
    assert own.window is not None
    return own.window


def test_every_window_is_as_likely() -> None:
    """Of 1,200 devices: the sum of squares over 200 has five degrees of freedom, and above 43 with
    a chance of 4e-8. Planted: drawn among the levels, three of six windows -> 1,200.
    """
    asked = assignment()
    entropy = SeededEntropy("windows")
    counts = Counter[int | None]()
    for _ in range(1_200):
        own = draw_window(asked, MemoryCommitments(), entropy, START)
        assert own is not None
        counts[own.window] += 1
    assert set(counts) == set(range(WINDOWS))
    assert sum((count - 200) ** 2 / 200 for count in counts.values()) < 43


def test_it_is_drawn_once_and_entered(tmp_path: Path) -> None:
    """After a restart too. Planted: kept in the process alone -> another window after the restart
    (one of six seeds draws the same: three are tried).
    """
    path = tmp_path / "outbox.db"
    store = AgentStore(path)
    first = drawn(SqliteCommitments(store))
    assert drawn(SqliteCommitments(store), "two") == first
    store.close()
    store = AgentStore(path)
    memory = SqliteCommitments(store)
    assert [drawn(memory, seed) for seed in ("three", "four", "five")] == [first] * 3
    (entry,) = [one.entry for one in memory.entries() if one.entry.event is LedgerEvent.DREW]
    assert (entry.window, entry.details, entry.at_s) == (first, {"windows": WINDOWS}, START)
    store.close()


def test_of_two_processes_that_draw_at_once_the_first_one_counts(tmp_path: Path) -> None:
    """The other one draws while this one asks for randomness. Planted: no second look in the
    transaction -> two windows, fails.
    """
    path = tmp_path / "outbox.db"
    stores = AgentStore(path), AgentStore(path)
    ours, theirs = map(SqliteCommitments, stores)
    faster = list[int]()

    class Slow(SeededEntropy):
        def bytes(self, count: int) -> bytes:
            if not faster:
                faster.append(drawn(theirs, "theirs"))
            return super().bytes(count)

    own = draw_window(assignment(), ours, Slow("ours"), START)
    assert own == own_window(assignment(), theirs) == OwnWindow(faster[0])
    assert drawn(MemoryCommitments(), "ours") != faster[0]
    entries = [one.entry for one in ours.entries() if one.entry.event is LedgerEvent.DREW]
    assert len(entries) == 1
    for store in stores:
        store.close()


def test_no_other_window_is_answered_and_its_own_once() -> None:
    """Planted: no check of the draw -> the others are answered; a draw in the answer's own
    transaction -> undone by the refusal, and the window that comes is drawn at last.
    """
    asked, memory = assignment(), willing(MemoryCommitments())
    assert "draw it first" in refusal(lambda: given(asked, 0, "cat", memory, TERMS), Kind.CONFLICT)
    own = drawn(memory)
    for window in set(range(WINDOWS)) - {own}:
        said = refusal(lambda w=window: given(asked, w, "cat", memory, TERMS), Kind.CONFLICT)  # type: ignore[misc]
        assert f"drew window {own} of 0 to {WINDOWS - 1}" in said
        assert is_answered(asked.task_id, window, asked, MemoryOutbox(), memory)
    assert memory.spent() == 0
    assert not is_answered(asked.task_id, own, asked, MemoryOutbox(), memory)
    check_own(asked, own, memory)
    given(asked, own, "cat", memory, TERMS)
    assert memory.spent() == NANO // 2
    assert "already" in refusal(lambda: check_own(asked, own, memory), Kind.CONFLICT)


def test_a_draw_that_is_forgotten_after_an_answer_is_not_made_again() -> None:
    """The owner takes the consent back, and gives it again. Planted: whatever was charged is not
    looked at -> a second window, at twice the cost.
    """
    asked, memory = assignment(), willing(MemoryCommitments())
    own = drawn(memory)
    given(asked, own, "cat", memory, TERMS)
    memory.forget(asked.task_id)
    assert draw_window(asked, memory, SeededEntropy("again"), START) == OwnWindow(None)
    for window in range(WINDOWS):
        assert is_answered(asked.task_id, window, asked, MemoryOutbox(), memory)
    assert memory.spent() == NANO // 2


SKEW = 2 * world().task.windows.skew_s


@pytest.mark.parametrize("late", [0.0, -float(SKEW), -SKEW - 1.0])
def test_a_draw_that_was_lost_with_the_memory_is_not_made_again(late: float) -> None:
    """But where no window had begun by then, by any clock that is tolerated: nothing was answered.
    Planted: a loss does not count -> a device may answer twice; the clock taken as right -> the
    second case draws.
    """
    memory = willing(MemoryCommitments())
    memory.lose(START + late, 0)
    own = draw_window(assignment(), memory, SeededEntropy("one"), START)
    assert own is not None
    assert (own.window is None) == (late >= -SKEW)


def test_a_draw_of_another_task_is_named() -> None:
    for kept in (b"\x00\x00\x00\x06", b"\x00", b""):
        memory = MemoryCommitments()
        memory.choose(assignment().task_id, kept)
        assert "deny" in refusal(
            lambda m=memory: own_window(assignment(), m),  # type: ignore[misc]
            Kind.MISMATCH,
        )


def test_an_owner_is_told() -> None:
    """Planted: all windows added up -> fails."""
    policy = Policy(frozenset({world().authority.public}), 4.0, 2, lifetime_epsilon=30.0)
    config = AgentConfig(Path("/t"), Path("/o"), policy)
    text = "\n".join(explain(assignment(), config, accepted=float("inf")))
    assert "one report in all, in one of the windows, which this device draws" in text
    liars = world().task.min_batch - world().task.n_certified
    assert f"may answer in every window: {liars} may, of all devices" in text
    assert "of all windows together: the same" in text
    assert "wiped, it may answer again" in text
    assert "the one window that this device answers costs epsilon" in text
    assert "pays for 1 of 1 window" in text


async def test_an_owner_who_accepts_no_infinite_epsilon0_draws_nothing(tmp_path: Path) -> None:
    """It is said beforehand, and neither yes nor report are possible; with the true message drawn
    too (``epsilon0_if_colluding``) the task is answered within the owner's cap. Planted: drawn
    before the policy is asked -> an entry in the ledger, fails; the draw takes the epsilon0 that is
    left for an infinite one -> refused, fails.
    """
    randomized = words_world(FRESH, WINDOWS, epsilon0=8.0)
    for number, (made, answers) in enumerate([(world(), False), (randomized, True)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "words.task").write_bytes(made.signed_task)
        (folder / "words.keys").write_bytes(made.signed_schedule)
        policy = Policy(
            frozenset({made.authority.public}),
            9.0,
            2,
            {made.task.purpose: "allowed"},
            infinite_epsilon0=NEVER,
        )
        config = AgentConfig(folder, folder / "outbox.db", policy)
        async with Agent(config, background=False, clock=FakeClock(START)) as agent:
            for later in range(1, WINDOWS):
                agent.tasks.step(step_of(made, later, FRESH.level(0), None).data)
            asked = agent.tasks.find("words")
            text = "\n".join(explain(asked, config))
            assert ("As things are, this device would answer it." in text) is answers
            if answers:
                outcome = await agent.report("words", "cat", send=False)
                assert outcome.state in {ReportState.QUEUED, ReportState.NOT_ASKED}
            else:
                for ask in (agent.accept("words"), agent.report("words", "cat", send=False)):
                    with pytest.raises(ShoalError) as refused:
                        await ask
                    assert refused.value.kind is Kind.REFUSED
            drew = own_window(asked, agent.memory.commitments)
            assert (drew is not None) is answers


def test_an_owner_of_several_is_told_of_all_windows() -> None:
    """Each of them answers once: what is said of one window holds for all. Planted: windows added
    up as where devices answer in each -> fails.
    """
    drawn_too = words_world(FRESH, WINDOWS, epsilon0=8.0)
    trusted = trust_task(drawn_too.signed_task, {drawn_too.authority.public})
    made = assign(trusted, trust_schedule(drawn_too.signed_schedule, trusted))
    policy = Policy(frozenset({drawn_too.authority.public}), 8.0, 2, lifetime_epsilon=30.0)
    config = AgentConfig(Path("/t"), Path("/o"), replace(policy, owner_devices=2))
    (line,) = [line for line in explain(made, config) if "of your devices" in line]
    assert line.endswith("for all of them together, of all windows.")


async def test_an_agent_passes_the_windows_of_others(tmp_path: Path) -> None:
    """Six windows, one report; the others are no error, and cost nothing. Planted: answers
    whatever it is asked -> six reports.
    """
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "words.task").write_bytes(world().signed_task)
    (folder / "words.keys").write_bytes(world().signed_schedule)
    task, clock = world().task, FakeClock(START)
    policy = Policy(frozenset({world().authority.public}), 4.0, 2, {task.purpose: "denied"})
    config = AgentConfig(folder, tmp_path / "outbox.db", policy)
    async with Agent(config, background=False, clock=clock) as agent:
        with pytest.raises(ShoalError) as refused:
            await agent.report("words", "cat", send=False)
        assert refused.value.kind is Kind.REFUSED
        assert own_window(assignment(), agent.memory.commitments) is None  # nothing was drawn
    config = replace(config, policy=replace(policy, purposes={task.purpose: "allowed"}))
    states = Counter[ReportState]()
    for window in range(WINDOWS):
        clock.time = float(START + window * LENGTH)
        async with Agent(config, background=False, clock=clock) as agent:
            await agent.accept("words")
            for later in range(1, WINDOWS):
                agent.tasks.step(step_of(world(), later, FRESH.level(0), None).data)
            for _ in range(2):
                outcome = await agent.report("words", "cat", send=False)
                states[outcome.state] += 1
            assert agent.answered(world().task_id, window)
    assert states == {ReportState.QUEUED: 2, ReportState.NOT_ASKED: 2 * (WINDOWS - 1)}
    async with Agent(config, background=False, clock=clock) as agent:
        assert agent.memory.commitments.tally(world().task_id).windows == 1
