"""The bracket: each end keeps its promise, whatever the curve looks like."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from shoal.accounting.numerics.search import RESOLUTION, crossing
from shoal.errors import Kind, ShoalError
from tests.cases import for_each

CURVES: dict[str, Callable[[float], float]] = {
    "gaussian": lambda e: 0.3 * math.exp(-40 * e * e),
    "narrow": lambda e: 0.3 * math.exp(-1e16 * e * e),
    "flat, then a cliff": lambda e: 0.9 if e < 3.21 else 0.0,
    "never zero": lambda e: 1e-9 + math.exp(-e),
    "steps": lambda e: 10.0 ** -math.floor(e * 7),
    "not monotone": lambda e: 0.5 * math.exp(-3 * e) * (1.2 + math.sin(9 * e)),
    "above one": lambda e: 50.0 - 13.0 * e,
    "infinite": lambda e: math.inf if e < 1e-7 else 1e-12 / e,
}


@for_each("name", CURVES)
@for_each("delta", [0.2, 1e-3, 1e-8])
def test_both_ends(name: str, delta: float) -> None:
    """curve(low) > delta >= curve(high), and close together. Planted: the two comparisons exchanged
    -> this fails.
    """
    curve, calls = CURVES[name], []

    def counted(epsilon: float) -> float:
        calls.append(epsilon)
        return curve(epsilon)

    low, high = crossing(counted, delta, 4.0)
    assert all(0.0 <= epsilon <= 4.0 for epsilon in calls)
    assert len(calls) < 100
    if high == low == 0.0:
        assert curve(0.0) <= delta
    elif high == low:
        assert high == 4.0
        assert curve(4.0) > delta
    else:
        assert curve(low) > delta >= curve(high)
        assert high - low <= RESOLUTION * high * (1 + 1e-6)


def test_smooth_curves_take_few_steps() -> None:
    """Counts of evaluations, not seconds. Planted: bisection alone -> about 40."""
    calls = []

    def curve(epsilon: float) -> float:
        calls.append(epsilon)
        return 0.3 * math.exp(-4000 * epsilon * epsilon)

    crossing(curve, 1e-8, 4.0)
    assert len(calls) <= 25


@pytest.mark.parametrize("where", [0.0, 0.4, 1.0])
def test_no_number_is_no_proof(where: float) -> None:
    """A curve that breaks down proves nothing. Planted: NaN compared with delta -> it counts as
    proven, this fails.
    """

    def curve(epsilon: float) -> float:
        return math.nan if abs(epsilon - where) < 0.2 else math.exp(-30.0 * epsilon)

    with pytest.raises(ShoalError) as error:
        crossing(curve, 1e-5, 1.0)
    assert error.value.kind is Kind.INVALID
