"""Weights of a map: against the definition in fractions, and what they promise by themselves."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from shoal.entropy import SeededEntropy
from shoal.mechanisms.maps.planar import PlanarTable
from shoal.mechanisms.maps.planar_weights import PlaneWeights, _powers
from shoal.questions.plane import Plane
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.conformance.mechanisms.test_planar import stated_table

WORDS = 1 << 64
# rows, columns, width, height, border, decay per millimetre
SHAPES = [
    (1, 2, 3, 5, 0, 0.3),
    (2, 3, 4, 3, 0, 0.2),
    (3, 3, 2, 5, 1, 0.1),
    (2, 2, 3, 3, 3, 0.4),
    (4, 3, 2, 2, 4, 0.05),
    (5, 1, 1, 3, 2, 0.3),
    (3, 4, 9, 1, 2, 1e-6),
]


def weights_of(shape: tuple[int, int, int, int, int, float]) -> PlaneWeights:
    rows, columns, width, height, border, rate = shape
    return PlaneWeights(Plane(rows, columns, width, height), border, int(WORDS * math.exp(-rate)))


@for_each("shape", SHAPES)
def test_rows_are_those_of_the_definition(shape: tuple[int, int, int, int, int, float]) -> None:
    """To the last integer. Planted: the summed area of one row too few; a border on one side alone;
    "elsewhere" spread evenly over the map -> fails.
    """
    weights = weights_of(shape)
    rows, columns, width, height, border, _ = shape
    spec = MechanismSpec.of(
        "planar",
        rows=rows,
        columns=columns,
        width=width,
        height=height,
        border=border,
        decay=weights.decay,
    )
    made = tuple(weights.row(cell) for cell in range(rows * columns + 1))
    assert made == stated_table(spec)
    assert all(sum(row) == WORDS and min(row) >= 1 for row in made)


@for_each("shape", SHAPES)
def test_turned_rows_are_the_rows(shape: tuple[int, int, int, int, int, float]) -> None:
    """Four cells share the work. Planted: columns turned where rows should be -> fails."""
    weights = weights_of(shape)
    table = PlanarTable(weights)
    for cell in range(table.cells):
        assert table.row(cell) == weights.row(cell)


def test_draws_of_many_are_those_of_one() -> None:
    """Planted: outputs not put back to their devices -> fails. (Thresholds: conformance.)"""
    table = PlanarTable(weights_of(SHAPES[4]))
    values = np.arange(table.cells).repeat(1_000)
    words = SeededEntropy("many").words(values.size)
    drawn = table.draw(values, SeededEntropy("many"))
    for cell in range(table.cells):
        ends = np.array(table.thresholds(cell), dtype=np.uint64)
        here = words[values == cell]
        assert (drawn[values == cell] == (here[:, None] >= ends).sum(axis=1)).all()


def test_elsewhere_costs_no_more_than_the_map() -> None:
    """Its column, and the columns with its row in them, have the ratio of the map's corner.
    Planted: q twice as large, or half -> fails.
    """
    for shape in SHAPES[:6]:
        weights = weights_of(shape)
        rows = [weights.row(cell) for cell in range(weights.plane.cells + 1)]
        corner = Fraction(max(row[0] for row in rows[:-1]), min(row[0] for row in rows[:-1]))
        last = Fraction(rows[-1][-1], rows[0][-1])
        with_elsewhere = max(
            Fraction(max(row[y] for row in rows[:-1]), rows[-1][y]) for y in range(len(rows) - 1)
        )
        assert abs(last / corner - 1) < Fraction(1, 10**12)
        assert abs(with_elsewhere / corner - 1) < Fraction(1, 10**12)


def test_powers_are_those_of_fractions() -> None:
    decay = int(WORDS * 0.9)
    power = _powers(decay)
    for exponent in (0, 1, 2, 3, 50, 129):
        exact = Fraction(decay, WORDS) ** exponent * (1 << 192)
        assert 0 <= exact - power(exponent) <= 20
