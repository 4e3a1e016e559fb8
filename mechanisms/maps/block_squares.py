"""A map in two levels, cells and square blocks of them, made consistent: cells whose sums over
blocks fit both levels best, and exactly how much a rectangle of them errs.

A block is ``side`` x ``side`` cells, counted from the south-west; those at the northern and eastern
edges are smaller where the map does not come out even. "Elsewhere" is a cell, and a block by
itself. Every cell and every block was counted with noise of one variance, independent of the
others, and the sum of all cells is known: the number of devices. Least squares (as in
``least_squares``, whose trees are of one base; here blocks may be uneven, and a rectangle is no
range of cells) have a closed form. With m cells in a block, y their counts and S their sum, Y the
block's own count, and n the known sum of all,

    z = (m Y + S) / (m + 1),    v = m / (m + 1)               the block from its own count and below
    x_block = z + (v / V) (n - sum of z),    V = sum of v
    x_cell = y + (x_block - S) / m.

*A rectangle* has q of the m cells of each block. Given what x_block errs by, the errors below it
are those of m counts whose sum is known, independent of all other blocks:

    Var = sum of q (1 - q / m) + sum of f^2 v - (sum of f v)^2 / V,    f = q / m,

in variances of a count. Over all rectangles, f is a product of one factor of the rows and one of
the columns, so that the mean of each term is one of products of means over intervals.

*Checked* against plain least squares by matrices, and by enumeration
(tests/unit/mechanisms/maps/test_block_squares.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from shoal.arrays import NDArray, np
from shoal.errors import ShoalError
from shoal.limits import LIMITS
from shoal.mechanisms.base import invalid

_Floats: TypeAlias = "NDArray[np.float64]"
MOST_SIDE = 256
MOST_LINES = 1_024  # rows, and columns, of such a map: the means take that much work squared
_USUAL = 32  # the largest side that is looked at by itself


@dataclass(frozen=True, slots=True)
class BlockGrid:
    """``rows`` x ``columns`` cells and "elsewhere", in blocks of ``side`` x ``side``. Raises
    INVALID for a side that is not from 2 to 256 and to the longer side of the map, for more rows or
    columns than 1,024, and where cells and blocks together are more than a task may have cells.
    """

    rows: int
    columns: int
    side: int

    def __post_init__(self) -> None:
        longest = max(self.rows, self.columns)
        if not 2 <= self.side <= min(MOST_SIDE, longest) or min(self.rows, self.columns) < 1:
            raise invalid(
                f"the blocks of a map are 2 to {MOST_SIDE} cells wide, and no wider than the map"
            )
        if longest > MOST_LINES or self.nodes > LIMITS.cells:
            raise invalid(
                f"a map in blocks has at most {MOST_LINES:,} rows and columns, and {LIMITS.cells:,}"
                " cells and blocks together: choose fewer"
            )

    @property
    def cells(self) -> int:
        """Of the map, and "elsewhere"."""
        return self.rows * self.columns + 1

    @property
    def across(self) -> int:
        """Blocks in a row of them."""
        return -(-self.columns // self.side)

    @property
    def blocks(self) -> int:
        """Of the map, and that of "elsewhere"."""
        return -(-self.rows // self.side) * self.across + 1

    @property
    def nodes(self) -> int:
        """Cells and blocks."""
        return self.cells + self.blocks

    def path(self, cell: int) -> tuple[int, int]:
        """The numbers of a cell and of its block: cells come first, then blocks row by row, each
        "elsewhere" last.
        """
        if cell == self.cells - 1:
            return cell, self.nodes - 1
        row, column = divmod(cell, self.columns)
        return cell, self.cells + row // self.side * self.across + column // self.side


@dataclass(frozen=True, slots=True, eq=False)
class _Sizes:
    """``heights``, ``widths``: float64, of block rows and columns; ``v``: float64[down, across],
    and ``total`` V with that of "elsewhere".
    """

    heights: _Floats
    widths: _Floats
    v: _Floats
    total: float


@lru_cache(maxsize=64)
def _sizes(grid: BlockGrid) -> _Sizes:
    heights, widths = _lengths(grid.rows, grid.side), _lengths(grid.columns, grid.side)
    cells = np.outer(heights, widths)
    v: _Floats = cells / (cells + 1.0)
    return _Sizes(heights, widths, v, float(v.sum()) + 0.5)


def _lengths(length: int, side: int) -> _Floats:
    starts = np.arange(0, length, side)
    return np.asarray(np.minimum(starts + side, length) - starts, dtype=np.float64)


def _block_of(grid: BlockGrid) -> NDArray[np.int64]:
    """int64[cells]: numbers of blocks from 0."""
    rows = np.arange(grid.rows) // grid.side * grid.across
    inside = rows[:, None] + np.arange(grid.columns)[None, :] // grid.side
    return np.append(inside.reshape(-1), grid.blocks - 1).astype(np.int64)


def fitted(grid: BlockGrid, counts: _Floats, total: float) -> _Floats:
    """float64[cells], the least squares of the module's text: sums to ``total``. ``counts``:
    float64[nodes], unbiased, of one variance, cells first. Raises INVALID for another number.
    """
    if counts.shape != (grid.nodes,):
        raise invalid("a map in blocks is fitted to one count of each cell and block")
    own, blocks = np.split(np.asarray(counts, dtype=np.float64), [grid.cells])
    up = _block_of(grid)
    m = np.bincount(up, minlength=grid.blocks).astype(np.float64)
    sums = np.bincount(up, own, grid.blocks)
    z = (m * blocks + sums) / (m + 1.0)
    v = m / (m + 1.0)
    found = z + v * ((total - z.sum()) / v.sum())
    return np.asarray(own + ((found - sums) / m)[up], dtype=np.float64)


def cell_variances(grid: BlockGrid) -> _Floats:
    """float64[cells], in variances of a count."""
    sizes = _sizes(grid)
    m = np.append(np.outer(sizes.heights, sizes.widths).reshape(-1), 1.0)
    v = np.append(sizes.v.reshape(-1), 0.5)
    each = 1.0 - 1.0 / m + v / m**2 - (v / m) ** 2 / sizes.total
    return np.asarray(each[_block_of(grid)], dtype=np.float64)


def rectangle_variance(grid: BlockGrid, rows: tuple[int, int], columns: tuple[int, int]) -> float:
    """Of the sum of the cells in rows ``rows[0]`` .. ``rows[1]`` - 1 and the same of columns; in
    variances of a count. Raises INVALID for a rectangle that is empty or leaves the map.
    """
    for (first, end), length in ((rows, grid.rows), (columns, grid.columns)):
        if not 0 <= first < end <= length:
            raise invalid("a rectangle has one row and column or more, all on the map")
    sizes = _sizes(grid)
    down = _overlaps(grid.rows, grid.side, *rows)
    across = _overlaps(grid.columns, grid.side, *columns)
    f = np.outer(down / sizes.heights, across / sizes.widths)
    q = np.outer(down, across)
    shared = float((f * sizes.v).sum())
    found = float((q - q * f).sum() + (f * f * sizes.v).sum()) - shared * shared / sizes.total
    return max(found, 0.0)


def _overlaps(length: int, side: int, first: int, end: int) -> _Floats:
    """float64[blocks]: lines of each block that are in ``first`` .. ``end`` - 1."""
    starts = np.arange(0, length, side)
    stops = np.minimum(starts + side, length)
    held = np.minimum(stops, end) - np.maximum(starts, first)
    return np.asarray(np.clip(held, 0, None), dtype=np.float64)


@lru_cache(maxsize=256)
def mean_rectangle_variance(grid: BlockGrid) -> float:
    """The mean of ``rectangle_variance`` over all rectangles of one cell or more."""
    sizes = _sizes(grid)
    down, across = _products(grid.rows, grid.side), _products(grid.columns, grid.side)
    shares_down = down / np.outer(sizes.heights, sizes.heights)
    shares_across = across / np.outer(sizes.widths, sizes.widths)
    of_cells = mean_length(grid.rows) * mean_length(grid.columns)
    within = float(np.outer(np.diag(down) / sizes.heights, np.diag(across) / sizes.widths).sum())
    of_blocks = float((np.outer(np.diag(shares_down), np.diag(shares_across)) * sizes.v).sum())
    shared = float((shares_down * (sizes.v @ shares_across @ sizes.v.T)).sum())
    return float(of_cells - within + of_blocks - shared / sizes.total)


def mean_length(lines: int) -> float:
    """Of all intervals of one line or more among so many."""
    return (lines + 2) / 3.0


def _products(length: int, side: int) -> _Floats:
    """float64[blocks, blocks]: the mean, over all intervals of lines, of the product of how many
    lines of two blocks are in it. With F(t) the lines of a block below t, and N = length + 1 ends,
    the sum over i < j of (F(j) - F(i)) (G(j) - G(i)) is N times the sum of F G, less the sum of F
    times that of G.
    """
    starts = np.arange(0, length, side)
    ends = np.arange(length + 1)
    below = np.clip(ends[None, :] - starts[:, None], 0, _lengths(length, side)[:, None])
    below = below.astype(np.float64)
    sums = below.sum(axis=1)
    pairs = (length + 1) * (below @ below.T) - np.outer(sums, sums)
    return np.asarray(pairs / (length * (length + 1) / 2.0), dtype=np.float64)


def usual_grid(rows: int, columns: int) -> BlockGrid:
    """The side with which rectangles err least, of 2 to 32 cells; of equals the largest, which has
    the fewest blocks. Raises INVALID where no side can be had.
    """
    grids = []
    for side in range(2, min(_USUAL, max(rows, columns)) + 1):
        try:
            grids.append(BlockGrid(rows, columns, side))
        except ShoalError:  # too many blocks: larger ones are fewer
            continue
    if not grids:
        return BlockGrid(rows, columns, 2)  # which says why not
    return min(grids, key=lambda grid: (mean_rectangle_variance(grid), grid.blocks))
