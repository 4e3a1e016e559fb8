"""Hierarchies made consistent: against plain least squares by matrices, and ranges one by one."""

from __future__ import annotations

import math

import pytest

from shoal.arrays import NDArray, np
from shoal.errors import ShoalError
from shoal.mechanisms.several.least_squares import (
    covariance,
    fitted,
    mean_range_variance,
    range_variance,
    usual_tree,
)
from shoal.mechanisms.several.tree import MOST_LEVELS, CellTree, most_levels
from tests.cases import for_each

TREES = [
    CellTree(16, 4, 2),
    CellTree(16, 2, 4),
    CellTree(17, 4, 3),  # a last block of one cell, in a block of one block
    CellTree(23, 3, 3),
    CellTree(9, 2, 1),
    CellTree(100, 4, 4),
]


def counted(tree: CellTree) -> NDArray[np.float64]:
    """float64[nodes, cells]: which cells each node holds, by its path."""
    found = np.zeros((tree.nodes, tree.cells))
    for cell in range(tree.cells):
        found[list(tree.path(cell)), cell] = 1.0
    return found


def by_matrices(tree: CellTree) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(float64[cells, nodes], float64[cells, cells]): the weights of the counts, and covariances,
    of least squares with a known sum: all cells but the last are free.
    """
    whole = counted(tree)
    free = whole[:, :-1] - whole[:, -1:]
    solved = np.linalg.inv(free.T @ free)
    last = np.vstack([np.eye(tree.cells - 1), -np.ones(tree.cells - 1)])
    return last @ solved @ free.T, last @ solved @ last.T


def test_a_path_holds_its_cell_at_every_level() -> None:
    """Planted: blocks of ``base`` cells at every level -> fails; levels numbered from the top ->
    fails.
    """
    tree = CellTree(17, 4, 3)
    assert tree.sizes == (17, 5, 2)
    assert tree.nodes == 24
    assert tree.path(0) == (0, 17, 22)
    assert tree.path(15) == (15, 20, 22)
    assert tree.path(16) == (16, 21, 23)
    assert most_levels(17, 4) == 3
    assert most_levels(16, 4) == 2
    assert most_levels(2, 4) == 1
    assert most_levels(10**9, 2) == MOST_LEVELS


@for_each("tree", TREES)
def test_cells_are_those_of_plain_least_squares(tree: CellTree) -> None:
    """Counts that fit nothing, and the known sum. Planted: what a block has over divided evenly ->
    fails where blocks are uneven; y and S with their weights exchanged -> fails.
    """
    whole = counted(tree)
    counts = np.array([float((97 * at) % 31) for at in range(tree.nodes)])
    for total in (0.0, 250.0):
        found = fitted(tree, counts, total)
        assert float(found.sum()) == pytest.approx(total, abs=1e-9)
        weights, _ = by_matrices(tree)
        # the last cell is what the others leave of the total
        offset = counts - whole[:, -1] * total
        expected = weights @ offset + np.append(np.zeros(tree.cells - 1), total)
        assert found == pytest.approx(expected, abs=1e-8)


def test_true_counts_stay() -> None:
    """Counts without noise come out as they are. Planted: V / (V + 1) for both weights -> fails."""
    tree = CellTree(100, 4, 4)
    devices = np.array([float(at * at % 13) for at in range(100)])
    assert fitted(tree, counted(tree) @ devices, float(devices.sum())) == pytest.approx(devices)


@for_each("tree", TREES)
def test_covariances_are_those_of_plain_least_squares(tree: CellTree) -> None:
    """Of every pair of sums, and of every range. Planted: ``before`` without the share of the node
    that a sum ends in -> fails; blocks that have not met taken to have -> fails; v of the first
    node for all -> fails in uneven trees.
    """
    _, expected = by_matrices(tree)
    k = tree.cells
    sums = np.tril(np.ones((k + 1, k)), -1)  # of the cells before each end
    table = sums @ expected @ sums.T
    one, other = (each.ravel() for each in np.indices((k + 1, k + 1)))
    found = covariance(tree, one, other)
    assert found == pytest.approx(table.ravel(), abs=1e-9)
    first, end = np.triu_indices(k + 1, 1)
    ranges = sums[end] - sums[first]
    variances = np.einsum("rc,cd,rd->r", ranges, expected, ranges)
    assert range_variance(tree, first, end) == pytest.approx(variances, abs=1e-9)
    assert mean_range_variance(tree) == pytest.approx(float(variances.mean()), rel=1e-9)


@for_each("tree", TREES)
def test_one_message_moves_no_range_by_more_than_one(tree: CellTree) -> None:
    """What a device that lies can do: each message in any node, and every range. Planted: what a
    block has over given to each of its nodes once more -> fails.
    """
    for node in range(tree.nodes):
        alone = np.zeros(tree.nodes)
        alone[node] = 1.0
        sums = np.append(0.0, np.cumsum(fitted(tree, alone, 0.0)))
        assert float(sums.max() - sums.min()) < 1.0


def test_a_range_of_a_hierarchy_errs_less() -> None:
    """1,024 cells: what every level costs is paid back. In units of what a level adds to the
    dummies of a cell, ranges err by less than a third of flat ones. Planted: covariances of cells
    left out -> fails.
    """
    flat, deep = (mean_range_variance(CellTree(1024, 4, levels)) for levels in (1, 4))
    assert deep * 4.2 < flat * 1.2 / 9
    assert math.sqrt(deep) == pytest.approx(2.134, abs=0.001)


@for_each(
    "cells, tree",
    [
        (5, CellTree(5, 4, 1)),
        (33, CellTree(33, 4, 2)),
        (1024, CellTree(1024, 4, 4)),
        (1025, CellTree(1025, 4, 4)),
        (20_001, CellTree(20_001, 4, 6)),
    ],
)
def test_the_usual_tree(cells: int, tree: CellTree) -> None:
    """Found without a guarantee, so the same for all. Planted: the best alone, whatever messages it
    takes -> fails.
    """
    assert usual_tree(cells) == tree


def test_what_is_no_hierarchy_is_refused() -> None:
    """Planted: each condition left out -> its line fails."""
    for cells, base, levels in [
        (16, 1, 1),
        (16, 300, 1),
        (16, 4, 0),
        (16, 4, 3),
        (60_000, 4, 2),
        (1, 2, 1),
        (2**15, 2, 17),
    ]:
        with pytest.raises(ShoalError, match="a hierarchy has a base of 2 to 256, 1 to 16 levels"):
            CellTree(cells, base, levels)
    with pytest.raises(ShoalError, match="give fewer levels, another base, or fewer cells"):
        usual_tree(70_000)
    tree = CellTree(16, 4, 2)
    with pytest.raises(ShoalError, match="one count of each node"):
        fitted(tree, np.zeros(16), 0.0)
    with pytest.raises(ShoalError, match="ends at 0 to 16 cells"):
        covariance(tree, np.array([0]), np.array([17]))
