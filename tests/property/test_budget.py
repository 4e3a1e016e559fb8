"""Random lives of a device's memory against a model of five lines: the budget is never exceeded,
nothing is paid for twice or not at all.

A life is a file with ten schedules, one after the other. A schedule: up to three agents on the
file, fresh, memoized and summed tasks, values that change, calls for windows that were answered,
disks that fail at the commit or at the head, exceptions before and after the draw, agents that
vanish and come back, withdrawals, owners who change the limit. After every step what was spent is
what the model says, and at the end: one charge per answered window and one entry per charge;
charges, entries and model have one sum; the chain verifies, and the noted head is its last. The
same cell has the same report until it is forgotten. Sealing is left out: it takes no part in this.
Processes that run at once or are killed: tests/conformance/outbox.

Planted, each caught: a budget that is not looked up, or looked up without what others spent; a new
draw charged 0, or sent without being paid for; a failed transaction that commits; permanent reports
that outlive ``forget``; a withdrawal that gives back what was spent; a head that was missed once
and is not brought up at the next start.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.clients.core import Assignment, ReportState, SealedReport, assign
from shoal.clients.memory.commitments import NANO, nano_up
from shoal.clients.memory.commitments_sqlite import SqliteCommitments
from shoal.clients.memory.database import AgentStore
from shoal.clients.memory.ledger import LedgerEntry, LedgerEvent
from shoal.clients.memory.outbox_sqlite import SqliteOutbox
from shoal.clients.reports import answering
from shoal.clients.reports.answering import AnswerRequest, Terms, answer, charge_sum
from shoal.crypto.admission.open import OPEN
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.domain import Numeric
from shoal.entropy import Entropy, SeededEntropy, uniform_below
from shoal.errors import Kind, ShoalError
from shoal.failpoints import arm
from shoal.ids import TaskId
from tests.sizes import size
from tests.worlds.devices.clients import VISITS, make_world
from tests.worlds.devices.outbox import claim

pytestmark = pytest.mark.campaign
SCHEDULES = size(480, 10_000, 100_000)
PARTS = 6  # tests that share them
LIFE = 10  # schedules of one file
STEPS, WINDOWS = 10, 4
LIMITS = (None, 0, 1 * NANO, 2 * NANO + NANO // 2, 4 * NANO, 8 * NANO - 1)
VALUES = (0, 1, 3, 3.0, None, 12, "text", 4.0)


@cache
def tasks() -> tuple[Assignment, ...]:
    """Two fresh ones, two memoized, one of sums."""
    made = []
    for number, (memoized, epsilon0) in enumerate(
        ((False, 1.0), (False, 0.7), (True, 1.0), (True, 1.5), (False, 0.9))
    ):
        domain = Numeric(0, 10, 11) if number == 3 else VISITS
        world = make_world(name=f"task-{number}", domain=domain, epsilon0=epsilon0, count=WINDOWS)
        world.task = replace(world.task, memoized=memoized)
        world.sign()
        trusted = trust_task(world.signed_task, world.authorities)
        made.append(assign(trusted, trust_schedule(world.signed_schedule, trusted)))
    made[4] = replace(made[4], mechanism=None, epsilon_apart=0.4)
    return tuple(made)


def unsealed(
    assignment: Assignment, window: int, report: Sequence[bytes], entropy: Entropy, identity: object
) -> SealedReport:
    """In the place of ``seal``, which takes no part in this and most of the time."""
    return SealedReport(
        assignment.task_id, window, b"".join(report) + entropy.bytes(8), entropy.bytes(32), 1
    )


@dataclass
class Model:
    """The law."""

    spent: int = 0
    costs: dict[tuple[TaskId, int], int] = field(default_factory=dict)
    cells: dict[TaskId, set[int]] = field(default_factory=dict)

    def answers(self, assignment: Assignment, window: int, cell: int, limit: int | None) -> bool:
        """Whether the window is answered now; if so it is paid for."""
        cost, known = nano_up(assignment.epsilon0), self.cells.setdefault(assignment.task_id, set())
        if assignment.task.memoized and (cell in known or (known and not self.pays(cost, limit))):
            cost = 0
        if not self.pays(cost, limit):
            return False
        if assignment.task.memoized and cost:
            known.add(cell)
        self.costs[assignment.task_id, window] = cost
        self.spent += cost
        return True

    def pays(self, cost: int, limit: int | None) -> bool:
        return cost == 0 or limit is None or self.spent + cost <= limit


class Pool:
    """A seeded entropy that draws in larger pieces."""

    def __init__(self, seed: str) -> None:
        self._source, self._left = SeededEntropy(seed), b""

    def bytes(self, count: int) -> bytes:
        if len(self._left) < count:
            self._left += self._source.bytes(2_048)
        drawn, self._left = self._left[:count], self._left[count:]
        return drawn

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.frombuffer(self.bytes(8 * count), dtype="<u8").astype(np.uint64)


class Agent:
    """One process's hold of the file."""

    def __init__(self, path: Path, entropy: Entropy) -> None:
        self.path, self.entropy = path, entropy
        self.open()

    def open(self) -> None:
        self.store = AgentStore(self.path)
        self.outbox, self.commitments = (
            SqliteOutbox(self.store),
            SqliteCommitments(self.store, self.entropy),
        )

    def vanish(self) -> None:
        """Without a goodbye: no head is noted."""
        self.store._db.close()


class Life:
    def __init__(self, path: Path, seed: str) -> None:
        self.entropy, self.model = Pool(seed), Model()
        self.agents = [Agent(path, self.entropy) for _ in range(1 + self.pick(3))]
        self.summed: set[TaskId] = set()
        # of memoized cells that were not forgotten
        self.reports: dict[tuple[TaskId, int], str] = {}
        self.withdrawn = 0

    def pick(self, bound: int) -> int:
        return uniform_below(bound, self.entropy)

    def schedule(self) -> None:
        """Tasks with ids of their own, under a limit from here on."""
        self.base = self.model.spent
        self.choose_limit()
        self.tasks = [
            replace(one, trusted=replace(one.trusted, task_id=TaskId(self.entropy.bytes(32))))
            for one in tasks()
        ]
        self.summed.add(self.tasks[-1].task_id)
        for _ in range(STEPS):
            self.step()

    def choose_limit(self) -> None:
        limit = LIMITS[self.pick(len(LIMITS))]
        self.limit = None if limit is None else self.base + limit

    def step(self) -> None:
        agent, assignment = (
            self.agents[self.pick(len(self.agents))],
            self.tasks[self.pick(len(self.tasks))],
        )
        match self.pick(12):
            case 0:
                agent.vanish()
                agent.open()
            case 1:
                self.withdraw(agent, assignment)
            case 2:
                self.choose_limit()
            case 3:
                agent.outbox.finish(assignment.task_id, self.pick(WINDOWS), ReportState.ACKED)
            case _:
                self.answer(agent, assignment, self.pick(WINDOWS), VALUES[self.pick(len(VALUES))])

    def withdraw(self, agent: Agent, assignment: Assignment) -> None:
        with agent.commitments.transaction():
            agent.outbox.withdraw(assignment.task_id)
            agent.commitments.forget(assignment.task_id)
            agent.commitments.append(LedgerEntry(LedgerEvent.WITHDRAWN, 1.0, assignment.task_id))
        self.withdrawn += 1
        self.model.cells.pop(assignment.task_id, None)
        self.reports = {
            key: report for key, report in self.reports.items() if key[0] != assignment.task_id
        }

    def answer(
        self, agent: Agent, assignment: Assignment, window: int, value: float | str | None
    ) -> None:
        terms, task_id, commitments = Terms(self.limit), assignment.task_id, agent.commitments
        summed = assignment.mechanism is None
        fault = (
            "",
            "",
            "",
            "",
            "outbox.commit=eio",
            "outbox.commit=enospc",
            "outbox.head=enospc",
            "before",
            "after",
        )[self.pick(9)]
        fails = "commit" in fault or (fault in {"before", "after"} and not summed)
        known, cell = (
            (task_id, window) in self.model.costs,
            assignment.task.domain.encode(value, self.entropy),
        )
        arm(fault if "=" in fault else "")
        try:
            if summed:
                charge_sum(assignment, window, commitments, terms, 1.0)
            else:
                make = partial(self.make, agent, assignment, window, value, fault)
                claim(agent.outbox, task_id, window, make)
            answered = True
        except ShoalError as error:
            answered = False
            if error.kind is not Kind.REFUSED and not (fails and error.kind is Kind.OVERLOADED):
                raise
        finally:
            arm("")
        if known:
            assert answered or fails
        elif fails:
            assert not answered
        else:
            assert answered == self.model.answers(assignment, window, cell, self.limit)
            if answered:
                self.look(agent, assignment, cell)
        assert commitments.spent() == self.model.spent
        assert (commitments.charged(task_id, window) is not None) == (
            (task_id, window) in self.model.costs
        )

    def make(
        self,
        agent: Agent,
        assignment: Assignment,
        window: int,
        value: float | str | None,
        fault: str,
    ) -> SealedReport:
        if fault == "before":
            raise ShoalError(Kind.OVERLOADED, "before")
        request = AnswerRequest(assignment, window, value, OPEN, Terms(self.limit), 1.0)
        prepared = answer(request, agent.commitments, self.entropy)
        if fault == "after":
            raise ShoalError(Kind.OVERLOADED, "after")
        return prepared

    def look(self, agent: Agent, assignment: Assignment, cell: int) -> None:
        """The same cell has the same report; and without the budget for another one, some report
        that was paid for.
        """
        details = agent.commitments.entries(len(self.model.costs) + self.withdrawn - 1)[
            0
        ].entry.details
        if not assignment.task.memoized:
            assert "memoized" not in details
            return
        report = str(details["report"])
        if details["memoized"] == "kept":
            assert report in {
                one for (task_id, _), one in self.reports.items() if task_id == assignment.task_id
            }
        else:
            assert (details["memoized"] == "new") == (
                (assignment.task_id, cell) not in self.reports
            )
            assert self.reports.setdefault((assignment.task_id, cell), report) == report

    def end(self) -> None:
        for agent in self.agents:
            agent.store.close()
        agent = self.agents[0]
        agent.open()
        charges, entries = (
            agent.commitments.charges(),
            [row.entry for row in agent.commitments.entries()],
        )
        reported = [entry for entry in entries if entry.event is LedgerEvent.REPORTED]
        assert {
            (charge.task_id, charge.window): charge.nano for charge in charges
        } == self.model.costs
        assert len(charges) == len(self.model.costs) == len(reported)
        assert {(entry.task_id, entry.window) for entry in reported} == set(self.model.costs)
        in_ledger = [
            round(float(entry.details["epsilon_charged"] or 0) * NANO) for entry in reported
        ]
        assert (
            sum(in_ledger)
            == sum(charge.nano for charge in charges)
            == agent.commitments.spent()
            == self.model.spent
        )
        assert sum(1 for entry in entries if entry.event is LedgerEvent.WITHDRAWN) == self.withdrawn
        kept = {(record.task_id, record.window) for record in agent.outbox.records()}
        assert kept == {key for key in self.model.costs if key[0] not in self.summed}
        head = agent.commitments.verify()
        assert head.count == len(entries)
        assert agent.store.noted_head() == head
        agent.store.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory where there is such a place: no fsync is tested here."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    made = Path(tempfile.mkdtemp(prefix="shoal-budget-", dir=memory))
    yield made
    arm("")
    shutil.rmtree(made)


@pytest.mark.timeout(3_600)  # in full size a part is some minutes
@pytest.mark.parametrize("part", range(PARTS))
def test_the_budget_over_random_lives(
    folder: Path, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "seal", unsealed)
    AgentStore(folder / "empty.db").close()
    for number in range(part, SCHEDULES // LIFE, PARTS):
        path = folder / f"{number}.db"
        for suffix in ("", ".head"):
            shutil.copy(folder / f"empty.db{suffix}", f"{path}{suffix}")
        life = Life(path, f"life {number}")
        try:
            for _ in range(LIFE):
                life.schedule()
            life.end()
        except AssertionError as error:
            raise AssertionError(f"life {number}") from error
        for left in folder.glob(f"{number}.db*"):
            left.unlink()
