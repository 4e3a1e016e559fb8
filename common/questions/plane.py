"""The cells of a map on a plane: how far apart they are, in whole millimetres, never more than on
the ground.

**Never more.** A promise per kilometre divides by a distance, so distances here err downward. On
the ellipsoid of the Earth (WGS 84: a = 6,378,137 m, b = 6,356,752.3142 m) a step is ds^2 = M^2
dlat^2 + N^2 cos^2(lat) dlon^2, lat the geodetic latitude, with M >= b^2 / a = 6,335,439.3 m and N
>= a. So it is at least as long as on the sphere of radius R = 6,335,439 m, where with half angles

    (2 R sin(d / 2 R))^2 = 4 R^2 (sin^2(dlat / 2) + cos(lat) cos(lat') sin^2(dlon / 2)).

d is at least the left side's root, cos(lat) cos(lat') at least its square at the latitude of the
map that is farthest from the equator, and sin(t / 2) >= (1 - t^2 / 24) t / 2 for t >= 0. So the
length in the plane is below d, where a cell is

    height (1 - s) R dlat / rows,  width (1 - s) R cos(farthest) dlon / columns,

s = t^2 / 24 at the larger of the map's two angles. Of a town's map that is 0.6 to 1 % below the
lengths on the ground; of one from 47 to 55 degrees north up to 17 % from east to west, in the
south.

A device loads no numpy for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import isqrt

from shoal.errors import Kind, ShoalError

MM_PER_KM = 1_000_000
LARGEST_CELL_MM = 1 << 36
"""68,719 km: more than the way around the Earth."""
_LEAST_RADIUS_M = 6_335_439.0
_LARGEST_ANGLE = 3.0  # radians: of a wider map the plane says nothing
_SAFE = 1.0 - 1e-12  # what rounding of floats may have added


@dataclass(frozen=True, slots=True)
class Plane:
    """``rows`` x ``columns`` cells, ``width`` east to west and ``height`` north to south, in whole
    millimetres; cell = row * columns + column, from the south-west. At least 2 cells. Raises
    INVALID for anything else.
    """

    rows: int
    columns: int
    width: int
    height: int

    def __post_init__(self) -> None:
        if self.rows < 1 or self.columns < 1 or self.cells < 2:
            raise _bad("a map on a plane has 1 row and column or more, and 2 cells or more")
        if not (0 < self.width <= LARGEST_CELL_MM and 0 < self.height <= LARGEST_CELL_MM):
            raise _bad("a cell of a map on a plane is 1 millimetre to 68,719 km wide and high")

    @property
    def cells(self) -> int:
        """Number of cells on the map."""
        return self.rows * self.columns

    @property
    def diameter(self) -> int:
        """Millimetres between the centres of two opposite corners, rounded down."""
        return self.apart(self.rows - 1, self.columns - 1)

    def place(self, cell: int) -> tuple[int, int]:
        """(row, column) of a cell on the map, unchecked."""
        return divmod(cell, self.columns)

    def apart(self, rows: int, columns: int) -> int:
        """Millimetres between the centres of two cells so many rows and columns apart, rounded
        down.
        """
        return isqrt((rows * self.height) ** 2 + (columns * self.width) ** 2)

    def gap(self, rows: int, columns: int) -> int:
        """Millimetres between the nearest two points of such cells, rounded down: 0 for
        neighbours.
        """
        return self.apart(max(0, abs(rows) - 1), max(0, abs(columns) - 1))


def cell_size(
    south: int, west: int, north: int, east: int, rows: int, columns: int
) -> tuple[int, int]:
    """(width, height) of a cell of a box in microdegrees, in whole millimetres that are not above
    those on the ground, as the module says. Raises INVALID for a box too wide, or whose cells are
    less than a millimetre.
    """
    tall, wide = math.radians((north - south) / 1e6), math.radians((east - west) / 1e6)
    if not (0.0 < tall <= _LARGEST_ANGLE and 0.0 < wide <= _LARGEST_ANGLE):
        raise _bad("a map that is measured in kilometres is at most 171 degrees wide")
    farthest = math.radians(max(abs(south), abs(north)) / 1e6)
    straight = (1.0 - max(tall, wide) ** 2 / 24.0) * _LEAST_RADIUS_M * 1000.0 * _SAFE
    height, width = straight * tall / rows, straight * math.cos(farthest) * wide / columns
    if height < 1.0 or width < 1.0:
        raise _bad("a cell of this map is less than a millimetre: choose fewer rows or columns")
    return int(width), int(height)


def _bad(what: str) -> ShoalError:
    return ShoalError(Kind.INVALID, what)
