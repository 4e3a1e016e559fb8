"""Merging and windows: whatever is computed coarsely stays on its side of what is computed
exactly.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
import scipy

from shoal.accounting.bounds.blanket import kary_blanket
from shoal.accounting.bounds.clones import clones
from shoal.accounting.numerics.curve import Curve, Direction, Effort, _count_nodes, _merged_binomial
from shoal.accounting.numerics.random_walk import Walk
from shoal.errors import Kind, ShoalError
from tests.cases import for_each
from tests.unit.accounting.laws import kary, pure
from tests.unit.accounting.walks import kary_datasets

EXACT = Effort(cells=50_000_000, third_cells=50_000_000, nodes=100_000, blur=0.0)
COARSE = [
    Effort(cells=3000, third_cells=50_000_000, nodes=100_000, blur=0.0),
    Effort(cells=50_000_000, third_cells=500, nodes=100_000, blur=0.0),
    Effort(cells=50_000_000, third_cells=50_000_000, nodes=6, blur=0.0),
    Effort(cells=50_000_000, third_cells=50_000_000, nodes=100_000, blur=1e-2),
    Effort(cells=2000, third_cells=500, nodes=6, blur=1e-2),
]
WALKS = [
    (k, epsilon0, n)
    for k, epsilon0 in [(2, 1.0), (3, 1.0), (3, 4.0), (16, 2.0), (16, 5.0)]
    for n in (300, 2000)
]


@for_each("effort", COARSE)
@for_each("k, epsilon0, n", WALKS)
def test_coarse_stays_on_its_side(k: int, epsilon0: float, n: int, effort: Effort) -> None:
    """Planted, each fails here: the smallest spread in a bin for upper curves; the two directions'
    choice of the common law of R exchanged; the values of R gathered to means for upper curves.
    """
    law = kary(k, epsilon0)
    epsilons = tuple(float(epsilon) for epsilon in np.linspace(0.0, epsilon0, 9))
    blanket = kary_blanket(law, n)
    upper = Curve(blanket, Direction.UPPER, 1e-8, epsilon0, effort)
    exact = exact_deltas(blanket, Direction.UPPER, epsilons)
    for epsilon, fine in zip(epsilons, exact, strict=True):
        # Both carry the same margin; rounding apart (1e-11), the coarse curve is the higher.
        assert upper.delta(epsilon) >= fine * (1 - 1e-11) - 1e-17
    for walk in kary_datasets(law, n):
        lower = Curve(walk, Direction.LOWER, 1e-8, epsilon0, effort)
        exact = exact_deltas(walk, Direction.LOWER, epsilons)
        for epsilon, fine in zip(epsilons, exact, strict=True):
            assert lower.delta(epsilon) <= fine * (1 + 1e-11)


@lru_cache(maxsize=64)
def exact_deltas(walk: Walk, side: Direction, epsilons: tuple[float, ...]) -> list[float]:
    """Kept: every coarse effort is compared with the same."""
    curve = Curve(walk, side, 1e-8, epsilons[-1], EXACT)
    return [curve.delta(epsilon) for epsilon in epsilons]


def test_bins_keep_the_mean_and_order_convex_functions() -> None:
    """Upper: every convex function of c grows; lower: it shrinks; mass and mean stay. Planted:
    means for both -> this fails.
    """
    counts = np.arange(37, 91, dtype=np.int64)
    masses = scipy.stats.binom.pmf(counts, 120, 0.5)
    first = np.array([37, 40, 48, 56, 64, 72, 80, 88], dtype=np.int64)
    last = np.append(first[1:], 91) - 1
    for upper in (True, False):
        nodes, weights = _count_nodes(counts, masses, first, last, upper)
        assert weights.min() >= 0.0
        assert weights.sum() == pytest.approx(masses.sum(), rel=1e-14)
        assert (weights * nodes).sum() == pytest.approx((masses * counts).sum(), rel=1e-14)
        for bend in np.linspace(38.5, 89.5, 103):
            merged = float((weights * np.maximum(nodes - bend, 0)).sum())
            exact = float((masses * np.maximum(counts - bend, 0)).sum())
            assert merged >= exact - 1e-13 if upper else merged <= exact + 1e-13
        middle = float((weights * np.maximum(nodes - 60, 0)).sum()) - float(
            (masses * np.maximum(counts - 60, 0)).sum()
        )
        assert middle > 1e-3 if upper else middle < -1e-3


@pytest.mark.parametrize(("size", "p"), [(50, 0.3), (3000, 0.5), (100_000, 0.01)])
def test_merged_laws_keep_the_mean_and_order_convex_functions(size: int, p: float) -> None:
    """The same for R. Planted: ``along`` and 1 - ``along`` exchanged -> this fails."""
    values = np.arange(size + 1)
    masses = scipy.stats.binom.pmf(values, size, p)
    sd = math.sqrt(size * p * (1 - p))
    for upper in (True, False):
        nodes, weights, _ = _merged_binomial(size, p, 1 - p, -60.0, upper, 4, 1000)
        assert weights.sum() == pytest.approx(1.0, abs=1e-10)
        assert (weights * nodes).sum() == pytest.approx(0.0, abs=1e-9 * size * p)
        for bend in np.linspace(-4 * sd, 4 * sd, 41):
            merged = float((weights * np.maximum(nodes - bend, 0)).sum())
            exact = float((masses * np.maximum(values - size * p - bend, 0)).sum())
            slack = 1e-9 * exact + 1e-12
            assert merged >= exact - slack if upper else merged <= exact + slack


def direct(walk: Walk, epsilon: float) -> float:
    """E[(X)_+] / n summed over everything with scipy's pmf: slow, plain, unmerged."""
    growth = math.expm1(epsilon)
    n, total = walk.n, 0.0
    alpha = float(walk.slope) + growth * float(walk.slope_e)
    for c in range(n + 1):
        rest = np.arange(n - c + 1) if walk.third else np.array([0])
        weight = (
            scipy.stats.binom.pmf(rest, n - c, float(walk.third)) if walk.third else np.array([1.0])
        )
        y = growth * (
            float(walk.constant) + float(walk.per_pair) * c + float(walk.per_third) * rest
        )
        ones = np.arange(c + 1)
        law = scipy.stats.binom.pmf(ones, c, float(walk.rho))
        x = alpha * (ones - float(walk.rho) * c)[:, None] - y[None, :]
        total += scipy.stats.binom.pmf(c, n, float(walk.pair)) * float(
            law @ np.maximum(x, 0.0) @ weight
        )
    return total / n


@for_each("epsilon0, n", list(product([0.4, 2.0, 5.0], [30, 90])))
def test_curves_against_plain_sums(epsilon0: float, n: int) -> None:
    """Planted: ``tops`` used where the window should start -> this fails; tables shifted by one ->
    this fails.
    """
    law = kary(5, epsilon0)
    walks = [
        (kary_blanket(law, n), Direction.UPPER),
        (clones(pure(epsilon0).ratio, n), Direction.UPPER),
    ]
    walks += [(walk, Direction.LOWER) for walk in kary_datasets(law, n)]
    for walk, direction in walks:
        found = Curve(walk, direction, 1e-6, epsilon0, EXACT)
        for epsilon in (0.0, 0.1 * epsilon0, 0.5 * epsilon0, 0.9 * epsilon0):
            exact = direct(walk, epsilon)
            slack = 1e-8 * exact + 1e-13
            assert (
                exact <= found.delta(epsilon) * (1 + 1e-10) + 1e-15
                if direction is Direction.UPPER
                else exact >= found.delta(epsilon)
            )
            assert abs(found.delta(epsilon) - exact) <= slack


def test_truncated_mass_is_paid_for() -> None:
    """A curve built for a large delta has narrow windows: above the wide one all the same.

    Planted: the mass outside the windows not added -> the narrow upper curve falls below the wide
    one, this fails.
    """
    for walk in (kary_blanket(kary(16, 3.0), 4000), clones(pure(3.0).ratio, 4000)):
        narrow = Curve(walk, Direction.UPPER, 0.5, 3.0, EXACT)
        wide = Curve(walk, Direction.UPPER, 1e-30, 3.0, EXACT)
        for epsilon in (0.0, 0.1, 0.2, 0.5, 1.0, 2.0):
            assert narrow.delta(epsilon) >= wide.delta(epsilon) * (1 - 1e-11)


def test_walks_refuse_nonsense() -> None:
    good = kary_blanket(kary(3, 1.0), 5)
    for change in (
        {"n": 0},
        {"pair": good.pair * 0},
        {"rho": good.rho * 2},
        {"third": good.third + 1},
    ):
        fields = {name: getattr(good, name) for name in Walk.__slots__} | change
        with pytest.raises(ShoalError) as error:
            Walk(**fields)
        assert error.value.kind is Kind.INVALID


@for_each("epsilon0", [12.0, 16.0, 20.0, 30.0])
@for_each("k", [2, 3, 16])
def test_telling_reports_do_not_drown_in_rounding(k: int, epsilon0: float) -> None:
    """Shuffling only hides: no lower curve may exceed the divergence of the victim's report alone,
    whatever alpha (1e17 here) multiplies.

    Planted: origins as float differences and thresholds moved by 1e-14 of themselves -> 6.3 at
    epsilon0 = 20, this fails.
    """
    law = kary(k, epsilon0)
    for walk in kary_datasets(law, 100_000):
        curve = Curve(walk, Direction.LOWER, 1e-8, epsilon0)
        for epsilon in np.linspace(0.9, 1.0, 9) * epsilon0:
            alone = float(law.same - Fraction(math.exp(epsilon)) * law.other) / law.total
            assert curve.delta(epsilon) <= max(alone, 0.0) * (1 + 1e-9) + 1e-15
