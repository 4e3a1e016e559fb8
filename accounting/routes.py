"""The ways to an upper bound, and which of them apply to a law.

A ``Route`` is a statement that has a proof (docs/ACCOUNTING.md, section 3) together with the
numbers that it needs: ``Curves`` for an expectation or the worst of several, ``Exact`` for two
outputs. ``certify`` takes the smallest value; ``compare`` shows them all, and says of the others
why they don't apply. Adding a route is adding it to ``routes``: nothing else chooses among them.

Every route errs upward. ``Curves`` wants *all* of its curves below delta, since each speaks for one
pair of answers and the worst pair counts. Which pairs are left out, and why that is sound, is in
``numerics.convex_order`` and ``bounds.clones``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from typing import Protocol

from shoal.accounting.bounds.approximate import APPROXIMATE_CLONES
from shoal.accounting.bounds.binary import BinaryEnvelope, Interval, binary_interval, binary_proves
from shoal.accounting.bounds.blanket import kary_blanket, pure_blanket
from shoal.accounting.bounds.clones import clones, kary_clones, symmetric_clones, table_clones
from shoal.accounting.bounds.many_pairs import ManyPairs, many_pairs
from shoal.accounting.bounds.swap import SWAP
from shoal.accounting.numerics.cells import CellSum, blanket_sums, has_blanket, likely_worst
from shoal.accounting.numerics.curve import (
    DEFAULT_EFFORT,
    MARGIN,
    TAIL_SHARE,
    Curve,
    Direction,
    Effort,
)
from shoal.accounting.numerics.multinomial import sum_curve, sum_proves, sum_refutes
from shoal.accounting.numerics.random_walk import Walk
from shoal.accounting.numerics.search import RESOLUTION, crossing
from shoal.arrays import np
from shoal.privacy import FiniteLaw, KaryLaw, LocalPrivacy, SymmetricLaw

# Methods, as they appear in certificates. docs/ACCOUNTING.md has a section on each.
LOCAL = "local"
EXACT = "exact"
BLANKET = "blanket"
CLONES = "clones"
TABLE_CLONES = "table-clones"

METHODS = (LOCAL, EXACT, SWAP, BLANKET, TABLE_CLONES, CLONES)

# Why each of them applies, or does not; ``compare`` prints these.
WHY = {
    LOCAL: "holds for every randomizer, against shuffler and analyzer together too",
    EXACT: "two outputs: the maximum over all datasets is computed",
    SWAP: (
        "a finite output law, the same for every honest device: the victim takes another device's "
        "place, whose report hides in a small crowd"
    ),
    BLANKET: (
        "a finite output law, the same for every honest device: the blanket's expectation is "
        "computed in full"
    ),
    CLONES: (
        "any epsilon0-LDP randomizer, the same for every honest device (or chosen adaptively, but "
        "never by device)"
    ),
    TABLE_CLONES: "a finite output law: the clones theorem with the constants of this very law",
}
# The blanket's reason where nothing but a ratio is known.
WHY_PURE = (
    "every honest device runs the same randomizer, chosen beforehand: none of this ratio has a "
    "worse blanket than binary responses"
)
# What was rounded on the way to each of them, as certificates say it; the numbers are those of the
# modules named in section 5.
_INVERSION = f"inversion: the safe end of a bracket {RESOLUTION:g} wide, relative"
_SUMS = (
    f"mass outside the windows of a sum: at most {2 * TAIL_SHARE:g} of delta, added to delta "
    "above, dropped below",
    f"rounding: every divergence is moved by at least {MARGIN:g} of itself, up above and down "
    "below",
    _INVERSION,
)
BUDGET = {
    LOCAL: (),
    EXACT: (
        "datasets in blocks: answers left open cost at most 1e-4 of delta, added above; single "
        "datasets cost nothing",
        "one dataset's divergence: its error, about 1e-9 of itself, is added above and taken off "
        "below",
        "the upper end is proven at a value at least 1e-8 (n <= 8192) or 1e-4 above the lower end, "
        "relative",
    ),
    SWAP: (
        "bins of the integral, convex functions for the crowd's weights and rare crowds: added to "
        "delta above, below 1 % of epsilon",
        "inversion: the safe end of a bracket at most 1e-3 wide, relative",
    ),
    BLANKET: (
        "contour integral: smoothing, periodic images, frequencies left out and rounding: about "
        "1e-5 of delta, added above and taken"
        " off below",
        _INVERSION,
    ),
    CLONES: _SUMS,
    TABLE_CLONES: _SUMS,
    APPROXIMATE_CLONES: (
        "the local curve: rounded up by 1e-12 and more; what is moved by total variation is added "
        "to delta",
        *_SUMS,
    ),
}
WHY_NOT = {
    LOCAL: "",
    EXACT: "wants two outputs: with more, the datasets are too many to go through",
    SWAP: "wants a small table, or an output law that treats all answers alike, and 200 reports",
    BLANKET: "wants an output law of moderate size: this table is too large",
    CLONES: "",
    TABLE_CLONES: "wants a known output law of moderate size",
}


# e^16: beyond, reports are so telling that contour integrals lose their tightness and take long.
# Binomial sums (k-ary responses) and clones take over.
STEEP = 8_886_110
# Of a curve for every pair: how many places up to the epsilon that is aimed at, and as many beyond.
_STEPS = 32


class DeltaCurve(Protocol):
    """An upper bound on the divergence as a function of epsilon."""

    def delta(self, epsilon: float) -> float:
        """The divergence at ``epsilon`` >= 0. Direction: upper bound; it may exceed 1."""
        ...


Maker = Callable[[float, float, Effort], DeltaCurve]
"""(target delta, largest epsilon, effort) -> curve."""


class Route(Protocol):
    """One way to an upper bound.

    Soundness: whatever ``effort``, ``delta`` and ``ceiling`` are, what is called proven is true.
    They decide only how tight and how quick it is.
    """

    @property
    def method(self) -> str:
        """Its name in certificates, one of ``METHODS``."""
        ...

    def bound(self, delta: float, ceiling: float, effort: Effort) -> Interval:
        """``upper``: the smallest epsilon proven at ``delta``, or ``ceiling``, which is proven
        otherwise. ``lower``: refuted, or 0.
        """
        ...

    def proves(self, delta: float, epsilon: float, effort: Effort) -> bool:
        """Whether (epsilon, delta) is proven. False says nothing."""
        ...

    def curve(self, delta: float, epsilon_max: float, effort: Effort) -> Callable[[float], float]:
        """delta as a function of epsilon in [0, epsilon_max], never below the truth; tight near
        ``delta``.
        """
        ...


@dataclass(frozen=True, slots=True)
class Curves:
    """The divergence is at most the largest of the curves that ``makers`` build."""

    method: str
    makers: tuple[Maker, ...]

    def curve(self, delta: float, epsilon_max: float, effort: Effort) -> Callable[[float], float]:
        """See ``Route``: the pointwise maximum of all curves, each built once."""
        curves = [make(delta, epsilon_max, effort) for make in self.makers]
        return lambda epsilon: max(curve.delta(epsilon) for curve in curves)

    def proves(self, delta: float, epsilon: float, effort: Effort) -> bool:
        """See ``Route``: true if every curve is at most ``delta`` at ``epsilon``."""
        return all(make(delta, epsilon, effort).delta(epsilon) <= delta for make in self.makers)

    def bound(self, delta: float, ceiling: float, effort: Effort) -> Interval:
        """See ``Route``. An epsilon is proven where *every* curve is at most ``delta``, so the
        largest of the curves' epsilons is returned: the safe end of each bracket. ``lower`` is 0:
        these curves refute nothing.
        """
        curves = [make(delta, ceiling, effort) for make in self.makers]
        # ``ceiling`` has to be proven by every curve: if a single one is above delta there, this
        # route says nothing.
        left: list[tuple[float, DeltaCurve]] = []
        for curve in curves:
            left.append((curve.delta(ceiling), curve))
            if left[-1][0] > delta:
                return Interval(0.0, ceiling)
        epsilon = 0.0
        while left:
            # The worst where it was last looked at comes next, so that few are searched.
            worst = max(left, key=lambda pair: pair[0])[1]
            # Never below what the earlier curves proved, even if rounding made this curve cross
            # twice.
            epsilon = max(epsilon, crossing(worst.delta, delta, ceiling)[1])
            # What is proven at a smaller epsilon is proven at all larger ones.
            left = [
                (value, curve)
                for _, curve in left
                if curve is not worst and (value := curve.delta(epsilon)) > delta
            ]
        return Interval(0.0, epsilon)


@dataclass(frozen=True, slots=True)
class BlanketSums:
    """The blanket's sums over the cells of a law: ``Curves`` of them, which are made only where
    they are asked for.
    """

    law: FiniteLaw | SymmetricLaw | KaryLaw
    n: int
    method: str = BLANKET

    def _curves(self) -> Curves:
        sums = blanket_sums(self.law, self.n)
        return Curves(self.method, tuple(partial(_sum_curve, each) for each in sums))

    def bound(self, delta: float, ceiling: float, effort: Effort) -> Interval:
        """See ``Route``."""
        return self._curves().bound(delta, ceiling, effort)

    def curve(self, delta: float, epsilon_max: float, effort: Effort) -> Callable[[float], float]:
        """See ``Route``."""
        return self._curves().curve(delta, epsilon_max, effort)

    def proves(self, delta: float, epsilon: float, effort: Effort) -> bool:
        """See ``Route``. The likely worst of all pairs says no before they are compared; a yes is
        that of every pair that is left.
        """
        worst = likely_worst(self.law, self.n, epsilon)
        if worst is not None and sum_refutes(worst, delta, epsilon):
            return False
        return all(sum_proves(each, delta, epsilon) for each in blanket_sums(self.law, self.n))


@dataclass(frozen=True, slots=True)
class EveryPair:
    """The same for a table of many inputs, whose pairs are bounded together (``many_pairs``)."""

    pairs: ManyPairs
    n: int
    method: str = BLANKET

    def bound(self, delta: float, ceiling: float, effort: Effort) -> Interval:
        """See ``Route``."""
        return Interval(0.0, self.pairs.bound(self.n, delta, ceiling))

    def proves(self, delta: float, epsilon: float, effort: Effort) -> bool:
        """See ``Route``."""
        return self.pairs.proves(self.n, delta, epsilon)

    def curve(self, delta: float, epsilon_max: float, effort: Effort) -> Callable[[float], float]:
        """See ``Route``. Evaluated at some epsilons, and between them in a straight line over
        e^epsilon: a divergence is convex there, so chords lie above it.
        """
        step = max(self.pairs.bound(self.n, delta, epsilon_max) / _STEPS, 1e-12)

        @cache
        def at(place: int) -> float:
            return min(1.0, self.pairs.curve(self.n, delta, place * step))

        def bound(epsilon: float) -> float:
            place = min(int(epsilon / step), 2 * _STEPS)
            low, high = math.exp(place * step), math.exp((place + 1) * step)
            e = math.exp(epsilon)
            if not low <= e <= high:  # beyond the last place, and where division rounded
                return at(max(0, place - (e < low)))
            share = (e - low) / (high - low)
            return (at(place) * (1.0 - share) + at(place + 1) * share) * (1.0 + 1e-14)

        return bound


@dataclass(frozen=True, slots=True)
class Exact:
    """Two outputs: all datasets are gone through (``binary``). ``top`` > ``bottom``: the extreme
    probabilities of one output.
    """

    top: Fraction
    bottom: Fraction
    n: int
    method: str = EXACT

    def bound(self, delta: float, ceiling: float, effort: Effort) -> Interval:
        """See ``Route``. Both ends are of the same quantity, and nearly meet; ``lower`` belongs to
        a real dataset.
        """
        return binary_interval(self.top, self.bottom, self.n, delta, ceiling)

    def proves(self, delta: float, epsilon: float, effort: Effort) -> bool:
        """See ``Route``: one branch and bound at ``epsilon``."""
        return binary_proves(self.top, self.bottom, self.n, delta, epsilon)

    def curve(self, delta: float, epsilon_max: float, effort: Effort) -> Callable[[float], float]:
        """See ``Route``: the envelope over all datasets and both directions."""
        envelope = BinaryEnvelope(self.top, self.bottom, self.n, delta)
        return lambda epsilon: float(envelope.deltas(np.array([epsilon]))[0])


def _exact(law: KaryLaw | FiniteLaw, n: int) -> Exact:
    """Rows between the two extreme ones are mixtures of these, in the victim's place and in the
    others': joint convexity.
    """
    if isinstance(law, KaryLaw):
        return Exact(Fraction(law.same, law.total), Fraction(law.other, law.total), n)
    shares = [Fraction(row[0], law.total) for row in law.rows]
    return Exact(max(shares), min(shares), n)


def _walks(method: str, walks: tuple[Walk, ...]) -> Route:
    """A route of one walk or several: the worst of them counts."""
    return Curves(method, tuple(partial(_walk_curve, walk) for walk in walks))


def _sums(
    law: FiniteLaw | SymmetricLaw | KaryLaw, n: int, effort: Effort = DEFAULT_EFFORT
) -> Iterator[Route]:
    """The blanket's expectation over the cells of a table, pair by pair or for all pairs at once;
    none if the table is too large or too telling.
    """
    if law.max_ratio > STEEP:
        return
    if has_blanket(law):
        yield BlanketSums(law, n)
    elif (
        effort.every_pair and isinstance(law, FiniteLaw) and (every := many_pairs(law)) is not None
    ):
        yield EveryPair(every, n)


def _sum_curve(cells: CellSum, delta: float, epsilon_max: float, _: Effort) -> DeltaCurve:
    return sum_curve(cells, Direction.UPPER, delta, epsilon_max)


def _walk_curve(walk: Walk, delta: float, epsilon_max: float, effort: Effort) -> DeltaCurve:
    return Curve(walk, Direction.UPPER, delta, epsilon_max, effort)


def routes(privacy: LocalPrivacy, n: int, effort: Effort = DEFAULT_EFFORT) -> Iterator[Route]:
    """The sound routes for a law with a ratio above 1 and n >= 2, the cheapest first: later ones
    need only look below the best so far.
    """
    if isinstance(privacy, KaryLaw):
        yield _walks(TABLE_CLONES, (kary_clones(privacy, n),))
        if privacy.k > 2 and privacy.max_ratio <= STEEP:
            yield from _sums(privacy, n)
        else:
            yield _walks(BLANKET, (kary_blanket(privacy, n),))
        if privacy.k == 2:
            yield _exact(privacy, n)
    elif isinstance(privacy, FiniteLaw):
        # The blanket, where there is one, is nearly always the tighter one; the pairs of the clones
        # take longer to find than its sums.
        blankets = tuple(_sums(privacy, n, effort))
        yield from blankets
        if not blankets and effort.every_pair:
            yield _walks(BLANKET, (pure_blanket(privacy.max_ratio, n),))
        yield _walks(TABLE_CLONES, table_clones(privacy, n))
        if len(privacy.rows[0]) == 2:
            yield _exact(privacy, n)
    elif isinstance(privacy, SymmetricLaw):
        yield _walks(TABLE_CLONES, (symmetric_clones(privacy, n),))
        yield from _sums(privacy, n)
    else:
        # More of the others' reports hide than in the clones' theorem (2/(E+1) against 1/E), and
        # all else is alike: these are never tighter.
        yield _walks(BLANKET, (pure_blanket(privacy.max_ratio, n),))


def general_routes(privacy: LocalPrivacy, n: int) -> Iterator[Route]:
    """What holds for a wider class than this law, and so is never better: for ``compare`` only."""
    yield _walks(CLONES, (clones(privacy.max_ratio, n),))


def proving_routes(
    privacy: LocalPrivacy, n: int, effort: Effort = DEFAULT_EFFORT
) -> Iterator[Route]:
    """Of ``routes`` those that can prove something which the others don't, for a yes or no at one
    epsilon.

    Of one law the clones never prove more than the blanket: the clones of a pair are a part of it,
    q (R(x) + R(x')) / 2 <= min_z R(z), and their symbols tell more than the reports do. So they are
    asked only where there is no blanket. Direction: leaving routes out proves less, never more.
    """
    if isinstance(privacy, KaryLaw) and privacy.k == 2:  # of two values both are one walk
        yield _walks(BLANKET, (kary_blanket(privacy, n),))
        yield _exact(privacy, n)
    elif isinstance(privacy, KaryLaw | FiniteLaw | SymmetricLaw) and (
        blankets := tuple(_sums(privacy, n, effort))
    ):
        yield from blankets
        if isinstance(privacy, FiniteLaw) and len(privacy.rows[0]) == 2:
            yield _exact(privacy, n)
    else:
        yield from routes(privacy, n, effort)
