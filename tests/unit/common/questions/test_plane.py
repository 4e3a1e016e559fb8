"""A map on a plane: no distance is longer than on the ground."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.questions.places import Places
from shoal.questions.plane import Plane, cell_size
from tests.cases import for_each
from tests.sizes import size

# a town, a country, a continent with the equator in it, a strip near the northern limit
MAPS = (
    Places(48_060_000, 11_360_000, 48_250_000, 11_720_000, 7, 9),
    Places(47_270_000, 5_870_000, 55_060_000, 15_040_000, 12, 9),
    Places(-35_000_000, -20_000_000, 37_000_000, 52_000_000, 6, 5),
    Places(79_000_000, -150_000_000, 85_000_000, 10_000_000, 3, 16),
)


def plane_of(places: Places) -> Plane:
    width, height = cell_size(
        places.south, places.west, places.north, places.east, places.rows, places.columns
    )
    return Plane(places.rows, places.columns, width, height)


def metres(one: tuple[int, int], two: tuple[int, int]) -> float:
    """The length of a great circle on the sphere whose radius is the least radius of curvature of
    WGS 84, b^2 / a: nowhere longer than on the ground. Points in microdegrees.
    """
    (lat, lon), (lat2, lon2) = ([math.radians(x / 1e6) for x in point] for point in (one, two))
    half = math.sin((lat - lat2) / 2) ** 2
    half += math.cos(lat) * math.cos(lat2) * math.sin((lon - lon2) / 2) ** 2
    return 2 * 6_356_752.3142**2 / 6_378_137 * math.asin(math.sqrt(half))


@for_each("places", MAPS)
def test_no_distance_is_longer_than_on_the_ground(places: Places) -> None:
    """Of random points of a map: their cells' nearest points are no farther apart on the plane, and
    the plane is not far off in a town. Planted: the cosine of the middle latitude for the farthest
    -> the country's fails; s left out -> the continent's; half a cell for a whole one in ``gap`` ->
    the town's.
    """
    plane, words = plane_of(places), SeededEntropy("plane").words(size(2_000, 50_000) * 4)
    up, right = places.north - places.south, places.east - places.west
    for a, b, c, d in words.reshape(-1, 4).tolist():
        one = (places.south + a % up, places.west + b % right)
        two = (places.south + c % up, places.west + d % right)
        first, second = (plane.place(places.cell_of(*point)) for point in (one, two))
        gap = plane.gap(first[0] - second[0], first[1] - second[1]) / 1000.0
        assert gap <= metres(one, two)
    corners = metres((places.south, places.west), (places.north, places.east))
    stated = math.hypot(plane.rows * plane.height, plane.columns * plane.width) / 1000.0
    assert stated <= corners
    assert places is not MAPS[0] or stated > 0.99 * corners


def test_distances_are_rounded_down() -> None:
    """Planted: rounded to the nearest -> fails."""
    plane = Plane(3, 4, 7, 5)
    for i in range(3):
        for j in range(4):
            exact = Fraction(i * 5) ** 2 + Fraction(j * 7) ** 2
            assert plane.apart(i, j) ** 2 <= exact < (plane.apart(i, j) + 1) ** 2
    assert plane.gap(1, -1) == plane.gap(0, 0) == 0
    assert plane.gap(-2, 3) == plane.apart(1, 2)
    assert plane.diameter == plane.apart(2, 3)


@for_each(
    "make",
    [
        lambda: Plane(1, 1, 5, 5),
        lambda: Plane(0, 3, 5, 5),
        lambda: Plane(2, 2, 0, 5),
        lambda: Plane(2, 2, 5, 1 << 37),
        lambda: cell_size(-10, -175_000_000, 10, 5_000_000, 1, 2),
        lambda: cell_size(0, 0, 1, 1, 200, 1),
    ],
)
def test_what_is_no_map_is_refused(make: object) -> None:
    with pytest.raises(ShoalError) as caught:
        make()  # type: ignore[operator]
    assert caught.value.kind is Kind.INVALID
