"""What a discovery says that it found: whether that can be what its signed task asks.

Words are written again here, from the symbols: 26 letters, apostrophe, hyphen, space, any digit,
anything else, end; and cells of a map from theirs: row * across + column of a part in the part
before, from the south-west (docs/WIRE.md, 4.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shoal.checker.findings import Outcome, Statement
from shoal.protos import release_pb2, task_pb2

_LETTERS = "abcdefghijklmnopqrstuvwxyz'- #?"
_END = len(_LETTERS)
_GOES_ON = "\u2026"
_OTHERS = "another, or none"
_MICRO = 1_000_000
_ELSEWHERE = "elsewhere, or no answer"
_SIDES = ("south", "west", "north", "east")


def shown_level(release: release_pb2.Release) -> dict[str, Any] | None:
    """What the part for readers must have of it."""
    if not release.HasField("discovered"):
        return None
    found = release.discovered
    places = found.HasField("parts")
    whole = [one[-1:] == bytes((_END,)) for one in found.beginnings]
    return {
        "level": found.level,
        "levels": found.levels,
        "threshold": found.threshold,
        "no_room": found.no_room,
        **({"draws_one_of": found.drawn} if found.drawn else {}),
        **(_shown_map(found) if places else {"whole": whole}),
    }


def discovered(release: release_pb2.Release, task: task_pb2.Task) -> Iterator[Statement]:
    """Nothing of a task that is no discovery."""
    asked, found = task.domain.discovery, release.discovered
    if not task.domain.HasField("discovery"):
        if release.HasField("discovered"):
            yield _said("no words are told by a task that asks for none", False, "it tells some")
        return
    if release.withheld:
        return  # "a release that is withheld shows nothing"
    if found.drawn:
        yield _said(
            "a device answers as many windows as the task says",
            asked.fresh and found.drawn == task.windows.count,
            f"one of {found.drawn}, drawn by itself",
        )
    if asked.HasField("parts"):
        yield from _of_places(release, asked)
        return
    levels, depth = asked.longest - asked.first + 1, asked.first + found.level
    yield _said(
        "the level is one of the discovery's",
        found.levels == levels and found.level < levels,
        f"level {found.level} of {levels}",
    )
    rows, beginnings = list(release.estimates), list(found.beginnings)
    labels = [*map(_label, beginnings), _OTHERS]
    yield _said(
        "every estimate is of the beginning that it names",
        [row.label for row in rows] == labels and len(set(beginnings)) == len(beginnings),
        f"{len(beginnings):,} beginnings",
    )
    yield _said(
        "every beginning is as long as the level asks",
        all(_fits(one, depth) for one in beginnings),
        f"{depth} symbols, or whole words",
    )
    told = [row.value >= found.threshold for row in rows[:-1]]
    yield _said("every beginning reaches the threshold", all(told), f"{found.threshold:,} devices")
    going_on = sum(one[-1] != _END for one in beginnings if one)
    last = found.level == levels - 1
    yield _said(
        "no more beginnings are followed than the task allows",
        last or going_on <= asked.most,
        f"{going_on:,} of {asked.most:,}",
    )


def _label(symbols: bytes) -> str:
    text = "".join(_LETTERS[one] for one in symbols if one < _END)
    return text if symbols[-1:] == bytes((_END,)) else text + _GOES_ON


def _fits(symbols: bytes, depth: int) -> bool:
    if not symbols or max(symbols) > _END or _END in symbols[:-1]:
        return False
    return len(symbols) == depth or (len(symbols) < depth and symbols[-1] == _END)


def _shown_map(found: release_pb2.DiscoveredLevel) -> dict[str, Any]:
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


def _of_places(release: release_pb2.Release, asked: task_pb2.Discovery) -> Iterator[Statement]:
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
    labels = [*(_cell_label(one, asked.parts) for one in cells), _ELSEWHERE]
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


def _cell_label(symbols: bytes, parts: task_pb2.MapParts) -> str:
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
