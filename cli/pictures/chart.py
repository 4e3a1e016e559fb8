"""A line chart on two logarithmic axes as a self-contained SVG. Numbers in, a picture out;
chart.svg.j2 draws it.

Nothing in the picture is scripted or loaded from anywhere; all text is escaped. Coordinates are SVG
user units, rounded to a tenth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from shoal.pictures.axes import Axis, Steps, Tick, logarithmic_ticks, polyline, power_text
from shoal.pictures.templates import render

WIDTH, HEIGHT = 760.0, 480.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 76.0, 28.0, 70.0, 58.0
_LEGEND, _LEGEND_ROW = 14.0, 20.0  # inset of the legend, and the height of one entry
_CHAR = 7.2  # of the legend's text, about
_DECADES_WITH_STEPS = 2.5  # up to so many decades an axis shows 2 and 5 between powers of ten
_MOST_TICKS = 12
_BETWEEN = 16


@dataclass(frozen=True, slots=True)
class Series:
    """One line: finite points (x, y), both above 0, x ascending. ``style``: ``upper``, ``lower`` or
    ``ceiling``.
    """

    label: str
    style: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """One point with a text of its own."""

    label: str
    x: float
    y: float


def draw(
    title: str,
    subtitle: str,
    x_label: str,
    y_label: str,
    series: Sequence[Series],
    mark: Mark | None = None,
) -> str:
    """The picture as SVG text. ``series``: at least one point in all; the axes reach a little
    beyond every point.
    """
    points = [point for line in series for point in line.points] + (
        [(mark.x, mark.y)] if mark else []
    )
    xs, ys = [x for x, _ in points], [y for _, y in points]
    x_axis = _axis(min(xs), max(xs), _LEFT, WIDTH - _RIGHT, room=1.0)
    y_axis = _axis(min(ys), max(ys), HEIGHT - _BOTTOM, _TOP, room=1.25)
    lines = [
        {
            "label": line.label,
            "style": line.style,
            "path": polyline(line.points, x_axis, y_axis),
        }
        for line in series
        if line.points
    ]
    return render(
        "shoal.cli.pictures",
        "chart.svg.j2",
        width=WIDTH,
        height=HEIGHT,
        left=_LEFT,
        right=WIDTH - _RIGHT,
        top=_TOP,
        bottom=HEIGHT - _BOTTOM,
        title=title,
        subtitle=subtitle,
        x_label=x_label,
        y_label=y_label,
        x_ticks=_ticks(x_axis),
        y_ticks=_ticks(y_axis),
        lines=lines,
        mark=None
        if mark is None
        else {"label": mark.label, "x": x_axis.place(mark.x), "y": y_axis.place(mark.y)},
        legend=_legend(
            [*(line.label for line in series if line.points), *([mark.label] if mark else [])],
            lines,
            x_axis,
            y_axis,
            mark,
        ),
        row=_LEGEND_ROW,
    )


def _axis(low: float, high: float, start: float, end: float, room: float) -> Axis:
    """Reaches ``room`` times beyond both ends, and over a factor of 2 at least."""
    low, high = low / room, high * room
    if high < 2.0 * low:
        low, high = low / 1.5, high * 1.5
    return Axis(low, high, start, end, logarithmic=True)


def _ticks(axis: Axis) -> tuple[Tick, ...]:
    short = math.log10(axis.high) - math.log10(axis.low) <= _DECADES_WITH_STEPS
    steps = Steps((1, 2, 5) if short else (1,), _MOST_TICKS)
    return axis.ticks(logarithmic_ticks(axis.low, axis.high, [steps]), power_text)


def _legend(
    labels: Sequence[str],
    lines: Sequence[dict[str, str]],
    x_axis: Axis,
    y_axis: Axis,
    mark: Mark | None,
) -> dict[str, float]:
    """Where the legend leaves the mark to be seen, and covers least of the lines: one of the four
    corners of the plot, the lower left one first.
    """
    width = 44.0 + _CHAR * max(len(label) for label in labels)
    height = _LEGEND_ROW * len(labels) + 10.0
    right, bottom = x_axis.end - _LEGEND - width, y_axis.start - _LEGEND - height
    left, top = x_axis.start + _LEGEND, y_axis.end + _LEGEND
    passed = [point for line in lines for point in _along(line["path"])]

    marked = [] if mark is None else [(x_axis.place(mark.x), y_axis.place(mark.y))]

    def covered(corner: tuple[float, float]) -> tuple[int, int]:
        x0, y0 = corner
        most, points = (
            sum(
                x0 - 6.0 <= x <= x0 + width + 6.0 and y0 - 6.0 <= y <= y0 + height + 6.0
                for x, y in each
            )
            for each in (marked, passed)
        )
        return most, points

    x, y = min([(left, bottom), (right, top), (left, top), (right, bottom)], key=covered)
    return {"x": round(x, 1), "y": round(y, 1), "width": round(width, 1), "height": height}


def _along(path: str) -> list[tuple[float, float]]:
    """Points on a drawn line, its vertices and some between them."""
    vertices = [(float(x), float(y)) for x, y in (vertex.split(",") for vertex in path.split())]
    steps = [i / _BETWEEN for i in range(_BETWEEN)]
    between = [
        (x + t * (u - x), y + t * (v - y)) for (x, y), (u, v) in pairwise(vertices) for t in steps
    ]
    return [*between, vertices[-1]]
