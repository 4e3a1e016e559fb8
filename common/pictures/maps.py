"""Maps as pictures: rectangles of any sizes in a box of latitudes and longitudes, darker where
there is more on the same area.

North is above, and a degree of longitude is as much narrower than one of latitude as it is in the
middle of the box.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shoal.pictures.templates import render

WIDTH = 640.0
_TALLEST = 960.0


@dataclass(frozen=True, slots=True)
class Tile:
    """Edges in degrees; ``share``: 0 to 1, of the darkest there can be; ``text``: what is said of
    it.
    """

    south: float
    west: float
    north: float
    east: float
    share: float
    text: str


def map_svg(
    box: tuple[float, float, float, float], tiles: Sequence[Tile], name: str, summary: str
) -> str:
    """An SVG element, for a page. ``box``: south, west, north, east in degrees; ``name`` and
    ``summary``: for those who can't see it. Classes: ``map``, its rectangles ``tile``; colours are
    the page's.
    """
    south, west, north, east = box
    across = (east - west) * math.cos(math.radians((south + north) / 2))
    scale = min(WIDTH / across, _TALLEST / (north - south))
    width, height = across * scale, (north - south) * scale

    def x(longitude: float) -> float:
        return (longitude - west) / (east - west) * width

    def y(latitude: float) -> float:
        return (north - latitude) / (north - south) * height

    drawn = [
        {
            "x": f"{x(tile.west):.2f}",
            "y": f"{y(tile.north):.2f}",
            "width": f"{x(tile.east) - x(tile.west):.2f}",
            "height": f"{y(tile.south) - y(tile.north):.2f}",
            # differences of the few are seen too
            "opacity": f"{math.sqrt(min(1.0, max(0.0, tile.share))):.3f}",
            "text": tile.text,
        }
        for tile in tiles
    ]
    return render(
        "shoal.pictures",
        "map.svg.j2",
        width=f"{width:.0f}",
        height=f"{height:.0f}",
        tiles=drawn,
        title=f"{name}: {summary}",
    )
