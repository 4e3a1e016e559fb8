"""What several releases about the same devices promise together, from the curves of each.

**A release is a pair.** The blanket's bound (``epsilon``) is delta(e) = E[(X - e Y)_+] / n with X
and Y sums of weights of mean n: the divergence of two laws P and Q whose densities are X / n and
Y / n. Two outputs: the largest divergence over all datasets and both directions is convex in e, and
such a curve is that of a pair too (Zhu, Dong, Wang, AISTATS 2022, Proposition 10). A mechanism that
is dominated release by release is dominated by the product of the pairs, whatever is asked next
(there, Theorem 10).

**A curve from above.** The curve is bounded at knots x_j = e^(jh), and D(1/x) = 1 - 1/x + D(x) / x
gives the other half, since the laws here look alike when the two answers are exchanged. Chords of a
convex function lie above it, so the lower convex hull of bounds at the knots is above the curve
between them as well. It is the curve of a pair whose losses are the knots: Q has at x_j the change
of the slope, P x_j times as much, and beyond the last knot P has a mass of infinite loss.

**Together.** Losses add up: the masses are convolved, with positive terms alone. The total is

    delta(e) <= sum over k of P(loss kh) (1 - e / e^(kh))_+ + the infinite masses.

A bound may rise again far out, where what it allows for grows with e. The true curve does not: the
last knot is the place where the bound is small first, and from there on it counts as flat.

Slopes are differences of floats: how far off each may be is added to the mass that is made of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from shoal.checker.exponential import exp_below

KNOTS, MANY_KNOTS = 400, 4_000  # where a bound takes long, and where it does not
_LADDER = (KNOTS, 2 * KNOTS, 4 * KNOTS)
_NEAR = 1.005  # what more knots may take from an epsilon: is it farther off, none are tried
MOST_RELEASES = 200
_ROUND = 16 * 2.0**-53
_FLOATS = 700.0  # e^700 is the range of floats: a smaller e shows more
_LEAST, _MOST = 1e-6, 40.0  # of an epsilon that knots are chosen by
_FAR = 1e-9  # of delta: losses that are taken to be without end, at each step
_BEYOND = 1e-3  # of delta: what may be left beyond the last knot of ``KNOTS``
_LOOKS, _LONGER, _LITTLE = 80, 1.05, 1.002
_FALLS = 1.0 - 1e-6  # by less, from one look to the next: it is as small as it gets
_SLACK = 1e-10  # for e, of itself: what products of rounded knots may be off

# An upper bound of the divergence at e = e^epsilon >= 1.
Curve = Callable[[Fraction], float]


@dataclass(frozen=True, slots=True)
class Losses:
    """``masses[j]``: of P at a loss of (first + j) h. ``infinite``: at none that is finite."""

    first: int
    masses: NDArray[np.float64]
    infinite: float


def total_for(
    curves: Sequence[Curve], epsilons: Sequence[float], epsilon: float, delta: float
) -> Total:
    """``total_delta`` with the fewest knots that prove ``epsilon`` at ``delta``, or with the most
    that were worth a try.
    """
    for knots in _LADDER:
        found = total_delta(curves, epsilons, delta, knots)
        if found.delta(epsilon) <= delta or found.delta(epsilon * _NEAR) > delta:
            break
    return found


def total_delta(
    curves: Sequence[Curve], epsilons: Sequence[float], delta: float, knots: int = KNOTS
) -> Total:
    """``epsilons``: of each release, at its own delta: where its curve begins to be small. They
    choose the knots and prove nothing. ``delta``: of all of them. ``knots``: of the release
    that reaches furthest, on either side of 0. A curve that comes again is looked at once.
    """
    beyond = _BEYOND * (KNOTS / knots) ** 3
    asked = list(zip(curves, epsilons, strict=True))
    reaches = {
        (curve, epsilon): _reach(
            curve, min(max(epsilon, _LEAST), _MOST), beyond * delta / len(curves)
        )
        for curve, epsilon in dict.fromkeys(asked)
    }
    step = max(reaches.values()) / knots
    losses = {
        (curve, epsilon): _losses(curve, step, max(2, math.ceil(reach / step)))
        for (curve, epsilon), reach in reaches.items()
    }
    masses, first, infinite = np.ones(1), 0, sum(losses[one].infinite for one in asked)
    for one in (losses[each] for each in asked):
        masses = np.convolve(masses, one.masses) * (1 + _ROUND * len(one.masses))
        low, high, left = _middle(masses, _FAR * delta)
        masses, first, infinite = masses[low:high], first + one.first + low, infinite + left
    return Total(step, first, masses, infinite)


def _middle(masses: NDArray[np.float64], most: float) -> tuple[int, int, float]:
    """(low, high, left): what lies outside of [low, high), at most ``most`` on either side and
    ``left`` in all, may as well have no end.
    """
    below, above = np.cumsum(masses), np.cumsum(masses[::-1])
    low = int(np.searchsorted(below, most, side="right"))
    high = len(masses) - int(np.searchsorted(above, most, side="right"))
    if low >= high:
        return 0, len(masses), 0.0
    left = (float(below[low - 1]) if low else 0.0) + float(masses[high:].sum())
    return low, high, left * (1 + _ROUND * len(masses))


@dataclass(frozen=True, slots=True)
class Total:
    """The losses of all releases."""

    step: float
    first: int
    masses: NDArray[np.float64]
    infinite: float

    def delta(self, epsilon: float) -> float:
        """An upper bound at ``epsilon`` >= 0."""
        e = float(exp_below(min(epsilon, _FLOATS))) * (1 - _SLACK)
        losses = self.step * (self.first + np.arange(len(self.masses), dtype=np.float64))
        parts = self.masses * np.maximum(0.0, 1.0 - e * np.exp(-losses))
        return float(parts.sum()) * (1 + _SLACK) + self.infinite

    def epsilon(self, delta: float, most: float) -> float:
        """The least that is proven at ``delta``, to a millionth of itself; at most ``most``."""
        low, high = 0.0, most
        while high - low > 1e-6 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return high


def _reach(curve: Curve, epsilon: float, least: float) -> float:
    """An epsilon where the curve comes to ``least``, or is as small as it gets."""
    reach = 0.5 * epsilon
    for longer in (_LONGER, _LITTLE):
        before = math.inf
        for _ in range(_LOOKS):
            found = curve(exp_below(reach))
            if found <= least or reach > _FLOATS / 2:
                return reach
            if found >= before * _FALLS:
                break
            reach, before = reach * longer, found
        reach /= longer * longer  # it began to rise, or lies flat, since the look before the last
    return reach * _LITTLE


def _losses(curve: Curve, step: float, knots: int) -> Losses:
    x = np.exp(step * np.arange(1, knots + 1, dtype=np.float64))
    above = np.array([min(1.0, curve(Fraction(float(place)))) for place in x])
    at_one = min(1.0, curve(Fraction(1)))
    below = 1.0 - 1.0 / x[::-1] + above[::-1] / x[::-1]
    places = np.concatenate(([0.0], 1.0 / x[::-1], [1.0], x))
    heights = np.concatenate(([1.0], below + _ROUND, [at_one], above))
    kept = _lower_hull(places, heights)
    slopes = np.diff(heights[kept]) / np.diff(places[kept])
    wrong = _ROUND * (heights[kept][:-1] / np.diff(places[kept]) + np.abs(slopes))
    changes = np.maximum(0.0, np.diff(np.append(slopes, 0.0))) + wrong + np.append(wrong[1:], 0.0)
    masses = np.zeros(2 * knots + 1)
    # The first of those kept is 0, where P has nothing; a change of slope is at the next ones.
    masses[kept[1:] - 1] = changes * places[kept[1:]]
    return Losses(-knots, masses, float(heights[-1]))


def _lower_hull(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.int64]:
    """Indices of the lower convex hull of points in order of ``x``."""
    kept: list[int] = []
    for at in range(len(x)):
        while len(kept) > 1 and _turns_down(x, y, kept[-2], kept[-1], at):
            kept.pop()
        kept.append(at)
    return np.array(kept, dtype=np.int64)


def _turns_down(
    x: NDArray[np.float64], y: NDArray[np.float64], first: int, middle: int, last: int
) -> bool:
    rise = (y[middle] - y[first]) * (x[last] - x[first])
    return bool(rise >= (y[last] - y[first]) * (x[middle] - x[first]))
