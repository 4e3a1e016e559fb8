"""What one more message in a cell of noise shows: the two laws of a cell, by their ratio.

**Two cells.** The reduction of ``noise`` leaves a cell x that has one message of + more under P
than under Q, and a cell x' that has one more under Q, independent of each other and of one law. Let
``more`` and ``without`` be the laws of what is seen of a cell, with and without that message,
summed over outcomes of one ratio r = without / more, and ``certain`` the mass of ``without`` where
``more`` has none. P / Q = (1 / r_i) / (1 / r_j) on classes i of x and j of x', so

    delta(epsilon) = sum_ij (more_i without_j - e without_i more_j)_+ + certain * sum_i more_i
                   = sum_j without_j sum_i more_i (1 - e r_i / r_j)_+ + certain * sum_i more_i.

(Where x shows ``certain``, P is 0.) Exchanging the cells exchanges P and Q: both directions are
one number. By parts the inner sum has positive terms only: with y = r_j / e and F(t) = sum of
more_i over r_i <= t it is (1/y) integral_0^y F.

**Dummies**, A ~ Poisson(lam) in each cell with pmf f: the cell shows a, ``more`` is f(a - 1),
``without`` f(a), r = lam / a; ``certain`` is f(0).

**Singles and floods.** The cell shows (u, v) = (G + C, G' + C), G and G' geometric, P(g) = (1 - q)
q^g, C the flood total with pmf p. With w(u) = sum over c <= u of (1 - q) q^(2 (u - c)) p(c),

    P(u, v) = (1 - q)^2 sum over c <= min(u, v) of q^(u + v - 2 c) p(c)
            = (1 - q) q^|u - v| w(min(u, v)).

w(u) = q^2 w(u - 1) + (1 - q) p(u): positive terms. With a + more, P(u - 1, v) takes its place:

- u > v: r = q on all of them; more = 1 / (1 + q), without = q / (1 + q);
- u <= v: r_u = w(u) / (q w(u - 1)) = q + (1 - q) p(u) / (q w(u - 1)), whatever v is. Summed over v
  >= u: without = w(u), more = q w(u - 1). certain = w(0).

(sum over v >= u of (1 - q) q^(v - u) is 1, and the sum of w is (1 - q) / (1 - q^2).)

*Numbers.* Only C (or A) in a window is kept, which is a law with some mass left out. Where P' <= P
and Q' <= Q are what is kept, delta <= delta' + ``lost``: (P - e Q)_+ <= (P' - e Q')_+ + (P - P').
And delta >= delta' - e ``lost``: (P - e Q)_+ >= (P' - e Q')_+ - e (Q - Q'). ``lost`` >= mass of
P - P' and of Q - Q'. Masses have relative errors of at most ``error``; a ratio is taken from the
masses, so it is good to 3 ``error``, and r_i / r_j to 6. delta falls with e and depends on ratios
through e r_i / r_j alone, so an e that is 8 ``error`` too small (large) covers them; masses enter
as products of two, sums of N positive terms cost N u more. That is ``margin``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from shoal.accounting.numerics.binomial import Floats
from shoal.accounting.numerics.compound import UNIT, highest, lowest, masses
from shoal.accounting.numerics.curve import MARGIN, Direction
from shoal.arrays import np


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """The classes of one cell: float64[classes] each, ``ratios`` = without / more, increasing.

    ``certain``: mass of ``without`` where ``more`` has none. ``lost``: mass of either law that no
    class holds, at most. ``error``: of the masses, relative, at most.
    """

    ratios: Floats
    more: Floats
    without: Floats
    certain: float
    lost: float
    error: float

    @property
    def safe(self) -> float:
        """The share of e by which it is moved to cover the errors of ratios."""
        return 8.0 * self.error + 1e-14

    @property
    def margin(self) -> float:
        """The share of delta by which it is moved to cover all other rounding."""
        return MARGIN + 4.0 * self.error + 8.0 * len(self.ratios) * UNIT


def flood_rates(floods: Fraction, largest: int) -> Floats:
    """float64[largest + 1]: ``floods`` / ``largest`` of each size from 1 on."""
    rates = np.full(largest + 1, float(floods / largest))
    rates[0] = 0.0
    return rates


def minima(singles: Fraction, rates: Floats, tail: float) -> tuple[int, Floats, Floats, float]:
    """(low, p, w, error): p(c) and w(u) of the module's text for c, u = low, low + 1, ..., with all
    but ``tail`` of C at either end, and a bound of their relative errors.
    """
    low, high = lowest(rates, math.log(tail)), highest(rates, math.log(tail))
    values, error = masses(rates, high)
    kept = values[low:]
    # A window that begins in what is below the floats begins where they do.
    first = int(np.argmax(kept > 0.0))
    kept, low = kept[first:], low + first
    fresh = (kept * float(1 - singles)).tolist()
    square = float(singles * singles)
    out, at = [], 0.0
    for mass in fresh:
        at = square * at + mass
        out.append(at)
    return low, kept, np.array(out), error + 6 * (len(out) + 1) * UNIT


def shown_cancelling(singles: Fraction, rates: Floats, tail: float) -> Shown:
    """Singles with q = ``singles`` and floods of these ``rates``, but for ``tail`` of the flood
    total at either end.
    """
    _, p, w, error = minima(singles, rates, tail)
    return classes(singles, p, w, 2.0 * tail, error)


def classes(singles: Fraction, p: Floats, w: Floats, lost: float, error: float) -> Shown:
    """The classes that follow from p and w over one window; p is 0 outside of it."""
    q, last = float(singles), float(w[-1])
    before = w[:-1] * q
    ratios = q + float(1 - singles) * p[1:] / before
    # Beyond the window w falls by q^2 at each step, and r = q there as for u > v.
    above = float(1 / (1 + singles)) * float(np.sum(p))
    flat = above + last * float(singles / (1 - singles * singles))
    order = np.argsort(ratios)
    return Shown(
        np.concatenate([[q], ratios[order]]),
        np.concatenate([[flat], before[order]]),
        np.concatenate([[flat * q], w[1:][order]]),
        float(w[0]),
        lost,
        error + (len(p) + 8) * UNIT,
    )


def shown_dummies(mean: Fraction, tail: float) -> Shown:
    """Poisson dummies of this ``mean``, but for ``tail`` of them at either end."""
    rates = np.array([0.0, float(mean)])
    low, high = lowest(rates, math.log(tail)), highest(rates, math.log(tail))
    values, error = masses(rates, high)
    kept = values[low:]
    first = int(np.argmax(kept > 0.0))
    kept, low = kept[first:], low + first
    counts = np.arange(low + 1, high + 1, dtype=np.float64)
    return Shown(
        (rates[1] / counts)[::-1],
        kept[:-1][::-1],
        kept[1:][::-1],
        float(kept[0]),
        2.0 * tail,
        error + 4 * UNIT,
    )


def divergence(cell: Shown, epsilon: float, direction: Direction) -> float:
    """delta(``epsilon``) of two such cells, moved to the side asked for; ``lost`` is counted for
    both.
    """
    upper = direction is Direction.UPPER
    e = math.exp(epsilon) * (1.0 - cell.safe if upper else 1.0 + cell.safe)
    limits = cell.ratios / e
    last = np.searchsorted(cell.ratios, limits, side="right") - 1
    below = np.cumsum(cell.more)
    parts = np.concatenate([[0.0], np.cumsum(below[:-1] * np.diff(cell.ratios))])
    some = last >= 0
    at = np.maximum(last, 0)
    inner = (parts[at] + below[at] * np.maximum(limits - cell.ratios[at], 0.0)) / limits
    total = float(np.sum(cell.without * np.where(some, inner, 0.0)))
    total += cell.certain * float(below[-1])
    if upper:
        return total * (1.0 + cell.margin) + 2.0 * cell.lost
    return max(0.0, total * (1.0 - cell.margin) - 2.0 * e * cell.lost)
