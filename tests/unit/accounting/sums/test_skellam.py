"""Skellam sums: the bound against exact divergences of one and more coordinates, the conversion
against 50 digits, tails against series.
"""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from shoal.accounting.sums.skellam import at_order, renyi_divergence, round_up, skellam_epsilon
from shoal.accounting.sums.skellam_tail import (
    skellam_divergence,
    skellam_lower,
    skellam_one,
    skellam_tail,
)
from shoal.errors import Kind, ShoalError
from tests.cases import for_each
from tests.sizes import size
from tests.unit.accounting.noise_laws import (
    divergence,
    product,
    skellam_log_pmf,
    skellam_renyi,
    true_epsilon,
)

VARIANCES = [0.05, 0.3, 1.0, 2.5, 10.0, 100.0, 1000.0]


@pytest.mark.parametrize(
    ("alpha", "shift", "variance", "bound", "exact"),
    [(2, 1, 10, 0.1225, 0.09965), (4, 5, 100, 0.505125, 0.49633), (16, 10, 1000, 0.80079, 0.79531)],
)
def test_renyi_reference(alpha: int, shift: int, variance: int, bound: float, exact: float) -> None:
    """Planted: 6 D1 -> D1 -> this fails."""
    value = renyi_divergence(alpha, Fraction(variance), shift, shift**2)
    assert value == pytest.approx(bound, rel=1e-12)
    assert skellam_renyi(alpha, variance, shift) == pytest.approx(exact, abs=6e-6)


def test_renyi_with_little_noise() -> None:
    """By hand, where the second term is the smaller: 2 * 5 / (2/10) + 3 * 3 / (2/10) = 95. Planted:
    3 D1 -> D1 there -> this fails.
    """
    assert renyi_divergence(2, Fraction(1, 10), 3, 5) == 95.0


def test_epsilon_reference() -> None:
    """Planted: logarithms of base 2, delta and epsilon exchanged, alpha - 1 -> alpha -> this
    fails.
    """
    assert skellam_epsilon(Fraction(50), 1, 1, 1e-6) == pytest.approx(0.62880, abs=5e-6)
    assert skellam_epsilon(Fraction(100_000), 1000, 100, 1e-6) == pytest.approx(0.12656, abs=5e-6)


@for_each("variance", VARIANCES)
@for_each("shift", [1, 2, 3, 7, 20])
def test_renyi_of_one_coordinate_is_never_above_the_bound(variance: float, shift: int) -> None:
    """The theorem itself, for whole orders. Planted: the first term halved -> this fails."""
    for alpha in (2, 3, 4, 8, 16, 64, *((256,) if size(0, 1) else ())):
        assert skellam_renyi(alpha, variance, shift) <= renyi_divergence(
            alpha, Fraction(variance), shift, shift**2
        ) * (1 + 1e-9)


@for_each("variance", [0.5, 2.0, 6.0, 20.0])
@for_each("shift", [(1,), (4,), (1, 1), (3, 1), (2, -2), (1, 1, 1), (2, 1, 0)])
@for_each("delta", [1e-2, 1e-5])
def test_epsilon_of_vectors(variance: float, shift: tuple[int, ...], delta: float) -> None:
    """Against whole tables in up to three dimensions: sound, and within a factor where noise is not
    tiny.

    Planted: rounding down by 20 %, squared norm not squared -> this fails.
    """
    reach = math.ceil(12 * math.sqrt(variance)) + 14
    joint = product(np.exp(skellam_log_pmf(variance, min(reach, 60))), len(shift))
    epsilon = skellam_epsilon(
        Fraction(variance), sum(map(abs, shift)), sum(s * s for s in shift), delta
    )
    assert divergence(joint, shift, epsilon) <= delta
    truth = true_epsilon(joint, shift, delta)
    assert truth <= epsilon
    if variance == 20.0:
        assert epsilon <= 1.6 * truth + 0.05


@for_each("delta", [0.9, 1e-3, 1e-12, 1e-100])
def test_conversion_rounds_up(delta: float) -> None:
    """Against 50 digits. Planted: no margins, log1p(-1/alpha) once instead of alpha - 1 times ->
    this fails.
    """
    for alpha in (*range(2, 200), 1000, 65_537, 1 << 36):
        check_conversion(alpha, delta)


def check_conversion(alpha: int, delta: float) -> None:
    with mpmath.workdps(50):
        rest = (
            mpmath.log(1 / mpmath.mpf(delta))
            + (alpha - 1) * mpmath.log(1 - mpmath.mpf(1) / alpha)
            - mpmath.log(alpha)
        ) / (alpha - 1)
        exact = mpmath.mpf(0.125) + rest
        value = at_order(alpha, 0.125, delta)
        assert value >= exact
        assert value - exact <= 1e-11


def test_round_up() -> None:
    """Never below, at most one float above; beyond the floats infinity. Planted: float(value) ->
    this fails at 1/3 or 2/3.
    """
    for value in (
        Fraction(1, 3),
        Fraction(2, 3),
        Fraction(1, 10),
        Fraction(10**40 + 1, 7),
        Fraction(5, 4),
        Fraction(0),
    ):
        assert Fraction(round_up(value)) >= value
        assert value == 0 or Fraction(math.nextafter(round_up(value), 0.0)) < value
    assert round_up(Fraction(10**400)) == math.inf


def test_monotone() -> None:
    """More noise, smaller shifts and larger deltas never raise epsilon. Planted: variance inverted
    -> this fails.
    """
    falling = [
        skellam_epsilon(Fraction(v), 10, 40, 1e-6) for v in (1, 2, 5, 10, 100, 10**4, 10**9, 10**15)
    ]
    assert falling == sorted(falling, reverse=True)
    assert falling[-1] < 1e-5
    for d1, d2 in ((11, 40), (10, 41)):
        assert skellam_epsilon(Fraction(5), d1, d2, 1e-6) > skellam_epsilon(
            Fraction(5), 10, 40, 1e-6
        )
    assert skellam_epsilon(Fraction(5), 10, 40, 1e-7) > skellam_epsilon(Fraction(5), 10, 40, 1e-6)


@for_each("delta", [0.0, 1.0, -1.0, 1e-101, math.nan])
def test_refuses_deltas(delta: float) -> None:
    with pytest.raises(ShoalError) as caught:
        skellam_epsilon(Fraction(5), 1, 1, delta)
    assert caught.value.kind is Kind.CONFIG


@for_each("variance", [0.001, 0.3, 1.0, 2.5, 10.0, 77.0, 300.0])
def test_tails(variance: float) -> None:
    """Both ends around the sum of the series in 40 digits. Planted: periods too short (_IMAGES =
    10), too few frequencies (_LEFT_OUT = 15) -> this fails. What is left out at 40 and 60 is below
    the rounding that is allowed for.
    """
    with mpmath.workdps(40):
        for t in sorted({math.ceil(z * math.sqrt(variance)) for z in (-2, 0.01, 2, 5, 14)}):
            exact, x = mpmath.mpf(0), t
            while True:
                term = mpmath.exp(-variance) * mpmath.besseli(abs(x), variance)
                exact, x = exact + term, x + 1
                if x > 0 and term < exact * mpmath.mpf(10) ** -30:
                    break
            low, high = skellam_tail(variance, t)
            assert low <= exact <= high
            assert high - low <= 1e-9 * float(exact)


def test_tails_of_large_variances() -> None:
    """Like the Gaussian's, to the order of 1 / variance. Where floats end, nothing is claimed."""
    for z in (0.5, 3.0, 6.0):
        low, high = skellam_tail(1e14, round(z * 1e7))
        normal = math.erfc((z * 1e7 - 0.5) / 1e7 / math.sqrt(2)) / 2
        assert low <= high <= low * (1 + 1e-9)
        assert low == pytest.approx(normal, rel=1e-8)
    assert skellam_tail(2.0**60, 5) == (0.0, 1.0)


@for_each("variance", [0.3, 2.5, 20.0, 100.0])
@for_each("shift", [1, 3, 8])
@for_each("delta", [1e-2, 1e-6])
def test_both_ends_of_one_coordinate(variance: float, shift: int, delta: float) -> None:
    """Around the truth, and close. Planted: delta not subtracted, tail at t + 1, the top of f
    looked for too low -> this fails.
    """
    law = np.exp(skellam_log_pmf(variance, 60 + math.ceil(12 * math.sqrt(variance))))
    truth = true_epsilon(law, (shift,), delta)
    lower = skellam_lower(variance, shift, delta)
    assert lower <= truth * (1 + 1e-8)
    assert lower >= truth * (1 - 1e-6) - 1e-9
    upper = skellam_one(variance, shift, delta)
    assert truth * (1 - 1e-8) <= upper <= truth * (1 + 1e-6) + 1e-8


@for_each("variance", [1e4, 1e7, 1e12])
@for_each("ratio", [0.01, 0.3, 3.0])
def test_one_coordinate_with_blocks(variance: float, ratio: float) -> None:
    """With blocks of many points: above the lower end, within 1e-4 of it, and below the Renyi
    bound. More noise, smaller shifts: less.

    Planted: blocks twenty times as long -> too far from the lower end.
    """
    shift = max(1, round(ratio * math.sqrt(variance)))
    lower, upper = skellam_lower(variance, shift, 1e-6), skellam_one(variance, shift, 1e-6)
    assert lower <= upper <= lower * (1 + 1e-4)
    assert upper < skellam_epsilon(Fraction(variance), shift, shift**2, 1e-6)
    assert (
        skellam_one(variance * 1.01, shift, 1e-6)
        < upper
        < skellam_one(variance * 0.99, shift, 1e-6)
    )


@for_each("variance, shift", [(0.3, 1), (2.5, 4), (100.0, 3), (1.6e7, 40), (1.6e7, 4000)])
@for_each("ratio", [0.3, 1.0, 2.0])
@for_each("away", [-3, 0, 3])
def test_divergence_of_one_coordinate(variance: float, shift: int, ratio: float, away: int) -> None:
    """Never below the sum over the whole table, and close, or 1: wherever the search begins. Blocks
    of one point and of four.

    Planted: only edges below the top looked at, e^epsilon 0.1 % too large -> this fails. (Growth
    within blocks is of second order.)
    """
    law = np.exp(skellam_log_pmf(variance, 80 + math.ceil(11 * math.sqrt(variance))))
    epsilon = ratio * shift / math.sqrt(variance)
    logs = np.log(law[: law.size - shift]) - np.log(law[shift:])
    # of P(X >= t - shift) - e^epsilon P(X >= t)
    top = int(np.argmax(logs >= epsilon)) + shift - law.size // 2
    value = skellam_divergence(
        variance, shift, epsilon, top + away * max(1, math.floor(math.sqrt(variance) / 1000))
    )
    truth = divergence(law, (shift,), epsilon)
    assert truth * (1 - 1e-9) <= value <= truth * (1 + 1e-3)
    assert skellam_divergence(variance, shift, epsilon, top + 100_000) == 1.0


def test_one_coordinate_without_an_answer() -> None:
    """Beyond what floats hold nothing is proven, and nothing is refuted."""
    assert skellam_one(2.0**60, 10, 1e-6) == math.inf
    assert skellam_one(1.0, 10**6, 1e-6) == math.inf
    assert skellam_lower(2.0**60, 10, 1e-6) == 0.0
