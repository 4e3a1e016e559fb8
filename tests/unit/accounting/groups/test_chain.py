"""The chain from neighbours to groups: against every pair of small datasets in exact fractions,
against a law whose groups are known, and against the textbook's equal links.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest
from scipy.stats import norm

from shoal.accounting.composition.basic import group
from shoal.accounting.groups.chain import LARGEST_GROUP, _table, chained, linked
from shoal.accounting.numerics.search import crossing
from shoal.accounting.several_messages.dummies import UniformDummies
from shoal.errors import Kind, ShoalError
from tests.cases import for_each
from tests.unit.accounting.brute import Law, histogram_law, rows_of_kary
from tests.unit.accounting.groups.group_truth import curve_up, e_above, group_delta
from tests.unit.accounting.several_messages.test_dummies import certain, convolve, dummies_of_one

RATIOS = (Fraction(1), Fraction(5, 4), Fraction(3, 2), Fraction(2), Fraction(3))


def responses(k: int, ratio: int) -> Callable[[tuple[int, ...]], Law]:
    return lambda data: histogram_law(data, rows_of_kary(k, ratio, 1))


def among_dummies(buckets: int, each: int) -> Callable[[tuple[int, ...]], Law]:
    noise = dummies_of_one(UniformDummies(buckets, each))

    def view(data: tuple[int, ...]) -> Law:
        law = certain(tuple(data.count(bucket) for bucket in range(buckets)))
        for _ in data:
            law = convolve(law, noise)
        return law

    return view


CASES = {
    "two answers": (responses(2, 6), 2, 4),
    "three answers": (responses(3, 8), 3, 4),
    "dummies": (among_dummies(2, 4), 2, 4),
    "dummies of three": (among_dummies(3, 5), 3, 3),
}


@lru_cache
def truth(case: str, size: int) -> Callable[[Fraction], Fraction]:
    view, answers, n = CASES[case]
    return group_delta(view, answers, n, size)


@for_each("case", tuple(CASES))
def test_the_inequality_in_exact_fractions(case: str) -> None:
    """All datasets, all groups of two, some splits of e: nothing is rounded. Planted: no weight on
    the second term -> fails among dummies, where the chain is attained.
    """
    one, two = truth(case, 1), truth(case, 2)
    assert all(two(a * b) <= one(a) + a * one(b) for a in RATIOS for b in RATIOS)


@for_each("case", tuple(CASES))
@for_each("delta", (0.3, 0.2, 0.1))
def test_the_epsilon_of_a_group_holds(case: str, delta: float) -> None:
    """What is returned holds for the worst pair of datasets that differ in two devices, in both
    directions. Planted: weights of 1 in ``linked``; a step less than found -> fails.
    """
    curve = curve_up(truth(case, 1))
    found = chained(curve, 2, delta, crossing(curve, delta, 40.0)[1])
    assert truth(case, 2)(e_above(found)) <= Fraction(delta)


def gaussian(mean: float) -> Callable[[float], float]:
    def curve(epsilon: float) -> float:
        if mean == 0.0:
            return 0.0
        near = norm.cdf(mean / 2 - epsilon / mean)
        far = math.exp(epsilon + norm.logcdf(-mean / 2 - epsilon / mean))
        return max(1e-300, float(near - far) * (1.0 + 1e-9))

    return curve


@for_each("devices, most", [(1, 1.003), (2, 1.003), (3, 1.003), (7, 1.003), (20, 1.003)])
def test_near_the_truth_where_it_is_known(devices: int, most: float) -> None:
    """The sum of one number with Gaussian noise: a group of g shifts it g times as far, so its
    curve is known. One event is the best test of every link, so the chain
    is exact but for its step. Planted: ``power`` added once too often, or not
    at all; weights of the first part for the second -> fails.
    """
    mean, delta = 0.2, 1e-6
    one = crossing(gaussian(mean), delta, 40.0)[1]
    exact = crossing(gaussian(mean * devices), delta, 200.0)[1]
    found = chained(gaussian(mean), devices, delta, one)
    assert exact * (1.0 - 1e-6) <= found <= most * exact


def test_no_worse_than_equal_links() -> None:
    """The textbook's figure from the same curve, at the best single epsilon. Planted: equal parts
    alone -> this fails, as the chain is at least 1 % below.
    """
    curve, delta = gaussian(0.2), 1e-6
    one = crossing(curve, delta, 40.0)[1]
    equal = min(
        total
        for epsilon in np.linspace(one, 3 * one, 200).tolist()
        for total, lost in [group(epsilon, curve(epsilon), 5)]
        if lost <= delta
    )
    assert chained(curve, 5, delta, one) < 0.99 * equal


def test_linked_is_the_least_of_all_splits() -> None:
    """Against every split, one by one. Planted: the last split left out -> this fails."""
    step, first = 0.25, np.array([0.9, 0.5, 0.2, 0.0])
    second = np.array([0.07, 0.06, 0.05, 0.05])
    found = linked(first, second, step)
    for k in range(4):
        least = min(first[r] + math.exp(r * step) * second[k - r] for r in range(k + 1))
        assert least <= found[k] <= least * (1.0 + 1e-12)


@for_each("one", (1e-3, 0.5, 3.0))
def test_where_to_look_is_only_a_hint(one: float) -> None:
    """A wrong hint costs tightness of a step and no more. Planted: giving up at the first reach ->
    this fails.
    """
    curve = gaussian(0.2)
    exact = crossing(gaussian(0.6), 1e-6, 40.0)[1]
    assert exact * (1.0 - 1e-6) <= chained(curve, 3, 1e-6, one) <= 1.003 * exact


def test_a_floor_proves_nothing() -> None:
    """A curve that never falls below 1e-7 has no epsilon for 30 devices at 1e-6. Planted: 0 beyond
    the points looked at -> this fails.
    """

    def floored(epsilon: float) -> float:
        return max(1e-7, math.exp(-9 * epsilon))

    assert _table(floored, 30, 2.0**-6)[-1] == 1e-7
    assert chained(floored, 30, 1e-6, 1.6) == math.inf


@for_each("devices", (0, -1, LARGEST_GROUP + 1, True, 2.0))
def test_a_group_out_of_range_is_refused(devices: int) -> None:
    """Planted: no check -> this fails."""
    with pytest.raises(ShoalError, match="give the number of one person's devices") as caught:
        chained(gaussian(0.2), devices, 1e-6, 1.0)
    assert caught.value.kind is Kind.CONFIG


@for_each("value", (math.nan, -0.1))
def test_a_curve_without_a_number_is_refused(value: float) -> None:
    """NaN compares as proven nowhere and everywhere. Planted: no check -> this fails."""
    with pytest.raises(ShoalError, match="a curve gave") as caught:
        chained(lambda _: value, 2, 1e-6, 1.0)
    assert caught.value.kind is Kind.INVALID
