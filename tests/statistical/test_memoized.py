"""A value that does not change costs epsilon0 once, over all windows: attacked with everything that
a device ever sends.

The attacker sees the report of every window of one device, opened, and knows that its value is one
of two and never changes. Real agents' answers (``answering.answer``, each device with a book of its
own, sealing left out: it hides nothing from this attacker), the attack of
``shoal.accounting.audit.audit`` with delta = 0. "Not refuted" is wrong with probability at most
1e-6 each (``FALSE_ALARM``); seeds are fixed. The same attack with the same numbers convicts an
agent that draws afresh in each window.

Planted, each fails here: no memo (``permanent`` that knows nothing); a memo that a restart forgets;
rounding by fresh randomness in place of the device's own point.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.accounting.audit.audit import AuditResult, audit
from shoal.clients.core import Assignment, SealedReport, assign
from shoal.clients.memory.commitments import Commitments, nano_up
from shoal.clients.memory.commitments_memory import MemoryCommitments
from shoal.clients.memory.commitments_sqlite import SqliteCommitments
from shoal.clients.memory.database import AgentStore
from shoal.clients.memory.outbox_sqlite import SqliteOutbox
from shoal.clients.reports import answering
from shoal.clients.reports.answering import AnswerRequest, Terms, answer
from shoal.crypto.admission.open import OPEN
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.domain import Domain, Numeric, Value, YesNo
from shoal.entropy import SYSTEM, Entropy, SeededEntropy
from tests.sizes import size
from tests.worlds.devices.clients import START, make_world
from tests.worlds.devices.outbox import claim

WINDOWS = size(40, 600, 10_000)
TRIALS = 100  # devices per value, half of them to choose the event
LIFETIME = 0.7


def unsealed(
    assignment: Assignment, window: int, report: Sequence[bytes], entropy: Entropy, identity: object
) -> SealedReport:
    """In the place of ``seal``: the report as the attacker has it after opening."""
    return SealedReport(assignment.task_id, window, b"".join(report), bytes(32), 1)


# In a campaign each attack is two million answers.
pytestmark = [pytest.mark.campaign, pytest.mark.timeout(3_600)]


@pytest.fixture(autouse=True)
def _opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "seal", unsealed)


def task(memoized: bool, domain: Domain, mechanism: str) -> Assignment:
    world = make_world(
        domain=domain, mechanism=mechanism, epsilon0=LIFETIME, count=WINDOWS, length=86_400
    )
    world.task = replace(world.task, memoized=memoized)
    world.sign()
    trusted = trust_task(world.signed_task, world.authorities)
    return assign(trusted, trust_schedule(world.signed_schedule, trusted))


def sent(
    assignment: Assignment,
    value: Value,
    commitments: Commitments,
    entropy: Entropy,
    windows: int,
) -> NDArray[np.uint8]:
    """uint8[windows]: what one device sends, the value being the same in every window."""
    terms = Terms(None)
    frames = [
        answer(
            AnswerRequest(assignment, window, value, OPEN, terms, START), commitments, entropy
        ).frame
        for window in range(windows)
    ]
    return np.frombuffer(b"".join(frames), dtype=np.uint8)


def attacked(
    assignment: Assignment,
    values: tuple[Value, Value],
    seed: str,
    windows: int = WINDOWS,
    trials: int = TRIALS,
) -> AuditResult:
    """How often the first cell was reported, how many different reports there were, and the first
    of them.
    """
    entropy = SeededEntropy(seed)

    def views(which: int, trials: int) -> Mapping[str, NDArray[np.float64]]:
        rows = [
            sent(assignment, values[which], MemoryCommitments(entropy), entropy, windows)
            for _ in range(trials)
        ]
        return {
            "share of the first cell": np.array([np.mean(row == 0) for row in rows]),
            "different reports": np.array([float(len(np.unique(row))) for row in rows]),
            "first report": np.array([float(row[0]) for row in rows]),
        }

    return audit(views, LIFETIME, 0.0, trials)


def test_an_unchanged_value_leaks_no_more_than_epsilon0() -> None:
    assignment = task(True, YesNo(), "binary_rr")
    result = attacked(assignment, (False, True), "memoized")
    assert not result.refuted
    assert assignment.epsilon0 <= result.claimed + 1e-12


def test_an_unchanged_value_between_two_cells_leaks_no_more() -> None:
    """0.5 lies between two cells, 0.0 in one. Drawn anew, its rounding would show two reports in
    two devices of three, which 0.0 never has: that takes many devices, and few windows of each.
    """
    windows, devices = size(12, 200, 3_000), 3 * TRIALS
    result = attacked(task(True, Numeric(0, 1, 2), "krr"), (0.0, 0.5), "between", windows, devices)
    assert not result.refuted


def test_an_agent_that_draws_afresh_fails_the_same_audit() -> None:
    """The control: same randomizer, same attack, same numbers, no memo."""
    result = attacked(task(False, YesNo(), "binary_rr"), (False, True), "afresh")
    assert result.refuted
    assert result.epsilon_measured_lower > LIFETIME


def test_the_report_outlives_restarts() -> None:
    """One device on disk, started again every 20 windows or fewer: one report in all of them,
    epsilon0 spent once.
    """
    assignment, session = task(True, Numeric(0, 10, 11), "krr"), size(10, 20)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # no fsync is tested here
    with tempfile.TemporaryDirectory(prefix="shoal-memo-", dir=memory) as folder:
        reports = set()
        for first in range(0, WINDOWS, session):
            store = AgentStore(Path(folder) / "outbox.db")
            outbox, commitments = SqliteOutbox(store), SqliteCommitments(store)
            for window in range(first, min(first + session, WINDOWS)):
                make = partial(
                    answer,
                    AnswerRequest(assignment, window, 3.5, OPEN, Terms(None), START),
                    commitments,
                    SYSTEM,
                )
                assert claim(outbox, assignment.task_id, window, make)[1]
                entry = outbox.load(assignment.task_id, window)
                assert entry is not None
                reports.add(entry.frame)
                outbox.withdraw(assignment.task_id)  # makes room
            assert commitments.spent() == nano_up(assignment.epsilon0)
            store.close()
        assert len(reports) == 1
