"""A rectangle of a map that was looked at part by part: how many devices are in it, with an
interval that holds the truth also where parts were never asked for.

**Which counts are used.** A cell of level 0 that lies in the rectangle counts as it is. One that
its edges cut, and that was followed, is left to its own parts: those inside count, those that are
cut again are left to theirs. What remains are cells that are *cut* and have no parts: nobody was
asked for those, or not yet.

**Why that is unbiased.** Levels have independent noise, and which parts a level asks for follows
from the levels before. Of a cell that counts nothing is used but its own count, and whether it
counts was decided by other cells: by those that are cut, around it. So, whatever those say, the sum
of all that count has the truth's mean, and the variances of its cells add up. (Where devices' own
messages are drawn as well, counts of a level vary against one another: the sum varies less. Where a
level had no room for all parts, a cell that counts may have taken a cut one's place: hardly
noticeable, and no more than that is claimed.)

**Cut cells** have anything from nobody to all of their devices inside. The lower end takes nobody.
The upper end takes all that their counts say, and what noise may have hidden: cells are not
followed *because* their noise was low, so the bound may not look at which of them these are. Of m
cut cells that a level asked for, followed or not, let e_i be the errors in standard errors s.
Whatever part U of them is not followed,

    sum over U of the truth  <=  sum over U of the counts + s D,   D = sum over all m of (-e_i)_+,

and D is below the smaller of m z(a / m) (no error beyond z) and (m ln E exp(t (-e)_+) + ln(1 /
a)) / t (Chernoff), but for a chance of a. E exp(t (-e)_+) = 1/2 + exp(t^2 / 2) Phi(t) if normal.
(Of dummies' Poisson noise it is less: tests/unit/analyzer/results/maps/test_parted.py.)

**The chances.** Without cut cells both ends are 1.96 standard errors off: 95 %, exact as far as
sums of noise are normal. With them a miss below has 2.5 %; above 1.25 % are left to the sum, 1.25 %
to all levels' D: 95 % or more. Measured in tests/statistical/test_place_rectangles.py.

**From inside or outside.** All devices are n, so the devices of a rectangle are also n less those
outside of it, elsewhere included. Of the two the one with fewer cells of level 0 is taken: its
geometry decides that, and no count.

Levels whose windows had other devices are scaled to those of level 0: that they are spread alike is
taken for granted then, and that windows' devices are the same if they are as many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

from shoal.analyzer.results.maps.released import RectangleCount
from shoal.analyzer.results.maps.tree import levels_of
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.base import Z
from shoal.questions.coordinates import MICRO

_NORMAL = NormalDist()
_SIDE = 0.025
_TILTS = tuple(0.1 * 1.15**step for step in range(30))
_SIDES = "south", "west", "north", "east"
Edges = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class PartedCount(RectangleCount):
    """``value``: cut cells in it with the share of their area. ``stderr``: of the ``cells`` that
    count, and of nothing else. ``cut``: cells of which nobody knows how many devices are inside;
    ``cut_most``: devices that they add to the interval at most.
    """

    cells: int
    cut: int
    cut_most: float

    def to_json(self) -> dict[str, float]:
        """Plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Part:
    path: str
    edges: Edges
    value: float
    stderr: float

    def inside(self, box: Edges) -> bool:
        south, west, north, east = self.edges
        return box[0] <= south and box[1] <= west and north <= box[2] and east <= box[3]

    def share(self, box: Edges) -> float:
        """Of its area in the box: 0 beside it."""
        south, west, north, east = self.edges
        high = min(north, box[2]) - max(south, box[0])
        wide = min(east, box[3]) - max(west, box[1])
        return max(0, high) * max(0, wide) / ((north - south) * (east - west))


@dataclass(frozen=True, slots=True)
class _Sum:
    """``value``, ``variance``: of the ``cells`` that count; ``spread``: of cut cells by area;
    ``most``: of those with all that noise may hide.
    """

    value: float
    variance: float
    cells: int
    cut: int
    spread: float
    most: float


def is_parted(releases: Sequence[Mapping[str, Any]]) -> bool:
    """Whether any of them is a level of a discovery of places."""
    return any("cells" in one.get("discovered", ()) for one in releases)


def parted_rectangle(
    releases: Sequence[Mapping[str, Any]],
    south: float | None = None,
    west: float | None = None,
    north: float | None = None,
    east: float | None = None,
) -> PartedCount:
    """Of the releases of one task in their JSON shape; bounds in degrees; None: that of the map.
    Raises NOT_FOUND without level 0; CONFIG, in a line that says how to mend it, for bounds that
    are not on the map.
    """
    return PartedMap(releases).rectangle(south, west, north, east)


class PartedMap:
    """The releases of one task in their JSON shape, read once for many rectangles. Raises NOT_FOUND
    without level 0.
    """

    def __init__(self, releases: Sequence[Mapping[str, Any]]) -> None:
        levels = levels_of(releases)
        if 0 not in levels:
            raise ShoalError(
                Kind.NOT_FOUND,
                "level 0 of this discovery is not among its releases, and all counts start from "
                "it: ask where all of its releases are",
            )
        self._parts = {number: _parts(levels, number) for number in sorted(levels)}
        self._box, self._n = levels[0]["discovered"]["box"], int(levels[0]["n"])
        self._last = levels[0]["estimates"][-1]

    def rectangle(
        self,
        south: float | None = None,
        west: float | None = None,
        north: float | None = None,
        east: float | None = None,
    ) -> PartedCount:
        """Bounds in degrees; None: that of the map. Raises CONFIG for bounds that are not on it."""
        box, parts = _box(self._box, (south, west, north, east)), self._parts
        within = _summed(parts, lambda part: part.share(box), lambda part: part.inside(box))
        first = list(parts[0].values())
        ins = sum(part.inside(box) for part in first)
        outs = 1 + sum(part.share(box) == 0.0 for part in first)
        if ins <= outs:
            return _count(box, within)
        beside = _summed(
            parts, lambda part: 1.0 - part.share(box), lambda part: not part.share(box)
        )
        elsewhere, error = float(self._last["value"]), float(self._last["stderr"])
        return _count(
            box,
            _Sum(
                beside.value + elsewhere,
                beside.variance + error**2,
                beside.cells + 1,
                beside.cut,
                beside.spread,
                beside.most,
            ),
            outside_of=self._n,
        )


def _count(box: Edges, found: _Sum, outside_of: int | None = None) -> PartedCount:
    error = math.sqrt(found.variance)
    far = Z if not found.cut else _NORMAL.inv_cdf(1.0 - _SIDE / 2.0)
    value = found.value + min(max(found.spread, 0.0), found.most)
    low, high = found.value - Z * error, found.value + far * error + found.most
    if outside_of is not None:
        value, low, high = outside_of - value, outside_of - high, outside_of - low
    south, west, north, east = (edge / MICRO for edge in box)
    return PartedCount(
        *(south, west, north, east),
        *(value, error, low, high),
        *(found.cells, found.cut, found.most),
    )


def _summed(
    parts: Mapping[int, Mapping[str, _Part]],
    share: Callable[[_Part], float],
    whole: Callable[[_Part], bool],
) -> _Sum:
    """``share``: of a part that is meant; ``whole``: whether all of it is."""
    value = variance = spread = most = 0.0
    cells = cut = 0
    looked = list(parts[0].values())
    for number in range(max(parts) + 1):
        split = [part for part in looked if not whole(part) and share(part) > 0.0]
        counted = [part for part in looked if whole(part)]
        value += math.fsum(part.value for part in counted)
        variance += math.fsum(part.stderr**2 for part in counted)
        cells += len(counted)
        below = dict[str, list[_Part]]()
        for part in parts.get(number + 1, {}).values():
            below.setdefault(part.path[:-1], []).append(part)
        left = [part for part in split if part.path not in below]
        cut += len(left)
        spread += math.fsum(share(part) * part.value for part in left)
        if left:
            chance = _SIDE / 2.0 / (max(parts) + 1)
            hidden = max(part.stderr for part in split) * most_hidden(len(split), chance)
            most += max(0.0, math.fsum(part.value for part in left) + hidden)
        looked = [part for parent in split for part in below.get(parent.path, ())]
        if not looked:
            break
    return _Sum(value, variance, cells, cut, spread, most)


def most_hidden(cells: int, chance: float) -> float:
    """What the negative errors of so many cells come to, in standard errors, but for that chance.
    Direction: upper bound.
    """
    each = cells * _NORMAL.inv_cdf(1.0 - chance / cells)
    return min(each, *(_chernoff(cells, chance, tilt) for tilt in _TILTS))


def _chernoff(cells: int, chance: float, tilt: float) -> float:
    moment = 0.5 + math.exp(tilt * tilt / 2.0) * _NORMAL.cdf(tilt)
    return (cells * math.log(moment) - math.log(chance)) / tilt


def _parts(levels: Mapping[int, Mapping[str, Any]], number: int) -> dict[str, _Part]:
    """The cells that a level asked for, by their symbols, in devices of level 0."""
    release = levels[number]
    times = levels[0]["n"] / release["n"]
    rows = zip(release["estimates"], release["discovered"]["cells"], strict=False)
    return {
        cell["path"]: _Part(
            cell["path"],
            _edges(cell),
            row["value"] * times,
            row["stderr"] * times,
        )
        for row, cell in rows
    }


def _edges(cell: Mapping[str, Any]) -> Edges:
    south, west, north, east = (round(cell[side] * MICRO) for side in _SIDES)
    return south, west, north, east


def _box(whole: Sequence[float], asked: Sequence[float | None]) -> Edges:
    """In microdegrees. Raises CONFIG."""
    edges = [round(edge * MICRO) for edge in whole]
    found = list[int]()
    for at, given in enumerate(asked):
        if given is None:
            found.append(edges[at])
            continue
        low, high = edges[at % 2], edges[at % 2 + 2]
        if not (abs(given) <= 360.0 and low <= round(given * MICRO) <= high):  # no NaN
            raise ShoalError(
                Kind.CONFIG,
                f"the {_SIDES[at]} of a rectangle is on the map: give {low / MICRO:.6f} to "
                f"{high / MICRO:.6f}, got {given:g}",
            )
        found.append(round(given * MICRO))
    south, west, north, east = found
    if south >= north or west >= east:
        what = "north than south" if south >= north else "east than west"
        raise ShoalError(Kind.CONFIG, f"a rectangle has some area: give a larger {what}")
    return south, west, north, east
