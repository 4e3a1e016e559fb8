"""True messages in several tables at once: what all of them show together.

A device sends one true message in each of h tables, and the noise of all cells is independent and
of one law (``noise``). Its answer decides at most one cell of each table, so x and x' differ in at
most one pair of cells in each. Tables are independent given the answers: the pair of laws is a
product of h pairs of cells, each as ``one_more`` has it, and its loss is the sum of 2 h independent
losses: of h cells with one message more under P, of h with one more under Q.

*Answers that share a cell.* Two answers that lie in the same cell of a table (two leaves of one
block of a hierarchy, two records that agree in a marginal) send the same message there: it is a
constant, and the table drops out. Such a pair is the projection of the product of h on fewer
factors, post-processing, so its divergence is at most that of all h.

**On a lattice.** Losses of the cells are put on a lattice and added by convolution of positive
numbers, without a transform. For the upper law as ``loss_lattice`` says: nothing lowers the curve.
A lattice that grew long is made coarser by two, each point between two kept ones split as there;
mass far above goes to infinity, mass far below is raised. For the lower law every step is the other
way round: losses are taken down to the lattice, mass far below is dropped, mass far above taken
down. (delta is a sum of positive masses times (1 - exp(epsilon - l))_+, which grows with every
loss.)

Mass that windows of the cells leave out, at most ``lost`` of each cell and law: 2 h ``lost`` of
the product (a union), added at infinity; of the lower law e times that is taken off.

*Checked* against all multisets that devices can send, in both directions and for every pair of
answers, those that share cells among them (tests/unit/accounting/several_messages/test_tables.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from shoal.accounting.composition.losses import MARGIN
from shoal.accounting.numerics.binomial import Floats
from shoal.accounting.numerics.compound import UNIT
from shoal.accounting.numerics.curve import Direction
from shoal.accounting.several_messages.loss_lattice import Lattice, added, placed, step_of
from shoal.accounting.several_messages.one_more import Shown
from shoal.arrays import np

# Points of a lattice, at most: some 200 to 400 for a standard deviation.
_MOST_POINTS = 6_000
# Of ``tail``: what may be moved to infinity, or dropped, at each of some 4 log2 h steps.
_FAR = 1e-3
_LARGEST_LOSS = 16.0
_Trim = Callable[[Lattice, float], Lattice]


@dataclass(frozen=True, slots=True, eq=False)
class TablesShown:
    """What ``tables`` >= 2 pairs of cells show, each cell as ``cell`` says. ``tail``: mass so small
    that it may be moved to infinity.
    """

    cell: Shown
    tables: int
    tail: float

    @property
    def lost(self) -> float:
        """Mass of either law of the product that no loss holds, at most."""
        return 2.0 * self.tables * self.cell.lost


def tables_divergence(found: TablesShown, epsilon: float, direction: Direction) -> float:
    """delta(``epsilon``) of all tables together, moved to the side asked for."""
    lattice, step = losses_upper(found) if direction is Direction.UPPER else _losses_lower(found)
    losses = (lattice.first + np.arange(len(lattice.masses), dtype=np.int64)) * step
    beyond = losses > epsilon
    inside = lattice.masses[beyond] * -np.expm1(epsilon - losses[beyond])
    total = float(np.sum(inside)) + lattice.infinity
    rounding = MARGIN + (len(losses) + 8) * UNIT
    if direction is Direction.UPPER:
        return total * (1.0 + rounding) + found.lost
    return max(0.0, total * (1.0 - rounding) - math.exp(epsilon) * (1.0 + MARGIN) * found.lost)


@lru_cache(maxsize=16)
def losses_upper(found: TablesShown) -> tuple[Lattice, float]:
    """The law of the sum of all losses, without ``lost``, and its step. Direction: UPPER."""
    cell = found.cell
    logs = np.log(cell.ratios)
    step = step_of(logs, cell.more)
    one = placed(-logs, cell.more, 0.0, step, cell.error, found.tail)
    other = placed(logs, cell.without, cell.certain, step, cell.error, found.tail)
    return _powered(one, other, step, found, Direction.UPPER)


@lru_cache(maxsize=16)
def _losses_lower(found: TablesShown) -> tuple[Lattice, float]:
    """The same. Direction: LOWER."""
    cell = found.cell
    logs = np.log(cell.ratios)
    step = step_of(logs, cell.more)
    one = _placed_below(-logs, cell.more, 0.0, step, cell.error)
    other = _placed_below(logs, cell.without, cell.certain, step, cell.error)
    return _powered(one, other, step, found, Direction.LOWER)


def _powered(
    one: Lattice, other: Lattice, step: float, found: TablesShown, direction: Direction
) -> tuple[Lattice, float]:
    """The sum of ``tables`` losses of each of the two cells, by squaring, on a lattice that is made
    coarser as it grows.
    """
    tail = _FAR * found.tail
    parts = [_trimmed(each, tail, direction) for each in (one, other)]
    while max(len(part.masses) for part in parts) > _MOST_POINTS:
        parts, step = [_coarser(part, step, direction) for part in parts], 2.0 * step
    power = _sum(parts[0], parts[1], tail, direction)
    result = Lattice(0, np.ones(1), 0.0)  # of no table
    left = found.tables
    while True:
        while len(power.masses) > _MOST_POINTS:
            power, result = (_coarser(each, step, direction) for each in (power, result))
            step *= 2.0
        if left & 1:
            result = _sum(result, power, tail, direction)
        left >>= 1
        if not left:
            return result, step
        power = _sum(power, power, tail, direction)


def _sum(one: Lattice, other: Lattice, tail: float, direction: Direction) -> Lattice:
    """Two independent losses added, without their far ends."""
    if direction is Direction.UPPER:
        return _trimmed(added(one, other), tail, direction)
    masses = np.convolve(one.masses, other.masses)
    rounding = 1.0 - (min(len(one.masses), len(other.masses)) + 8) * UNIT
    total = float(np.sum(one.masses)) + one.infinity
    infinity = other.infinity * total + one.infinity * float(np.sum(other.masses))
    both = Lattice(one.first + other.first, masses * rounding, infinity * (1.0 - MARGIN))
    return _trimmed(both, tail, direction)


def _trimmed(lattice: Lattice, tail: float, direction: Direction) -> Lattice:
    """Without the ends that hold ``tail`` each at most: to the side of ``direction``."""
    masses = lattice.masses
    low = int(np.searchsorted(np.cumsum(masses), tail))
    high = len(masses) - int(np.searchsorted(np.cumsum(masses[::-1]), tail))
    if high - low < 1:  # nearly all is at infinity
        low, high = 0, len(masses)
    kept: Floats = masses[low:high].copy()
    below, above = float(np.sum(masses[:low])), float(np.sum(masses[high:]))
    if direction is Direction.UPPER:
        grown = 1.0 + MARGIN
        kept[0] += below * grown
        infinity = lattice.infinity + above * grown
        return Lattice(lattice.first + low, kept, infinity)
    kept[-1] += above * (1.0 - MARGIN)
    return Lattice(lattice.first + low, kept, lattice.infinity)


def _coarser(lattice: Lattice, step: float, direction: Direction) -> Lattice:
    """On every second point, those that are even."""
    first = lattice.first - (lattice.first & 1)
    masses = np.concatenate([np.zeros(lattice.first & 1), lattice.masses, np.zeros(3)])
    masses = masses[: len(masses) - (len(masses) & 1)]
    even, odd = masses[0::2].copy(), masses[1::2]
    if direction is Direction.LOWER:
        kept = (even + odd) * (1.0 - 4 * UNIT)
        return Lattice(first // 2, kept, lattice.infinity)
    # as in ``placed``: mass and share of exp(-loss) stay
    up = -math.expm1(-step) / -math.expm1(-2.0 * step)
    even += odd * (math.exp(-step) * up)
    even[1:] += odd[:-1] * up
    return Lattice(first // 2, even * (1.0 + MARGIN), lattice.infinity)


def _placed_below(
    losses: Floats, masses: Floats, infinity: float, step: float, error: float
) -> Lattice:
    """The masses at the lattice points below them, losses and masses lowered by what rounding may
    have added. Direction: LOWER.
    """
    lowered = losses - (3.0 * error + 1e-13 * (1.0 + np.abs(losses)))
    kept = lowered >= -_LARGEST_LOSS
    at = np.floor(np.minimum(lowered[kept], _LARGEST_LOSS) / step).astype(np.int64)
    first = int(at.min())
    out: Floats = np.bincount(at - first, masses[kept]).astype(np.float64)
    rounding = max(0.0, 1.0 - error - (len(masses) + 16) * UNIT - MARGIN)
    return Lattice(first, out * rounding, infinity * rounding)
