"""Cells in order, and blocks of them: the levels of a hierarchy.

Level 0 has a node for each cell; level i one for each ``base``^i of them, the last of a level being
smaller where they don't come out even. A device has a true message in every level: the number of
the node that its cell is in, nodes being numbered level by level from the cells on. A range of
cells is then a sum of few nodes, 2 (``base`` - 1) per level at most, and the whole is known: the
number of devices.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.limits import LIMITS
from shoal.mechanisms.base import invalid

MOST_BASE = 256
MOST_LEVELS = 16


@dataclass(frozen=True, slots=True)
class CellTree:
    """``cells``: 2 or more; ``base``: 2 to 256; ``levels``: 1 to 16, each with two nodes or more,
    and no more nodes in all than a task may have cells. Raises INVALID for anything else.
    """

    cells: int
    base: int
    levels: int
    sizes: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Nodes of each level, from the cells on."""

    def __post_init__(self) -> None:
        whole = 2 <= self.base <= MOST_BASE and 1 <= self.levels <= MOST_LEVELS
        sizes = [self.cells]
        for _ in range(self.levels - 1 if whole else 0):
            sizes.append(-(-sizes[-1] // self.base))
        if not whole or sizes[-1] < 2 or sum(sizes) > LIMITS.cells:
            raise invalid(
                f"a hierarchy has a base of 2 to {MOST_BASE}, 1 to {MOST_LEVELS} levels of two "
                f"nodes or more, and {LIMITS.cells} nodes at most: give fewer levels, another "
                "base, or fewer cells"
            )
        object.__setattr__(self, "sizes", tuple(sizes))

    @property
    def nodes(self) -> int:
        """Of all levels."""
        return sum(self.sizes)

    def path(self, cell: int) -> tuple[int, ...]:
        """The nodes that hold the cell, ``levels`` of them, from the cell up."""
        found, first = [], 0
        for size in self.sizes:
            found.append(first + cell)
            first, cell = first + size, cell // self.base
        return tuple(found)


def most_levels(cells: int, base: int) -> int:
    """How many levels of two nodes or more there are over ``cells`` >= 2, with ``base`` >= 2."""
    levels = 1
    while (cells := -(-cells // base)) >= 2 and levels < MOST_LEVELS:
        levels += 1
    return levels
