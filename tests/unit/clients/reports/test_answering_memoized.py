"""Answers of memoized tasks, and of sums: what is remembered, and what is charged for it."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from shoal.clients.core import Assignment
from shoal.clients.drawing import draw
from shoal.clients.memory.commitments import NANO, nano_down
from shoal.clients.memory.commitments_memory import MemoryCommitments
from shoal.clients.memory.ledger import LedgerEvent
from shoal.clients.owner.policy import Policy, check
from shoal.clients.reports.answering import SamePoint, Terms, charge_sum
from shoal.crypto.campaign import OneTask
from shoal.domain import Categories, Numeric, Value, YesNo
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from tests.worlds.devices.answers import FREE, LEVELS, given, made, nothing, refusal, told
from tests.worlds.devices.clients import START, VISITS

# --- memoized tasks -------------------------------------------------------------------------------


def test_an_unchanged_value_costs_epsilon0_once(commitments: MemoryCommitments) -> None:
    """The same report in every window, in another frame each time. Planted: a fresh draw; the same
    nonce; a charge per window.
    """
    world, assignment = made(memoized=True, count=30, stated=2.0)
    frames = [given(assignment, window, 3, commitments).frame for window in range(30)]
    reports = {world.reports(frame)[0] for frame in frames}
    assert len(reports) == 1
    assert len(set(frames)) == 30
    # nonces differ
    assert len({plaintext for frame in frames for plaintext in world.opened(frame)}) == 30
    assert commitments.spent() == 2 * NANO
    details = [entry.entry.details for entry in commitments.entries()]
    assert [one["memoized"] for one in details] == ["new"] + ["again"] * 29
    assert [one["epsilon_charged"] for one in details] == [2.0] + [0.0] * 29
    assert {one["lifetime"] for one in details} == {2.0}
    assert [charge.permanent for charge in commitments.charges()] == [True] * 30


@pytest.mark.parametrize("kept", [b"", b"\0\1"])
def test_a_remembered_report_of_another_length_is_not_sent(
    commitments: MemoryCommitments, kept: bytes
) -> None:
    """Nothing is charged or entered then. Planted: no check -> a report without messages, or with
    two.
    """
    _, assignment = made(memoized=True)
    cell = assignment.task.domain.encode(3)
    commitments.remember(assignment.task_id, cell, kept)
    assert "remembers" in refusal(lambda: given(assignment, 0, 3, commitments), Kind.MISMATCH)
    assert nothing(commitments)


def test_each_further_distinct_value_costs_epsilon0_again(commitments: MemoryCommitments) -> None:
    world, assignment = made(memoized=True, count=9, stated=2.0)
    values: list[Value] = [
        0,
        1,
        0,
        1,
        None,
        "unreadable",
        3,
        4,
        0,
    ]  # None and "unreadable" are one cell, 3 and 4 are one
    reports = [
        world.reports(given(assignment, window, value, commitments).frame)[0]
        for window, value in enumerate(values)
    ]
    details = [entry.entry.details for entry in commitments.entries()]
    assert [one["memoized"] for one in details] == [
        "new",
        "new",
        "again",
        "again",
        "new",
        "again",
        "new",
        "again",
        "again",
    ]
    assert (reports[0], reports[1], reports[4], reports[6]) == (
        reports[2],
        reports[3],
        reports[5],
        reports[7],
    )
    assert reports[8] == reports[0]
    assert commitments.spent() == 8 * NANO
    assert told(commitments)["lifetime"] == 8.0


def test_a_device_without_budget_takes_part_all_the_same(commitments: MemoryCommitments) -> None:
    """With the report that it sent last, so that nobody sees it stay away. Planted: raise ->
    windows without a report tell of a change.

    Planted too: the report that was *drawn* last -> window 3 would send b's report, and show a
    change where the budget hides one.
    """
    world, assignment = made(memoized=True, count=9, stated=2.0)
    terms = Terms(5 * NANO)
    values = [0, 1, 0, 2, 5, 1, 10]
    reports = [
        world.reports(given(assignment, window, value, commitments, terms).frame)[0]
        for window, value in enumerate(values)
    ]
    assert [entry.entry.details["memoized"] for entry in commitments.entries()] == [
        "new",
        "new",
        "again",
        "kept",
        "kept",
        "again",
        "kept",
    ]
    assert reports == [
        reports[0],
        reports[1],
        reports[0],
        reports[0],
        reports[0],
        reports[1],
        reports[1],
    ]
    assert (commitments.spent(), commitments.tally(assignment.task_id).windows) == (4 * NANO, 7)
    assert told(commitments)["epsilon_charged"] == 0.0


def test_a_device_that_never_had_the_budget_sends_nothing(commitments: MemoryCommitments) -> None:
    """Whatever its value: refused before its first report."""
    _, assignment = made(memoized=True, stated=2.0)
    for value in (0, 1, None):
        assert "budget" in refusal(partial(given, assignment, 0, value, commitments, Terms(NANO)))
    assert nothing(commitments)


def test_another_failure_than_the_budget_is_no_reason_to_send_an_old_report(
    commitments: MemoryCommitments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: any error is taken for a lack of budget -> the last report goes out, unentered
    troubles and all.
    """
    _, assignment = made(memoized=True)
    given(assignment, 0, 0, commitments)

    def full(task_id: TaskId, window: int, nano: int, *_: object, **__: object) -> None:
        if nano:
            raise ShoalError(Kind.OVERLOADED, "disk full")

    monkeypatch.setattr(commitments, "charge", full)
    refusal(lambda: given(assignment, 1, 5, commitments), Kind.OVERLOADED)
    assert len(commitments.entries()) == 1


def test_a_value_between_two_cells_stays_in_one(commitments: MemoryCommitments) -> None:
    """60 windows of 3.5, which a fresh task rounds up and down. Planted: rounding by ``entropy`` ->
    two cells, 2 epsilon0.
    """
    world, assignment = made(memoized=True, domain=LEVELS, mechanism="krr", count=60, stated=2.0)
    reports = {
        world.reports(given(assignment, window, 3.5, commitments).frame)[0] for window in range(60)
    }
    assert len(reports) == 1
    assert commitments.spent() == 2 * NANO


def test_over_a_fleet_rounding_keeps_the_mean() -> None:
    """4,000 devices of value 3.3: 0.3 of them in cell 4. False alarm below 1e-9 (Hoeffding: 2
    exp(-2 * 4000 * 0.055^2)), seed fixed.

    Planted: a point of 0 for every device -> all in one cell.
    """
    _, assignment = made(memoized=True, domain=LEVELS, mechanism="krr")
    domain, entropy = assignment.task.domain, SeededEntropy("rounding")
    cells = []
    for _ in range(4_000):
        commitments = MemoryCommitments(entropy)
        point = SamePoint(commitments.rounding(assignment.task_id))
        cells.append(domain.encode(3.3, point))
        assert cells[-1] in (3, 4)
        assert (domain.encode(3.0, point), domain.encode(3.3, point)) == (3, cells[-1])
    assert abs(np.mean(np.array(cells) == 4) - 0.3) < 0.055


def test_every_device_rounds_at_a_point_of_its_own() -> None:
    """120 devices answer 3.3, by a mechanism that next to never changes the cell (epsilon0 30):
    about 36 of them send cell 4. Seed fixed; outside of 12 to 66 by chance: below 1e-7.

    Planted in ``SamePoint``: it draws nothing (empty bytes, or a constant) -> every device rounds
    the same way, and nobody sends the other cell; ``_remembered`` rounds by ``entropy`` -> two
    cells of one device.
    """
    world, assignment = made(memoized=True, domain=LEVELS, mechanism="krr", epsilon0=30.0)
    above = 0
    for device in range(120):
        commitments = MemoryCommitments(SeededEntropy(f"point of {device}"))
        entropy = SeededEntropy(f"draws of {device}")
        (report,) = {
            world.reports(given(assignment, w, 3.3, commitments, entropy=entropy).frame)[0]
            for w in range(2)
        }
        above += report == draw(assignment, 4)[0]
    assert 12 <= above <= 66


@pytest.mark.parametrize("domain", [YesNo(), VISITS, LEVELS, Categories(("a", "b"))])
@pytest.mark.parametrize(
    "value", [True, 3, 3.5, "a", None, math.nan, math.inf, 10**400, -1e300, "\ud800"]
)
def test_every_value_is_memoized(domain: YesNo | Categories | Numeric, value: Value) -> None:
    """Whatever a source gives: the same cell each time, and the value's canonical form in the
    ledger if the owner wants it.
    """
    commitments = MemoryCommitments()
    mechanism = "binary_rr" if isinstance(domain, YesNo) else "krr"
    world, assignment = made(memoized=True, domain=domain, mechanism=mechanism)
    reports = {
        world.reports(
            given(assignment, window, value, commitments, Terms(None, keep_values=True)).frame
        )[0]
        for window in range(4)
    }
    assert len(reports) == 1
    assert len([charge for charge in commitments.charges() if charge.nano]) == 1
    assert commitments.verify().count == 4


# --- sums -----------------------------------------------------------------------------------------


def summed(together: float, apart: float) -> Assignment:
    return replace(made()[1], mechanism=None, epsilon0=together, epsilon_apart=apart)


@pytest.mark.parametrize(
    ("together", "apart", "if_apart", "charged", "basis"),
    [
        (2.0, 0.5, False, 2.0, "together"),
        (2.0, 0.5, True, 0.5, "apart"),
        (math.inf, 0.5, True, 0.5, "apart"),
        (0.5, 0.5, True, 0.5, "together"),
    ],
)
def test_sums_are_charged_what_the_owner_relies_on(
    commitments: MemoryCommitments,
    together: float,
    apart: float,
    if_apart: bool,
    charged: float,
    basis: str,
) -> None:
    """Once per window, before anything leaves. Planted: the smaller one always -> who trusts nobody
    is charged too little.
    """
    assignment = summed(together, apart)
    terms = Terms(10 * NANO, source="call", sums_if_apart=if_apart)
    assert charge_sum(assignment, 0, commitments, terms, START) == charged * NANO
    assert charge_sum(assignment, 0, commitments, Terms(0), START) == charged * NANO  # again: no-op
    assert (commitments.spent(), len(commitments.entries())) == (charged * NANO, 1)
    stored = commitments.entries()[0].entry
    assert (stored.event, stored.window, stored.details["basis"], stored.details["source"]) == (
        LedgerEvent.REPORTED,
        0,
        basis,
        "call",
    )
    assert not {"report", "value", "frame_sha256"} & set(stored.details)
    charge_sum(assignment, 1, commitments, terms, START)
    assert told(commitments)["first_report"] is False


def test_sums_beyond_budget_or_guarantee_are_refused(commitments: MemoryCommitments) -> None:
    assert "budget" in refusal(
        lambda: charge_sum(summed(2.0, 0.5), 0, commitments, Terms(NANO), START)
    )
    refusal(lambda: charge_sum(summed(math.inf, 0.5), 0, commitments, FREE, START))
    endless = summed(math.inf, math.inf)
    commitments.accept(endless.task_id, math.inf)
    refusal(
        lambda: charge_sum(
            endless, 0, commitments, Terms(None, central=lambda: 0.1, sums_if_apart=True), START
        )
    )
    assert nothing(commitments)


def test_sums_are_answered_under_whatever_the_policy_lets_the_owner_accept(
    commitments: MemoryCommitments,
) -> None:
    """Planted: the acceptance held against what holds together -> a sum that the policy allows is
    refused when it is charged.
    """
    assignment, policy = (
        summed(math.inf, 6.0),
        Policy(frozenset({bytes(32)}), 4.0, 2, {"p": "allowed"}, sums_if_apart=True),
    )
    trusted = replace(
        assignment.trusted, authority=bytes(32), task=replace(assignment.task, purpose="p")
    )
    for accepted in (None, 5.9, 6.0, math.inf):
        commitments.accept(assignment.task_id, accepted)
        terms = Terms(None, max_epsilon0=4.0, sums_if_apart=True)
        if accepted is None or accepted < 6.0:
            refusal(
                partial(check, policy, OneTask(trusted), trusted, math.inf, 6.0, accepted=accepted)
            )
            refusal(partial(charge_sum, assignment, 0, commitments, terms, START))
            assert nothing(commitments)
        else:
            check(policy, OneTask(trusted), trusted, math.inf, 6.0, accepted=accepted)
            assert (
                charge_sum(assignment, int(accepted == math.inf), commitments, terms, START)
                == 6 * NANO
            )
            assert (told(commitments)["basis"], told(commitments)["delta_charged"]) == (
                "apart",
                assignment.task.delta,
            )


def test_one_budget_couples_tasks_as_the_documentation_says(commitments: MemoryCommitments) -> None:
    """What is NOT promised: whether a fresh task is still answered tells here that the memoized
    task's value changed.
    """
    _, memoized = made(memoized=True)
    _, fresh = made(name="fresh")
    terms = Terms(nano_down(4.5 * fresh.epsilon0))

    def answered(values: tuple[int, ...]) -> list[bool]:
        commitments, paid = MemoryCommitments(), []
        for window, value in enumerate(values):
            given(
                memoized, window, value, commitments, terms
            )  # takes part whatever the budget says
            with suppress(ShoalError):
                given(fresh, window, "1", commitments, terms)
            paid.append(commitments.charged(fresh.task_id, window) is not None)
        return paid

    # which value it is does not show
    assert answered((1, 1, 1)) == answered((5, 5, 5)) == [True, True, True]
    assert answered((1, 5, 1)) == [True, True, False]
