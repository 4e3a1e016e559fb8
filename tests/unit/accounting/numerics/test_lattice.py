"""The integral against exact fractions at small n, against other evaluations at large n, and always
on its side.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest

from shoal.accounting.bounds.blanket import kary_blanket
from shoal.accounting.numerics import lattice
from shoal.accounting.numerics.cells import Cell, CellSum, blanket_sums, dataset_sums
from shoal.accounting.numerics.curve import DEFAULT_EFFORT, Curve, Direction, Effort
from shoal.accounting.numerics.lattice import DEFAULT_CONTOUR, Contour, LatticeCurve
from shoal.accounting.numerics.search import crossing
from shoal.errors import ShoalError
from shoal.mechanisms.parts.laws import local_hash, ratio_below, subset, unary
from shoal.privacy import FiniteLaw, SymmetricLaw
from tests.cases import for_each
from tests.sizes import size
from tests.unit.accounting.laws import kary
from tests.unit.accounting.numerics.test_cells import TABLES, exact
from tests.unit.accounting.walks import kary_datasets

UPPER, LOWER = Direction.UPPER, Direction.LOWER
LAWS: dict[str, FiniteLaw | SymmetricLaw] = {
    **TABLES,
    "krr 5": subset(5, 1, Fraction(20)),
    "krr 1024": subset(1024, 1, Fraction(8)),
    "unary": unary(5, Fraction(2, 3), Fraction(1, 7)),
    "rare": local_hash(1000, Fraction(3000)),
}
# Settings so coarse that every safeguard of the module counts.
COARSE = [
    Contour(smoothing=0.4, finer=1.0),
    Contour(smoothing=1.5, finer=1.0),
    Contour(window=20.0, sigmas=0.5, alias=1e9, finer=1.0),
    Contour(reach=1.0, finer=1.0),
    Contour(reach=0.2, smoothing=0.1, finer=1.0),
    Contour(work=700, finer=1.0),
    Contour(smoothing=0.3, window=20.0, sigmas=1.0, alias=1e9, reach=1.5, finer=1.0),
]


def sums_of(law: FiniteLaw | SymmetricLaw, n: int) -> list[tuple[CellSum, Direction]]:
    return [
        *((one, UPPER) for one in blanket_sums(law, n)),
        *((one, LOWER) for one in dataset_sums(law, n)),
    ]


@for_each("name", LAWS)
@for_each("n", [1, 2, 5])
def test_against_exact_fractions(name: str, n: int) -> None:
    """Both directions of every sum bracket the exact value; the one that a certificate uses is
    within 1 % of it.

    Planted: n - 1 for n in the power -> this fails; ``growth`` taken at another epsilon -> this
    fails; frequencies of e^-15 left out -> this fails.
    """
    for one, side in sums_of(LAWS[name], n)[:: 1 if n < 5 else 3]:
        for epsilon in (0.0, 0.3, 1.0):
            truth = float(exact(one, Fraction(math.exp(epsilon))))
            upper = LatticeCurve(one, UPPER, 1e-6, 3.0).delta(epsilon)
            lower = LatticeCurve(one, LOWER, 1e-6, 3.0).delta(epsilon)
            # The fraction is that of the rounded e^epsilon: it differs by 1e-15.
            assert lower <= truth * (1 + 1e-13) + 1e-16
            assert upper >= truth * (1 - 1e-13) - 1e-16
            if side is UPPER:
                assert upper <= truth * 1.01 + 1e-15
            else:
                assert lower >= truth * 0.99 - 1e-15


@pytest.mark.parametrize("first", [3, 20, 1000])
def test_values_are_rounded_outward(first: int) -> None:
    """A value first - e that is nearly all cancelled: still on its side. Planted: values rounded
    inward, or not at all -> this fails.
    """
    one = CellSum(1, (Cell(Fraction(1), Fraction(first), Fraction(1)),))
    epsilon = math.log(first)
    for _ in range(12):
        with mpmath.workdps(40):
            truth = float(first - mpmath.exp(mpmath.mpf(epsilon)))
        if truth > 0.0:
            assert LatticeCurve(one, UPPER, 1e-16, 8.0).delta(epsilon) >= truth
        assert LatticeCurve(one, LOWER, 1e-16, 8.0).delta(epsilon) <= max(0.0, truth) * (1 + 1e-12)
        epsilon = math.nextafter(epsilon, 0.0)


@for_each("name", LAWS)
def test_coarse_stays_on_its_side(name: str) -> None:
    """Soundness does not depend on how finely the integral is taken.

    Planted, each fails here: what wraps around not subtracted; the density term of LOWER left out,
    or its cut; the cut not added to UPPER; smoothing without the tilt of Z.
    """
    for n, last in product((2, 7, 400), (0, -1)):
        one = sums_of(LAWS[name], n)[last][0]
        for epsilon in (0.0, 0.05, 0.5, 1.2)[:: size(2, 1)]:
            fine = [LatticeCurve(one, side, 1e-30, 3.0).delta(epsilon) for side in (UPPER, LOWER)]
            assert fine[1] <= fine[0]
            for contour in COARSE:
                coarse = [
                    LatticeCurve(one, side, 1e-30, 3.0, contour).delta(epsilon)
                    for side in (UPPER, LOWER)
                ]
                assert coarse[0] >= fine[1]
                assert coarse[1] <= fine[0]


def kary_table(k: int, epsilon0: float) -> FiniteLaw:
    law = kary(k, epsilon0)
    return FiniteLaw(
        tuple(tuple(law.same if x == y else law.other for y in range(k)) for x in range(k))
    )


@for_each("k, epsilon0", [(2, 1.0), (3, 4.0), (16, 2.0), (16, 6.0)][:: size(3, 1)])
@for_each("n", [10, 1000, 10_000_000])
def test_agrees_with_the_walk(k: int, epsilon0: float, n: int) -> None:
    """Two methods that share no step, binomial sums (unmerged at n <= 1000) and the contour
    integral: to 1e-4 of epsilon.

    Planted: the power n + 1 -> this fails.
    """
    law, table, delta = kary(k, epsilon0), kary_table(k, epsilon0), 1e-8
    effort = Effort(50_000_000, 50_000_000, 100_000, 0.0) if n <= 1000 else DEFAULT_EFFORT
    walk = crossing(
        Curve(kary_blanket(law, n), UPPER, delta, epsilon0, effort).delta, delta, epsilon0
    )[1]
    found = max(
        crossing(LatticeCurve(one, UPPER, delta, epsilon0).delta, delta, epsilon0)[1]
        for one in blanket_sums(table, n)
    )
    assert found == pytest.approx(walk, rel=1e-4)
    below = max(
        crossing(Curve(one, LOWER, delta, epsilon0, effort).delta, delta, epsilon0)[0]
        for one in kary_datasets(law, n)
    )
    lower = max(
        crossing(LatticeCurve(one, LOWER, delta, epsilon0).delta, delta, epsilon0)[0]
        for one in dataset_sums(table, n)
    )
    assert lower == pytest.approx(below, rel=1e-4)
    # Each upper above each lower, whoever computed them.
    assert min(found, walk) >= max(lower, below)


@for_each("n", [10**4, 10**7, 10**8])
@for_each("scale", [1.0, 3.0, 8.0])
def test_against_high_precision(n: int, scale: float) -> None:
    """Two values: E[S_+] is a binomial tail, known to 40 digits. UPPER and LOWER within 1e-4 of it,
    down to 1e-20.

    Planted: ``shift`` left out of the angle -> this fails.
    """
    ratio, p = Fraction(3), Fraction(1, 4)
    one = CellSum(n, (Cell(p, ratio, Fraction(1)), Cell(1 - p, Fraction(1, 3), Fraction(1))))
    epsilon = scale * 1.2 / math.sqrt(n)
    with mpmath.workdps(40):
        e = mpmath.exp(mpmath.mpf(epsilon))
        high, low = 3 - e, mpmath.mpf(1) / 3 - e
        start = int(mpmath.ceil(-n * low / (high - low)))
        # Terms fall off from the start: a running product of ratios.
        term = (
            mpmath.exp(
                mpmath.loggamma(n + 1) - mpmath.loggamma(start + 1) - mpmath.loggamma(n - start + 1)
            )
            * mpmath.mpf(1)
            / 4
        )
        term *= mpmath.exp(
            (start - 1) * mpmath.log(mpmath.mpf(1) / 4)
            + (n - start) * mpmath.log(mpmath.mpf(3) / 4)
        )
        many = min(n - start, size(4, 12) * int(math.sqrt(n)))
    value, rate = tail(
        float(term),
        start,
        n,
        float(high),
        float(low),
        many,
        float(start * high + (n - start) * low),
    )
    upper = LatticeCurve(one, UPPER, 1e-8, 1.0).delta(epsilon)
    lower = LatticeCurve(one, LOWER, 1e-8, 1.0).delta(epsilon)
    assert lower * (1 - 1e-9) <= value * (1 + rate)
    assert value * (1 - 1e-9) <= upper
    assert upper / lower < 1 + 1e-4


def tail(
    first: float, start: int, n: int, high: float, low: float, many: int, at_start: float
) -> tuple[float, float]:
    """sum over j >= start of P(Bin(n, 1/4) = j) (j high + (n - j) low) / n, from its first term;
    and the share that the cut can add.
    """
    j = np.arange(start, start + many, dtype=np.float64)
    law = first * np.concatenate([[1.0], np.cumprod((n - j[:-1]) / (j[:-1] + 1.0) / 3.0)])
    terms = law * (at_start + (j - start) * (high - low)) / n
    return float(terms.sum()), float(terms[-1] / terms.sum()) * many + 1e-9


@pytest.mark.parametrize("delta", [1e-30, 1e-100])
def test_tiny_deltas_lose_nothing(delta: float) -> None:
    """Tilting: the interval is as narrow at 1e-100 as at 1e-8. Planted: the tilt fixed at that of
    epsilon = 0 -> this fails.
    """
    one = blanket_sums(unary(5, Fraction(2, 3), Fraction(1, 7)), 100_000)[0]
    upper = crossing(LatticeCurve(one, UPPER, delta, 3.0).delta, delta, 3.0)
    lower = crossing(LatticeCurve(one, LOWER, delta, 3.0).delta, delta, 3.0)
    assert 0.0 < lower[0] <= upper[1] <= lower[0] * (1 + 2e-6)


def test_rounding_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """With arithmetic of only 26 digits (u = 2^-26), wrong by 4 u in every report, either way: the
    bounds still hold.

    The two margins are tested one without the other, since each is wide enough for both. Planted: n
    left out of the error of phi^n -> the first half fails; n left out of ``slack`` -> the second
    half fails.
    """
    n, epsilon, unit = 100_000, 0.01, 2.0**-26
    one = blanket_sums(LAWS["unary"], n)[0]
    real, sums = lattice._tilt, lattice._sums
    for side, sign in ((UPPER, 1.0), (LOWER, -1.0)):
        curve, other = (
            LatticeCurve(one, which, 1e-8, 3.0)
            for which in (side, LOWER if side is UPPER else UPPER)
        )
        tilted = real(curve._logs, curve._gap - math.expm1(epsilon) * curve._second, n, sign)
        bad = replace(tilted, shares=tilted.shares * (1.0 - sign * 4.0 * unit))
        # The bound is on the wrong side by far, ...
        assert sign * curve._integral(bad) < sign * other._integral(tilted) * (1 - sign * 1e-3)
        fine = other.delta(epsilon)
        with monkeypatch.context() as patch:
            patch.setattr(lattice, "_U", unit)
            rough = replace(bad, rounding=8.0 * unit)
            # ... and is not once the margin is that of such arithmetic.
            assert sign * curve._integral(rough) > sign * other._integral(tilted)
            patch.setattr(lattice, "_sums", lambda *known: (*sums(*known)[:2], 0.0))
            moved = replace(
                tilted, log_scale=tilted.log_scale - sign * 4.0 * unit * n, rounding=8.0 * unit
            )
            patch.setattr(lattice, "_tilt", lambda *_, result=moved: result)
            assert sign * curve.delta(epsilon) > sign * fine


def test_upper_falls_with_epsilon_and_n() -> None:
    """Not needed for soundness; a curve that jumped would make the search stop early."""
    law = LAWS["krr 5"]
    last = math.inf
    for epsilon in np.linspace(0.0, 1.0, size(40, 400)):
        value = LatticeCurve(blanket_sums(law, 3000)[0], UPPER, 1e-8, 3.0).delta(float(epsilon))
        assert value <= last * (1 + 1e-9)
        last = value
    deltas = [
        LatticeCurve(blanket_sums(law, n)[0], UPPER, 1e-8, 3.0).delta(0.1)
        for n in (10, 100, 1000, 10_000)
    ]
    assert deltas == sorted(deltas, reverse=True)


def test_interval_is_narrow_for_hashes() -> None:
    """Heavy tails: 1000 hash values, so that a report that says anything is rare."""
    for n in (1000, 1_000_000):
        law, delta = local_hash(1000, ratio_below(6.0)), 1e-8
        upper = max(
            crossing(LatticeCurve(one, UPPER, delta, 6.0).delta, delta, 6.0)[1]
            for one in blanket_sums(law, n)
        )
        lower = max(
            crossing(LatticeCurve(one, LOWER, delta, 6.0).delta, delta, 6.0)[0]
            for one in dataset_sums(law, n)
        )
        assert lower <= upper <= lower * 1.02


def test_nothing_to_tell_apart() -> None:
    equal = CellSum(10, (Cell(Fraction(1), Fraction(1), Fraction(1)),))
    for epsilon in (0.0, 0.5):
        assert LatticeCurve(equal, LOWER, 1e-8, 1.0).delta(epsilon) == 0.0
        assert 0.0 <= LatticeCurve(equal, UPPER, 1e-8, 1.0).delta(epsilon) < 1e-14


def test_random_sums() -> None:
    """Masses and values over twenty orders of magnitude: bracketed, never a warning, never NaN."""
    random = np.random.default_rng(7)
    for _ in range(size(60, 600)):
        count, n = int(random.integers(2, 5)), int(random.integers(1, 6))
        raw = [Fraction(float(x)) for x in 10.0 ** random.uniform(-10, 0, count)]
        cells = tuple(
            Cell(x / sum(raw), *(Fraction(float(v)) for v in 10.0 ** random.uniform(-6, 4, 2)))
            for x in raw
        )
        one, epsilon = CellSum(n, cells), float(random.uniform(0, 3))
        # e^epsilon is a float here and there: two enclosing fractions.
        low, high = (
            exact(one, Fraction(math.exp(epsilon)) * (1 + Fraction(side, 1 << 48)))
            for side in (1, -1)
        )
        for contour in (DEFAULT_CONTOUR, COARSE[-1]):
            assert Fraction(LatticeCurve(one, UPPER, 1e-8, 3.0, contour).delta(epsilon)) >= low
            assert Fraction(LatticeCurve(one, LOWER, 1e-8, 3.0, contour).delta(epsilon)) <= high


def test_refusals() -> None:
    one = CellSum(1, (Cell(Fraction(1), Fraction(1), Fraction(1)),))
    for bad in (
        lambda: LatticeCurve(one, UPPER, 0.0, 1.0),
        lambda: LatticeCurve(one, UPPER, 0.1, -1.0),
        lambda: Contour(window=5.0),
    ):
        with pytest.raises(ShoalError):
            bad()
