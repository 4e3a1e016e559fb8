"""Exact binary accounting against exact rationals, plain convolution of every dataset, 50-digit
arithmetic and measured values.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
import scipy

from shoal.accounting.bounds.binary import (
    Interval,
    _Side,
    binary_interval,
    binary_proves,
)
from shoal.accounting.numerics.tilted import divergences, tilts
from shoal.errors import Kind, ShoalError
from tests.cases import for_each
from tests.sizes import size
from tests.unit.accounting.bounds.binary_truth import (
    PAIRS,
    Pair,
    float_delta,
    float_views,
    local,
    symmetric,
)
from tests.unit.accounting.brute import Truth

VECTORS = json.loads(
    (Path(__file__).parents[3] / "vectors" / "accounting" / "reference.json").read_text()
)


def exact_law(counts: list[int], kinds: list[Fraction]) -> list[Fraction]:
    """The law of the number of ones among independent bits, in exact rationals."""
    law = [Fraction(1)]
    for p in [p for count, p in zip(counts, kinds, strict=True) for _ in range(count)]:
        law = [
            (law[t] if t < len(law) else 0) * (1 - p) + (law[t - 1] if t else 0) * p
            for t in range(len(law) + 1)
        ]
    return law


def exact_divergence(law: list[Fraction], top: Fraction, bottom: Fraction, e: Fraction) -> Fraction:
    """sum (P - e Q)_+ for a victim who adds a one with probability top (P) or bottom (Q)."""
    padded = [Fraction(0), *law, Fraction(0)]
    p = [padded[t] * top + padded[t + 1] * (1 - top) for t in range(len(law) + 1)]
    q = [padded[t] * bottom + padded[t + 1] * (1 - bottom) for t in range(len(law) + 1)]
    return sum((max(Fraction(0), x - e * y) for x, y in zip(p, q, strict=True)), Fraction(0))


# --- the numerics ---------------------------------------------------------------------------------


@for_each("pair", PAIRS)
def test_divergences_hold_the_exact_value(pair: Pair) -> None:
    """All mixtures of three kinds of bits, in rationals: lower <= truth <= upper, 1e-9 apart. x is
    a float, so there is no excuse.

    Planted: ``error`` and ``doubt`` 0 -> lower equals upper, this fails. Planted: phi_k multiplied
    by 1 + 1e-9 -> fails too. Planted: only the candidate T0 + 1 -> fails. Planted: weight 2 for k =
    M -> fails.
    """
    top, bottom = pair
    kinds = [top, bottom, bottom / (1 - top + bottom)]
    counts = [(i, j, k) for i in (0, 1, 2, 7) for j in (0, 1, 5) for k in (0, 3)]
    excess = [
        math.expm1(math.log(top / bottom) * share) for share in (0.0, 1e-9, 0.1, 0.5, 0.9, 1 - 1e-6)
    ]
    which = np.repeat(np.arange(len(excess)), len(counts))
    lower, upper = divergences(
        tilts(top, bottom, kinds, excess), which, np.array(counts * len(excess))
    )
    for row, number in enumerate(which):
        law = exact_law(list(counts[row % len(counts)]), kinds)
        truth = exact_divergence(law, top, bottom, 1 + Fraction(excess[number]))
        assert Fraction(float(lower[row])) <= truth <= Fraction(float(upper[row]))
        assert upper[row] <= float(truth) * (1 + 1e-9) + 1e-290
        assert lower[row] >= float(truth) * (1 - 1e-9)


@pytest.mark.parametrize(
    ("top", "bottom", "counts", "epsilon"),
    [
        (576460752303423501 << 4, 63395 << 1, [5, 1, 15], 31.91699591056746),
        (1 << 63, 1933217352443, [1, 24, 0], 15.377600059223992),
        (16958348844025, 65063675, [24, 0, 0], 7.397885629693259),
    ],
)
def test_rounding_of_the_factor_in_front_is_paid_for(
    top: int, bottom: int, counts: list[int], epsilon: float
) -> None:
    """Divergences of 1e-150 and less, thresholds out of 2^64. Planted: ``doubt`` alone 0 -> one end
    is off by 1e-13, this fails.
    """
    a, b = Fraction(top, 1 << 64), Fraction(bottom, 1 << 64)
    kinds, excess = [a, b, Fraction(int(b / (1 - a + b) * (1 << 64)), 1 << 64)], math.expm1(epsilon)
    lower, upper = divergences(
        tilts(a, b, kinds, [excess]), np.zeros(1, np.int64), np.array([counts])
    )
    truth = exact_divergence(exact_law(counts, kinds), a, b, 1 + Fraction(excess))
    assert Fraction(float(lower[0])) <= truth <= Fraction(float(upper[0]))


@for_each("n", [10**5, 10**7, 10**8])
@for_each("bottom, z", [(0.25, 6.0), (1e-4, 5.0), (0.49, 20.0), (0.97, 7.0)])
def test_divergences_against_fifty_digits_at_large_n(n: int, bottom: float, z: float) -> None:
    """All others answer 0: one binomial, summed term by term in 50-digit arithmetic. The error
    bound is a tenth of a millionth.

    Planted: flipped bits counted like the others -> fails for 0.97. Planted: phases off by 1e-6 ->
    fails.
    """
    b = Fraction(bottom)
    a = b + (1 - b) / 3
    sd = math.sqrt(n * bottom * (1 - bottom))
    # The sign changes z standard deviations above the mean where e (1-b)/... : t / (n - t) = odds
    # of b times c / d.
    cut = Fraction(math.floor(n * bottom + z * sd))
    ratio = cut * (1 - b) / ((n - cut) * b)
    excess = float((ratio - 1) * (a - b) / (1 + (ratio - 1) * b))
    with mpmath.workdps(50):
        e = 1 + mpmath.mpf(excess)
        low, high = mpmath.mpf(b.numerator) / b.denominator, mpmath.mpf(a.numerator) / a.denominator
        d, c = high - e * low, e * (1 - low) - (1 - high)
        t, total = int(cut) - 3, mpmath.mpf(0)
        log_f = mpmath.loggamma(n) - mpmath.loggamma(t) - mpmath.loggamma(n - t + 1)
        before = mpmath.exp(log_f + (t - 1) * mpmath.log(low) + (n - t) * mpmath.log1p(-low))
        odds = low / (1 - low)
        # before = f(t - 1), f the law of Bin(n - 1, b).
        while t <= n:
            here = before * (n - t) / t * odds
            term = before * d - here * c
            total += max(term, 0)
            if term > 0 and term < total * mpmath.mpf(10) ** -14:
                break
            before, t = here, t + 1
        truth = float(total)
    lower, upper = divergences(
        tilts(a, b, [a, b], [excess]), np.zeros(1, np.int64), np.array([[0, n - 1]])
    )
    assert lower[0] <= truth * (1 + 1e-12)
    assert truth * (1 - 1e-12) <= upper[0] <= truth * (1 + 1e-6)
    assert lower[0] >= truth * (1 - 1e-6)


@pytest.mark.parametrize(("top", "bottom"), [(0.9, 0.1), (0.999, 0.0005), (0.6, 0.55)])
def test_divergences_against_convolution(top: float, bottom: float) -> None:
    """n = 3000, mixed datasets, positive float sums. Planted: the period M halved -> fails."""
    n, a, b = 3000, Fraction(top), Fraction(bottom)
    ones = np.array([0, 1, 700, 1500, 2998, 2999])
    epsilons = [0.0, 0.01, 0.1, 0.4]
    which = np.repeat(np.arange(len(epsilons)), len(ones))
    excess = [math.expm1(epsilon) for epsilon in epsilons]
    counts = np.stack([np.tile(ones, len(epsilons)), n - 1 - np.tile(ones, len(epsilons))], axis=1)
    lower, upper = divergences(tilts(a, b, [a, b], excess), which, counts)
    for row in range(len(which)):
        p, q = float_views(n, int(counts[row, 0]), top, bottom)
        truth = float(np.maximum(p - (1 + excess[which[row]]) * q, 0).sum())
        # The plain sum cancels where (P - eQ) is far below P: only compare above that.
        assert lower[row] <= truth * (1 + 1e-9) + 1e-14
        assert upper[row] >= truth * (1 - 1e-9) - 1e-14
        assert upper[row] - lower[row] <= 1e-8 * truth + 1e-290


# --- the lemmas -----------------------------------------------------------------------------------


@for_each("pair", PAIRS)
def test_block_bounds_in_exact_rationals(pair: Pair) -> None:
    """Deletion, and L blanket reports plus P(J < L), against every m of the block, for every block
    and L at n = 7.

    Planted: ``n`` instead of ``n - size + 1`` (unknown answers 0 kept) -> fails. Planted: P(J < L)
    left out -> fails.
    """
    top, bottom = pair
    n, gamma = 7, 1 - top + bottom
    e = 1 + (top / bottom - 1) * Fraction(1, 4)
    truth = [
        exact_divergence(exact_law([m, n - 1 - m], [top, bottom]), top, bottom, e) for m in range(n)
    ]
    for length in range(2, n + 1):
        for start in range(n - length + 1):
            worst = max(truth[start : start + length])
            for kept in range(length):
                law = exact_law([start, n - start - length, kept], [top, bottom, bottom / gamma])
                missing = sum(exact_law([length - 1], [gamma])[:kept], Fraction(0))
                assert worst <= exact_divergence(law, top, bottom, e) + missing


@for_each("pair", PAIRS[:4])
def test_blocks_hold_every_dataset(pair: Pair) -> None:
    """The blocks as computed, n = 150. Planted: L twice as large -> fails. Planted: n - 1 - start
    answers 0 -> fails.
    """
    n, side = 150, _Side(*pair)
    top, bottom = float(pair[0]), float(pair[1])
    epsilon = 0.2 * math.log(top / bottom)
    p_over_q = []
    for m in range(n):
        p, q = float_views(n, m, top, bottom)
        p_over_q.append(float(np.maximum(p - math.exp(epsilon) * q, 0).sum()))
    starts, sizes = np.array([0, 0, 5, 20, 60, 149]), np.array([150, 40, 1, 100, 90, 1])
    bound = side.blocks(
        side.tilts([math.expm1(epsilon)]), np.zeros(6, np.int64), n, starts, sizes, 1e-3
    )
    for found, start, length in zip(bound, starts, sizes, strict=True):
        assert found >= max(p_over_q[start : start + length]) * (1 - 1e-9) - 1e-15


@for_each("pair", PAIRS)
@for_each("eta", [0.05, 1e-7, 1e-100])
def test_blanket_reports_are_sure_and_paid_for(pair: Pair, eta: float) -> None:
    """P(J < L) <= eta, eta is added where L > 0, and L is no smaller than it must be.

    Planted: ``eta`` not added -> fails. Planted: gamma a third larger -> fails. Planted: L = 0 ->
    fails.
    """
    side, sizes = _Side(*pair), np.array([1, 2, 50, 3000, 10**6])
    gamma, unknown = float(side.gamma), sizes - 1
    kept = side.kept(sizes, eta)
    assert (scipy.stats.binom.logcdf(kept - 1, unknown, gamma) <= math.log(eta)).all()
    want = -math.log(eta)
    assert (kept >= unknown * gamma - 1.5 * np.sqrt(2 * want * unknown * gamma) - want - 3).all()
    tilt, starts, which = side.tilts([0.01]), np.arange(5), np.zeros(5, np.int64)
    bare = divergences(tilt, which, np.stack([starts, 10**7 - starts - sizes, kept], axis=1))[1]
    assert (side.blocks(tilt, which, 10**7, starts, sizes, eta) >= bare + eta * (kept > 0)).all()


# --- intervals ------------------------------------------------------------------------------------


@for_each("pair", PAIRS)
@for_each("n", range(1, size(5, 7)))
def test_intervals_hold_the_truth(pair: Pair, n: int) -> None:
    """Every dataset, both directions, exact rationals. n = 1: nobody hides the victim.

    Planted: only m = 0, in both ends -> fails. Planted: one side for a != 1 - b -> fails. Planted:
    the lower end as the upper -> fails.
    """
    top, bottom = pair
    truth = Truth([[1 - bottom, bottom], [1 - top, top]], n)
    ceiling = local(top, bottom)
    for delta in (0.3, 1e-2, 1e-4, 1e-9):
        found = binary_interval(top, bottom, n, delta, ceiling)
        assert (
            found.upper == ceiling
            or truth.delta(Fraction(math.exp(found.upper)) * (1 + Fraction(1, 10**14))) <= delta
        )
        assert (
            found.lower == 0.0
            or truth.delta(Fraction(math.exp(found.lower)) * (1 - Fraction(1, 10**14))) >= delta
        )
        assert found.upper <= ceiling
        assert found.upper <= found.lower * (1 + 1e-6) + 1e-9


def test_one_report_has_the_exact_value() -> None:
    """n = 1: the larger of ln((a - delta) / b) and ln((1 - b - delta) / (1 - a))."""
    for top, bottom in PAIRS:
        delta = 1e-3
        exact = max(
            math.log((float(top) - delta) / float(bottom)),
            math.log((1 - float(bottom) - delta) / float(1 - top)),
            0.0,
        )
        found = binary_interval(top, bottom, 1, delta, local(top, bottom))
        assert found.lower == pytest.approx(exact, rel=1e-7)
        assert found.upper == pytest.approx(exact, rel=1e-7)


MEDIUM = [
    (50, 0.88, 0.12, 1e-3),
    (200, 1 / (1 + math.exp(-5)), 1 / (1 + math.exp(5)), 1e-4),
    (300, 0.6, 0.01, 1e-6),
    (700, 0.97, 0.5, 1e-7),
    (700, 0.95, 0.05, 1e-5),
]


@for_each("n, top, bottom, delta", MEDIUM)
def test_intervals_hold_every_dataset_of_medium_size(
    n: int, top: float, bottom: float, delta: float
) -> None:
    """All m by convolution, above 256 through blocks: exact to 1e-8. The worst dataset is not
    always m = 0.

    Planted: only m = 0, in both ends -> fails. Planted: 1 - 1e-3 times the upper end -> fails.
    """
    a, b = Fraction(top), Fraction(bottom)
    found = binary_interval(a, b, n, delta, local(a, b))
    step = 1 if n <= 300 else size(3, 1)
    assert max(float_delta(n, m, top, bottom, found.upper) for m in range(0, n, step)) <= delta * (
        1 + 1e-9
    )
    assert max(
        float_delta(n, m, top, bottom, found.lower * (1 - 1e-4)) for m in range(0, n, step)
    ) >= delta * (1 - 1e-9)
    assert found.upper <= (1 + 1e-7) * found.lower


MEASURED = [
    row
    for row in VECTORS["rows"] + VECTORS["large"]
    if row[0] == "krr2" and row[1] == "others-all-equal"
]


@for_each("law, quantity, n, epsilon0, delta, epsilon", MEASURED)
def test_measured_values(
    law: str, quantity: str, n: int, epsilon0: float, delta: float, epsilon: float
) -> None:
    """The dataset m = 0 measured elsewhere is one of ours; the interval is narrow, and close to it
    at these sizes.
    """
    found = binary_interval(*symmetric(epsilon0)[:2], n, delta, symmetric(epsilon0)[2])
    digits = 1e-5 if n <= 10**5 else 1e-3
    assert found.lower >= epsilon * (1 - digits)
    assert found.upper <= 1.0005 * found.lower
    assert found.upper <= 1.006 * epsilon


@for_each("epsilon0", [0.1, 1.0, 4.0, 8.0])
@for_each("n, delta", [(10**4, 1e-6), (10**7, 1e-12), (10**8, 1e-100)])
def test_intervals_are_narrow(epsilon0: float, n: int, delta: float) -> None:
    """Planted: blocks that look at m = 0 only -> the lower end is "proven", this fails."""
    top, bottom, ceiling = symmetric(epsilon0)
    found = binary_interval(top, bottom, n, delta, ceiling)
    assert 0.0 < found.lower <= found.upper <= ceiling
    assert found.upper <= 1.0005 * found.lower or found.upper > 0.9 * ceiling
    assert binary_proves(top, bottom, n, delta, found.upper)
    assert not binary_proves(top, bottom, n, delta, found.lower)


def test_ends_and_ceilings() -> None:
    """A ceiling is never exceeded, delta above the total variation gives 0, bad numbers are
    refused.
    """
    top, bottom, ceiling = symmetric(2.0)
    assert binary_interval(top, bottom, 1000, 1e-8, 0.3) == Interval(0.3, 0.3)
    assert binary_interval(top, bottom, 10, 0.9, ceiling) == Interval(0.0, 0.0)
    assert binary_interval(
        Fraction(1, 2) + Fraction(1, 10**12), Fraction(1, 2), 10**6, 1e-8, 1e-11
    ) == Interval(0.0, 0.0)
    huge = binary_interval(*symmetric(40.0)[:2], 10**6, 1e-8, 40.0)
    assert 39.0 < huge.lower <= huge.upper == 40.0
    for arguments, kind in [
        ((bottom, top, 10, 1e-6, 1.0), Kind.INVALID),
        ((top, bottom, 0, 1e-6, 1.0), Kind.CONFIG),
        ((top, bottom, 10, 0.0, 1.0), Kind.CONFIG),
        ((top, bottom, 10, 1e-6, math.nan), Kind.INVALID),
    ]:
        with pytest.raises(ShoalError) as caught:
            binary_interval(*arguments)
        assert caught.value.kind is kind
    with pytest.raises(ShoalError):
        Interval(2.0, 1.0)
