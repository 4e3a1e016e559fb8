"""The law of one weight, V = low + (high - low) B / (k + 1), of the proof in ``swapped``, on a
grid.

k <= m, m ~ Bin(s, gamma), B ~ Bin(k + 1, (1 - low) / (high - low)). k is m rounded down to the
first of a block. What lies between points of the grid goes to both neighbours, its mean kept.
Every chance errs upward, so that the mean of whatever is not negative does too.

**Rounding.** Chances of a binomial number are exponentials of sums of steps of logarithms, over
their sum: of each step 16 roundings are counted. A point of V is off by a few u of itself; both
neighbours get what that may move.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_ROUND = 16 * 2.0**-53
_REACH, _MORE = 14.0, 60  # of binomial numbers: deviations, and how many more on either side
_BLOCKS, _STEPS = 16, 6  # of m and of V: to one deviation
_FAINT = 1e-7  # of delta: what rare weights may cost
_LEAST = 1e-290  # no chance of the grid's points is less: products leave the range of floats


@dataclass(frozen=True, slots=True)
class CrowdWeights:
    """``places``: N, even. V is at most ``points``[i] with ``chances``[i], the last one being c;
    ``lost``: what rarer ones add to delta.
    """

    places: int
    points: NDArray[np.float64]
    chances: NDArray[np.float64]
    lost: float


def crowd_of(
    n: int, size: int, shape: tuple[Fraction, Fraction, Fraction], different: int, delta: float
) -> CrowdWeights:
    """``size`` = s < n - 1; ``shape``: (gamma, low, high); ``different``: K or more. ``delta``
    says what is rare.
    """
    places = n - 1 - size
    points, chances, lost = _weights(size, *shape)
    weighed = np.cumsum((points * chances)[::-1])[::-1] * min(places, different)
    beyond = np.append(weighed[1:], 0.0) * (1 + 1e-9)
    cap = int(np.flatnonzero(beyond <= _FAINT * delta)[0])
    lost += float(beyond[cap]) + _LEAST
    return CrowdWeights(places, points[: cap + 1], chances[: cap + 1], lost)


@lru_cache(maxsize=32)
def _weights(
    size: int, gamma: Fraction, low: Fraction, high: Fraction
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """V on a grid: points, chances from above, and the chance of crowds that are not looked at."""
    first, chances, lost, rest = _binomial(size, gamma)
    chances[-1] += rest
    block = max(1, round(math.sqrt(size * gamma * (1 - gamma)) / _BLOCKS))
    starts = np.arange(0, len(chances), block)
    up = (1 - low) / (high - low)
    grid = _grid(low, high, math.sqrt((1 - low) * (high - 1) / max(Fraction(1), size * gamma)))
    found = np.zeros(len(grid))
    bottom, width = float(low), float(high - low)
    for start, chance in zip(starts, np.add.reduceat(chances, starts), strict=True):
        m = first + int(start)
        least, likely, below, above = _binomial(m + 1, up)
        points = bottom + width * ((least + np.arange(len(likely))) / (m + 1))
        points = np.clip(points, grid[0], grid[-1])
        at = np.clip(np.searchsorted(grid, points, side="right") - 1, 0, len(grid) - 2)
        right = (points - grid[at]) / (grid[at + 1] - grid[at])
        slack = _ROUND * float(high) / (grid[at + 1] - grid[at]) + _ROUND
        found += np.bincount(at, chance * likely * (1 - right + slack), len(grid))
        found += np.bincount(at + 1, chance * likely * (right + slack), len(grid))
        # Numbers that are left out lie beyond these: any point there may have all of them.
        found[: at[0] + 2] += chance * below
        found[at[-1] :] += chance * above
    return grid, np.maximum(found, _LEAST) * (1 + 1e-12), lost


def _grid(low: Fraction, high: Fraction, deviation: float) -> NDArray[np.float64]:
    """Even steps around 1, then ever longer ones."""
    ends = math.nextafter(float(low), -math.inf), math.nextafter(float(high), math.inf)
    even = np.arange(-10 * _STEPS, 14 * _STEPS + 1) / _STEPS
    inner = 1 + deviation * np.append(even, 14 * 1.1 ** np.arange(1, 120))
    room = deviation / (4 * _STEPS)
    inner = inner[(inner > ends[0] + min(room, (1 - ends[0]) / 8)) & (inner < ends[1] - room)]
    return np.concatenate([[ends[0]], inner, [ends[1]]])


def _binomial(count: int, chance: Fraction) -> tuple[int, NDArray[np.float64], float, float]:
    """The first number that is not left out, chances from it on, and those of all below and above,
    each from above.
    """
    if chance >= 1:
        return count, np.ones(1), 0.0, 0.0
    mode = int((count + 1) * chance)
    reach = math.ceil(_REACH * math.sqrt(count * chance * (1 - chance))) + _MORE
    first, last = max(0, mode - reach), min(count, mode + reach)
    numbers = np.arange(first, last, dtype=np.float64)
    steps = np.log((count - numbers) / (numbers + 1)) + math.log(chance / (1 - chance))
    at = mode - first
    logs = np.concatenate([-np.cumsum(steps[:at][::-1])[::-1], [0.0], np.cumsum(steps[at:])])
    wrong = _ROUND * (len(logs) + 1) * (8 + float(np.abs(logs).max()))
    found = np.exp(logs)
    found *= (1 + 2 * wrong) / float(found.sum())
    # Beyond either end chances fall at least as fast as there.
    falls = first / (count - first + 1) * float((1 - chance) / chance)
    below = float(found[0]) * falls / (1 - falls) if first > 0 else 0.0
    falls = (count - last) / (last + 1) * float(chance / (1 - chance))
    above = float(found[-1]) * falls / (1 - falls) if last < count else 0.0
    return first, found, below * (1 + 1e-6), above * (1 + 1e-6)
