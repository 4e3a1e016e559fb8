"""What the noise of a whole batch does to an estimate: its standard deviation, and how far it lies
from its mean with probability 0.95.

N devices draw N shares, though ``NoiseLaw.shares`` of them make the law that is accounted for: more
devices, or a smaller honest fraction, add more noise than that, and it is counted here in full. In
one cell the messages of + less those of - are a sum of independent Poisson numbers: D = sum of j
(P_j - M_j), P_j and M_j Poisson with N times the rate of singles of size j. Floods cancel. Dummies:
a Poisson number.

Intervals come from these laws, not from the normal one: singles of one sign add up to a geometric
number where N = shares, so D has the tails of a Laplace variable, of which 1.96 standard deviations
hold 94 %.
"""

from __future__ import annotations

import math
from functools import lru_cache

from shoal.arrays import NDArray, np
from shoal.mechanisms.several.noise_law import RATE_BITS, NoiseKind, NoiseLaw

OUTSIDE = 0.05  # of an interval
_FAR = 60  # standard deviations beyond which no mass is looked for


def deviation(law: NoiseLaw, reports: int) -> float:
    """The standard deviation of one cell's noise in a batch of so many reports."""
    total = sum(rate.weight * rate.size**2 for rate in law.rates() if rate.moves)
    return math.sqrt(total * reports / 2.0**RATE_BITS)


def mean(law: NoiseLaw, reports: int) -> float:
    """The mean of one cell's noise: 0 where messages have signs."""
    if law.signed:
        return 0.0
    return sum(rate.weight for rate in law.rates()) * reports / 2.0**RATE_BITS


@lru_cache(maxsize=32)
def reach(law: NoiseLaw, reports: int) -> tuple[float, float]:
    """(below, above): the noise lies within [mean - below, mean + above] with probability 0.95 or
    more, and outside at most half of the rest on either side.
    """
    pmf, first, centre = noise_pmf(law, reports)
    low, high = between(pmf)
    return centre - (first + low), first + high - centre


@lru_cache(maxsize=8)
def noise_pmf(law: NoiseLaw, reports: int) -> tuple[NDArray[np.float64], int, float]:
    """(pmf, first, mean) of one cell's noise, from the number ``first`` on."""
    if not law.signed:
        rate = mean(law, reports)
        pmf, first = _poisson(rate)
        pmf.flags.writeable = False
        return pmf, first, rate
    one_sided = _singles(law, reports)
    both = np.convolve(one_sided, one_sided[::-1])  # of D, from -(n - 1) to n - 1
    both.flags.writeable = False
    return both, 1 - len(one_sided), 0.0


def between(pmf: NDArray[np.float64]) -> tuple[int, int]:
    """The largest place below which, and the smallest above which, lies at most half of what may
    be outside. Mass that rounding or a window left out counts as outside.
    """
    lost = max(0.0, 1.0 - float(pmf.sum()))
    below = np.cumsum(pmf) + lost
    above = np.cumsum(pmf[::-1])[::-1] + lost
    low = int(np.searchsorted(below, OUTSIDE / 2.0, side="right"))
    high = len(pmf) - 1 - int(np.searchsorted(above[::-1], OUTSIDE / 2.0, side="right"))
    return low, high


def _poisson(rate: float) -> tuple[NDArray[np.float64], int]:
    """(pmf, first): from ``first`` on, far into both tails."""
    spread = math.sqrt(rate) * 12.0 + 40.0
    first = max(0, math.floor(rate - spread))
    values = np.arange(first, math.ceil(rate + spread) + 1, dtype=np.float64)
    logs = values * math.log(rate) - rate - np.array([math.lgamma(v + 1.0) for v in values])
    return np.exp(logs), first


def _singles(law: NoiseLaw, reports: int) -> NDArray[np.float64]:
    """The pmf of the messages of one sign of singles, by Panjer's recursion:
    g p(g) = sum_j j rate_j p(g - j), all terms positive.
    """
    rates = np.array(
        [
            rate.size * rate.weight * (reports / 2.0**RATE_BITS)
            for rate in law.rates()
            if rate.kind is NoiseKind.PLUS
        ]
    )
    total = float((rates / np.arange(1, len(rates) + 1)).sum())
    wide = math.ceil(_FAR * math.sqrt(float((rates * np.arange(1, len(rates) + 1)).sum())))
    length = math.ceil(float(rates.sum())) + wide + 2
    pmf = np.zeros(length)
    shift = min(total, 600.0)  # else the first term is 0 as a float
    pmf[0] = math.exp(-shift)
    for g in range(1, length):
        reachable = min(g, len(rates))
        pmf[g] = float(rates[:reachable] @ pmf[g - reachable : g][::-1]) / g
    return pmf * math.exp(shift - total)
