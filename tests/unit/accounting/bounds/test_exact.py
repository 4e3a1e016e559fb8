"""Small n against exact rational enumeration: the curves, then the certificates, over all datasets
and both directions.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations_with_replacement, permutations

from shoal.accounting.accountant import certify
from shoal.accounting.bounds.blanket import kary_blanket
from shoal.accounting.bounds.clones import clones, kary_clones, pair_constants, table_clones
from shoal.accounting.numerics.cells import blanket_sums, dataset_sums
from shoal.accounting.numerics.curve import Curve, Direction
from shoal.accounting.numerics.lattice import LatticeCurve
from shoal.accounting.numerics.random_walk import Walk
from shoal.privacy import FiniteLaw, KaryLaw, PureLaw
from tests.cases import for_each
from tests.sizes import FULL
from tests.unit.accounting.brute import (
    Truth,
    clones_divergence,
    kary_truth,
    positive_part_expectation,
    rows_of_kary,
)
from tests.unit.accounting.walks import kary_datasets

KARY = [(2, 3, 1), (2, 9, 4), (3, 2, 1), (3, 20, 1), (4, 5, 2), (4, 55, 1)]
SIZES = (
    [(k, n) for k in (2, 3, 4) for n in range(2, 7)]
    if FULL
    else [(2, 2), (2, 3), (2, 6), (3, 2), (3, 3), (3, 6), (4, 4), (4, 6)]
)
EPSILONS = [0.0, 0.02, 0.3, 0.405, 0.8, 1.2, 2.5]
LAWS = [(k, same, other, n) for k, same, other in KARY for kk, n in SIZES if kk == k]
TABLES = [
    FiniteLaw(((7, 3), (2, 8))),
    FiniteLaw(((9, 1), (8, 2))),
    FiniteLaw(((1, 99), (3, 97))),
    FiniteLaw(((6, 4), (5, 5), (2, 8))),
    FiniteLaw(((5, 3, 2), (1, 3, 6))),
    FiniteLaw(((5, 3, 2), (2, 2, 6), (3, 6, 1))),
    FiniteLaw(((4, 2, 2, 1), (2, 4, 1, 2), (1, 3, 3, 2))),
    # Others who answer the third value hardly ever look like the first two: few clones.
    FiniteLaw(((45, 5, 50), (5, 45, 50), (1, 1, 98))),
]


def at(epsilon: float) -> Fraction:
    """The rational whose logarithm is epsilon to one rounding; the curves see the same float."""
    return Fraction(math.exp(epsilon)) if epsilon else Fraction(1)


def curve(walk: Walk, direction: Direction, epsilon_max: float = 5.0) -> Curve:
    return Curve(walk, direction, 1e-6, epsilon_max)


def close_above(value: float, exact: Fraction) -> None:
    assert float(exact) <= value <= float(exact) * (1 + 1e-8) + 1e-14


def close_below(value: float, exact: Fraction) -> None:
    assert float(exact) * (1 - 1e-8) - 1e-14 <= value <= float(exact) + 1e-300


@for_each("k, same, other, n", LAWS)
def test_blanket_curve_is_the_lemma(k: int, same: int, other: int, n: int) -> None:
    """Balle et al. 2019 Lemma 5.3 by enumeration. Planted: ``per_pair`` (E - 1)/2 -> this fails;
    ``third`` 0 -> fails for k >= 3.
    """
    law = KaryLaw(k, same, other)
    gamma = Fraction(k * other, law.total)
    found = curve(kary_blanket(law, n), Direction.UPPER)
    for epsilon in EPSILONS:
        e = at(epsilon)
        values = [gamma * (1 - e) + (1 - gamma) * k * ((y == 0) - e * (y == 1)) for y in range(k)]
        close_above(
            found.delta(epsilon), positive_part_expectation(n, gamma, [Fraction(1, k)] * k, values)
        )


@for_each("ratio", [Fraction(3), Fraction(9, 4), Fraction(55), Fraction(1001, 1000)])
@for_each("n", [2, 3, 7])
def test_clones_curve_is_the_theorem(ratio: Fraction, n: int) -> None:
    """FMT21 Theorem 3.1 by enumeration of both views. Planted: clone probability 2/(E+1) in
    ``clones`` -> this fails.
    """
    found = curve(clones(ratio, n), Direction.UPPER)
    for epsilon in EPSILONS:
        close_above(found.delta(epsilon), clones_divergence(n, ratio, 1 / ratio, at(epsilon)))


@for_each("k, same, other, n", LAWS)
def test_lower_curves_are_real_datasets(k: int, same: int, other: int, n: int) -> None:
    """Each lower curve is the exact divergence of its dataset. Planted: ``slope_e`` of the second
    case = slope -> this fails.
    """
    truth = kary_truth(k, same, other, n)
    answers = [0, 1] if k == 2 else [2, 0, 1]
    for walk, answer in zip(kary_datasets(KaryLaw(k, same, other), n), answers, strict=True):
        found = curve(walk, Direction.LOWER)
        for epsilon in EPSILONS:
            close_below(
                found.delta(epsilon), truth.delta_at((answer,) * (n - 1), (0, 1), at(epsilon))
            )


@for_each("k, same, other, n", LAWS)
def test_upper_and_lower_curves_hold_the_truth(k: int, same: int, other: int, n: int) -> None:
    """Over all datasets. Planted: the variation-ratio value (others all on a third answer,
    projected) as upper -> this fails.
    """
    law = KaryLaw(k, same, other)
    truth = kary_truth(k, same, other, n)
    uppers = [
        curve(kary_blanket(law, n), Direction.UPPER),
        curve(kary_clones(law, n), Direction.UPPER),
    ]
    uppers.append(curve(clones(law.max_ratio, n), Direction.UPPER))
    lowers = [curve(walk, Direction.LOWER) for walk in kary_datasets(law, n)]
    for epsilon in EPSILONS:
        exact = float(truth.delta(at(epsilon)))
        assert all(exact <= upper.delta(epsilon) for upper in uppers)
        assert all(lower.delta(epsilon) <= exact + 1e-300 for lower in lowers)


@for_each("law", TABLES)
@for_each("n", [2, 3, 4])
def test_table_curves_hold_the_truth(law: FiniteLaw, n: int) -> None:
    """All routes for finite tables, all datasets. Planted: ``clones`` of twice the clone
    probability -> this fails.
    """
    rows = [[Fraction(weight, law.total) for weight in row] for row in law.rows]
    truth = Truth(rows, n)
    routes: list[list[Curve | LatticeCurve]] = [
        [curve(walk, Direction.UPPER) for walk in walks]
        for walks in (table_clones(law, n), (clones(law.max_ratio, n),))
    ]
    top = float(law.max_ratio)
    routes.append(
        [LatticeCurve(cells, Direction.UPPER, 1e-3, top) for cells in blanket_sums(law, n)]
    )
    lowers = [LatticeCurve(cells, Direction.LOWER, 1e-3, top) for cells in dataset_sums(law, n)]
    for epsilon in EPSILONS:
        exact = float(truth.delta(at(epsilon)))
        for uppers in routes:
            assert exact <= max(upper.delta(epsilon) for upper in uppers)
        assert lowers
        assert all(lower.delta(epsilon) <= exact + 1e-300 for lower in lowers)


@for_each("law", [law for law in TABLES if len(law.rows[0]) > 2])
@for_each("n", [2, 4])
def test_every_pair_has_its_own_clones(law: FiniteLaw, n: int) -> None:
    """Pair by pair, over all datasets of the others. Planted: the clone probability from the pair's
    own rows alone -> the last table fails: others who answer its third value are clones of nobody.
    """
    truth = Truth([[Fraction(weight, law.total) for weight in row] for row in law.rows], n)
    for a, b in permutations(range(len(law.rows)), 2):
        ratio, clone = pair_constants(law, law.rows[a], law.rows[b])
        for e in (Fraction(1), Fraction(11, 10), Fraction(3, 2), Fraction(3)):
            exact = max(
                truth.delta_at(others, (a, b), e)
                for others in combinations_with_replacement(range(len(law.rows)), n - 1)
            )
            assert exact <= clones_divergence(n, ratio, clone, e)


@for_each("law", TABLES)
def test_the_constants_of_a_pair_are_those_of_the_definition(law: FiniteLaw) -> None:
    """In fractions, entry by entry. Planted: the ratio one way only; the least weight of the pair
    instead of all rows -> this fails.
    """
    least = [min(column) for column in zip(*law.rows, strict=True)]
    for one, other in permutations(law.rows, 2):
        pairs = list(zip(least, one, other, strict=True))
        ratio = max(Fraction(max(a, b), min(a, b)) for _, a, b in pairs)
        assert pair_constants(law, one, other) == (
            ratio,
            min(Fraction(2 * low, a + b) for low, a, b in pairs),
        )


@for_each("delta", [1e-2, 1e-4, 1e-8])
@for_each("k, same, other, n", LAWS)
def test_certificate_holds_the_truth(k: int, same: int, other: int, n: int, delta: float) -> None:
    """(upper, delta) is true of every dataset and (lower, delta) false of some. Planted:
    ``crossing`` ends swapped -> this fails.
    """
    truth = kary_truth(k, same, other, n)
    certificate = certify(KaryLaw(k, same, other), n, delta)
    assert (
        truth.delta(Fraction(math.exp(certificate.epsilon_upper)) * (1 + Fraction(1, 10**15)))
        <= delta
    )
    if certificate.epsilon_lower > 0:
        assert (
            truth.delta(Fraction(math.exp(certificate.epsilon_lower)) * (1 - Fraction(1, 10**15)))
            >= delta
        )
    unknown = certify(PureLaw(Fraction(same, other)), n, delta)
    assert certificate.epsilon_upper <= unknown.epsilon_upper
    assert unknown.epsilon_lower <= unknown.epsilon_upper <= unknown.epsilon0


@for_each("delta", [1e-2, 1e-5])
@for_each("n", [2, 4])
@for_each("law", TABLES)
def test_table_certificate_holds_the_truth(law: FiniteLaw, n: int, delta: float) -> None:
    """Asymmetric tables. Planted: combinations in place of permutations in ``blanket_sums`` -> this
    fails.
    """
    truth = Truth([[Fraction(weight, law.total) for weight in row] for row in law.rows], n)
    certificate = certify(law, n, delta)
    assert (
        truth.delta(Fraction(math.exp(certificate.epsilon_upper)) * (1 + Fraction(1, 10**15)))
        <= delta
    )
    if certificate.epsilon_lower > 0:
        assert (
            truth.delta(Fraction(math.exp(certificate.epsilon_lower)) * (1 - Fraction(1, 10**15)))
            >= delta
        )


def test_variation_ratio_is_not_an_upper_bound() -> None:
    """n = 3, k = 3, E = 2, e^epsilon = 3/2: the truth is 5/128 and the projected value 1/32. The
    blanket gives the truth exactly.

    Planted: the (x, x', rest) projection as the upper curve -> 0.03125 < 5/128, this fails.
    """
    truth = Truth(rows_of_kary(3, 2, 1), 3)
    e = Fraction(3, 2)
    assert truth.delta(e) == Fraction(5, 128) == truth.delta_at((0, 2), (0, 1), e)
    assert max(truth.delta_at((z, z), (0, 1), e) for z in range(3)) < Fraction(5, 128)
    close_above(
        curve(kary_blanket(KaryLaw(3, 2, 1), 3), Direction.UPPER).delta(math.log(1.5)),
        Fraction(5, 128),
    )
