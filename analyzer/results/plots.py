"""Geometry of the report page's plots: numbers in, coordinates out. What draws them is
report.html.j2.

Every plot is a list of rows over one horizontal axis; coordinates are SVG user units, rounded to a
tenth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

WIDTH = 720.0
_RIGHT = 24.0  # room for half of the last tick's text
_CHAR, _LEAST_LEFT, _MOST_CHARS = 7.0, 80.0, 34  # room for the labels, from their length
_TOP, _ROW, _BOTTOM = 8.0, 28.0, 30.0
_TICKS = 6  # about as many
_TALL, _MOST_BARS = 110.0, 60


@dataclass(frozen=True, slots=True)
class Tick:
    x: float
    text: str


@dataclass(frozen=True, slots=True)
class Row:
    """``marks``: x by the name of the mark; a mark whose value is not known, or not on the axis, is
    left out.
    """

    y: float
    label: str
    marks: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Plot:
    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    zero: float | None  # x of 0, where the axis shows it
    ticks: tuple[Tick, ...]
    rows: tuple[Row, ...]


def plot(rows: Sequence[tuple[str, Mapping[str, float]]], *, logarithmic: bool = False) -> Plot:
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
        ticks = _log_ticks(low, high)
    else:
        low, high = min(*values, 0.0), max(*values, 0.0)
        margin = 0.04 * ((high - low) or 1.0)
        low, high = low - margin * (low < 0), high + margin * (high > 0 or low == high)
        ticks = _ticks(low, high)
    left = max(
        _LEAST_LEFT,
        18.0 + _CHAR * max((min(len(label), _MOST_CHARS) for label, _ in rows), default=0),
    )
    place = _axis(low, high, left, math.log if logarithmic else float)
    bottom = _TOP + _ROW * len(rows)
    lines = [
        Row(
            _TOP + _ROW * (i + 0.5),
            _shorten(label),
            {name: place(value) for name, value in marks.items()},
        )
        for i, ((label, _), marks) in enumerate(zip(rows, shown, strict=True))
    ]
    zero = None if logarithmic else place(0.0)
    return Plot(
        WIDTH,
        bottom + _BOTTOM,
        left,
        WIDTH - _RIGHT,
        _TOP,
        bottom,
        zero,
        tuple(Tick(place(tick), number(tick)) for tick in ticks),
        tuple(lines),
    )


@dataclass(frozen=True, slots=True)
class Bar:
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
    place = _axis(ends[0], ends[-1], _RIGHT, float)
    drawn = [(place(low), max(place(high) - place(low), 0.1)) for low, high in pairwise(ends)]
    dense = [share / width for share, (_, width) in zip(joined, drawn, strict=True)]
    unit = _TALL / (max(dense) or 1.0)
    bars = tuple(
        Bar(x, round(_TOP + _TALL - at * unit, 1), round(width, 1), round(at * unit, 1))
        for at, (x, width) in zip(dense, drawn, strict=True)
    )
    ticks = tuple(Tick(place(tick), number(tick)) for tick in _ticks(ends[0], ends[-1]))
    bottom = _TOP + _TALL
    return Histogram(
        WIDTH,
        bottom + _BOTTOM,
        _RIGHT,
        WIDTH - _RIGHT,
        bottom,
        ticks,
        bars,
        {name: place(value) for name, value in marks.items()},
    )


def _axis(
    low: float, high: float, left: float, of: Callable[[float], float]
) -> Callable[[float], float]:
    start, unit = of(low), (WIDTH - _RIGHT - left) / (of(high) - of(low))
    return lambda value: round(left + (of(value) - start) * unit, 1)


def _ticks(low: float, high: float) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """1, 2, 5 times powers of ten; powers of ten alone where those are too many, evenly spaced ones
    where they are too few.
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        ticks = [
            factor * 10.0**power
            for power in powers
            for factor in factors
            if low <= factor * 10.0**power <= high
        ]
        if len(ticks) <= _TICKS + 3:
            break
    return ticks if len(ticks) > 1 else _ticks(low, high)


def number(value: float) -> str:
    """For people: thousands separated, at most four digits after the point that matter."""
    if value == 0.0:
        return "0"
    if abs(value) >= 1e15 or abs(value) < 1e-4:
        return f"{value:.3g}"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _shorten(label: str) -> str:
    return label if len(label) <= _MOST_CHARS else label[: _MOST_CHARS - 1] + "…"
