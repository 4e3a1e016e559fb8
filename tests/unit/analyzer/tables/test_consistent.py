"""Consistent tables against dense least squares, and against a solver for those not below 0."""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from shoal.analyzer.tables.consistent import ConsistentTables, consistent
from shoal.analyzer.tables.marginals import NoisyMarginal, ReleasedTables, TableAttribute, summed
from shoal.entropy import SeededEntropy
from tests.cases import for_each

Floats = NDArray[np.float64]
SIZES = {"a": 2, "b": 3, "c": 2, "d": 4}
PAIRS = tuple(itertools.combinations(SIZES, 2))
SETS = [
    PAIRS,
    (("a", "b"), ("b", "c"), ("d",)),
    (("a", "b", "c"), ("b", "c", "d"), ("a", "d")),
    (("a",), ("a", "b"), ("a", "b", "c"), ("d",)),
    (("a", "b", "c", "d"), ("c", "d")),
]


def normal(count: int, entropy: SeededEntropy) -> Floats:
    """Near enough to normal: the sum of twelve uniform numbers, less six."""
    words = entropy.words(12 * count).reshape(count, 12)
    return np.asarray((words / 2.0**64).sum(axis=1) - 6.0)


def released(
    sets: tuple[tuple[str, ...], ...], seed: int, *, n: int = 900, noise: float = 9.0
) -> ReleasedTables:
    """Marginals of made-up people with noise of another size in each."""
    entropy = SeededEntropy(seed)
    shares = np.abs(normal(math.prod(SIZES.values()), entropy)) + 0.01
    joint = (n * shares / shares.sum()).reshape(tuple(SIZES.values()))
    marginals = []
    for at, names in enumerate(sets):
        error = noise * (1.0 + at / 2.0)
        true = summed(joint, tuple(SIZES), names)
        values = true + error * normal(true.size, entropy).reshape(true.shape)
        marginals.append(NoisyMarginal(names, values, np.full(true.shape, error)))
    attributes = tuple(
        TableAttribute(name, tuple(f"{name}{cell}" for cell in range(cells)))
        for name, cells in SIZES.items()
    )
    return ReleasedTables(attributes, tuple(marginals), n)


def design_matrix(tables: ReleasedTables) -> Floats:
    """Which combinations of all attributes each cell of each marginal counts."""
    shape = tuple(SIZES.values())
    rows = []
    for one in tables.marginals:
        places = [tables.names.index(name) for name in one.names]
        for cell in np.ndindex(one.values.shape):
            inside = np.ones(shape)
            for at, place in enumerate(places):
                only = np.zeros(shape[place])
                only[cell[at]] = 1.0
                inside *= only.reshape([-1 if axis == place else 1 for axis in range(len(shape))])
            rows.append(inside.reshape(-1))
    return np.array(rows)


def flat(found: ConsistentTables) -> Floats:
    return np.concatenate([table.reshape(-1) for table in found.tables])


def least_squares(tables: ReleasedTables) -> Floats:
    """The marginals of the signed table of all attributes that is nearest, with total n: by
    numpy.linalg, through a table that has the total and a basis of those that have none.
    """
    matrix = design_matrix(tables)
    values = np.concatenate([one.values.reshape(-1) for one in tables.marginals])
    weight = np.concatenate([1.0 / one.stderr.reshape(-1) for one in tables.marginals])
    cells = matrix.shape[1]
    start = np.full(cells, tables.n / cells)
    free = np.eye(cells)[:, 1:] - 1.0 / cells
    free -= free.mean(axis=0)
    left = values - matrix @ start
    found = np.linalg.lstsq(weight[:, None] * (matrix @ free), weight * left, rcond=None)[0]
    return np.asarray(matrix @ (start + free @ found))


@for_each("sets", SETS)
def test_they_are_the_exact_least_squares(sets: tuple[tuple[str, ...], ...]) -> None:
    """Planted: weights without the cells that were summed; the total not fixed -> fails."""
    for seed in range(3):
        tables = released(sets, seed)
        assert np.allclose(flat(consistent(tables)), least_squares(tables), rtol=0, atol=1e-8)


@for_each("sets", SETS)
def test_they_agree_and_add_up(sets: tuple[tuple[str, ...], ...]) -> None:
    """Planted: the residual without its centring -> what two tables tell of one attribute
    differs.
    """
    for nonnegative in (False, True):
        found = consistent(released(sets, 5), nonnegative=nonnegative)
        pairs = zip(found.released.marginals, found.tables, strict=True)
        for (one, table), (other, second) in itertools.combinations(pairs, 2):
            both = tuple(name for name in one.names if name in other.names)
            assert np.allclose(
                summed(table, one.names, both), summed(second, other.names, both), atol=1e-9 * 900
            )
        assert all(math.isclose(float(table.sum()), 900.0) for table in found.tables)
        assert not nonnegative or min(float(table.min()) for table in found.tables) >= 0.0


@for_each("sets", [SETS[1], SETS[3], (("a", "b", "c"), ("b", "c", "d"))])
def test_without_negative_cells_they_are_the_nearest(sets: tuple[tuple[str, ...], ...]) -> None:
    """Against scipy's nnls over tables of all attributes, which has the same solution wherever
    tables that agree come from one without negative cells: as they do where no circle of pairs
    is released. A heavy row fixes the total.

    Planted: alternating projections without Dykstra's correction -> another point, fails.
    """
    tables = released(sets, 2, noise=300.0)
    assert min(float(table.min()) for table in consistent(tables).tables) < -1.0  # something to do
    matrix = design_matrix(tables)
    values = np.concatenate([one.values.reshape(-1) for one in tables.marginals])
    weight = np.concatenate([1.0 / one.stderr.reshape(-1) for one in tables.marginals])
    heavy = 1e4
    found, _ = nnls(
        np.vstack([weight[:, None] * matrix, np.full(matrix.shape[1], heavy)]),
        np.append(weight * values, heavy * tables.n),
        maxiter=10_000,
    )
    near = flat(consistent(tables, nonnegative=True))
    assert np.max(np.abs(near - matrix @ found)) < 0.05


@for_each("sets", SETS)
def test_the_standard_errors_are_those_of_the_tables(sets: tuple[tuple[str, ...], ...]) -> None:
    """Exactly: each cell of the tables is a linear function of all estimates, and its variance the
    sum of their variances times the squares of its coefficients, found one estimate at a time. It
    is below that of the marginal alone, which is what agreement is worth.

    Planted: the variance of the part of no attribute counted too, though n is known -> fails.
    """
    tables = released(sets, 3)
    before = consistent(tables)
    start = flat(before)
    variance = np.zeros_like(start)
    for at, one in enumerate(tables.marginals):
        for cell in np.ndindex(one.values.shape):
            moved = one.values.copy()
            moved[cell] += 1.0
            changed = NoisyMarginal(one.names, moved, one.stderr)
            marginals = (*tables.marginals[:at], changed, *tables.marginals[at + 1 :])
            after = flat(consistent(ReleasedTables(tables.attributes, marginals, tables.n)))
            variance += (after - start) ** 2 * one.variance
    stated = np.concatenate(
        [
            np.full(table.size, error)
            for table, error in zip(before.tables, before.stderr, strict=True)
        ]
    )
    assert np.allclose(np.sqrt(variance), stated, rtol=1e-6)
    for error, one in zip(before.stderr, tables.marginals, strict=True):
        assert error < one.stderr.flat[0]
