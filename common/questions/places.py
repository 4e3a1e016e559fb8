"""Where are many devices? The cells of a map: a box of latitudes and longitudes, cut into rows and
columns, and a last cell for everywhere else and for no answer.

Row 0 is the southernmost and column 0 the westernmost; cell = row * columns + column. A place on
the line between two cells is of the northern and the eastern one, so that one on the northern or
eastern edge of the box is elsewhere. All bounds are whole microdegrees, and so is a place
(``coordinates``); a row is floor((latitude - south) * rows / (north - south)), in integers below
2^53.

Metres are those of a sphere with the mean radius of the Earth, 6,371,008.8 m (Moritz, "Geodetic
Reference System 1980", Journal of Geodesy 74, 2000): within 0.6 % of the ellipsoid's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise, product

from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.questions.answers import Value
from shoal.questions.coordinates import MICRO, MOST_LONGITUDE, coordinates_of, degrees

ELSEWHERE = "elsewhere, or no answer"
"""The label of the last cell."""
EARTH_RADIUS_M = 6_371_008.8
MOST_LATITUDE = 85 * MICRO
"""Nearer to a pole the cells of a box are no longer of one size."""


def _bad(what: str) -> ShoalError:
    return ShoalError(Kind.INVALID, what)


@dataclass(frozen=True, slots=True)
class Places:
    """``south`` < ``north`` and ``west`` < ``east`` in microdegrees, latitudes within 85 degrees,
    longitudes within 180; ``rows`` and ``columns`` 1 or more, each at least a microdegree wide.
    Raises INVALID for anything else, and where there would be more cells than a task may have.
    """

    south: int
    west: int
    north: int
    east: int
    rows: int
    columns: int

    def __post_init__(self) -> None:
        if not -MOST_LATITUDE <= self.south < self.north <= MOST_LATITUDE:
            raise _bad(
                "a map lies between latitudes -85 and 85, its south below its north: choose another"
                " box"
            )
        if not -MOST_LONGITUDE <= self.west < self.east <= MOST_LONGITUDE:
            raise _bad(
                "a map lies between longitudes -180 and 180, its west below its east: one that goes"
                " over the date line is asked as two tasks"
            )
        if self.rows < 1 or self.columns < 1 or self.size > LIMITS.cells:
            raise _bad(
                f"a map has 1 row and 1 column or more, and at most {LIMITS.cells - 1:,} cells: "
                "choose fewer rows or columns, or look at it part by part (shoal discover plan "
                "--places)"
            )
        if self.rows > self.north - self.south or self.columns > self.east - self.west:
            raise _bad(
                "a cell of a map is a microdegree or more in height and width: choose fewer rows "
                "or columns, or a larger box"
            )

    @property
    def size(self) -> int:
        """Number of cells: those of the map and the last one."""
        return self.rows * self.columns + 1

    @property
    def labels(self) -> tuple[str, ...]:
        """One per cell: "48.10 to 48.20, 11.50 to 11.60" (latitudes, longitudes), ELSEWHERE
        last.
        """
        rows = _spans(self.row_edges, self.north - self.south)
        columns = _spans(self.column_edges, self.east - self.west)
        return (*(f"{row}, {column}" for row, column in product(rows, columns)), ELSEWHERE)

    @property
    def label_cells(self) -> tuple[int, ...]:
        """The cell of each label, in the labels' order: here all cells."""
        return tuple(range(self.size))

    @property
    def row_edges(self) -> tuple[int, ...]:
        """rows + 1 latitudes in microdegrees: row i has those from edge i on and below edge
        i + 1.
        """
        return _edges(self.south, self.north, self.rows)

    @property
    def column_edges(self) -> tuple[int, ...]:
        """columns + 1 longitudes in microdegrees, as ``row_edges``."""
        return _edges(self.west, self.east, self.columns)

    @property
    def cell_height_m(self) -> float:
        """Metres from the southern to the northern edge of a cell."""
        return _arc_m(self.north - self.south) / self.rows

    @property
    def cell_width_m(self) -> float:
        """Metres from the western to the eastern edge of a cell, at the middle latitude."""
        middle = math.radians((self.north + self.south) / 2 / MICRO)
        return _arc_m(self.east - self.west) * math.cos(middle) / self.columns

    def encode(self, value: Value, entropy: Entropy = SYSTEM) -> int:
        """The value's cell; the last one for every other place, and for no place. Nothing is
        drawn.
        """
        found = coordinates_of(value)
        return self.size - 1 if found is None else self.cell_of(*found)

    def cell_of(self, latitude: int, longitude: int) -> int:
        """The cell of a place in microdegrees."""
        up, right = latitude - self.south, longitude - self.west
        height, width = self.north - self.south, self.east - self.west
        if not (0 <= up < height and 0 <= right < width):
            return self.size - 1
        return up * self.rows // height * self.columns + right * self.columns // width

    def text_of(self, cell: int) -> str:
        """A place in the middle of a cell of the map, as a device might answer it."""
        row, column = divmod(cell, self.columns)
        latitude = sum(self.row_edges[row : row + 2]) // 2
        longitude = sum(self.column_edges[column : column + 2]) // 2
        return f"{degrees(latitude)}, {degrees(longitude)}"

    def understands(self, value: Value) -> bool:
        """Whether the value is a place, on the map or elsewhere."""
        return coordinates_of(value) is not None

    @property
    def accepted(self) -> str:
        """What values it takes, in words for an owner."""
        return (
            "a place as 48.137, 11.575 (latitude, longitude), or a JSON object with latitude and "
            "longitude"
        )

    @property
    def box(self) -> str:
        """The box in words: "latitude 48 to 48.3, longitude 11.3 to 11.8"."""
        south, north, west, east = (
            degrees(one).rstrip("0").rstrip(".")
            for one in (self.south, self.north, self.west, self.east)
        )
        return f"latitude {south} to {north}, longitude {west} to {east}"

    @property
    def described(self) -> str:
        """Box, cells and their size, in a line."""
        return (
            f"{self.rows} x {self.columns} cells of {metres(self.cell_height_m)} (north-south) x "
            f"{metres(self.cell_width_m)}, {self.box}"
        )


def metres(length: float) -> str:
    """A length for people: "1,042 m", "35 km"."""
    return f"{length:,.0f} m" if length < 10_000 else f"{length / 1000:,.0f} km"


def edge(low: int, high: int, at: int, parts: int) -> int:
    """The least whole number of part ``at`` of as many equal ones; ``high`` after the last one."""
    return low - (-at * (high - low) // parts)


def _edges(low: int, high: int, parts: int) -> tuple[int, ...]:
    """The least whole numbers of each part, and ``high``."""
    return tuple(edge(low, high, at, parts) for at in range(parts + 1))


def _spans(edges: tuple[int, ...], length: int) -> list[str]:
    """ "48.10 to 48.20" for each part, with as few digits as are off by a 20th of one at most."""
    most = length / (len(edges) - 1) / 20
    for digits in range(7):
        unit = 10 ** (6 - digits)
        if all(abs((edge + unit // 2) // unit * unit - edge) <= most for edge in edges):
            break
    texts = [degrees(edge, digits) for edge in edges]
    return [f"{low} to {high}" for low, high in pairwise(texts)]


def _arc_m(microdegrees: int) -> float:
    return EARTH_RADIUS_M * math.radians(microdegrees / MICRO)
