"""The lower convex hull of points in the plane, exactly."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction


def lower_hull(points: Iterable[tuple[Fraction, Fraction]]) -> list[tuple[Fraction, Fraction]]:
    """The lower convex hull of points in ascending order, ascending."""
    hull: list[tuple[Fraction, Fraction]] = []
    for x, y in points:
        while len(hull) >= 2:
            (x1, y1), (x2, y2) = hull[-2], hull[-1]
            if (y2 - y1) * (x - x2) < (y - y2) * (x2 - x1):
                break
            hull.pop()
        hull.append((x, y))
    return hull
