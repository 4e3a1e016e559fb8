"""The privacy of several messages per device with the noise of a ``NoiseLaw``: a histogram with
cancelling messages, a signed count, and a histogram with Poisson dummies.

Every device sends one true message, and noise that does not depend on its value. The noise of
``shares`` devices adds up to a law in which all cells, kinds and sizes of events are independent
and Poisson. The idea of noise that cancels, and of shares that add up to it (a negative binomial
law is infinitely divisible): Ghazi, Kumar, Manurangsi, Pagh, Sinha, "Differentially private
aggregation in the shuffle model: almost central accuracy in almost a single message", ICML 2021; of
dummies: Luo, Wang, Yi, CCS 2022. Floods in bundles, the exact account and its charges are ours.

**What the analyzer sees** is the multiset of all messages of the batch. Submissions hold ``slots``
messages, padded; how many of a batch are padding is a function of that multiset and the number of
devices, so seeing it adds nothing. Whoever sees the size of one submission must see ``slots``.

**From the view to an exact law**, for n_honest >= shares:

1. *Others.* The true messages of others, and all that dishonest devices send, do not depend on the
   protected device's value or on honest noise. Given them they can be subtracted, a bijection: so
   every dataset is the worst one.
2. *More than ``shares``.* Take ``shares`` honest devices, the protected one among them. What the
   further ones send is independent of these: adding it is post-processing, which raises no
   divergence.
3. *Full submissions* (``charges``). Compare with a batch in which nobody's noise is ever left
   out. Both are drawn from the same events and differ with probability t1 at most, whatever the
   value, since noise does not depend on it.
4. *All cells but two.* Without step 3's dependence the events of ``shares`` devices are
   independent Poisson numbers for each cell, kind and size (sums of independent Poisson numbers).
   Answers x and x' differ in cells x and x' only; the other cells are independent of these and have
   one law under both: dropping them is a bijection between what is left and what there was, up to
   independent noise. In a count there is one cell. With true messages in several tables there is
   such a pair of cells in each of them, at most (``tables``).
5. *Integers.* Rates are rounded up; a Poisson number of a larger mean is one of the smaller mean
   and an independent rest: post-processing. So is whatever floods or dummies there are beyond
   ``LARGEST_SUM`` / 4 messages of a cell, which are left out of account.
6. *Long singles.* Compare with singles of all sizes: the two differ in the cells looked at with
   probability t2 at most. With all sizes each sign's singles add up to a geometric number.

What is left is ``one_more``'s pair of cells, ``tables``' several, or ``signed_count``'s one. If P,
Q are the two laws of the true view, P', Q' those of the last one, and t = t1 + t2, then for every
set S of views

    P(S) <= P'(S) + t <= e Q'(S) + delta' + t <= e Q(S) + delta' + (1 + e) t,

with post-processing in between, which only lowers. So delta <= delta' + (1 + e) t.

**What the shuffler sees** is the number of messages of each device and, once it is out, the
release. ``onlooker`` bounds that where empties hide the numbers (``NoiseLaw.hidden``), and the
curve is the larger of both. Full submissions have one number: then a release, a function of the
multiset, is all that there is. Where neither is, certificates say so (``SIZES``). Dummies need
neither (``mechanisms.several.protocol.sizes_tell``). To the analyzer empties are more padding.

**Lower curves.** For n_honest = shares, steps 1 and 4 are equalities, step 2 is empty, and steps 3,
5 and 6 are couplings: delta >= delta' - (1 + e)(t1 + t2 + t3), t3 for the surplus of step 5. For
more devices, and for dummies, the account is of all n_honest of them, with the integers that are
drawn (``more_devices``): steps 2, 5 and 6 are empty. Where that takes too long, or where step 5
leaves anything out, the lower curve is 0.

With fewer honest devices than ``shares`` nothing is proven.

*Checked* against all multisets that the devices can send, device by device and in both directions,
with the cap, the cut and the integers (tests/unit/accounting/several_messages/test_noise.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

from shoal.accounting.certificate import check_n
from shoal.accounting.numerics.compound import LARGEST_SUM
from shoal.accounting.numerics.curve import TAIL_SHARE, Direction
from shoal.accounting.several_messages.charges import full_submissions, long_singles, surplus
from shoal.accounting.several_messages.more_devices import shown_many
from shoal.accounting.several_messages.one_more import (
    Shown,
    divergence,
    flood_rates,
    shown_cancelling,
    shown_dummies,
)
from shoal.accounting.several_messages.onlooker import Onlooker, onlooker, onlooker_delta
from shoal.accounting.several_messages.signed_count import (
    CountShown,
    count_divergence,
    shown_count,
)
from shoal.accounting.several_messages.tables import TablesShown, tables_divergence
from shoal.mechanisms.several import noise_of_batch
from shoal.mechanisms.several.noise_law import MOST_SHARES, RATE_BITS, NoiseLaw, Truth

# in bounds and in releases
METHODS = (
    "cancelling",
    "signed-count",
    "poisson-dummies",
    "cancelling-in-tables",
    "poisson-dummies-in-tables",
)
# of + and - whose numbers are not hidden, in certificates
SIZES = (
    "the shuffler does not read the release: it knows how many messages each device sent, and that "
    "tells of the noise of + and -; of both together nothing is proven"
)
_MOST_MESSAGES = Fraction(LARGEST_SUM, 4)
_UNPROVEN = 2.0  # a divergence is at most 1
_ROUNDING = 1e-12

Laws: TypeAlias = "Shown | CountShown | TablesShown"


@dataclass(frozen=True, slots=True)
class NoiseProtocol:
    """The true messages and the noise of ``law``, per device; see the module's text."""

    law: NoiseLaw

    @property
    def name(self) -> str:
        """One of ``METHODS``: the method in a bound."""
        one = self.law.truths == 1
        if not self.law.signed:
            return METHODS[2] if one else METHODS[4]
        if self.law.truth is Truth.SIGN:
            return METHODS[1]
        return METHODS[0] if one else METHODS[3]

    @property
    def messages_per_device(self) -> Fraction:
        """The mean, the true ones among them, padding not; the number does not depend on the
        value.
        """
        return self.law.mean_messages

    @property
    def epsilon0(self) -> float:
        """Infinite: a device's true messages are its value."""
        return math.inf

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the bound needs beyond the basic assumptions."""
        tables = self.law.truths
        true = (f"every device sends one true message in each of {tables} tables",)
        return (
            *(true if tables > 1 else ()),
            f"at least {self.law.shares} honest devices add noise, each its share for that many, "
            "drawn afresh and independent of everything",
            f"every submission has {self.law.slots} messages on the wire, padding among them: who "
            "sees sizes sees one size",
            *((SIZES,) if self.law.tells else ()),
        )

    @property
    def deviation(self) -> float:
        """The standard deviation of the estimate of one cell (or of the count of ones) with the
        noise of ``shares`` devices, were there no ``slots``.
        """
        scale = 2.0 if self.law.truth is Truth.SIGN else 1.0
        return noise_of_batch.deviation(self.law, self.law.shares) / scale

    def curve(self, n_honest: int, direction: Direction, delta: float) -> Callable[[float], float]:
        """See ``SeveralMessages``: above 1 (UPPER) and 0 (LOWER) where nothing is proven."""
        upper = direction is Direction.UPPER
        if check_n(n_honest) < self.law.shares:
            return _unproven if upper else _nothing
        tail = delta * TAIL_SHARE
        if upper:
            far = distance(self.law, self.law.shares, delta)
            if far >= 1.0:  # whatever the law is: it may be one of numbers without end
                return _everything
            return _Curve(
                shown(counted(self.law), tail), far, direction, seen_beside(self.law, delta)
            ).delta
        found = _drawn(self.law, n_honest, delta)
        return _nothing if found is None else _Curve(*found, direction).delta


def seen_beside(law: NoiseLaw, delta: float) -> Onlooker | None:
    """What the shuffler sees beside the release; None where that is no more than the release."""
    return onlooker(law, delta) if law.empties else None


def distance(law: NoiseLaw, devices: int, delta: float) -> float:
    """How far the view of ``devices`` devices is from the law accounted for, at most, integers left
    aside: t of the module's text. ``delta`` says how exactly it has to be known.
    """
    return full_submissions(law, devices, delta * TAIL_SHARE) + long_singles(law)


def counted(law: NoiseLaw) -> NoiseLaw:
    """The law without the floods or dummies that are too many to count: less noise, so an upper
    bound for it is one for ``law``.
    """
    if not law.signed:
        return replace(law, dummies=min(law.dummies, _MOST_MESSAGES))
    return replace(law, floods=min(law.floods, _MOST_MESSAGES / law.largest))


@lru_cache(maxsize=64)
def shown(law: NoiseLaw, tail: float) -> Laws:
    """The exact law of the end of the module's text, but for ``tail`` at either end."""
    if law.truths > 1:
        return in_tables(shown_cell(replace(law, truths=1), tail), law, tail)
    return shown_cell(law, tail)


def in_tables(cell: Shown | CountShown, law: NoiseLaw, tail: float) -> Laws:
    """What all tables of ``law`` show, where each has such a pair of cells."""
    if law.truths == 1 or isinstance(cell, CountShown):
        return cell
    return TablesShown(cell, law.truths, tail)


def shown_cell(law: NoiseLaw, tail: float) -> Shown | CountShown:
    """``shown``, of one table."""
    if not law.signed:
        return shown_dummies(law.dummies, tail)
    rates = flood_rates(law.floods, law.largest)
    if law.truth is Truth.CELL:
        return shown_cancelling(law.singles, rates, tail)
    return shown_count(law.singles, rates, tail)


def exact_delta(
    law: NoiseLaw, epsilon: float, delta: float, direction: Direction = Direction.UPPER
) -> float:
    """delta' of the module's text at ``epsilon``: that of the exact law, without any charge."""
    # which empties are no part of: so a design is searched once, with them and without
    return _divergence(shown(counted(law.bare), delta * TAIL_SHARE), epsilon, direction)


def _divergence(found: Laws, epsilon: float, direction: Direction) -> float:
    if isinstance(found, TablesShown):
        return tables_divergence(found, epsilon, direction)
    if isinstance(found, Shown):
        return divergence(found, epsilon, direction)
    return count_divergence(found, epsilon, direction)


@dataclass(frozen=True, slots=True)
class _Curve:
    """delta' and the charges for a ``distance``; the larger of both views, if there are two."""

    found: Laws
    distance: float
    direction: Direction
    beside: Onlooker | None = None

    def delta(self, epsilon: float) -> float:
        """The curve at ``epsilon`` in [0, 40]."""
        exact = _divergence(self.found, epsilon, self.direction)
        charge = (1.0 + math.exp(epsilon)) * self.distance * (1.0 + _ROUNDING)
        if self.direction is Direction.UPPER:
            if self.beside is not None:
                exact = max(exact, onlooker_delta(self.beside, epsilon))
            return min(1.0, (exact + charge) * (1.0 + _ROUNDING))
        return max(0.0, exact * (1.0 - _ROUNDING) - charge * (1.0 + _ROUNDING))


def _drawn(law: NoiseLaw, devices: int, delta: float) -> tuple[Laws, float] | None:
    """A law for a lower curve of ``devices`` >= shares devices, and how far the view is from it;
    None where none is known.
    """
    tail = delta * TAIL_SHARE
    if devices > MOST_SHARES or counted(law) != law:
        return None
    if law.signed and devices == law.shares:
        return shown(law, tail), distance(law, devices, delta) + surplus(law)
    full = full_submissions(law, devices, tail)
    if law.signed:
        found = shown_many(law, devices, tail)
        return None if found is None else (in_tables(found, law, tail), full)
    exact = Fraction(law.rates()[0].weight * devices, 1 << RATE_BITS)
    if exact > _MOST_MESSAGES:
        return None
    return in_tables(shown_dummies(exact, tail), law, tail), full


def _unproven(_: float) -> float:
    return _UNPROVEN


def _everything(_: float) -> float:
    return 1.0


def _nothing(_: float) -> float:
    return 0.0
