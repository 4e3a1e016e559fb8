"""A map in blocks made consistent: against least squares by matrices, and by enumeration."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from shoal.errors import ShoalError
from shoal.mechanisms.maps.block_squares import (
    BlockGrid,
    cell_variances,
    fitted,
    mean_length,
    mean_rectangle_variance,
    rectangle_variance,
    usual_grid,
)
from shoal.mechanisms.several import least_squares
from shoal.mechanisms.several.tree import CellTree
from tests.cases import for_each

GRIDS = [BlockGrid(4, 4, 2), BlockGrid(5, 7, 3), BlockGrid(1, 6, 4), BlockGrid(6, 2, 6)]


def by_matrices(grid: BlockGrid) -> tuple[np.ndarray, np.ndarray]:
    """(gain, covariance) of the cells: x = start + gain @ counts with a known sum, by its null
    space.
    """
    k = grid.cells
    design = np.zeros((grid.nodes, k))
    for cell in range(k):
        design[list(grid.path(cell)), cell] = 1.0
    free = np.linalg.svd(np.ones((1, k)))[2][1:].T  # what keeps the sum
    inner = free @ np.linalg.inv(free.T @ design.T @ design @ free) @ free.T
    return inner @ design.T, inner


def rectangles(lines: int) -> list[tuple[int, int]]:
    return [(first, end) for first in range(lines) for end in range(first + 1, lines + 1)]


@for_each("grid", GRIDS)
def test_fits_and_errors_are_those_of_least_squares(grid: BlockGrid) -> None:
    """Planted: ``z`` without the block's own count; the known sum shared equally; ``1 / m`` left
    out of a cell's variance; "elsewhere" without a block -> each fails.
    """
    gain, covariance = by_matrices(grid)
    counts = np.random.default_rng(3).normal(size=grid.nodes) * 9.0
    start = np.full(grid.cells, 40.0 / grid.cells)  # any point with the sum
    design = np.array(
        [[node in grid.path(cell) for cell in range(grid.cells)] for node in range(grid.nodes)]
    )
    expected = start + gain @ (counts - design @ start)
    found = fitted(grid, counts, 40.0)
    assert found == pytest.approx(expected, abs=1e-9)
    assert found.sum() == pytest.approx(40.0)
    assert cell_variances(grid) == pytest.approx(np.diag(covariance), abs=1e-9)


@for_each("grid", GRIDS)
def test_rectangles_and_their_mean_by_enumeration(grid: BlockGrid) -> None:
    """Planted: the term of the known sum left out; the mean over intervals with one end
    too few -> each fails.
    """
    _, covariance = by_matrices(grid)
    found = list[float]()
    for rows, columns in product(rectangles(grid.rows), rectangles(grid.columns)):
        cells = [row * grid.columns + column for row in range(*rows) for column in range(*columns)]
        expected = covariance[np.ix_(cells, cells)].sum()
        said = rectangle_variance(grid, rows, columns)
        assert said == pytest.approx(expected, abs=1e-9)
        found.append(said)
    assert mean_rectangle_variance(grid) == pytest.approx(np.mean(found), rel=1e-9)
    lengths = [end - first for first, end in rectangles(grid.rows)]
    assert mean_length(grid.rows) == pytest.approx(np.mean(lengths))


def test_even_blocks_are_a_hierarchy() -> None:
    """In the order of blocks, cells and blocks are a tree of base side^2: the same numbers as
    ``least_squares`` has. Planted: blocks numbered by columns -> fails.
    """
    grid, tree = BlockGrid(6, 9, 3), CellTree(55, 9, 2)
    order = sorted(range(55), key=lambda cell: (grid.path(cell)[1], cell))
    counts = np.random.default_rng(4).normal(size=grid.nodes)
    in_tree = np.concatenate([counts[order], counts[55:]])
    assert least_squares.fitted(tree, in_tree, 7.0) == pytest.approx(
        fitted(grid, counts, 7.0)[order], abs=1e-9
    )


def test_the_usual_side_errs_least() -> None:
    """And of 32 x 32 cells it is 3, where sides of 4 err by 6 % more. Planted: the largest side
    first -> fails.
    """
    for rows, columns in ((32, 32), (16, 16), (128, 128), (1, 40), (5, 300)):
        best = usual_grid(rows, columns)
        for side in (2, 3, 4, 5, 8):
            other = BlockGrid(rows, columns, side)
            assert mean_rectangle_variance(best) <= mean_rectangle_variance(other)
    assert usual_grid(32, 32).side == 3
    three, four = (mean_rectangle_variance(BlockGrid(32, 32, side)) for side in (3, 4))
    assert math.sqrt(four / three) == pytest.approx(1.064, abs=0.001)


@for_each(
    "rows, columns, side",
    [(4, 4, 1), (4, 4, 5), (300, 300, 257), (0, 4, 2), (1_025, 2, 4), (255, 257, 2), (1, 1, 2)],
)
def test_what_cannot_be_is_refused(rows: int, columns: int, side: int) -> None:
    """Planted: sides of 1; more than 1,024 rows -> fails."""
    with pytest.raises(ShoalError, match="blocks"):
        BlockGrid(rows, columns, side)


def test_rectangles_are_on_the_map() -> None:
    grid = BlockGrid(4, 4, 2)
    for rows in ((0, 0), (2, 1), (-1, 2), (0, 5)):
        with pytest.raises(ShoalError, match="all on the map"):
            rectangle_variance(grid, rows, (0, 1))
    with pytest.raises(ShoalError, match="one count of each cell and block"):
        fitted(grid, np.zeros(3), 1.0)
