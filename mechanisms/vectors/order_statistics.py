"""The largest of independent standard normal numbers: their mean, and their mean square.

Of K numbers let the t largest be chosen, and one of these be drawn uniformly. With S(x) the
probability that fewer than t of K - 1 others are above x, and b the density of Beta(t, K - t),

    mean         c  = K/t integral of x phi(x) S(x) dx   = K/t integral of phi(x)^2 b(1 - Phi(x)) dx
    mean square  c2 = K/t integral of x^2 phi(x) S(x) dx = 1 + K/t integral of x phi(x)^2 b dx,

by parts, as S'(x) = b(1 - Phi(x)) phi(x). (David, Nagaraja, "Order statistics", 2003, section 3.1,
has the means of single order statistics.) The integrands are smooth and vanish at both ends: sums
in equal steps are as good as floats are.
"""

from __future__ import annotations

import math
from functools import lru_cache

from shoal.arrays import np
from shoal.mechanisms.base import invalid

_REACH, _STEPS = 12.0, 24_000


@lru_cache(maxsize=64)
def largest(candidates: int, inside: int) -> tuple[float, float]:
    """(c, c2): mean and mean square of one of the ``inside`` = t largest of K = ``candidates``
    numbers, 1 <= t < K <= 2^16, to 9 digits. Raises INVALID.
    """
    if not 1 <= inside < candidates <= 1 << 16:
        raise invalid("of 2 to 65,536 numbers 1 or more are the largest, and not all")
    x = np.linspace(-_REACH, _REACH, _STEPS + 1)
    root = math.sqrt(2.0)
    above = np.log([0.5 * math.erfc(at / root) for at in x.tolist()])
    below = above[::-1]  # of -x
    beta = math.lgamma(inside) + math.lgamma(candidates - inside) - math.lgamma(candidates)
    log_b = (inside - 1) * above + (candidates - inside - 1) * below - beta
    weight = np.exp(log_b - x * x) / (2.0 * math.pi) * (2.0 * _REACH / _STEPS)
    share = candidates / inside
    return share * float(weight.sum()), 1.0 + share * float((x * weight).sum())
