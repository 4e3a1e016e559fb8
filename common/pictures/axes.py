"""Axes of SVG pictures: where a value lies, which ticks there are, and what stands at them.

Places are SVG user units, rounded to a tenth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

_SLACK = 1.0 + 1e-9  # a power of ten at an axis's end is on it, however it was computed
_ABOUT = 6  # ticks, where there are no powers of ten to choose from
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Tick:
    """``at``: its place along the axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Steps:
    """Ticks at ``factors`` (from 1 to 9) times powers of ten, as long as those are at most
    ``most``.
    """

    factors: tuple[int, ...]
    most: int


@dataclass(frozen=True, slots=True)
class Axis:
    """From the value ``low`` to ``high``, drawn between the places ``start`` and ``end``.

    low < high; on a logarithmic axis both are above 0.
    """

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """Equal differences of values are equal distances; on a logarithmic axis equal ratios."""
        scale = math.log if self.logarithmic else float
        share = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, values: Iterable[float], text: Callable[[float], str]) -> tuple[Tick, ...]:
        """A tick for each of ``values``, with its text."""
        return tuple(Tick(self.place(value), text(value)) for value in values)


def polyline(points: Iterable[tuple[float, float]], x_axis: Axis, y_axis: Axis) -> str:
    """The ``points`` attribute of an SVG polyline through these values."""
    return " ".join(f"{x_axis.place(x)},{y_axis.place(y)}" for x, y in points)


def linear_ticks(low: float, high: float, about: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten; ``about`` so many. low < high."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def logarithmic_ticks(low: float, high: float, choices: Sequence[Steps]) -> list[float]:
    """The ticks of the first choice that are not too many; of the last one, every second, third,
    ... if need be. Where those are fewer than two: evenly spaced ones. 0 < low < high.
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for steps in choices:
        values = (factor * 10.0**power for power in powers for factor in steps.factors)
        ticks = [value for value in values if low / _SLACK <= value <= high * _SLACK]
        if len(ticks) <= steps.most:
            break
    else:
        ticks = ticks[:: math.ceil(len(ticks) / choices[-1].most)]
    return ticks if len(ticks) > 1 else linear_ticks(low, high, _ABOUT)


def number(value: float) -> str:
    """For people: thousands separated, at most four digits after the point that matter."""
    if value == 0.0:
        return "0"
    if abs(value) >= 1e15 or abs(value) < 1e-4:
        return f"{value:.3g}"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def power_text(value: float) -> str:
    """Of a value above 0: plain decimals from 0.001 to below 10⁴, else as 10⁴ or 2·10⁻⁵."""
    power = math.floor(math.log10(value * _SLACK))
    if -3 <= power <= 3:
        return f"{value:.3f}".rstrip("0").rstrip(".")
    factor = f"{value / 10.0**power:.3g}"
    times = "" if factor == "1" else f"{factor}·"
    return f"{times}10{str(power).translate(_SUPERSCRIPT)}"
