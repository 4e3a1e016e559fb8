"""Sums with Skellam noise: what the Renyi divergence of shifted Skellam laws proves.

The noise of one coordinate is Poisson(v/2) - Poisson(v/2), of total variance v in grid steps
squared. Neighbouring data shift the sum by a whole vector s with |s|_1 <= D1 and |s|_2^2 <= D2^2.

**Renyi divergence** (Agarwal, Kairouz, Liu, "The Skellam Mechanism for Differentially Private
Federated Learning", NeurIPS 2021, Theorem 3.5). For every whole order alpha > 1

    R(alpha) <= alpha D2^2 / (2 v) + min( ((2 alpha - 1) D2^2 + 6 D1) / (4 v^2),  3 D1 / (2 v) ).

Coordinates are independent, so divergences add, and the statement for vectors is the sum of those
for one coordinate: nothing else is asked of the vector. The condition that alpha and the shift are
whole is kept here. Tests compare it with the exact divergence of one and of several coordinates.

**To (epsilon, delta)** (Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy",
NeurIPS 2020, Proposition 12):

    epsilon = R(alpha) + (ln(1/delta) + (alpha - 1) ln(1 - 1/alpha) - ln alpha) / (alpha - 1),
    the least over alpha.

Every alpha is proven by itself: the search for a good one costs tightness at most.

**Several rounds.** Divergences of one order add, also where a round's question is chosen by what
the rounds before gave (Mironov, "Renyi Differential Privacy", CSF 2017, Proposition 1). So k rounds
within the same bounds have k times R(alpha), and the order is chosen for all of them at once.

**Numbers.** R is an exact fraction, rounded up to a float once. The three logarithms are each below
231, and off by at most 2 units in the last place: below 2e-13 together. 1e-12 is added, and 1e-15
of the sum at the end.

**What differs from the paper.** Nothing in the statement. Nothing is assumed about how D1 and D2
relate: ``pairwise.Shift`` cuts each to what the other allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from shoal.accounting.certificate import check_delta
from shoal.arrays import NDArray, np

# Every whole order up to here is tried, and above it a grid with steps of 0.2 %: an epsilon of 1e-8
# wants orders of 1e9.
_DENSE = 1 << 12
_LARGEST_ORDER = 1 << 36
_STEP = 1.002
# Added to the sum of the logarithms, and to the result relative to its terms.
_LOGS = 1e-12
_SAFE = 1e-15


def round_up(value: Fraction) -> float:
    """The smallest float that is not below ``value`` >= 0; inf beyond the floats."""
    try:
        near = float(value)
    except OverflowError:
        return math.inf
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


def renyi_divergence(alpha: int, variance: Fraction, d1: int, d2_squared: int) -> float:
    """Renyi divergence of whole order alpha >= 2 between the sum and the shifted sum. Direction:
    upper bound, rounded up.

    ``variance``: of the noise of one coordinate. ``d1``, ``d2_squared``: bounds on the shift's L1
    norm and squared L2 norm.
    """
    first = alpha * d2_squared / (2 * variance)
    near = ((2 * alpha - 1) * d2_squared + 6 * d1) / (4 * variance * variance)
    far = 3 * d1 / (2 * variance)
    return round_up(first + min(near, far))


def at_order(alpha: int, divergence: float, delta: float) -> float:
    """The epsilon that a Renyi divergence of order alpha proves at delta; may be negative.
    Direction: upper bound, rounded up.
    """
    logs = -math.log(delta) + (alpha - 1) * math.log1p(-1.0 / alpha) - math.log(alpha) + _LOGS
    added = logs / (alpha - 1)
    return divergence + added + _SAFE * (divergence + abs(added))


@dataclass(frozen=True, slots=True)
class SkellamRound:
    """What one sum is certified by. ``variance`` > 0: of the noise of all honest devices in one
    coordinate, in grid steps squared. ``d1``, ``d2_squared``: as for ``renyi_divergence``.
    """

    variance: Fraction
    d1: int
    d2_squared: int


SkellamRounds = Sequence[tuple[SkellamRound, int]]
"""Sums of fresh noise, and how many there are of each."""


def skellam_epsilon(
    variance: Fraction, d1: int, d2_squared: int, delta: float, rounds: int = 1
) -> float:
    """The smallest epsilon that is proven at ``delta`` for noise of this variance. Direction: upper
    bound, rounded up.

    Falls as the variance grows and as the shifts shrink. Raises CONFIG for a delta outside [1e-100,
    1).

    ``variance`` > 0: of the noise of all honest devices in one coordinate, in grid steps squared.
    ``d1``, ``d2_squared``: as for ``renyi_divergence``, of each round. ``rounds`` >= 1: so many
    sums of fresh noise together, each asked after those before it were seen.
    """
    return rounds_epsilon([(SkellamRound(variance, d1, d2_squared), rounds)], delta)


def rounds_epsilon(rounds: SkellamRounds, delta: float) -> float:
    """As ``skellam_epsilon``, of sums that differ in noise and bounds. Direction: upper bound,
    rounded up. Raises CONFIG for a delta outside [1e-100, 1).
    """
    check_delta(delta)
    alpha = _good_order(rounds, delta)
    divergence = sum(
        (
            count * Fraction(renyi_divergence(alpha, one.variance, one.d1, one.d2_squared))
            for one, count in rounds
        ),
        Fraction(0),
    )
    return max(0.0, at_order(alpha, round_up(divergence), delta))


@lru_cache(maxsize=1)
def _orders() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(float64 whole orders, the part of ``at_order`` that depends on nothing else, times alpha -
    1). For the search only.
    """
    steps = int(math.log(_LARGEST_ORDER / _DENSE) / math.log(_STEP))
    sparse = np.floor(_DENSE * _STEP ** np.arange(1, steps))
    orders = np.concatenate([np.arange(2.0, _DENSE + 1), sparse])
    return orders, (orders - 1.0) * np.log1p(-1.0 / orders) - np.log(orders)


def _good_order(rounds: SkellamRounds, delta: float) -> int:
    """A whole order at which the bound is least, as far as floats can tell."""
    orders, logs = _orders()
    divergence = np.zeros_like(orders)
    for one, count in rounds:
        v, d1, d2_squared = one.variance, one.d1, one.d2_squared
        near = (2.0 * orders - 1.0) * float(d2_squared / (4 * v**2)) + float(6 * d1 / (4 * v**2))
        far = float(3 * d1 / (2 * v))
        divergence += count * (orders * float(d2_squared / (2 * v)) + np.minimum(near, far))
    return int(orders[np.argmin(divergence + (logs - math.log(delta)) / (orders - 1.0))])
