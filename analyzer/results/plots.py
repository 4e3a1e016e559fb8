"""Geometry of the report page's plots: numbers in, coordinates out. What draws them is
report.html.j2.

Every plot is a list of rows over one horizontal axis; coordinates are SVG user units, rounded to a
tenth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from shoal.pictures.axes import (
    Axis,
    Steps,
    Tick,
    linear_ticks,
    logarithmic_ticks,
    number,
)

WIDTH = 720.0
_RIGHT = 24.0  # room for half of the last tick's text
_CHAR, _LEAST_LEFT, _MOST_CHARS = 7.0, 80.0, 34  # room for the labels, from their length
_TOP, _ROW, _BOTTOM = 8.0, 28.0, 30.0
_TICKS = 6  # about as many
_MOST_TICKS = _TICKS + 3
_STEPS = (Steps((1, 2, 5), _MOST_TICKS), Steps((1, 3), _MOST_TICKS), Steps((1,), 22))
_TALL, _MOST_BARS = 110.0, 60


@dataclass(frozen=True, slots=True)
class PlotRow:
    """``marks``: x by the name of the mark; a mark whose value is not known, or not on the axis, is
    left out.
    """

    y: float
    label: str
    marks: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RowPlot:
    """Marks on one axis, a row a label: what results.html.j2 draws. Lengths and places are SVG user
    units, from the upper left.
    """

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    zero: float | None  # x of 0, where the axis shows it
    ticks: tuple[Tick, ...]
    rows: tuple[PlotRow, ...]


def plot(rows: Sequence[tuple[str, Mapping[str, float]]], *, logarithmic: bool = False) -> RowPlot:
    """``rows``: (label, value by mark). A linear axis includes 0; a logarithmic one shows only
    values above 0.
    """
    shown = [
        {
            name: value
            for name, value in values.items()
            if math.isfinite(value) and (value > 0 or not logarithmic)
        }
        for _, values in rows
    ]
    values = [value for marks in shown for value in marks.values()] or [1.0]
    if logarithmic:
        low, high = min(values) / 1.3, max(values) * 1.3
        ticks = logarithmic_ticks(low, high, _STEPS)
    else:
        low, high = min(*values, 0.0), max(*values, 0.0)
        margin = 0.04 * ((high - low) or 1.0)
        low, high = low - margin * (low < 0), high + margin * (high > 0 or low == high)
        ticks = linear_ticks(low, high, _TICKS)
    left = max(
        _LEAST_LEFT,
        18.0 + _CHAR * max((min(len(label), _MOST_CHARS) for label, _ in rows), default=0),
    )
    axis = Axis(low, high, left, WIDTH - _RIGHT, logarithmic)
    bottom = _TOP + _ROW * len(rows)
    lines = [
        PlotRow(
            _TOP + _ROW * (i + 0.5),
            _shorten(label),
            {name: axis.place(value) for name, value in marks.items()},
        )
        for i, ((label, _), marks) in enumerate(zip(rows, shown, strict=True))
    ]
    zero = None if logarithmic else axis.place(0.0)
    return RowPlot(
        WIDTH,
        bottom + _BOTTOM,
        left,
        WIDTH - _RIGHT,
        _TOP,
        bottom,
        zero,
        axis.ticks(ticks, number),
        tuple(lines),
    )


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a histogram: SVG user units, ``x`` and ``y`` of its upper left corner."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """``marks``: x by name."""

    width: float
    height: float
    left: float
    right: float
    bottom: float
    ticks: tuple[Tick, ...]
    bars: tuple[Bar, ...]
    marks: Mapping[str, float]


def histogram(
    edges: Sequence[float], shares: Sequence[float], marks: Mapping[str, float]
) -> Histogram:
    """Bars whose areas are the shares of the bins from edges[i] to edges[i + 1], increasing;
    neighbours are joined down to 60 bars.

    ``marks``: values to mark on the axis, by name, each from edges[0] to edges[-1].
    """
    each = -(-len(shares) // _MOST_BARS)
    joined = [math.fsum(shares[at : at + each]) for at in range(0, len(shares), each)]
    ends = [*edges[:-1:each], edges[-1]]
    axis = Axis(ends[0], ends[-1], _RIGHT, WIDTH - _RIGHT)
    drawn = [
        (axis.place(low), max(axis.place(high) - axis.place(low), 0.1))
        for low, high in pairwise(ends)
    ]
    dense = [share / width for share, (_, width) in zip(joined, drawn, strict=True)]
    unit = _TALL / (max(dense) or 1.0)
    bars = tuple(
        Bar(x, round(_TOP + _TALL - at * unit, 1), round(width, 1), round(at * unit, 1))
        for at, (x, width) in zip(dense, drawn, strict=True)
    )
    ticks = axis.ticks(linear_ticks(ends[0], ends[-1], _TICKS), number)
    bottom = _TOP + _TALL
    return Histogram(
        WIDTH,
        bottom + _BOTTOM,
        _RIGHT,
        WIDTH - _RIGHT,
        bottom,
        ticks,
        bars,
        {name: axis.place(value) for name, value in marks.items()},
    )


def _shorten(label: str) -> str:
    return label if len(label) <= _MOST_CHARS else label[: _MOST_CHARS - 1] + "…"
