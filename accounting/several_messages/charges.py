"""What separates the noise that is drawn from the law that is accounted for, as probabilities that
the two differ at all. ``noise`` proves what is done with them.

A coupling draws both from the same events and differs where one of these happens:

- *a long single*: the law has singles of every size, devices draw sizes up to ``longest``. In each
  cell looked at and for each sign, the longer ones are a Poisson number of mean sum over j >
  longest of q^j / j, so at least one of them comes with at most that probability. Two cells and two
  signs in a histogram, one cell and two signs in a count.
- *a full submission*: a device whose noise does not fit beside its true messages sends none. With
  the integers that are drawn, the messages of one device, over all cells, are a compound Poisson
  sum; ``compound.at_least`` bounds its tail. For so many devices: so many times that (union).
- *a surplus event*: integer rates are above the share by less than 2^-64 per kind, size, device and
  cell. For upper bounds this is further noise and costs nothing; a lower bound is charged for it.

All three err upward.
"""

from __future__ import annotations

import math
from fractions import Fraction

from shoal.accounting.numerics.binomial import Floats
from shoal.accounting.numerics.compound import at_least
from shoal.arrays import np
from shoal.mechanisms.several.noise_law import RATE_BITS, NoiseLaw, Truth

_ROUNDING = 1.0 + 1e-9
_REACH = 60.0  # terms are summed until q^j has fallen by e^-60, ...
_MOST_TERMS = 1 << 16  # ... or so many: a q near 1 has more, and far too many long singles


def cells_looked_at(truth: Truth) -> int:
    """Cells of a table that one device's answer touches: two, or the one of a count."""
    return 2 if truth is Truth.CELL else 1


def singles_beyond(singles: Fraction, longest: int) -> float:
    """sum over j > ``longest`` of q^j / j, q = ``singles`` in (0, 1). Direction: UPPER."""
    slope, first = math.log1p(-float(1 - singles)), longest + 1
    last = first + math.ceil(min(_REACH / -slope, _MOST_TERMS))
    sizes = np.arange(first, last, dtype=np.float64)
    # What is left out: q^j / j for j >= last, at most a geometric series.
    rest = math.exp(slope * last) / (last * float(1 - singles))
    return (float(np.sum(np.exp(slope * sizes) / sizes)) + rest) * _ROUNDING


def long_singles(law: NoiseLaw) -> float:
    """Expected singles longer than ``longest`` in the cells looked at. Direction: UPPER."""
    if not law.signed:
        return 0.0
    looked = law.truths * cells_looked_at(law.truth)
    return 2.0 * looked * singles_beyond(law.singles, law.longest)


def message_rates(law: NoiseLaw) -> Floats:
    """float64[most messages of an event + 1]: expected events of one device, over all cells, by
    their number of messages; from the integers that are drawn.
    """
    rates = law.rates()
    weights = [0] * (max(rate.messages for rate in rates) + 1)
    for rate in rates:
        weights[rate.messages] += law.cells * rate.weight
    return np.array([weight / (1 << RATE_BITS) for weight in weights])


def full_submissions(law: NoiseLaw, devices: int, tail: float) -> float:
    """``devices`` times the probability that the noise of one has no room beside its true
    messages in ``slots``; too large by at most ``tail`` and its rounding. Direction: UPPER.
    """
    room = law.slots - law.truths + 1
    return devices * at_least(message_rates(law), room, math.log(tail / devices)) * _ROUNDING


def surplus(law: NoiseLaw) -> float:
    """Expected events above the law accounted for, in the cells looked at, of ``shares`` devices.
    Direction: UPPER.
    """
    looked = law.truths * cells_looked_at(law.truth)
    return looked * len(law.rates()) * law.shares * 2.0**-RATE_BITS * _ROUNDING
