"""What a discovery of places says that it found: whether that can be what its signed task asks.

Cells are worked out again here, from their symbols: row * across + column of a part in the part
before, from the south-west (docs/WIRE.md, 4.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shoal.checker.findings import Outcome, Statement
from shoal.protos import release_pb2, task_pb2

_MICRO = 1_000_000
_ELSEWHERE = "elsewhere, or no answer"
_SIDES = ("south", "west", "north", "east")


def shown_map(found: release_pb2.DiscoveredLevel) -> dict[str, Any]:
    """What the part for readers must have of it, beside what all discoveries have."""
    reached = set(found.beginnings)
    return {
        "box": [edge / _MICRO for edge in _edges(b"", found.parts)],
        "cells": [
            {
                "path": "".join(f"{symbol:x}" for symbol in one),
                "reached": one in reached,
                **{
                    side: edge / _MICRO
                    for side, edge in zip(_SIDES, _edges(one, found.parts), strict=True)
                },
            }
            for one in found.asked
        ],
    }


def discovered_places(
    release: release_pb2.Release, asked: task_pb2.Discovery
) -> Iterator[Statement]:
    """Of a release of a discovery of places that is not withheld."""
    found = release.discovered
    levels = asked.longest - asked.first + 1
    yield _said(
        "the level is one of the discovery's",
        found.levels == levels and found.level < levels,
        f"level {found.level} of {levels}",
    )
    yield _said("the map is the task's", found.parts == asked.parts, "its box and its parts")
    symbols, cells = asked.parts.across**2, list(found.asked)
    depth = asked.first + found.level
    yield _said(
        "the cells are all that such a level asks for",
        _is_level(cells, symbols, depth, asked, found.level),
        f"{len(cells):,} cells of {depth} symbols",
    )
    rows = list(release.estimates)
    labels = [*(_label(one, asked.parts) for one in cells), _ELSEWHERE]
    yield _said(
        "every estimate is of the cell that it names",
        [row.label for row in rows] == labels,
        f"{len(rows):,} estimates",
    )
    values = {one: row.value for one, row in zip(cells, rows, strict=False)}
    reached = {one for one, value in values.items() if value >= found.threshold}
    told = list(found.beginnings)
    least = min((values.get(one, -1.0) for one in told), default=0.0)
    yield _said(
        "followed are the cells that reach the threshold, of too many the largest",
        told == sorted(set(told))
        and reached.issuperset(told)
        and len(reached) == len(told) + found.no_room
        and all(values[one] <= least for one in reached.difference(told)),
        f"{len(told):,} of {len(reached):,} from {found.threshold:,} devices on",
    )
    last = found.level == levels - 1
    yield _said(
        "no more cells are followed than the task allows",
        (last and not found.no_room) or (len(told) <= asked.most and not last),
        f"{len(told):,} of {asked.most:,}",
    )


def _is_level(
    cells: list[bytes], symbols: int, depth: int, asked: task_pb2.Discovery, level: int
) -> bool:
    if not cells or cells != sorted(set(cells)) or symbols not in (4, 16):
        return False
    if any(len(one) != depth or max(one) >= symbols for one in cells):
        return False
    parents = {one[:-1] for one in cells}
    if len(cells) != symbols * len(parents):
        return False
    return len(parents) == symbols ** (asked.first - 1) if not level else len(parents) <= asked.most


def _edges(symbols: bytes, parts: task_pb2.MapParts) -> tuple[int, int, int, int]:
    """South, west, north, east in microdegrees: the least whole ones of the cell, and of those
    north and east of it.
    """
    row = column = 0
    for symbol in symbols:
        row = row * parts.across + symbol // parts.across
        column = column * parts.across + symbol % parts.across
    rows, box = int(parts.across ** len(symbols)), parts.map

    def edge(low: int, high: int, at: int) -> int:
        return low - (-at * (high - low) // rows)

    return (
        edge(box.south, box.north, row),
        edge(box.west, box.east, column),
        edge(box.south, box.north, row + 1),
        edge(box.west, box.east, column + 1),
    )


def _label(symbols: bytes, parts: task_pb2.MapParts) -> str:
    south, west, north, east = _edges(symbols, parts)
    rows, box = parts.across ** len(symbols), parts.map
    up, aside = (
        (high - low) // rows for low, high in ((box.south, box.north), (box.west, box.east))
    )
    return (
        f"{_degrees(south, up)} to {_degrees(north, up)}, "
        f"{_degrees(west, aside)} to {_degrees(east, aside)}"
    )


def _degrees(edge: int, width: int) -> str:
    """With as few digits as are off by a 20th of a cell at most."""
    digits = next((each for each in range(7) if 10 ** (7 - each) <= width), 6)
    unit: int = 10 ** (6 - digits)
    units = (abs(edge) + unit // 2) // unit
    whole, behind = divmod(units, 10**digits)
    sign = "-" if edge < 0 and units else ""
    return f"{sign}{whole}.{behind:0{digits}d}" if digits else f"{sign}{whole}"


def _said(what: str, holds: bool, why: str) -> Statement:
    return Statement(what, Outcome.HOLDS if holds else Outcome.WRONG, why)
