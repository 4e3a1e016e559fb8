"""What an analyzer's batches cost together: deltas add up, equal batches count each time, and their
laws compose more tightly than epsilons add up.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from shoal.accounting.accountant import upper_curve
from shoal.accounting.composition.compose import compose, release_law
from shoal.accounting.composition.loss_bytes import to_bytes
from shoal.accounting.sums.skellam import SkellamRound, rounds_epsilon
from shoal.accounting.sums.spent import to_bytes as sum_to_bytes
from shoal.analyzer.records import Spending
from shoal.analyzer.results.cumulative import compose_spendings
from shoal.ids import TaskId
from tests.unit.accounting.laws import kary


def test_batches_of_several_tasks() -> None:
    """Planted: the largest delta instead of the sum; equal batches counted once -> fails."""
    laws = [
        release_law(upper_curve, kary(2, 2.0), 10_000, 1e-8),
        release_law(upper_curve, kary(16, 4.0), 5_000, 3e-8),
    ]
    spendings = [
        Spending(TaskId(bytes([at]) * 32), epsilon, delta, to_bytes(law))
        for at, (law, epsilon, delta) in enumerate(zip(laws, (0.2, 0.7), (1e-8, 3e-8), strict=True))
    ]
    composed = compose_spendings(spendings * 5)
    assert composed.count == 10
    assert composed.delta == pytest.approx(2e-7, rel=1e-12)
    assert Fraction(composed.delta) >= 5 * (Fraction(1e-8) + Fraction(3e-8))
    assert composed.epsilon_upper == pytest.approx(
        compose([(law, 5) for law in laws], composed.delta).epsilon_upper, rel=1e-6
    )
    assert composed.epsilon_upper < 4.5  # the sum of the epsilons


def test_windows_of_sums_compose_by_divergences() -> None:
    """Of two tasks, at the sum of their deltas; never above what their epsilons prove. Planted:
    equal windows counted once -> fails; one window's delta -> fails.
    """
    kinds = [
        SkellamRound(Fraction(50_000), 400, 10_000),
        SkellamRound(Fraction(90_000), 400, 9_000),
    ]
    spendings = [
        Spending(TaskId(bytes([at]) * 32), 1.5, 1e-7, sum_to_bytes(one))
        for at, one in enumerate(kinds)
    ] * 10
    composed = compose_spendings(spendings)
    assert composed.delta == pytest.approx(2e-6, rel=1e-12)
    assert composed.epsilon_upper == rounds_epsilon([(one, 10) for one in kinds], composed.delta)
    assert composed.epsilon_upper < 15.0  # half the sum


def test_sums_among_reports_count_by_their_epsilons() -> None:
    """Nothing is claimed of the two accounts together. Planted: the windows of sums left out, or
    their bytes read as a law of losses -> fails.
    """
    law = release_law(upper_curve, kary(2, 2.0), 10_000, 1e-8)
    spent = sum_to_bytes(SkellamRound(Fraction(50_000), 400, 10_000))
    sums = [Spending(TaskId(bytes(32)), 0.9, 1e-7, spent)] * 3
    reports = [Spending(TaskId(bytes([1]) * 32), 0.2, 1e-8, to_bytes(law))] * 3
    plain = [Spending(one.task_id, one.epsilon_upper, one.delta) for one in sums]
    assert compose_spendings(sums + reports) == compose_spendings(plain + reports)
    assert compose_spendings(sums).epsilon_upper < compose_spendings(sums + reports).epsilon_upper


def test_bytes_that_are_neither_kind_count_by_their_epsilons() -> None:
    """What an older or newer program wrote. Planted: an error instead of the sum -> fails."""
    for odd in (b"\x02junk", b"\x02" + b"1 0 3 4", b"\x09"):
        spendings = [Spending(TaskId(bytes(32)), 0.5, 1e-8, odd)] * 4
        assert compose_spendings(spendings).epsilon_upper == pytest.approx(2.0)
