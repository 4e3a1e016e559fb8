"""Geometry of the console's plots: values in, places in percent of the width out.

A plot without a view box keeps its text and its dots as they are at every width: only the places
stretch. What draws them is ``plots.html.j2``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from shoal.pictures.axes import Axis, Tick, linear_ticks, number

_LEFT, _RIGHT = 1.5, 98.5  # percent: a dot at an end is whole
_FEW = 4  # ticks, as narrow as a plot may be
_TOP, _BOTTOM = 12.0, 88.0  # percent of the height of a line


@dataclass(frozen=True, slots=True)
class Strip:
    """One estimate on an axis, in percent of the width. ``truth``: None where nobody knows it."""

    low: float
    value: float
    high: float
    truth: float | None


@dataclass(frozen=True, slots=True)
class Strips:
    """Estimates that share an axis, in the order given. ``zero``: the place of 0."""

    rows: tuple[Strip, ...]
    ticks: tuple[Tick, ...]
    zero: float


def strips(rows: Sequence[Mapping[str, Any]]) -> Strips:
    """``rows``: value, low, high and truth (None: unknown), all finite. The axis includes 0."""
    every = [
        float(row[key])
        for row in rows
        for key in ("value", "low", "high", "truth")
        if row[key] is not None
    ]
    axis = _axis(every, _LEFT, _RIGHT)
    return Strips(
        tuple(
            Strip(
                axis.place(row["low"]),
                axis.place(row["value"]),
                axis.place(row["high"]),
                None if row["truth"] is None else axis.place(row["truth"]),
            )
            for row in rows
        ),
        axis.ticks(linear_ticks(axis.low, axis.high, _FEW), number),
        axis.place(0.0),
    )


@dataclass(frozen=True, slots=True)
class LinePoint:
    """A window's estimate, in percent of the width and of the height."""

    x: float
    low: float
    value: float
    high: float


@dataclass(frozen=True, slots=True)
class Line:
    """One answer over the windows. ``steps``: from point to point, (x1, y1, x2, y2) in percent, a
    gap where a window between them was withheld. ``summary``: the same in words.
    """

    label: str
    points: tuple[LinePoint, ...]
    steps: tuple[tuple[float, float, float, float], ...]
    summary: str
    first: str
    last: str


def lines(
    series: Mapping[str, Sequence[tuple[int, float, float, float]]], *, percent: bool
) -> list[Line]:
    """``series``: by label, (window, value, low, high) by window; they share both axes, and the
    upright one includes 0. ``percent``: how their values are written.
    """
    windows = [row[0] for rows in series.values() for row in rows]
    if not windows:
        return []
    first, last = min(windows), max(windows)
    across = Axis(first, last + (first == last), 3.0, 97.0)
    up = _axis([value for rows in series.values() for row in rows for value in row[1:]], 0.0, 1.0)
    upright = Axis(up.low, up.high, _BOTTOM, _TOP)
    text = "{:.1f} %".format if percent else number
    return [_line(label, rows, across, upright, text) for label, rows in series.items()]


def _line(
    label: str,
    rows: Sequence[tuple[int, float, float, float]],
    across: Axis,
    upright: Axis,
    text: Callable[[float], str],
) -> Line:
    points = [
        LinePoint(across.place(at), upright.place(low), upright.place(value), upright.place(high))
        for at, value, low, high in rows
    ]
    steps = [
        (before.x, before.value, after.x, after.value)
        for (before, after), (this, following) in zip(
            pairwise(points), pairwise(row[0] for row in rows), strict=True
        )
        if following == this + 1
    ]
    told = "; ".join(f"window {at}: {text(value)}" for at, value, _, _ in rows[-6:])
    ends = text(rows[0][1]), text(rows[-1][1])
    return Line(label, tuple(points), tuple(steps), told, *ends)


def _axis(values: Iterable[float], start: float, end: float) -> Axis:
    found = [value for value in values if math.isfinite(value)]
    low, high = min(0.0, *found), max(0.0, *found)
    return Axis(low, high if high > low else low + 1.0, start, end)


@dataclass(frozen=True, slots=True)
class HistogramBar:
    """A bar of a histogram, in percent of the width and of the height, from the upper left."""

    x: float
    y: float
    width: float
    height: float


def bars(edges: Sequence[float], shares: Sequence[float], most: int = 40) -> list[HistogramBar]:
    """Areas are the shares of the bins from edges[i] to edges[i + 1], increasing; neighbours are
    joined down to ``most`` bars.
    """
    each = -(-len(shares) // most)
    joined = [math.fsum(shares[at : at + each]) for at in range(0, len(shares), each)]
    ends = [*edges[:-1:each], edges[-1]]
    axis = Axis(ends[0], ends[-1], 0.0, 100.0)
    places = [(axis.place(low), axis.place(high)) for low, high in pairwise(ends)]
    widths = [max(high - low, 0.1) for low, high in places]
    dense = [share / width for share, width in zip(joined, widths, strict=True)]
    unit = 92.0 / (max(dense) or 1.0)
    return [
        HistogramBar(
            low, round(100.0 - at * unit, 1), round(width, 1), round(max(0.0, at * unit), 1)
        )
        for (low, _), width, at in zip(places, widths, dense, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class BudgetCurve:
    """What was spent, and what will be, in percent of the width and of the height. ``spent`` and
    ``ahead``: steps (x1, y1, x2, y2); ``now``: the place of what is spent; ``limit``: its height,
    None without one; ``ticks`` of the height.
    """

    spent: tuple[tuple[float, float, float, float], ...]
    ahead: tuple[tuple[float, float, float, float], ...]
    now: tuple[float, float]
    limit: float | None
    ticks: tuple[Tick, ...]
    first: int
    last: int


def curve(points: Sequence[tuple[int, float]], done: int, limit: float | None) -> BudgetCurve:
    """``points``: (windows, epsilon), windows ascending, all finite; ``done``: windows so far."""
    known = list(points) or [(done, 0.0)]
    top = max([epsilon for _, epsilon in known] + ([] if limit is None else [limit]))
    first, last = known[0][0], known[-1][0]
    across = Axis(first, last + (first == last), 2.0, 98.0)
    upright = Axis(0.0, top * 1.08 or 1.0, 96.0, 4.0)
    steps = [
        (a, (across.place(a), upright.place(low), across.place(b), upright.place(high)))
        for (a, low), (b, high) in pairwise(known)
    ]
    now = next((place for place in known if place[0] == done), known[-1])
    return BudgetCurve(
        tuple(step for at, step in steps if at < done),
        tuple(step for at, step in steps if at >= done),
        (across.place(now[0]), upright.place(now[1])),
        None if limit is None else upright.place(limit),
        upright.ticks(linear_ticks(0.0, upright.high, _FEW), number),
        first,
        last,
    )
