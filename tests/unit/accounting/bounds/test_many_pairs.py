"""All pairs of a table at once: never below what each pair's own sum says, and close to it."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise, permutations

import numpy as np
import pytest

from shoal.accounting import certify
from shoal.accounting.bounds import many_pairs as module
from shoal.accounting.bounds.many_pairs import ManyPairs, many_pairs
from shoal.accounting.numerics.cells import CellSum, _cells, _lines, blanket_sums, worst_rows
from shoal.accounting.numerics.curve import DEFAULT_EFFORT, Direction
from shoal.accounting.numerics.lattice import LatticeCurve
from shoal.accounting.routes import BlanketSums, EveryPair
from shoal.entropy import SeededEntropy
from shoal.privacy import FiniteLaw, epsilon0_upper
from tests.cases import for_each
from tests.sizes import size
from tests.unit.accounting.brute import Truth


def staircase(k: int, falls: Fraction) -> FiniteLaw:
    """Outputs lose weight with their distance from the input: a coarse noisy number, made of whole
    weights and filled up to one sum by a last output.
    """
    rows = [[int(10_000 * falls ** abs(x - y)) + 1 for y in range(k)] for x in range(k)]
    most = max(map(sum, rows)) + 5_000
    return FiniteLaw(tuple((*row, most - sum(row)) for row in rows))


def random_law(seed: str, k: int, outputs: int) -> FiniteLaw:
    words = iter(int(word) for word in SeededEntropy(seed).words(k * outputs))
    rows = [[1 + next(words) % 40 for _ in range(outputs)] for _ in range(k)]
    most = max(map(sum, rows)) + 1
    return FiniteLaw(tuple((*row, most - sum(row)) for row in rows))


LAWS = [
    staircase(7, Fraction(2, 3)),
    staircase(4, Fraction(1, 4)),
    random_law("one", 4, 3),
    random_law("two", 5, 4),
    FiniteLaw(((45, 5, 50), (5, 45, 50), (1, 1, 98))),
]


def made(law: FiniteLaw) -> ManyPairs:
    found = many_pairs(law)
    assert found is not None
    return found


def hinge(law: FiniteLaw, x: int, other: int, e: Fraction, t: Fraction) -> Fraction:
    """E[(L - t)_+] of a pair, from the rows themselves."""
    rows, least = worst_rows(law), [min(column) for column in zip(*law.rows, strict=True)]
    terms = [a - e * b - t * w for a, b, w in zip(rows[x], rows[other], least, strict=True)]
    inside = sum((term for term in terms if term > 0), Fraction(0))
    idle = max(Fraction(0), -t) * (law.total - sum(least))
    found: Fraction = (inside + idle) / law.total
    return found


@for_each("law", LAWS)
@for_each("epsilon", [0.0, 0.1, 0.9])
def test_an_envelope_is_above_every_pair(law: FiniteLaw, epsilon: float) -> None:
    """In fractions, at its own points and between them. Planted: the mean of the heights for their
    maximum; slopes rounded towards 0; no idle mass -> each fails.
    """
    found, e = made(law), Fraction(math.exp(epsilon))
    every = np.array(list(permutations(range(len(worst_rows(law))), 2))).T
    knots, heights = found._heights((every[0], every[1]), epsilon)
    envelope = module._second_derivative(knots, heights.max(axis=0))
    assert sum(mass for _, mass in envelope) == 1
    assert all(mass > 0 for _, mass in envelope)
    points = [t for t, _ in envelope]
    middles = [(low + high) / 2 for low, high in pairwise(points)]
    for t in (points[0] - 3, *points, *middles, points[-1] + 1, Fraction(0)):
        above = sum((value - t) * mass for value, mass in envelope if value > t)
        assert above >= max(hinge(law, x, other, e, t) for x, other in every.T.tolist()), float(t)


@for_each("law", LAWS)
@for_each("n, delta", [(30, 1e-2), (300, 1e-4), (5_000, 1e-2)])
def test_what_is_left_out_is_proven(law: FiniteLaw, n: int, delta: float) -> None:
    """Pairs that are not near are at most delta, by the sum of each. Planted: Chernoff's bound
    without 1/e, and of a tenth -> fails.
    """
    found, top = made(law), epsilon0_upper(law)
    rows, least = worst_rows(law), [min(column) for column in zip(*law.rows, strict=True)]
    left_out = 0
    for share in (0.0, 0.05, 0.2, 0.5, 0.9):
        kept = set(zip(*(part.tolist() for part in found.near(n, delta, share * top)), strict=True))
        for x, other in permutations(range(len(rows)), 2):
            if (x, other) not in kept:
                left_out += 1
                lines = _cells(_lines(rows[x], rows[other], least, law.total), law.total)
                own = LatticeCurve(CellSum(n, lines), Direction.LOWER, delta, top)
                assert own.delta(share * top) <= delta, (x, other, share)
    assert left_out


@for_each("law", LAWS)
@for_each("n, delta", [(40, 1e-3), (1_000, 1e-6), (100_000, 1e-8)])
def test_it_is_close_to_the_pairs_by_themselves(law: FiniteLaw, n: int, delta: float) -> None:
    """Planted: one group of all pairs -> a table is 3 % off; the pair that varies most alone -> one
    lies below.
    """
    top = epsilon0_upper(law)
    apart = BlanketSums(law, n).bound(delta, top, DEFAULT_EFFORT).upper
    route = EveryPair(made(law), n)
    together = route.bound(delta, top, DEFAULT_EFFORT).upper
    assert apart * (1 - 1e-4) <= together <= apart * 1.01
    assert together == top or route.proves(delta, together * 1.002, DEFAULT_EFFORT)
    assert not route.proves(delta, apart * 0.99, DEFAULT_EFFORT)


@for_each("law", LAWS)
def test_its_curve_is_above_the_pairs(law: FiniteLaw) -> None:
    """Between the places where it is evaluated too. Planted: a straight line over epsilon itself
    -> close, and not proven; the value of the next place -> fails.
    """
    top = epsilon0_upper(law)
    curve = EveryPair(made(law), 500).curve(1e-6, top, DEFAULT_EFFORT)
    own = [LatticeCurve(each, Direction.LOWER, 1e-6, top) for each in blanket_sums(law, 500)]
    for share in (0.0, 0.013, 0.1, 0.21, 0.22, 0.4, 0.77, 0.999, 1.0):
        truth = max(each.delta(share * top) for each in own)
        assert truth <= curve(share * top) <= 1.3 * truth + 1e-8


@pytest.mark.parametrize("n", [2, 3])
def test_it_holds_for_every_dataset(n: int) -> None:
    """Of small tables, sent this way here. Planted: ``near`` that keeps no pair -> fails."""
    for at in range(size(4, 20)):
        law = random_law(f"dataset {n} {at}", 3, 2)
        truth = Truth([[Fraction(weight, law.total) for weight in row] for row in law.rows], n)
        for delta in (1e-1, 1e-3):
            epsilon = made(law).bound(n, delta, epsilon0_upper(law))
            exact = truth.delta(Fraction(math.exp(epsilon)) * (1 + Fraction(1, 10**14)))
            assert exact <= Fraction(delta)


def test_tables_of_many_inputs_have_a_blanket() -> None:
    """Far below what the clones of the table say. Planted: ``many_pairs`` for no table -> fails."""
    found = certify(staircase(40, Fraction(9, 10)), 10_000, 1e-6)
    assert found.method == "blanket"
    assert found.epsilon_upper <= 1.5 * found.epsilon_lower
