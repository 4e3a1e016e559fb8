"""The nodes of a hierarchy made consistent: cells whose sums over blocks fit all counted nodes
best, and exactly how much they err.

Every node was counted with noise of one variance, independent of the others, and the sum of all
cells is known. Least squares is then the best that is linear and unbiased (Gauss, Markov; for
hierarchies of queries: Hay, Rastogi, Miklau, Suciu, "Boosting the accuracy of differentially
private histograms through consistency", VLDB 2010, who have even trees and no known sum). It takes
two passes. Up: z of a node is the best estimate of it from its own count and those below it,

    z = (V y + S) / (V + 1),    v = V / (V + 1),

y its count, S and V the sum of z and of their variances v over the nodes below (all in units of
one count's variance); of a cell z = y, v = 1. Down: what a block is found to have more than its
nodes have together goes to these in proportion to their variances,

    x = z + (v / V) (x of the block - S),

from the top, where the block is everything. x of a block is the sum of x below it. (Each step is
the best linear estimate from independent ones, so trees need not be even.)

**Covariances.** On a tree, given what x errs by in a block, the errors below it are independent of
all others. Let F_i be the sum of the cells before cell i. Inside a block
whose sum is known F_i errs as a X + (an independent error), where a = A / V, A = the sum of v over
the nodes wholly before i, plus a' v of the one that i is in, a' being its a. Two errors F_i, F_j, i
<= j, of one block have the covariance

    sum of v over what both hold - A_i A_j / V  (+ that inside the node, where both are in one),

so a walk from the cells to the top finds the covariance of any two F, and of any two ranges, in
``levels`` steps; exact but for rounding.

*Checked* against plain least squares by matrices (tests/unit/mechanisms/several/
test_least_squares.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from shoal.arrays import NDArray, np
from shoal.mechanisms.base import invalid
from shoal.mechanisms.several.tree import CellTree, most_levels

_Floats: TypeAlias = "NDArray[np.float64]"
_Ints: TypeAlias = "NDArray[np.int64]"
_BASES = 4, 8, 16, 32
_FIRST = 0.2
_NEAR = 1.03**2


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """``v``: float64[size], variances of z; ``up``: int64[size], the block of each node; ``below``:
    float64[blocks], V of each block; ``before``: float64[size], the sum of v over the nodes of a
    block that stand before.
    """

    v: _Floats
    up: _Ints
    below: _Floats
    before: _Floats


@lru_cache(maxsize=16)
def _levels(tree: CellTree) -> tuple[_Level, ...]:
    out, v = [], np.ones(tree.cells)
    for size, parents in zip(tree.sizes, (*tree.sizes[1:], 1), strict=True):
        up = np.arange(size, dtype=np.int64)
        up = up // tree.base if parents > 1 else np.zeros_like(up)
        below: _Floats = np.bincount(up, v, minlength=parents).astype(np.float64)
        running = np.cumsum(v) - v
        first = np.searchsorted(up, np.arange(parents))
        out.append(_Level(v, up, below, running - running[first][up]))
        v = below / (below + 1.0)
    return tuple(out)


def fitted(tree: CellTree, counts: _Floats, total: float) -> _Floats:
    """float64[cells], the least squares of the module's text: sums to ``total``. ``counts``:
    float64[nodes], unbiased, of one variance, level by level from the cells on. Raises INVALID for
    another number of them.
    """
    if counts.shape != (tree.nodes,):
        raise invalid("a hierarchy is fitted to one count of each node: give its own tally")
    levels, ends = _levels(tree), np.cumsum(tree.sizes)[:-1]
    own = np.split(np.asarray(counts, dtype=np.float64), ends)
    z, sums = [own[0]], list[_Floats]()
    for at, level in enumerate(levels):
        sums.append(np.bincount(level.up, z[at], len(level.below)).astype(np.float64))
        if at + 1 < len(levels):
            z.append((level.below * own[at + 1] + sums[at]) / (level.below + 1.0))
    x: _Floats = np.array([total])
    for at in reversed(range(len(levels))):
        level = levels[at]
        left = (x - sums[at]) / level.below
        x = z[at] + level.v * left[level.up]
    return x


def covariance(tree: CellTree, one: _Ints, other: _Ints) -> _Floats:
    """float64[len]: of the sums of the cells before ``one`` and before ``other``, int64[len] each,
    0 to ``cells``; in variances of a count. Raises INVALID for other numbers.
    """
    for ends in (one, other):
        if ends.size and not 0 <= int(ends.min()) <= int(ends.max()) <= tree.cells:
            raise invalid(f"a range of a hierarchy ends at 0 to {tree.cells} cells")
    # What lies before the end of all is known: it has no error.
    open_ = (one < tree.cells) & (other < tree.cells)
    at = [np.minimum(one, other)[open_], np.maximum(one, other)[open_]]
    shares = [np.zeros(len(at[0])), np.zeros(len(at[0]))]
    found = np.zeros(len(at[0]))
    for level in _levels(tree):
        parts = [
            level.before[end] + share * level.v[end] for end, share in zip(at, shares, strict=True)
        ]
        same, ups = at[0] == at[1], [level.up[end] for end in at]
        both = np.where(
            same, level.before[at[0]] + shares[0] * shares[1] * level.v[at[0]], parts[0]
        )
        below = level.below[ups[0]]
        met = ups[0] == ups[1]
        found = np.where(met, found + both - parts[0] * parts[1] / below, 0.0)
        shares = [part / level.below[up] for part, up in zip(parts, ups, strict=True)]
        at = ups
    out = np.zeros(len(one))
    out[open_] = found
    return out


def range_variance(tree: CellTree, first: _Ints, end: _Ints) -> _Floats:
    """float64[len]: of the sums of the cells ``first`` .. ``end`` - 1, int64[len] each; in
    variances of a count.
    """
    whole = covariance(tree, first, first) + covariance(tree, end, end)
    return np.maximum(whole - 2.0 * covariance(tree, first, end), 0.0)


@lru_cache(maxsize=256)
def mean_range_variance(tree: CellTree) -> float:
    """The mean, over all ranges of one cell or more, of their variances; in variances of a count.

    The sum over i < j of Var(F_j - F_i) is (k + 1) times the sum of all Var(F_i), less that of
    their sum; which has the weight k - c in cell c. Least squares of weights at the cells alone,
    0 everywhere else, are the covariances with that sum.
    """
    k = tree.cells
    ends = np.arange(k + 1, dtype=np.int64)
    weights: _Floats = (k - np.arange(k)).astype(np.float64)
    alone = np.concatenate([weights, np.zeros(tree.nodes - k)])
    of_sum = math.fsum((weights * fitted(tree, alone, 0.0)).tolist())
    of_each = math.fsum(covariance(tree, ends, ends).tolist())
    return ((k + 1) * of_each - of_sum) / (k * (k + 1) / 2)


def usual_tree(cells: int) -> CellTree:
    """Over ``cells`` >= 2: of the bases 4, 8, 16 and 32 and all numbers of levels, the fewest true
    messages whose ranges err by 3 % more than those of the best at most. What a level costs is
    taken as ``levels`` + 1/5 times as many dummies, which is near for any guarantee. Raises INVALID
    for more cells than leave room for their blocks.
    """
    found = []
    for base in _BASES:
        for levels in range(1, most_levels(cells, base) + 1):
            tree = CellTree(cells, base, levels)
            cost = (levels + _FIRST) * mean_range_variance(tree)
            found.append((levels, cost, tree))
    least = min(cost for _, cost, _ in found)
    good = [each for each in found if each[1] <= least * _NEAR]
    return min(good, key=lambda each: (each[0], each[1]))[2]
