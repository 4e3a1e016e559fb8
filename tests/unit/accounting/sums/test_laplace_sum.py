"""Discrete Laplace sums: epsilon against the largest ratio of the law itself, for all shares, more
and fewer.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from shoal.accounting.sums.laplace_sum import UNIT, laplace_epsilon, laplace_lower
from tests.cases import for_each
from tests.unit.accounting.noise_laws import Table, polya_pmf, product, true_epsilon


def largest_loss(law: Table, shift: int) -> float:
    """sup over x of |ln P(x) / P(x + shift)| within the table."""
    logs = np.log(law)
    return float(np.abs(logs[: logs.size - shift] - logs[shift:]).max())


def test_all_shares_are_the_discrete_laplace_law() -> None:
    """The series of the tests, at r = 1, is P(x) ~ p^|x|: the oracle is right."""
    law = polya_pmf(UNIT, 1.0, 30)
    p = math.exp(-1)
    assert law == pytest.approx(
        np.array([(1 - p) / (1 + p) * p ** abs(x) for x in range(-30, 31)]), rel=1e-12
    )


@for_each("scale, d1", [(UNIT, 1), (UNIT, 10), (3, 7), (7 * UNIT, 3), ((1 << 31) - 1, 10**12)])
def test_all_shares_exactly(scale: int, d1: int) -> None:
    """u D1 rounded up, by one float at most; more shares are no worse and are not counted on.
    Planted: rounding down -> this fails.
    """
    exact = Fraction(d1 * UNIT, scale)
    for r in (Fraction(1), Fraction(10, 9), Fraction(50)):
        value = laplace_epsilon(scale, r, d1, 5)
        assert Fraction(value) >= exact
        assert Fraction(math.nextafter(value, 0.0)) < exact


@for_each("r, reference", [(0.95, 1.048), (0.9, 1.099), (0.75, 1.274), (0.5, 1.675)])
def test_fewer_shares_reference(r: float, reference: float) -> None:
    """Planted: ln(1/r) left out -> below the reference, which the law itself attains."""
    assert largest_loss(polya_pmf(UNIT, r, 25), 1) == pytest.approx(reference, abs=5e-4)
    assert reference <= laplace_epsilon(UNIT, Fraction(r), 1, 1) <= reference * 1.02


@for_each("scale", [UNIT // 4, UNIT, 5 * UNIT])
@for_each("r", [1 / 64, 0.25, 0.75])
@for_each("shift", [1, 2, 3, 6])
def test_fewer_shares_against_the_law(scale: int, r: float, shift: int) -> None:
    """Above the law's largest loss, and not by much. Planted: steps counted from 1 -> this
    fails.
    """
    loss = largest_loss(polya_pmf(scale, r, 20), shift)
    bound = laplace_epsilon(scale, Fraction(r), shift, 1)
    assert loss <= bound <= 1.6 * loss


@for_each("r", [0.1, 0.5])
@for_each("shift, dimension", [((1, 1), 2), ((2, 1), 2), ((3, 3), 2), ((4, 0), 2), ((2, 2, 1), 3)])
def test_fewer_shares_of_vectors(r: float, shift: tuple[int, ...], dimension: int) -> None:
    """Losses of coordinates add; the bound takes the worst way to spread D1. Planted: all of D1 in
    one coordinate -> (1, 1) fails.
    """
    law = polya_pmf(UNIT, r, 15)
    loss = sum(largest_loss(law, s) for s in shift if s)
    assert loss <= laplace_epsilon(UNIT, Fraction(r), sum(shift), dimension)


def test_fewer_shares_monotone_and_finite() -> None:
    """Down to one share of a million, shifts of 2^40: finite, and falling as shares grow. The long
    sum is above the sum of its terms.
    """
    values = [
        laplace_epsilon(UNIT, Fraction(k, 1_000_000), 1 << 40, 10)
        for k in (1, 10, 1000, 999_999, 1_000_000)
    ]
    assert values == sorted(values, reverse=True)
    assert math.isfinite(values[0])
    r, count = Fraction(1, 3), 1000
    terms = sum(math.log((i + 1) / (i + 1 / 3)) for i in range(count))
    bound = laplace_epsilon(1 << 31, r, count, 1) - count * UNIT / (1 << 31)
    assert terms <= bound <= terms + 0.01


@for_each("coordinates, by", [(1, 2), (1, 6), (2, 2), (3, 2)])
@for_each("r", [0.5, 1.0])
@for_each("delta", [1e-2, 1e-6])
def test_lower(coordinates: int, by: int, r: float, delta: float) -> None:
    """Not above the truth of that very pair. Planted: delta added instead of subtracted -> this
    fails.
    """
    law = polya_pmf(UNIT, r, 22)
    truth = true_epsilon(product(law, coordinates), (by,) * coordinates, delta)
    lower = laplace_lower(UNIT, (coordinates, by), delta)
    assert 0.0 <= lower <= truth * (1 + 1e-8)
    if r == 1.0:
        assert lower >= 0.9 * truth


def test_lower_where_nothing_is_refuted() -> None:
    """A delta above the probability of the event: 0."""
    assert laplace_lower(UNIT, (60, 2), 1e-3) == 0.0
    assert laplace_lower(1 << 31, (1, 2), 0.4) == 0.0
