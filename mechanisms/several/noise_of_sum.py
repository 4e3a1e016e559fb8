"""How far the noise of a whole batch lies from 0 in a sum of split numbers: of all its Polya
shares, and of what rounding numbers to levels may add.

N devices draw N shares, of which ``shares`` make the discrete Laplace law: the difference of two
negative binomials of order r = N / shares, with the characteristic function ((1 - p)^2 / (1 - 2 p
cos t + p^2))^r. Rounding adds N independent numbers within one half step of 0, together of a
variance of N half steps squared at most: taken as normal. The law of both is found by one Fourier
transform; an interval that leaves 2.5 % at either side is wider by 8 % than 1.96 standard
deviations where N = shares.
"""

from __future__ import annotations

import math
from functools import lru_cache

from shoal.arrays import np
from shoal.mechanisms.noise.polya import UNIT, share_variance

_OUTSIDE = 0.05
_POINTS = 1 << 13
_FAR = 24.0  # standard deviations that the grid reaches to either side


@lru_cache(maxsize=32)
def reach(shares: int, scale: int, reports: int) -> float:
    """The smallest d, in half steps and to one step of a grid of a few hundredths of the deviation
    outward, for which noise and rounding of so many reports lie within [-d, d] with probability
    0.95 or more.
    """
    u = UNIT / scale
    p = math.exp(-u)
    variance = reports * (share_variance(scale, shares) + 1.0)
    # A lattice finer than the noise's own would have ends of its own: never below one half step.
    step = max(1.0, 2.0 * _FAR * math.sqrt(variance) / _POINTS)
    angles = 2.0 * np.pi * np.fft.rfftfreq(_POINTS) / step
    # (1 - p)^2 + 4 p sin^2 (t / 2) is 1 - 2 p cos t + p^2, without cancellation
    ratios = 4.0 * p * (np.sin(angles / 2.0) / math.expm1(-u)) ** 2
    logs = -np.log1p(ratios) * (reports / shares) - 0.5 * reports * angles**2
    masses = np.maximum(np.fft.irfft(np.exp(logs), _POINTS), 0.0)
    inside = masses[0] + 2.0 * np.cumsum(masses[1 : _POINTS // 2])
    at = int(np.searchsorted(inside, (1.0 - _OUTSIDE) * float(masses.sum())))
    return (at + 2) * step
