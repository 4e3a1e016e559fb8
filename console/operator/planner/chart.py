"""Geometry of the Planner's chart: errors against epsilon, both on logarithmic axes, in percent of
the width and of the height. What draws it is ``planner.html.j2``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from shoal.pictures.axes import Axis, Steps, Tick, logarithmic_ticks, number

_LEFT, _RIGHT, _TOP, _BOTTOM = 0.0, 100.0, 2.0, 98.0
_REACH_X, _REACH_Y = 12.0, 8.0  # around what is planned
_FEW = (Steps((1, 2, 5), 8), Steps((1, 3), 8), Steps((1,), 8))
_APART = 5.0  # percent of the height between two numbers at the ends of lines

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class DrawnLine:
    """``steps``: (x1, y1, x2, y2). ``kind``: "chosen", "other" or "central"."""

    kind: str
    steps: tuple[tuple[float, float, float, float], ...]


@dataclass(frozen=True, slots=True)
class LineNumber:
    """What stands at the end of one line, or of several that end alike: "3" or "1, 2"."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class AccuracyChart:
    """``dot``: what is planned. ``wanted``: the height of the error that may be."""

    lines: tuple[DrawnLine, ...]
    numbers: tuple[LineNumber, ...]
    dot: Point
    wanted: float
    across: tuple[Tick, ...]
    upright: tuple[Tick, ...]


def chart(curves: Sequence[Sequence[Point]], line: Sequence[Point], here: Point) -> AccuracyChart:
    """``curves``: (epsilon, error) of each mechanism, the chosen one first; ``line``: of the
    central model; ``here``: what is planned. All above 0.
    """
    epsilon, error = here
    across = Axis(epsilon / _REACH_X, epsilon * _REACH_X, _LEFT, _RIGHT, logarithmic=True)
    upright = Axis(error / _REACH_Y, error * _REACH_Y, _BOTTOM, _TOP, logarithmic=True)
    drawn = [DrawnLine("central", _steps(line, across, upright))]
    drawn += [DrawnLine("other", _steps(each, across, upright)) for each in curves[:0:-1]]
    drawn += [DrawnLine("chosen", _steps(curves[0], across, upright))] if curves else []
    return AccuracyChart(
        tuple(drawn),
        tuple(_numbers(curves, across, upright)),
        (across.place(epsilon), upright.place(error)),
        upright.place(error),
        across.ticks(logarithmic_ticks(across.low, across.high, _FEW), number),
        upright.ticks(logarithmic_ticks(upright.low, upright.high, _FEW), number),
    )


def _steps(
    points: Sequence[Point], across: Axis, upright: Axis
) -> tuple[tuple[float, float, float, float], ...]:
    places = [(across.place(x), upright.place(y)) for x, y in points]
    return tuple(
        (*before, *after)
        for before, after in pairwise(places)
        if before != after and any(_inside(place) for place in (before, after))
    )


def _inside(place: Point) -> bool:
    return 0.0 <= place[0] <= 100.0 and 0.0 <= place[1] <= 100.0


def _numbers(curves: Sequence[Sequence[Point]], across: Axis, upright: Axis) -> list[LineNumber]:
    """Beside the upper left end of each line that is seen."""
    found: list[LineNumber] = []
    for at, points in enumerate(curves, 1):
        places = [(across.place(x), upright.place(y)) for x, y in points]
        seen = [place for place in places if _inside(place)]
        if not seen:
            continue
        x, y = seen[0]
        alike = next(
            (each for each in found if abs(each.x - x) < _APART and abs(each.y - y) < _APART),
            None,
        )
        if alike is None:
            found.append(LineNumber(x, y, str(at)))
        else:
            found[found.index(alike)] = LineNumber(alike.x, alike.y, f"{alike.text}, {at}")
    return found
