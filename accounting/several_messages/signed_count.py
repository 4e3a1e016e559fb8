"""What a signed count shows of one device: + for 1 and - for 0 among the noise of one cell.

The view is (u, v), the messages of + and of -. One device changes from 1 to 0: P is the law of (U +
1, V), Q that of (U, V + 1), up to constants. With ``one_more``'s f(u, v) = (1 - q) q^|u - v|
w(min(u, v)) for noise alone, P(u, v) = f(u - 1, v), Q(u, v) = f(u, v - 1), and three cases:

- u > v: P = (1 - q) q^(u - 1 - v) w(v), Q = (1 - q) q^(u - v + 1) w(v - 1). The ratio r_v = Q / P
  = q^2 w(v - 1) / w(v) does not depend on u; summed over u > v: P = w(v), Q = q^2 w(v - 1).
- u < v: the same with u and v exchanged, and P and Q.
- u = v: P = Q, together q (1 - q) / (1 + q).

r_v <= 1 as w(v) >= q^2 w(v - 1), so for e >= 1 only u > v counts:

    delta(epsilon) = sum_v w(v) (1 - e r_v)_+,        r_0 = 0,

and exchanging + and - exchanges P and Q: both directions are one number. A count of whatever kind
that shows its zeros would be another matter: u + v has to be one and the same for both answers,
which + for 1 and - for 0 keeps.

*Numbers* as in ``one_more``: a window of the flood total, ratios good to 3 ``error``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from shoal.accounting.numerics.binomial import Floats
from shoal.accounting.numerics.compound import UNIT
from shoal.accounting.numerics.curve import MARGIN, Direction
from shoal.accounting.several_messages.one_more import minima
from shoal.arrays import np


@dataclass(frozen=True, slots=True, eq=False)
class CountShown:
    """The classes u > v of a signed count: float64[classes] of r_v and of P = w(v).

    ``level``: mass of u = v. ``lost``: mass of either law that no class holds, at most. ``error``:
    of the masses, relative, at most.
    """

    ratios: Floats
    masses: Floats
    level: float
    lost: float
    error: float

    @property
    def safe(self) -> float:
        """The share of e by which it is moved to cover the errors of ratios."""
        return 4.0 * self.error + 1e-14

    @property
    def margin(self) -> float:
        """The share of delta by which it is moved to cover all other rounding."""
        return MARGIN + 2.0 * self.error + 4.0 * len(self.ratios) * UNIT


def shown_count(singles: Fraction, rates: Floats, tail: float) -> CountShown:
    """Singles with q = ``singles`` and floods of these ``rates``, but for ``tail`` of the flood
    total at either end.
    """
    _, p, w, error = minima(singles, rates, tail)
    return count_classes(singles, p, w, 2.0 * tail, error)


def count_classes(singles: Fraction, p: Floats, w: Floats, lost: float, error: float) -> CountShown:
    """The classes that follow from p and w over one window; p is 0 outside of it."""
    square = float(singles * singles)
    # Beyond the window r = 1: nothing of it counts for e >= 1, but a law of losses wants it.
    end = float(w[-1]) * float(singles * singles / (1 - singles * singles))
    level = float(singles * (1 - singles) / (1 + singles)) * float(np.sum(p))
    return CountShown(
        np.concatenate([[0.0], np.minimum(square * w[:-1] / w[1:], 1.0), [1.0]]),
        np.concatenate([w, [end]]),
        level,
        lost,
        error + (len(p) + 8) * UNIT,
    )


def count_divergence(count: CountShown, epsilon: float, direction: Direction) -> float:
    """delta(``epsilon``) for epsilon >= 0, moved to the side asked for."""
    upper = direction is Direction.UPPER
    e = math.exp(epsilon) * (1.0 - count.safe if upper else 1.0 + count.safe)
    total = float(np.sum(count.masses * np.maximum(1.0 - e * count.ratios, 0.0)))
    if upper:
        return total * (1.0 + count.margin) + count.lost
    return max(0.0, total * (1.0 - count.margin) - e * count.lost)
