"""Quantiles of a number with their intervals: of the values, whatever rounding to levels leaves
open.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from shoal.domain import Categories, Domain, Numeric
from shoal.mechanisms import Mechanism, Tally, create, design
from shoal.mechanisms.numbers.distribution import Distribution, level_edges, of_devices
from shoal.mechanisms.numbers.quantiles import SHARES, quantiles
from tests.cases import for_each

WEEK = Numeric(0, 100, 21)  # a level every five hours
BINS = Categories(("0", "20", "40", "60"), (0, 20, 40, 60))


def built(name: str, domain: Domain, epsilon0: float = 9.0) -> Mechanism:
    return create(design(name, domain, epsilon0), domain)


def expected(mechanism: Mechanism, held: np.ndarray) -> Tally:
    """The reports that are expected of so many devices per cell, in whole numbers."""
    law = mechanism.privacy()
    reports = np.rint(
        held * ((law.same - law.other) / law.total) + held.sum() * (law.other / law.total)  # type: ignore[attr-defined]
    )
    return Tally(reports.astype(np.int64), int(reports.sum()))


def levels_of(values: np.ndarray, domain: Numeric) -> np.ndarray:
    at = (values - domain.low) / domain.step
    below = np.minimum(at.astype(np.int64), domain.levels - 2)
    up = at - below
    return np.bincount(below, 1 - up, domain.size) + np.bincount(below + 1, up, domain.size)


@for_each("seed", range(30))
def test_the_quantile_lies_between_what_its_levels_allow(seed: int) -> None:
    """Exact levels of made-up numbers, smooth and in heaps, on levels and between: the true
    quantile is never excluded, and the ends are no further apart than two steps where numbers are
    smooth.

    Planted: H(j - 1) and H(j + 1) exchanged -> fails; s counted from the level above -> fails.
    """
    made = np.random.default_rng(seed)
    values = made.beta(2, 3, 4_000) * 100
    for _ in range(seed % 4):
        values[made.random(4_000) < made.uniform(0.05, 0.5)] = made.choice(
            [40.0, made.uniform(0, 100), 5.0]
        )
    values.sort()
    told = of_devices(WEEK, levels_of(values, WEEK), 4_000)
    for share in SHARES:
        true = values[math.ceil(share * 4_000) - 1]
        low, high = told.between(share)
        assert low - 1e-9 <= true <= high + 1e-9
        assert low <= told.quantile(share) <= high
        if seed % 4 == 0 and 0.1 <= share <= 0.9:
            assert high - low <= 2 * WEEK.step
            assert told.quantile(share) == pytest.approx(true, abs=0.15 * WEEK.step)


def test_a_heap_on_a_level_is_read_there() -> None:
    """47 % of all at 40 hours, on a level: its neighbours say that the median is within a step's
    fifth of it. Planted: the plain straight line within the bin -> half a step beside, fails.
    """
    shares = np.array([0.02] * 8 + [0.47] + [0.37 / 12] * 12)
    told = Distribution(level_edges(WEEK), shares / shares.sum(), "norm-sub", of_levels=True)
    even = Distribution(level_edges(WEEK), shares / shares.sum(), "norm-sub")
    for share in (0.3, 0.4, 0.5):
        assert told.quantile(share) == pytest.approx(40, abs=0.2 * WEEK.step)
    assert abs(even.quantile(0.2) - 40) > 0.4 * WEEK.step


def test_intervals_hold_the_values_and_a_heap_makes_them_short() -> None:
    """Expected reports of 50,000 devices, 47 % at 40 hours: each interval holds the true quantile,
    that of the median is half a step long.

    Planted: the share of some devices in place of all that answered -> fails.
    """
    values = np.sort(
        np.concatenate([np.full(23_500, 40.0), np.random.default_rng(1).beta(2, 3, 26_500) * 100])
    )
    held = levels_of(values, WEEK)
    held[-1] = 9_000
    found = quantiles(built("kmean", WEEK), WEEK, expected(built("kmean", WEEK), held))
    assert tuple(each.share for each in found) == SHARES
    for each in found:
        assert each.low <= values[math.ceil(each.share * 50_000) - 1] <= each.high
        assert each.low <= each.value <= each.high
        assert each.high - each.low < 2 * WEEK.step
    assert found[3].high - found[3].low < 0.5 * WEEK.step


def test_of_bins_the_ends_are_those_of_bins() -> None:
    """The last bin has no upper end. Planted: lower bounds one bin further up -> fails."""
    held = np.array([3_000, 3_000, 3_000, 1_000, 500])
    found = {
        each.share: (each.low, each.high)
        for each in quantiles(built("krr", BINS), BINS, expected(built("krr", BINS), held))
    }
    assert found[0.5] == (20, 40)
    assert found[0.1] == (0, 20)
    assert found[0.95] == (60, math.inf)
    assert found[0.9][0] == 40


def test_without_clear_answers_nothing_is_known() -> None:
    """Two answers of 4,000 devices. Planted: numbers of devices a fifth too large -> fails."""
    held = np.append(np.zeros(21), 4_000.0)
    held[8] = 2
    for each in quantiles(
        built("kmean", WEEK, 3.0), WEEK, expected(built("kmean", WEEK, 3.0), held)
    ):
        assert (each.low, each.high) == (0, 100)


def test_what_tells_no_numbers_has_no_quantiles() -> None:
    plain = Categories(("a", "b", "c"))
    assert not quantiles(built("krr", plain), plain, Tally(np.array([5, 5, 5, 5]), 20))
    assert not quantiles(built("one_bit_mean", WEEK), WEEK, Tally(np.array([5, 5]), 10))
    assert not quantiles(built("kmean", WEEK), WEEK, Tally(np.zeros(22, dtype=np.int64), 0))
