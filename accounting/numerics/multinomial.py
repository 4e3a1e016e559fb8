"""A ``CellSum`` of few reports or few cells, by going through all counts: exact but for rounding,
at any delta.

With k_j reports in cell j, sum L = A - e B with A = sum k_j first_j and B = sum k_j second_j, so

    delta(epsilon) = (1/n) * sum over all counts of  n! / (k_1! ... k_J!) p_1^k_1 ... p_J^k_J  (A -
    e B)_+ .

There are C(n + J - 1, J - 1) ways to count. Where these are at most ``MOST`` (and n at most
``FEW``, so that coefficients stay within floats) this is quicker and tighter than the contour
integral of ``lattice``, which needs many frequencies when a few reports say everything.

*Errors* (u = 2^-53). A probability is a product of at most n + J factors, each good to 2 u, and of
binomial coefficients, correctly rounded; A and B are sums of J products: together below 8 (n + J) u
of themselves. A - e B cancels, so it is moved by 16 (n + J) u of A + e B to the safe side, the
result by as much of itself. Probabilities that underflow are below 1e-300: added to upper values.

*Checked* against enumeration in exact rationals, in both directions
(tests/unit/accounting/numerics/test_multinomial.py).
"""

from __future__ import annotations

import math

from shoal.accounting.numerics.binomial import Floats, Ints
from shoal.accounting.numerics.cells import CellSum
from shoal.accounting.numerics.curve import Direction
from shoal.accounting.numerics.lattice import ROUGH_CONTOUR, LatticeCurve
from shoal.arrays import np

MOST, FEW = 20_000, 128
_UNIT = 2.0**-53
_TINY = 1e-290


def sum_curve(
    cells: CellSum, direction: Direction, delta: float, epsilon_max: float
) -> MultinomialCurve | LatticeCurve:
    """The curve of a sum, by the way that suits its size. Direction: as asked; same contract as
    ``curve.Curve``.
    """
    if _few(cells):
        return MultinomialCurve(cells, direction)
    return LatticeCurve(cells, direction, delta, epsilon_max)


def sum_proves(cells: CellSum, delta: float, epsilon: float) -> bool:
    """Whether the upper curve of a sum is at most ``delta`` at ``epsilon``. False says nothing.

    A contour integral is taken roughly first. Both of its ends are bounds: an upper one of at most
    delta proves it, and where a lower one is above delta no upper curve can. Only what lies between
    is computed in full.
    """
    if not _few(cells):
        rough = LatticeCurve(cells, Direction.UPPER, delta, epsilon, ROUGH_CONTOUR)
        if rough.delta(epsilon) <= delta:
            return True
        if sum_refutes(cells, delta, epsilon):
            return False
    return sum_curve(cells, Direction.UPPER, delta, epsilon).delta(epsilon) <= delta


def sum_refutes(cells: CellSum, delta: float, epsilon: float) -> bool:
    """Whether a rough lower bound of a sum is above ``delta`` at ``epsilon``: then no upper one is
    at most delta. False says nothing.
    """
    if _few(cells):
        return MultinomialCurve(cells, Direction.LOWER).delta(epsilon) > delta
    rough = LatticeCurve(cells, Direction.LOWER, delta, epsilon, ROUGH_CONTOUR)
    return rough.delta(epsilon) > delta


def _few(cells: CellSum) -> bool:
    """Whether all ways to count are gone through."""
    if cells.n > FEW:
        return False
    return math.comb(cells.n + len(cells.cells) - 1, len(cells.cells) - 1) <= MOST


class MultinomialCurve:
    """delta as a function of epsilon for one sum, never below (UPPER) or never above (LOWER) the
    true value.
    """

    def __init__(self, cell_sum: CellSum, direction: Direction) -> None:
        self._n = cell_sum.n
        self._sign = 1.0 if direction is Direction.UPPER else -1.0
        self._margin = 16.0 * (cell_sum.n + len(cell_sum.cells)) * _UNIT
        remaining = np.array([cell_sum.n], dtype=np.int64)
        mass, self._first, self._second = np.ones(1), np.zeros(1), np.zeros(1)
        last = len(cell_sum.cells) - 1
        for number, cell in enumerate(cell_sum.cells):
            # Every way so far, continued with 0 .. left reports in this cell (with all that are
            # left in the last one).
            low = remaining if number == last else np.zeros_like(remaining)
            choices = remaining - low + 1
            parent = np.repeat(np.arange(len(remaining)), choices)
            count = (
                np.arange(len(parent))
                - np.repeat(np.cumsum(choices) - choices, choices)
                + low[parent]
            )
            mass = (
                mass[parent] * _choose(remaining[parent], count) * np.power(float(cell.mass), count)
            )
            self._first = self._first[parent] + count * float(cell.first)
            self._second = self._second[parent] + count * float(cell.second)
            remaining = remaining[parent] - count
        self._mass: Floats = mass

    def delta(self, epsilon: float) -> float:
        """The divergence at ``epsilon`` >= 0, moved to the safe side."""
        scaled = math.exp(epsilon) * self._second
        excess = self._first - scaled + self._sign * self._margin * (self._first + scaled)
        value = (
            float(np.sum(self._mass * np.maximum(excess, 0.0)))
            / self._n
            * (1.0 + self._sign * self._margin)
        )
        return value + _TINY if self._sign > 0.0 else value


def _choose(of: Ints, take: Ints) -> Floats:
    """Binomial coefficients, each correctly rounded."""
    known = {
        (n, k): float(math.comb(n, k)) for n, k in set(zip(of.tolist(), take.tolist(), strict=True))
    }
    return np.array(
        [known[pair] for pair in zip(of.tolist(), take.tolist(), strict=True)], dtype=np.float64
    )
