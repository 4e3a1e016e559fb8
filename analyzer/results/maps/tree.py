"""What a discovery of places found so far, as a map: cells of different sizes, small ones where
many devices are, which together are the whole map.

Each cell shows the count of the level that asked for it (``value``). Of all cells that were asked
for, followed or not, an interval holds the truth in 95 %. Among those that reached the threshold
they are more often too large, and among the others too small: that is what a threshold does. So the
``value``s of drawn cells, of which those that are followed are left out, sum to too little where
many lie near it. ``fitted`` is for sums: the cells of a part that was followed are moved alike, so
that they sum to the part's own count. Any union of parts of level 0 then has the sum of their
counts, unbiased; inside of a part the choice of what is drawn no longer matters to its sum.

It is made of releases alone, as their JSON has them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shoal.errors import Kind, ShoalError
from shoal.pictures.maps import Tile, map_svg


@dataclass(frozen=True, slots=True)
class MapCell:
    """``path``: its symbols as digits; edges in degrees; ``value``, ``low``, ``high``: devices that
    are there, with the interval of 95 %; ``fitted``: the same made consistent with the parts that
    it lies in, for sums; ``level``: that asked for it; ``reached``: whether it came
    to that level's threshold, and had room.
    """

    path: str
    label: str
    south: float
    west: float
    north: float
    east: float
    value: float
    low: float
    high: float
    fitted: float
    level: int
    reached: bool

    @property
    def area(self) -> float:
        """In square degrees of the equator: as large as it is drawn."""
        middle = math.radians((self.north + self.south) / 2)
        return (self.north - self.south) * (self.east - self.west) * math.cos(middle)

    @property
    def density(self) -> float:
        """Devices by area, none below 0."""
        return max(0.0, self.fitted) / self.area


@dataclass(frozen=True, slots=True)
class PlaceMap:
    """``box``: south, west, north, east in degrees. ``cells``: the map, each part once, southern
    ones first. ``followed``: parts that are drawn by their cells. ``found``: cells of the last of
    all levels that reached the threshold, most devices first. ``level`` of ``levels``: the last one
    that was released; ``window``: in which it was asked; ``no_room``: parts that all levels did not
    follow for want of room; ``going_on``: those of the last level, of which the next one asks.
    """

    box: tuple[float, float, float, float]
    cells: tuple[MapCell, ...]
    followed: tuple[MapCell, ...]
    found: tuple[MapCell, ...]
    level: int
    levels: int
    window: int
    no_room: int
    going_on: tuple[MapCell, ...]

    @property
    def densest(self) -> float:
        """Of all cells that are drawn; above 0."""
        return max((cell.density for cell in self.cells), default=0.0) or 1.0

    @property
    def listed(self) -> tuple[MapCell, ...]:
        """Cells beside a picture, most devices first: those that were found, or before the last
        level those that the next one asks for the parts of.
        """
        return self.found or self.going_on

    @property
    def words(self) -> str:
        """What a picture of it means, and what comes next, in sentences."""
        said = [
            f"After level {self.level} of 0 to {self.levels - 1}, all windows together: darker "
            "where more devices are on the same area, and a cell that was followed is shown by its "
            "parts. Intervals of 95 % hold the truth in 95 % of all cells that were asked for, and "
            "less often in those alone that were found.",
            f"The next level asks for the parts of {_cells_of(len(self.going_on))}."
            if self.going_on
            else "Nothing is left to follow.",
        ]
        if self.no_room:
            said.append(f"{_cells_of(self.no_room).capitalize()} had no room.")
        return " ".join(said)


def _cells_of(count: int) -> str:
    return "1 cell" if count == 1 else f"{count:,} cells"


def place_map(releases: Sequence[Mapping[str, Any]]) -> PlaceMap:
    """Of the releases of one task. Raises NOT_FOUND if none of them is a level of a discovery of
    places.
    """
    levels = levels_of(releases)
    asked = dict[int, tuple[MapCell, ...]]()
    for number in sorted(levels):
        cells = tuple(_cells(levels[number]))
        before = asked.get(number - 1)
        if before is not None:
            # other windows may have other devices: shares are what they have in common
            share = levels[number]["n"] / levels[number - 1]["n"]
            cells = _within(cells, {cell.path: cell.fitted * share for cell in before})
        asked[number] = cells
    # a level that a restored store lost leaves those around it without one another
    parents = {number: {cell.path[:-1] for cell in asked.get(number + 1, ())} for number in asked}
    drawn, followed = list[MapCell](), list[MapCell]()
    for number, cells in asked.items():
        for cell in cells:
            (followed if cell.path in parents[number] else drawn).append(cell)
    deepest = max(asked)
    last = levels[deepest]
    told = last["discovered"]
    reached = sorted((cell for cell in asked[deepest] if cell.reached), key=_most)
    is_last = deepest == told["levels"] - 1
    return PlaceMap(
        tuple(told["box"]),
        tuple(sorted(drawn, key=lambda cell: (cell.south, cell.west))),
        tuple(followed),
        tuple(reached) if is_last else (),
        deepest,
        told["levels"],
        last["window"],
        sum(release["discovered"]["no_room"] for release in levels.values()),
        () if is_last else tuple(reached),
    )


def levels_of(releases: Sequence[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """The last release of each level of one task. Raises NOT_FOUND if none of them is a level of a
    discovery of places.
    """
    levels = dict[int, Mapping[str, Any]]()
    for release in sorted(releases, key=lambda one: one["window"]):
        if "cells" in release.get("discovered", ()):
            levels[release["discovered"]["level"]] = release
    if not levels:
        raise ShoalError(
            Kind.NOT_FOUND,
            "no level of a discovery of places is released yet: shoal results list shows what "
            "there is",
        )
    return levels


def _cells(release: Mapping[str, Any]) -> Iterator[MapCell]:
    level = release["discovered"]["level"]
    rows = zip(release["estimates"], release["discovered"]["cells"], strict=False)
    for row, cell in rows:
        yield MapCell(
            cell["path"],
            row["label"],
            cell["south"],
            cell["west"],
            cell["north"],
            cell["east"],
            row["value"],
            row["ci_low"],
            row["ci_high"],
            row["value"],
            level,
            cell["reached"],
        )


def _within(cells: Iterable[MapCell], parts: Mapping[str, float]) -> tuple[MapCell, ...]:
    """With ``fitted`` moved alike in each part, to what ``parts`` says that it has."""
    together = dict[str, list[MapCell]]()
    for cell in cells:
        together.setdefault(cell.path[:-1], []).append(cell)
    moved = {
        path: (parts[path] - sum(cell.value for cell in inside)) / len(inside)
        for path, inside in together.items()
        if path in parts
    }
    return tuple(
        replace(cell, fitted=cell.value + moved.get(cell.path[:-1], 0.0)) for cell in cells
    )


def _most(cell: MapCell) -> tuple[float, str]:
    return -cell.value, cell.path


def tree_picture(found: PlaceMap, name: str) -> str:
    """An SVG element of the map, for a page; each cell says its count where one points at it."""
    tiles = [
        Tile(
            cell.south,
            cell.west,
            cell.north,
            cell.east,
            cell.density / found.densest,
            f"{cell.label}: {cell.value:,.0f} devices ({cell.low:,.0f} to {cell.high:,.0f})",
        )
        for cell in found.cells
    ]
    return map_svg(found.box, tiles, name, f"{len(tiles):,} cells")
