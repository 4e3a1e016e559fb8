"""Moments of arrival against their definitions: sums of shares, monotone, within the span."""

from __future__ import annotations

import math
from bisect import bisect_left

import pytest

from shoal.clients.fleet.arrivals import Arrivals, Pattern
from shoal.errors import Kind, ShoalError
from tests.cases import for_each


@for_each("pattern", Pattern)
@for_each("reports", [1, 2, 7, 1_000])
def test_moments_never_go_back_and_stay_within_the_span(pattern: Pattern, reports: int) -> None:
    arrivals = Arrivals(pattern, reports, 60.0)
    moments = [arrivals.at(number) for number in range(reports)]
    assert moments[0] == 0.0
    assert moments == sorted(moments)
    assert moments[-1] < 60.0


def share(arrivals: Arrivals, begin: float, end: float) -> float:
    """Of all reports, due in [begin, end)."""
    moments = [arrivals.at(number) for number in range(arrivals.reports)]
    return (bisect_left(moments, end) - bisect_left(moments, begin)) / len(moments)


def test_steady_gaps_are_equal() -> None:
    arrivals = Arrivals.steady(500, 50.0)
    assert arrivals.over_s == 10.0
    assert [arrivals.at(number) for number in range(500)] == pytest.approx(
        [number / 50 for number in range(500)]
    )
    assert arrivals.peak == 50.0


def test_four_of_five_come_in_the_middle_twentieth() -> None:
    """Planted: the spike's span twice as wide -> fails."""
    arrivals = Arrivals(Pattern.SPIKE, 20_000, 100.0)
    assert share(arrivals, 47.5, 52.5) == pytest.approx(0.8, abs=1e-3)
    assert share(arrivals, 0, 47.5) == pytest.approx(0.1, abs=1e-3)
    assert share(arrivals, 52.5, 100) == pytest.approx(0.1, abs=1e-3)
    assert arrivals.peak == pytest.approx(20_000 * 0.8 / 5.0)
    assert share(arrivals, 50, 50.5) * 20_000 / 0.5 == pytest.approx(arrivals.peak, rel=1e-2)


def test_a_rush_doubles_with_every_tenth() -> None:
    """Half of the reports in the last tenth, a quarter in the one before. Planted: e for 2 ->
    fails.
    """
    arrivals = Arrivals(Pattern.RUSH, 100_000, 100.0)
    tenths = [share(arrivals, 10 * tenth, 10 * tenth + 10) for tenth in range(10)]
    assert tenths == pytest.approx([2**tenth / 1023 for tenth in range(10)], abs=1e-4)
    assert share(arrivals, 99.9, 100) * 100_000 / 0.1 == pytest.approx(arrivals.peak, rel=1e-2)


def test_a_span_of_nothing_is_all_at_once() -> None:
    arrivals = Arrivals(Pattern.SPIKE, 10, 0.0)
    assert [arrivals.at(number) for number in range(10)] == [0.0] * 10
    assert arrivals.peak == math.inf


@for_each("reports, over_s", [(0, 1.0), (1, -1.0), (1, math.inf), (1, math.nan)])
def test_wrong_arrivals_are_refused(reports: int, over_s: float) -> None:
    with pytest.raises(ShoalError) as caught:
        Arrivals(Pattern.STEADY, reports, over_s)
    assert caught.value.kind is Kind.INVALID
