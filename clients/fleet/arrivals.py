"""When the reports of a load test are due: steady, in a spike, or in a rush at the end. Pure: no
clock, no randomness.

Reports are numbered over the whole fleet, 0 to n - 1, and a pattern says at which moment of the
whole span each one is due. Moments never go back as numbers go up, so every process can walk
through its own devices in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, unique

from shoal.errors import Kind, ShoalError

_SPIKE_SHARE = 0.8  # of all reports ...
_SPIKE_SPAN = 0.05  # ... in this part of the span, around its middle
_DOUBLINGS = 10  # of the rate of a rush, from the beginning of the span to its end
_GROWTH = (1 << _DOUBLINGS) - 1


@unique
class Pattern(Enum):
    """STEADY: all gaps are equal. SPIKE: 4 of 5 reports in the middle twentieth of the span, the
    others evenly before and after. RUSH: the rate doubles with every tenth of the span, so half of
    the reports come in the last tenth: devices that put it off.
    """

    STEADY = "steady"
    SPIKE = "spike"
    RUSH = "rush"


@dataclass(frozen=True, slots=True)
class Arrivals:
    """``reports`` reports within ``over_s`` seconds. Raises INVALID unless reports >= 1 and over_s
    is finite and not below 0.
    """

    pattern: Pattern
    reports: int
    over_s: float

    def __post_init__(self) -> None:
        if self.reports < 1:
            raise ShoalError(Kind.INVALID, "arrivals want at least one report")
        if not (math.isfinite(self.over_s) and self.over_s >= 0):
            raise ShoalError(Kind.INVALID, "arrivals come within a number of seconds, not below 0")

    @classmethod
    def steady(cls, reports: int, rate: float) -> Arrivals:
        """``rate`` reports per second, above 0."""
        return cls(Pattern.STEADY, reports, reports / rate)

    def at(self, number: int) -> float:
        """Seconds from the start at which report ``number`` of 0 to reports - 1 is due: in [0,
        over_s), never decreasing.
        """
        return self.over_s * _QUANTILES[self.pattern](number / self.reports)

    @property
    def peak(self) -> float:
        """Reports per second where they are densest; infinite for a span of 0 s."""
        if self.over_s == 0:
            return math.inf
        return self.reports / self.over_s * _PEAKS[self.pattern]


# --- quantile functions: [0, 1) -> [0, 1) ---------------------------------------------------------


def _steady(q: float) -> float:
    return q


def _spike(q: float) -> float:
    """Piecewise linear: before, in and after the spike."""
    outside, begin = (1 - _SPIKE_SHARE) / 2, (1 - _SPIKE_SPAN) / 2
    if q < outside:
        return q / outside * begin
    if q < 1 - outside:
        return begin + (q - outside) / _SPIKE_SHARE * _SPIKE_SPAN
    return begin + _SPIKE_SPAN + (q - (1 - outside)) / outside * begin


def _rush(q: float) -> float:
    """The inverse of F(x) = (2^(10 x) - 1) / (2^10 - 1), whose density doubles with every tenth."""
    return math.log2(1 + q * _GROWTH) / _DOUBLINGS


_QUANTILES: dict[Pattern, Callable[[float], float]] = {
    Pattern.STEADY: _steady,
    Pattern.SPIKE: _spike,
    Pattern.RUSH: _rush,
}
_PEAKS = {
    Pattern.STEADY: 1.0,
    Pattern.SPIKE: _SPIKE_SHARE / _SPIKE_SPAN,
    Pattern.RUSH: _DOUBLINGS * math.log(2) * (_GROWTH + 1) / _GROWTH,  # F'(1)
}
