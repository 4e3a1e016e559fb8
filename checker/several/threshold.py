"""From how many devices on a level of a discovery tells a beginning: written again from
docs/DISCOVERY.md.

A cell that nobody has is estimated from dummies alone, a Poisson number of mean L = n w / 2^64 of n
devices, and, where true cells are drawn from all k cells with chance u, from Bin(n, u / k) of
those. An estimate is (count - L - n u / k) / (1 - u). The threshold is the smallest whole number
that it reaches with a chance of at most

    1/2 / levels / (k - 1),

so that all levels together tell half a beginning that nobody has, at most, on average. It depends
on numbers of cells and of devices alone.

Floats will do: a threshold is believed if it is that of a chance which is off by less than
``_OFF``.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from shoal.checker.errors import UnreadableError
from shoal.checker.several.dummies import DummiesLaw, poisson

_FALSE = 0.5
_OFF = 1e-6  # of a chance, of itself
_ULPS = 1e-9  # by which an estimate may be on the other side
_MOST_MEAN = 4e6  # dummies, or draws, in a cell
_DEVIATIONS, _MORE = 20.0, 150.0


def is_threshold(law: DummiesLaw, least: int, cells: int, levels: int, devices: int) -> bool:
    """Whether ``least`` devices are the threshold of a level of so many ``cells``, another apart,
    of which so many ``devices`` took part. Raises UnreadableError for numbers too large.
    """
    if devices < 1 or not 1 <= least <= devices + 2 * _MOST_MEAN:
        return False
    allowed = _FALSE / levels / cells
    drawn = float(law.uniform) / (cells + 1)
    mean, arrive = law.mean(devices), devices * drawn
    if not 0 < mean <= _MOST_MEAN or arrive > _MOST_MEAN:
        raise UnreadableError("so few or so many dummies are not counted here")
    noise = poisson(mean)
    chances, first = noise.chances, noise.first
    if drawn:
        others, least_others = _binomial(devices, drawn)
        chances, first = np.convolve(chances, others), first + least_others
    gap = 1.0 - float(law.uniform)

    def chance(estimate: int) -> float:
        start = math.ceil(mean + arrive + estimate * gap - _ULPS) - first
        return 1.0 if start <= 0 else float(chances[start:].sum())

    kept = chance(least) <= allowed * (1.0 + _OFF)
    return kept and (least == 1 or chance(least - 1) > allowed * (1.0 - _OFF))


def _binomial(count: int, chance: float) -> tuple[NDArray[np.float64], int]:
    """(chances, first): of Bin(``count``, ``chance``), far into both tails; products from the
    largest outwards.
    """
    mean = count * chance
    top = min(count, math.floor(mean))
    reach = math.ceil(_DEVIATIONS * math.sqrt(mean) + _MORE)
    down, up, odds = max(0, top - reach), min(count, top + reach), chance / (1.0 - chance)
    below = np.arange(top, down, -1, dtype=np.float64)
    above = np.arange(top, up, dtype=np.float64)
    lower = np.cumprod(below / (count - below + 1.0) / odds)[::-1]
    upper = np.cumprod((count - above) / (above + 1.0) * odds)
    weights = np.concatenate((lower, [1.0], upper))
    return weights / weights.sum(), down
