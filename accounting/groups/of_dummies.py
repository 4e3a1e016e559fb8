"""What a group of devices is shown to give away among Poisson dummies: a lower bound, of a real
pair of datasets.

All g members have the answer x before, and x' after, which differ in every table. As in
``several_messages.noise`` all else can be taken away: of each pair of cells x shows g messages more
under P, and x' under Q. With A ~ Poisson(lam) and pmf f a cell of x shows a, ``more`` = f(a - g),
``without`` = f(a), r = f(a) / f(a - g), which falls with a; ``certain`` is P(A < g). So it is a
pair of cells as ``one_more`` has it, and several tables add up as in ``tables``.

lam is that of all honest devices, by the integers that are drawn. Where dummies that did not fit
are left out both laws change by t at most: delta is at least what follows, less (1 + e) t. Outcomes
beyond a window are left out of both laws, which only lowers. Of several windows one is looked at.
Direction: LOWER.

*Checked* against all bundles that devices can make (tests/unit/accounting/groups).
"""

from __future__ import annotations

import math
from fractions import Fraction

from shoal.accounting.numerics.compound import UNIT, highest, masses
from shoal.accounting.numerics.curve import TAIL_SHARE, Direction
from shoal.accounting.numerics.search import crossing
from shoal.accounting.several_messages.charges import full_submissions
from shoal.accounting.several_messages.noise import in_tables
from shoal.accounting.several_messages.one_more import Shown, divergence
from shoal.accounting.several_messages.tables import TablesShown, tables_divergence
from shoal.arrays import np
from shoal.mechanisms.several.noise_law import RATE_BITS, NoiseLaw

_LARGEST_MEAN = 100_000  # of a cell's dummies: of more nothing is claimed
_SMALLEST = 1e-250  # nearer to the end of the floats masses lose their digits
_ROUNDING = 1e-12


def group_shown(mean: Fraction, devices: int, tail: float) -> Shown:
    """The classes of a cell that ``devices`` messages more may be in, among Poisson dummies of this
    ``mean``, but for what lies above ``tail``. Direction: LOWER.
    """
    rates = np.array([0.0, float(mean)])
    values, error = masses(rates, highest(rates, math.log(tail)) + devices)
    more, without = values[:-devices], values[devices:]
    kept = (more > _SMALLEST) & (without > _SMALLEST)
    more, without = more[kept][::-1], without[kept][::-1]
    certain = float(np.sum(values[:devices]))
    return Shown(without / more, more, without, certain, 2.0 * tail, error + 4 * UNIT)


def group_lower(law: NoiseLaw, n_honest: int, delta: float, devices: int, upper: float) -> float:
    """The largest epsilon that a group of ``devices`` is shown to exceed at ``delta``, at most
    ``upper``, which is proven; 0.0 where nothing is known: of signed messages, of fewer honest
    devices than a group, of very many dummies. Direction: LOWER.
    """
    mean = Fraction(law.rates()[0].weight * n_honest, 1 << RATE_BITS)
    if law.signed or n_honest < devices or mean > _LARGEST_MEAN:
        return 0.0
    tail = delta * TAIL_SHARE
    found = in_tables(group_shown(mean, devices, tail), law, tail)
    far = full_submissions(law, n_honest, tail)

    def curve(epsilon: float) -> float:
        exact = (
            tables_divergence(found, epsilon, Direction.LOWER)
            if isinstance(found, TablesShown)
            else divergence(found, epsilon, Direction.LOWER)
            if isinstance(found, Shown)
            else 0.0
        )
        charge = (1.0 + math.exp(epsilon)) * far * (1.0 + _ROUNDING)
        return max(0.0, exact * (1.0 - _ROUNDING) - charge)

    return crossing(curve, delta, upper)[0] if upper > 0.0 else 0.0
