"""What an analyzer's batches cost together: deltas add up, equal batches count each time, and their
laws compose more tightly than epsilons add up.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from shoal.accounting.accountant import upper_curve
from shoal.accounting.composition.compose import compose, release_law
from shoal.accounting.composition.loss_bytes import to_bytes
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
