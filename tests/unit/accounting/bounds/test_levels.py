"""Evidence on levels: convex order and the bound, in exact fractions, for tables with impossible
outputs; sizes for Gaussians.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import permutations

import pytest

from shoal.accounting.bounds.approximate import _levels, approximate_bound, approximate_lower
from shoal.accounting.bounds.levels import Evidence, evidence, level_sum
from shoal.accounting.numerics.curve import Direction
from shoal.accounting.numerics.lattice import LatticeCurve
from shoal.approximate import ApproximateLaw, GaussianLaw
from tests.cases import for_each
from tests.unit.accounting.bounds.test_approximate import TABLES, curve_of, local_delta
from tests.unit.accounting.brute import Truth, positive_part_expectation


def excess(law: Evidence, t: Fraction) -> Fraction:
    return sum((mass * max(Fraction(0), r - t) for r, mass in law), Fraction(0))


@for_each("name", TABLES)
@for_each("reach, levels", [(0.4, 1), (2.0, 3), (5.0, 11)])
def test_evidence_dominates_every_pair(name: str, reach: float, levels: int) -> None:
    """Planted: D beyond the last level dropped (no point at 1) -> fails; D taken at the next level
    -> fails.
    """
    law = evidence(curve_of(name), reach, levels)
    assert sum(mass for _, mass in law) == 1
    assert sum(r * mass for r, mass in law) == Fraction(1, 2)
    assert min(mass for _, mass in law) > 0
    rows = TABLES[name]
    for p, q in permutations(rows, 2):
        true = tuple((a / (a + b), (a + b) / 2) for a, b in zip(p, q, strict=True) if a + b)
        for step in range(61):
            assert excess(law, Fraction(step, 60)) >= excess(true, Fraction(step, 60))


@for_each("name", TABLES)
@for_each("n", [1, 2, 3])
def test_level_bound_holds_every_dataset_exactly(name: str, n: int) -> None:
    """Planted: the values not divided by q -> fails."""
    rows = TABLES[name]
    local, truth = curve_of(name), Truth(rows, n)
    law = evidence(local, 1.5, 2)
    for big in (Fraction(3, 2), Fraction(4)):
        sums = level_sum(law, 1 / big, n)
        curve = LatticeCurve(sums, Direction.UPPER, 1e-3, 2.0)
        for e in (Fraction(1), Fraction(6, 5), Fraction(3)):
            values = [2 * r - 2 * e * (1 - r) for r, _ in law]
            exact = positive_part_expectation(n, 1 / big, [mass for _, mass in law], values)
            extra = (1 + e) * (n - 1) / big * local_delta(rows, big)
            assert exact + extra >= truth.delta(e)
            assert curve.delta(math.log(e)) >= float(exact) * (1 - 1e-12)
            assert curve.delta(math.log(e)) <= float(exact) * 1.05 + 1e-6


@for_each("name", TABLES)
@for_each("delta", [0.9, 0.4])
def test_what_the_others_lose_is_paid_for(name: str, delta: float) -> None:
    """(n - 1) q D(b) with the q that is used. Planted: ``Levels.eta`` = 0 -> fails; n - 1 forgotten
    -> fails.
    """
    found = 0
    for n in (2, 3, 50):
        for choice in _levels(curve_of(name), n, delta, 0.3, 0.5):
            found += 1
            owed = (n - 1) * choice.clone * local_delta(TABLES[name], 1 / choice.clone)
            assert Fraction(choice.eta) >= owed
            assert choice.clone < 1
            assert sum(mass for _, mass in choice.law) == 1
    assert found or curve_of(name).delta_at(40.0) > 0.002 * delta


def test_the_extra_term_of_a_gaussian_is_that_of_its_choice() -> None:
    """The same for a Gaussian, in which some of the others' outputs are always too rare. Planted:
    ``Levels.eta`` = 0 -> fails.
    """
    law = GaussianLaw(2.0, 1.0)
    choices = [choice for n in (2, 1000, 10**6) for choice in _levels(law, n, 1e-8, 0.3, 0.5)]
    assert len(choices) == 3
    for n, choice in zip((2, 1000, 10**6), choices, strict=True):
        b = -math.log(choice.clone)
        assert choice.eta >= (n - 1) * float(choice.clone) * law.delta_at(b) > 0.0


def test_one_report_alone_keeps_its_local_curve() -> None:
    """n = 1: E[L_+] is the local curve at the levels, a chord between them."""
    gauss = GaussianLaw(2.0, 1.0)
    law = evidence(gauss, 4.0, 40)
    for step in (0, 3, 17, 40):
        epsilon = 4.0 * step / 40
        e = Fraction(math.exp(epsilon))
        value = sum(
            (mass * max(Fraction(0), 2 * r - 2 * e * (1 - r)) for r, mass in law), Fraction(0)
        )
        assert (
            gauss.delta_at(epsilon) * (1 - 1e-9)
            <= float(value)
            <= gauss.delta_at(epsilon) * (1 + 1e-6) + 1e-12
        )


def test_a_step_law_has_four_levels() -> None:
    """Its members are at most "the input itself, else binary response": r in {0, 1/(E+1), E/(E+1),
    1}.
    """
    law = evidence(ApproximateLaw(Fraction(3), 0.01), math.log(3), 8)
    heavy = [(float(r), float(mass)) for r, mass in law if mass > 1e-6]
    assert [r for r, _ in heavy] == pytest.approx([0.0, 0.25, 0.75, 1.0], abs=1e-9)
    assert [mass for _, mass in heavy] == pytest.approx([0.005, 0.495, 0.495, 0.005], abs=1e-6)


@pytest.mark.parametrize(
    ("sigma", "n", "before"), [(5.0, 1000, 0.1137), (2.0, 1000, 0.8092), (5.0, 100_000, 0.010721)]
)
def test_levels_halve_what_three_symbols_gave(sigma: float, n: int, before: float) -> None:
    """delta = 1e-8; ``before`` is the epsilon of three symbols."""
    law = GaussianLaw(sigma, 1.0)
    upper, _ = approximate_bound(law, n, 1e-8)
    assert approximate_lower(law, n, 1e-8) < upper < 0.55 * before
