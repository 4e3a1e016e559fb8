"""A map of places in the terminal: shades of cells, and the cells where most devices are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from shoal.analyzer.results.maps.tree import MapCell, PlaceMap
from shoal.cli.results.terminal import up

COLUMNS = 64
_TALLEST = 40
_LETTER = 2.0  # a letter is so many times as high as it is wide
_SHADES = " \u00b7\u2591\u2592\u2593\u2588"
_ROWS = 16


def map_text(found: PlaceMap) -> str:
    """Lines of ``COLUMNS`` letters, the northernmost first: a shade for the devices below each,
    those of a cell spread evenly over it.
    """
    south, west, north, east = found.box
    across = (east - west) * math.cos(math.radians((south + north) / 2))
    lines = max(1, min(_TALLEST, round(COLUMNS * (north - south) / across / _LETTER)))
    devices = [[0.0] * COLUMNS for _ in range(lines)]
    for cell in found.cells:
        aside = _shares(cell.west - west, cell.east - west, (east - west) / COLUMNS)
        for line, part in _shares(north - cell.north, north - cell.south, (north - south) / lines):
            for column, share in aside:
                here = cell.fitted * part * share
                devices[min(line, lines - 1)][min(column, COLUMNS - 1)] += here
    most = max(map(max, devices)) or 1.0
    return "\n".join("".join(_shade(one / most) for one in line) for line in devices)


def _shares(low: float, high: float, step: float) -> list[tuple[int, float]]:
    """Which part of what is from ``low`` to ``high`` is over which letter of that width."""
    letters = range(int(low / step), int(high / step) + 1)
    parts = [(one, min(high, (one + 1) * step) - max(low, one * step)) for one in letters]
    return [(one, part / (high - low)) for one, part in parts if part > 0.0]


def _shade(share: float) -> str:
    """The square root tells the few apart."""
    return _SHADES[round(math.sqrt(max(0.0, share)) * (len(_SHADES) - 1))]


def drawn_map(found: PlaceMap, releases: Sequence[Mapping[str, Any]]) -> Group:
    """The map with what there is to say of it."""
    released = max(
        (one for one in releases if "discovered" in one), key=lambda one: int(one["window"])
    )
    head = (
        f"{released['name']}: level {found.level} of 0 to {found.levels - 1}, window "
        f"{found.window}: {len(found.cells):,} cells"
    )
    lines = [
        f"of {released['n']:,} devices; epsilon \u2264 {up(released['privacy']['epsilon_upper'])} "
        "in each window"
    ]
    if found.no_room:
        lines.append(f"{found.no_room:,} more parts had no room")
    return Group(
        Text(head), Text(map_text(found)), cell_table(found), Text("\n".join(lines), style="dim")
    )


def cell_table(found: PlaceMap, truth: Mapping[str, int] | None = None) -> Table:
    """The smallest cells where most devices are. ``truth``: by path, where it is known."""
    rows = found.found or found.going_on
    table = Table("latitude, longitude", "devices", "+-", *(["true"] if truth else []), box=None)
    for cell in rows[:_ROWS]:
        table.add_row(*_row(cell), *([f"{truth[cell.path]:,}"] if truth else []))
    if len(rows) > _ROWS:
        table.add_row(f"and {len(rows) - _ROWS:,} more", "", "")
    return table


def _row(cell: MapCell) -> tuple[str, str, str]:
    return cell.label, f"{cell.value:,.0f}", f"{(cell.high - cell.low) / 2:,.0f}"


def map_json(found: PlaceMap) -> dict[str, Any]:
    """Plain JSON values."""
    return {
        "level": found.level,
        "levels": found.levels,
        "window": found.window,
        "no_room": found.no_room,
        "box": list(found.box),
        "cells": [_cell(cell) for cell in found.cells],
        "followed": [_cell(cell) for cell in found.followed],
    }


def _cell(cell: MapCell) -> dict[str, Any]:
    return {
        "path": cell.path,
        "label": cell.label,
        "south": cell.south,
        "west": cell.west,
        "north": cell.north,
        "east": cell.east,
        "value": cell.value,
        "ci_low": cell.low,
        "ci_high": cell.high,
        "fitted": cell.fitted,
        "level": cell.level,
        "reached": cell.reached,
    }
