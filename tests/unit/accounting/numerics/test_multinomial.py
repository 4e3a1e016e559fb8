"""Sums of few reports against exact rational enumeration, and the choice between the two ways."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

from shoal.accounting.numerics.cells import Cell, CellSum, blanket_sums, dataset_sums
from shoal.accounting.numerics.curve import Direction
from shoal.accounting.numerics.lattice import LatticeCurve
from shoal.accounting.numerics.multinomial import FEW, MOST, MultinomialCurve, sum_curve
from shoal.privacy import FiniteLaw, KaryLaw
from tests.cases import for_each

SUMS = [
    *blanket_sums(KaryLaw(4, 55, 1), 3),
    *dataset_sums(KaryLaw(3, 20, 1), 4),
    *blanket_sums(FiniteLaw(((5, 3, 2), (1, 3, 6))), 5),
    *dataset_sums(FiniteLaw(((10**9, 1, 1), (1, 10**9, 1))), 2),
    CellSum(1, (Cell(Fraction(1), Fraction(1), Fraction(1)),)),
]


def exact(cell_sum: CellSum, e: Fraction) -> Fraction:
    """By every sequence of cells."""
    total = Fraction(0)
    for sequence in product(cell_sum.cells, repeat=cell_sum.n):
        probability = math.prod((cell.mass for cell in sequence), start=Fraction(1))
        total += probability * max(
            Fraction(0), sum((cell.first - e * cell.second for cell in sequence), Fraction(0))
        )
    return total / cell_sum.n


@for_each("cell_sum", SUMS)
@for_each("epsilon", [0.0, 0.1, 0.7, 2.0, 3.9, 20.7])
def test_both_directions_close_in_on_the_truth(cell_sum: CellSum, epsilon: float) -> None:
    """Within 1e-11 and on their sides, also where P and e Q nearly cancel.

    Planted: the margin of A - e B left out -> fails for the table with ratios of 1e9; multinomial
    coefficients of n instead of what is left -> fails.
    """
    truth = exact(cell_sum, Fraction(math.exp(epsilon)))
    upper, lower = (
        MultinomialCurve(cell_sum, direction).delta(epsilon)
        for direction in (Direction.UPPER, Direction.LOWER)
    )
    assert lower <= truth <= upper
    size = max(cell.first + Fraction(math.exp(epsilon)) * cell.second for cell in cell_sum.cells)
    assert upper - lower <= 1e-11 * float(truth) + 1e-13 * float(size) + 1e-289


def test_the_way_is_chosen_by_size() -> None:
    """Planted: no limit on n -> coefficients beyond the floats, this fails."""
    law = KaryLaw(3, 20, 1)
    assert isinstance(
        sum_curve(blanket_sums(law, 5)[0], Direction.UPPER, 1e-6, 3.0), MultinomialCurve
    )
    two = CellSum(
        FEW + 1,
        (
            Cell(Fraction(1, 2), Fraction(2), Fraction(0)),
            Cell(Fraction(1, 2), Fraction(0), Fraction(2)),
        ),
    )
    assert isinstance(sum_curve(two, Direction.UPPER, 1e-6, 3.0), LatticeCurve)
    many = blanket_sums(law, FEW)[0]
    assert math.comb(FEW + len(many.cells) - 1, len(many.cells) - 1) > MOST
    assert isinstance(sum_curve(many, Direction.UPPER, 1e-6, 3.0), LatticeCurve)
