"""Sums with discrete Laplace noise, made of Polya shares: pure differential privacy.

One device adds NB(1/shares, p) - NB(1/shares, p) to each coordinate, with p = exp(-u) and u = 65536
/ scale. Negative binomials of one p add, so that k devices add the law with exponent r = k /
shares, whose generating function is the r-th power of that of P(x) = (1 - p)/(1 + p) p^|x|, the
discrete Laplace law. Neighbouring data shift the sum by a whole vector s with |s|_1 <= D1.

**All shares or more** (r >= 1). P(x)/P(x + s) <= e^(u |s|) coordinate by coordinate, so epsilon = u
D1 and delta = 0 for r = 1. What is added beyond is independent noise: post-processing.

**Fewer shares** (r < 1; one device by itself has r = 1/shares). With a_j = Gamma(j + r) / (Gamma(r)
j!) and x >= 0

    P(x) = (1 - p)^(2 r) * sum over j >= 0 of a_j a_(j + x) p^(2 j + x),
    a_(i + 1) / a_i = (i + r) / (i + 1) <= 1.

(i + r)/(i + 1) grows with i, hence p (x + r)/(x + 1) <= P(x + 1)/P(x) <= p: the law falls on both
sides of 0, and a step outward from x costs at most u + ln((x + 1)/(x + r)). A shift of one
coordinate by s is s steps, each outward or inward; the inward ones cost nothing, and a walk that
starts at 0 meets the dearest ones: s u + g(s), with g(s) = ln(s! Gamma(r) / Gamma(s + r)) a sum of
falling terms. As g is concave with g(0) = 0, the sum over coordinates is largest when the shift is
spread evenly over m = min(dimension, D1) of them:

    epsilon = u D1 + (m - b) g(a) + b g(a + 1),      D1 = a m + b,  0 <= b < m.

At least u D1, and finite: a share alone is a weak guarantee, but a pure one.

**Lower bound.** Shift m coordinates by c each, m c = D1' <= D1, and ask whether all of them are <=
0. Under the unshifted law the answer is yes with probability (1 + p)^-m, under the shifted one with
p^D1' (1 + p)^-m, so the epsilon at delta is at least u D1' + ln(1 - delta (1 + p)^m). It holds for
r < 1 too, of which r = 1 is a post-processing.

**Numbers.** u D1 is an exact fraction, rounded up once. The terms g are sums of at most D1
logarithms in closed form; see ``_steps``.

**Checked** against the largest ratio of the law itself, for all shares, more and fewer, of one and
of several coordinates (tests/unit/accounting/sums/test_laplace_sum.py).
"""

from __future__ import annotations

import math
from fractions import Fraction

from shoal.accounting.sums.skellam import round_up

# exp(-65536 / scale): a scale of 65536 is b = 1.
UNIT = 1 << 16
_EXACT_STEPS = 64
_SAFE = 1e-12
# 2^512 is beyond every delta: so many coordinates are never all <= 0 often enough.
_MOST_COORDINATES = 512


def laplace_epsilon(scale: int, r: Fraction, d1: int, dimension: int, rounds: int = 1) -> float:
    """Pure epsilon (delta = 0) of a sum with ``r`` times the discrete Laplace law of this scale.
    Direction: upper bound, rounded up.

    ``scale``: 65536 b >= 1. ``r``: honest survivors over ``shares``, above 0. ``d1``: bound on the
    shift's L1 norm.

    Never below the truth, also for one device by itself (r = 1 / shares), where it is finite but
    large. ``rounds`` >= 1: so many sums of fresh noise together, each asked after those before it
    were seen; pure epsilons add.
    """
    exact = rounds * Fraction(d1 * UNIT, scale)
    if r >= 1:
        return round_up(exact)
    coordinates = min(dimension, d1)
    whole, more = divmod(d1, coordinates)
    extra = rounds * ((coordinates - more) * _steps(whole, r) + more * _steps(whole + 1, r))
    return math.nextafter((round_up(exact) + extra) * (1.0 + _SAFE), math.inf)


def _steps(count: int, r: Fraction) -> float:
    """g(count) = sum of ln((i + 1)/(i + r)) over i < count, for 0 < r < 1. Direction: upper bound.

    The first terms one by one. Beyond them ln((i + 1)/(i + r)) <= (1 - r)/(i + r), which falls with
    i: its sum is at most the integral from one step earlier.
    """
    first = min(count, _EXACT_STEPS)
    total = sum(math.log(float((i + 1) / (i + r))) for i in range(first))
    if count > first:
        share = float(r)
        total += (1.0 - share) * math.log((count - 1 + share) / (first - 1 + share)) * (1.0 + _SAFE)
    return total * (1.0 + _SAFE) + _SAFE


def laplace_lower(scale: int, shifts: tuple[int, int], delta: float) -> float:
    """The largest epsilon that a shift of ``shifts`` = (m coordinates, by c each) refutes at delta;
    at least 0. Direction: lower bound.

    For noise of all shares, r = 1, or fewer. Rounded down.
    """
    coordinates, by = shifts
    u = Fraction(UNIT, scale)
    p = math.exp(-float(u)) if u < 700 else 0.0
    spent = delta * (1.0 + p) ** min(coordinates, _MOST_COORDINATES)
    if coordinates > _MOST_COORDINATES or spent > 0.5:
        return 0.0
    loss, cost = float(coordinates * by * u), math.log1p(-spent * (1.0 + _SAFE))
    return max(0.0, loss + cost - _SAFE * (loss - cost))
