"""What rounding adds at most: held against numbers with the same levels, by enumeration and by
search.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from shoal.domain import Numeric
from shoal.mechanisms import Tally, create, design
from shoal.mechanisms.numbers.rounding import bound, level_scores, worst
from shoal.mechanisms.numbers.square_wave import SquareWave
from tests.cases import for_each


def levels_and_rounding(
    places: np.ndarray, weights: np.ndarray, levels: int
) -> tuple[np.ndarray, float]:
    """(expected numbers of devices per level, sum of f (1 - f)) of numbers at these places, in
    steps above the lowest level.
    """
    below = np.minimum(places.astype(np.int64), levels - 2)
    up = places - below
    expected = np.bincount(below, weights * (1 - up), levels) + np.bincount(
        below + 1, weights * up, levels
    )
    return expected, float(weights @ (up * (1 - up)))


@for_each("levels", [2, 3, 4, 9, 30])
def test_no_numbers_round_by_more(levels: int) -> None:
    """500 sets of numbers, sparse and dense, each with the levels that it has itself.

    Planted: the minimum over one neighbour only (running minima the wrong way round) -> fails; m =
    1/2 on the outer levels -> fails.
    """
    made = np.random.default_rng(levels)
    for _ in range(500):
        count = int(made.integers(1, 8))
        places = made.uniform(0, levels - 1, count)
        weights = made.integers(1, 50, count).astype(float)
        expected, rounding = levels_and_rounding(places, weights, levels)
        assert rounding <= worst(expected) * (1 + 1e-9)
        assert worst(expected) <= expected.sum() / 4


@for_each("share", [0.0, 0.003, 0.25, 0.5, 0.9])
def test_the_bound_is_attained(share: float) -> None:
    """Two neighbours with 1 - p and p: p (1 - p). Three: as much as the best of all ways to part
    the middle one, to 1 %.

    Planted: a quarter of the devices always -> fails.
    """
    two = worst(np.array([0.0, 1 - share, share, 0.0]))
    assert two == pytest.approx(share * (1 - share), rel=1e-3, abs=2e-5)
    for low, high in itertools.product((0.1, 0.3, 0.45), repeat=2):
        middle = 1 - low - high
        parts = np.linspace(0, middle, 2_001)
        best = (
            low * parts / (low + parts) + high * (middle - parts) / (high + middle - parts)
        ).max()
        assert best * (1 - 1e-12) <= worst(np.array([low, middle, high])) <= best * 1.001


def test_levels_apart_need_no_rounding() -> None:
    """Two levels that are no neighbours: the numbers lie on them. Planted: any bound that looks at
    single levels -> fails.
    """
    assert worst(np.array([500.0, 0, 0, 500, 0, 20])) == 0


def test_noise_in_the_levels_errs_upward() -> None:
    """Estimated levels: one standard error more each, two devices more in all, never above a
    quarter.
    """
    told, errors = np.array([-30.0, 1_000.0, 20.0, 5.0]), np.full(4, 10.0)
    assert bound(told, errors, 1_000) >= worst(np.maximum(told, 0.0)) + 10
    assert bound(told, np.full(4, 1e9), 1_000) == 250


@pytest.mark.parametrize("epsilon0", [3.0, 1.0], ids=["as many outputs as cells", "more outputs"])
def test_outputs_that_tell_levels_count_them(epsilon0: float) -> None:
    """From expected counts of 10^6 reports the numbers of devices are exact. One bit tells no
    levels.

    Planted: the inverse's rows in another order (where there are as many outputs as cells, the
    table is its own transpose) -> fails.
    """
    domain = Numeric(0, 1, 6)
    mechanism = create(design("square_wave", domain, epsilon0), domain)
    assert isinstance(mechanism, SquareWave)
    table = mechanism.response.table
    scores = level_scores(table)
    assert scores is not None
    held = np.array([100, 0, 300, 50, 0, 50, 500]) * 2_000.0
    assert held @ table.probabilities() @ scores == pytest.approx(held[:-1], abs=1e-3)
    bit = create(design("one_bit_mean", domain, 3.0), domain)
    assert level_scores(bit.response.table) is None  # type: ignore[attr-defined]


def test_an_interval_is_no_wider_than_the_worst_numbers_with_these_levels_need() -> None:
    """18 levels, 100,000 devices, epsilon0 7.767 (the planner's choice), bell-shaped: over the
    expected reports the error is within 4 % of that of the worst numbers, and it is the planner's
    for all devices half way between two levels.

    Planted: a quarter of a step's square for every device -> the first ratio is 1.07 with two heaps
    apart, fails.
    """
    domain, n = Numeric(0, 1, 18), 100_000
    mechanism = create(design("kmean", domain, 7.767), domain)
    law = mechanism.response.privacy()  # type: ignore[attr-defined]
    for held in (
        np.array([0, 0, 50, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 50, 0, 0, 0, 0, 0]),
        np.array([*[0] * 8, 50, 50, *[0] * 9]),
    ):
        devices = held * (n // 100)
        reports = np.rint(
            devices * ((law.same - law.other) / law.total) + n * (law.other / law.total)
        ).astype(np.int64)
        estimate = mechanism.estimate(Tally(reports, int(reports.sum())))
        needed = math.hypot(
            mechanism.expected_stderr(devices)[0],
            domain.step * math.sqrt(worst(devices.astype(float)[:-1])) / n,
        )
        assert 1 - 1e-3 <= estimate.stderr[0] / needed <= 1.04
