"""Places as symbols, so that they can be looked for part by part: which part of a map, which part
of that, and so on (``shoal.questions.discovery``).

Each symbol tells in which of ``across`` x ``across`` equal parts, 4 or 16, of the part before a
place lies: row * across + column, from the south-west, rows first. So d symbols name a cell of the
map in across^d rows and columns, by the rule of ``places``: floor((latitude - south) * across^d /
(north - south)) is its row, in whole microdegrees, and its digits to base ``across``, the highest
first, are the rows of the d symbols. A cell of few symbols is exactly those of more symbols that
begin with them.

A place has as many symbols as are asked for, always: there is no end. Whoever is elsewhere, or
answers nothing, has none.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.errors import Kind, ShoalError
from shoal.questions.answers import Value
from shoal.questions.coordinates import coordinates_of, degrees
from shoal.questions.places import ELSEWHERE, Places, edge

ACROSS = (2, 4)
MOST_ROWS = 65_536
FIRST_ROWS = 64
"""Rows, and columns, of level 0, at most: 4,096 cells."""
_BLUR = 20  # a label is off by so small a part of its cell at most


@dataclass(frozen=True, slots=True)
class PlacePaths:
    """``box``: the map, as one cell; ``across``: 2 or 4. Raises INVALID for anything else."""

    box: Places
    across: int = 4

    def __post_init__(self) -> None:
        if self.across not in ACROSS:
            raise ShoalError(
                Kind.INVALID, "each part of a map is cut into 2 x 2 or 4 x 4: set across = 2 or 4"
            )
        if (self.box.rows, self.box.columns) != (1, 1):
            raise ShoalError(Kind.INVALID, "a map that is looked at part by part begins as one")

    @property
    def symbols(self) -> int:
        """Parts of a part."""
        return self.across**2

    @property
    def end(self) -> None:
        """None: all places are as long."""
        return

    @property
    def most_first(self) -> int:
        """As many as make 64 rows."""
        return _symbols_of(FIRST_ROWS, self.across)

    @property
    def most_length(self) -> int:
        """As many as make 65,536 rows, or cells of a microdegree."""
        smallest = min(self.box.north - self.box.south, self.box.east - self.box.west)
        return _symbols_of(min(MOST_ROWS, smallest), self.across)

    @property
    def another(self) -> str:
        """The label of a level's last cell: places that are not followed too."""
        return ELSEWHERE

    def spelled(self, value: Value, longest: int) -> bytes:
        """The parts in which a place lies; none of what is no place on the map."""
        found = coordinates_of(value)
        return b"" if found is None else self.path_of(*found, longest)

    def path_of(self, latitude: int, longitude: int, longest: int) -> bytes:
        """Of a place in microdegrees; empty of one that is elsewhere."""
        box, rows = self.box, self.across**longest
        if box.cell_of(latitude, longitude):
            return b""
        row = (latitude - box.south) * rows // (box.north - box.south)
        column = (longitude - box.west) * rows // (box.east - box.west)
        parts = [self.across**place for place in reversed(range(longest))]
        return bytes(
            row // part % self.across * self.across + column // part % self.across for part in parts
        )

    def is_spelling(self, symbols: bytes) -> bool:
        """Whether these are parts: all are that are small enough."""
        return bool(symbols) and max(symbols) < self.symbols

    def place_of(self, symbols: bytes) -> tuple[int, int, int]:
        """Row and column of a cell, and how many of both the map has at its size."""
        row = column = 0
        for one in symbols:
            above, aside = divmod(one, self.across)
            row, column = row * self.across + above, column * self.across + aside
        return row, column, self.across ** len(symbols)

    def edges(self, symbols: bytes) -> tuple[int, int, int, int]:
        """South, west, north and east of a cell in microdegrees: it has the whole microdegrees from
        the first two on and below the others.
        """
        row, column, rows = self.place_of(symbols)
        box = self.box
        south, north = (edge(box.south, box.north, at, rows) for at in (row, row + 1))
        west, east = (edge(box.west, box.east, at, rows) for at in (column, column + 1))
        return south, west, north, east

    def shown(self, symbols: bytes) -> str:
        """Its latitudes and longitudes: "48.10 to 48.20, 11.50 to 11.60"."""
        south, west, north, east = self.edges(symbols)
        rows = self.across ** len(symbols)
        up = _digits((self.box.north - self.box.south) // rows)
        aside = _digits((self.box.east - self.box.west) // rows)
        return (
            f"{degrees(south, up)} to {degrees(north, up)}, "
            f"{degrees(west, aside)} to {degrees(east, aside)}"
        )

    def accepted(self, longest: int) -> str:
        """What values it takes, in words for an owner."""
        return self.box.accepted


def _symbols_of(rows: int, across: int) -> int:
    """How many symbols make so many rows at most."""
    count = 0
    while across ** (count + 1) <= rows:
        count += 1
    return count


def _digits(width: int) -> int:
    """Behind the point, so that a label hardly differs from its cell of so many microdegrees."""
    digits = 0
    while digits < 6 and 10 ** (6 - digits) * _BLUR > 2 * width:
        digits += 1
    return digits
