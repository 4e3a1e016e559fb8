"""The blanket of a table with many inputs, for all of its pairs at once: tables too large to
evaluate every pair by itself.

For an ordered pair of rows a = P(. | x), b = P(. | x') and w = min over all rows, one report adds
L = (a - e b) / w with probability w, else 0, and E[(L_1 + ... + L_n)_+] / n bounds the divergence
(``numerics.cells``). A table of k inputs has k (k - 1) pairs. Here all are bounded by one sum.

*Envelope.* Let e be fixed and h_i(t) = E[(L - t)_+] of pair i. Every h_i is convex and falls from
1 - e - t (all L of a table have the mean 1 - e) to 0. So let H be the lower convex hull of points
(t_j, y_j), y_j at or above every h_i(t_j), the first t_j at or below and the last at or above all
values of L. A chord over points above a convex function is above it; so H is at or above every h_i,
at every t, and its second derivative is a law of values t_j, with total mass 1. Its sum's
expectation bounds that of each pair (increasing convex order: ``convex_order``). The points are
few, and where one pair is the worst, as it mostly is, the envelope costs second order in their
distance.

*Chernoff.* Few pairs come near the worst. The others need not enter the envelope: for every theta >
0, (S)_+ <= exp(theta S - 1) / theta, so that E[(L_1 + ... + L_n)_+] / n <= phi(theta)^n / (e theta
n), phi(theta) = E[exp(theta L)]. What is at most delta at one epsilon is so at all larger ones: L
falls as e grows.

*Rounding.* Shares are correctly rounded quotients of whole numbers. With u = 2^-53 a height is
off by less than (outputs + 16) u of sum (a + e b + |t| w), which is added to it, and the ends of
the values' range are moved outward. From there on everything is a fraction until ``lattice``
rounds it. The logarithm of phi is off by (outputs + 16 + 4 max |theta L|) u, n times; four times
that is added.

**Direction.** Upper bounds. **Checked** against the sums of every pair, and against every dataset
at small n (tests/unit/accounting/bounds/test_many_pairs.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

from shoal.accounting.numerics.binomial import Floats
from shoal.accounting.numerics.cells import Cell, CellSum, worst_rows
from shoal.accounting.numerics.curve import Direction
from shoal.accounting.numerics.hull import lower_hull
from shoal.accounting.numerics.lattice import DEFAULT_CONTOUR, ROUGH_CONTOUR, Contour, LatticeCurve
from shoal.accounting.numerics.search import crossing
from shoal.arrays import NDArray, np
from shoal.privacy import FiniteLaw

# Pairs times outputs; beyond, a look at every pair takes too long.
MOST = 4_000_000
_U = 2.0**-53
_KNOTS = 40
# Groups of pairs: how many at most, and how much more than the worst pair each may vary.
_MOST_GROUPS = 12
_ROOM = 1e-3
# Slopes are multiples of this.
_UNITS = 1 << 60
# Exponents are tried around the saddle point of the pair that varies most.
_TILTS = (0.8, 1.0, 1.25)
_CLOSE = 1.1
_WELL_ABOVE = 1.05
# Values are within these, so that squares and exponentials are floats.
_LARGEST = 1e12
_ZERO = Fraction(0)
Pairs: TypeAlias = "tuple[NDArray[np.intp], NDArray[np.intp]]"


@dataclass(frozen=True, slots=True)
class ManyPairs:
    """``ratios``: a / w, float64[inputs, outputs]; ``masses``: w, float64[outputs]; ``worst``: the
    pair whose L varies most at e = 1. ``asked``: bool[inputs, inputs], which pairs are bounded;
    None: all. The w are those of all inputs whichever pairs are asked for.
    """

    ratios: Floats = field(repr=False)
    masses: Floats = field(repr=False)
    worst: tuple[int, int]
    asked: NDArray[np.bool_] | None = field(default=None, repr=False)

    def value(
        self, pairs: Pairs, n: int, delta: float, epsilon: float, contour: Contour = DEFAULT_CONTOUR
    ) -> float:
        """At or above the blanket's sums of ``pairs`` for ``n`` reports at ``epsilon``, tight near
        ``delta``. Direction: upper bound.
        """
        knots, heights = self._heights(pairs, epsilon)
        law = _second_derivative(knots, heights.max(axis=0))
        return LatticeCurve(law_sum(law, n), Direction.UPPER, delta, 0.0, contour).delta(0.0)

    def _heights(self, pairs: Pairs, epsilon: float) -> tuple[Floats, Floats]:
        """Places t, and of every pair something at or above its h(t): float64[knots],
        float64[pairs, knots].
        """
        e = math.exp(epsilon)
        first, second = pairs
        values = self.ratios[first] - e * self.ratios[second]
        sizes = self.ratios[first] + e * self.ratios[second]
        # outward by more than all roundings of a value, that of e included
        slack = 8.0 * _U * float(sizes.max())
        knots = _knots(values, slack)
        heights = np.stack(
            [np.maximum(values - t, 0.0) @ self.masses for t in knots.tolist()], axis=1
        )
        heights += self._idle() * np.maximum(0.0, -knots)
        size = (sizes @ self.masses).max() + np.abs(knots) + slack
        heights += (len(self.masses) + 16) * 4.0 * _U * size + slack
        return knots, heights

    def groups(self, pairs: Pairs, n: int, epsilon: float) -> list[Pairs]:
        """The pairs in few groups of like ones, so that an envelope of each group is close to its
        worst pair. Any grouping is sound.

        The area below a law's h, weighted by exp(theta t), is E[exp(theta L)] but for constants,
        and that decides how large a sum is. So a pair joins where the envelope's is no larger than
        that of the worst pair.
        """
        knots, heights = self._heights(pairs, epsilon)
        weights = np.exp(self._saddle(n, epsilon) * (knots - knots[-1]))
        base = np.maximum(1.0 - math.exp(epsilon) - knots, 0.0)
        heights = (heights - base) * weights
        areas = np.trapezoid(heights, knots, axis=1)
        limit = float(areas.max()) * (1.0 + _ROOM)
        # Pairs of one law are one group; of few laws each is.
        _, alike = np.unique(np.round(areas / areas.max(), 9), return_inverse=True)
        if int(alike.max()) < _MOST_GROUPS:
            return [
                (pairs[0][alike == law], pairs[1][alike == law]) for law in range(alike.max() + 1)
            ]
        tops, members = np.empty((0, len(knots))), list[list[int]]()
        for at in np.argsort(-areas, kind="stable").tolist():
            joined = np.trapezoid(np.maximum(tops, heights[at]), knots, axis=1)
            if len(members) and (float(joined.min()) <= limit or len(members) == _MOST_GROUPS):
                place = int(joined.argmin())
                tops[place] = np.maximum(tops[place], heights[at])
                members[place].append(at)
            else:
                tops = np.vstack([tops, heights[at]])
                members.append([at])
        return [(pairs[0][group], pairs[1][group]) for group in members]

    def near(self, n: int, delta: float, epsilon: float) -> Pairs:
        """The pairs of which Chernoff's inequality does not show that their sums are at most
        ``delta`` at ``epsilon``, and so at every larger one.
        """
        e, count = math.exp(epsilon), len(self.ratios)
        theta = self._saddle(n, epsilon)
        logs = np.full((count, count), math.inf)
        for tilt in (theta * factor for factor in _TILTS):
            for x in range(count):
                with_x = slice(None) if self.asked is None else np.flatnonzero(self.asked[x])
                others = self.ratios[with_x]
                if not len(others):
                    continue
                exponents = tilt * (self.ratios[x] - e * others)
                highest = np.maximum(exponents.max(axis=1), 0.0)
                phi = np.exp(exponents - highest[:, None]) @ self.masses
                phi += self._idle() * np.exp(-highest)
                # sizes of what cancels in the exponents count as well
                large = tilt * (self.ratios[x].max() + e * others.max(axis=1))
                error = 4.0 * _U * (len(self.masses) + 16.0 + 8.0 * large)
                bound = n * (highest + np.log(phi) + error) - math.log(tilt * n) - 1.0 + 1e-9
                logs[x, with_x] = np.minimum(logs[x, with_x], bound)
        np.fill_diagonal(logs, -math.inf)
        if self.asked is not None:
            logs[~self.asked] = -math.inf
        first, second = np.nonzero(~(logs <= math.log(delta)))
        return first, second

    def _alone(self) -> Pairs:
        return np.array([self.worst[0]]), np.array([self.worst[1]])

    def _idle(self) -> float:
        """What the blanket leaves out, rounded up."""
        return max(0.0, 1.0 - float(self.masses.sum())) + (len(self.masses) + 2) * _U

    def _saddle(self, n: int, epsilon: float) -> float:
        """About where n theta E[L exp(theta L)] / phi(theta) = 1 for the worst pair; any number
        above 0 is sound.
        """
        x, other = self.worst
        values = self.ratios[x] - math.exp(epsilon) * self.ratios[other]
        values, masses = np.append(values, 0.0), np.append(self.masses, self._idle())
        highest = float(values.max())
        if highest <= 0.0:  # of this pair the sum is 0
            return 1.0

        def score(theta: float) -> float:
            weights = masses * np.exp(theta * (values - highest))
            return n * theta * float(weights @ values) / float(weights.sum()) - 1.0

        low, high = 1.0 / (n * highest), 2.0 / (n * highest)
        while score(high) < 0.0 and high * highest < 600.0:
            low, high = high, 2.0 * high
        for _ in range(20):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if score(middle) < 0.0 else (low, middle)
        return high

    def bound(self, n: int, delta: float, ceiling: float) -> float:
        """The smallest epsilon proven at ``delta``, or ``ceiling``, which is proven otherwise.
        Direction: upper bound.
        """
        alone = self._alone()
        # Where one pair crosses delta, roughly: what is proven of all of them is proven below.
        start = _rough(lambda at: self.value(alone, n, delta, at, ROUGH_CONTOUR), delta, ceiling)
        pairs = self.near(n, delta, start)
        if not len(pairs[0]):
            return start
        proven = start
        for group in self.groups(pairs, n, start):

            def beyond(step: float, group: Pairs = group, base: float = proven) -> float:
                return self.value(group, n, delta, base + step)

            if beyond(0.0) <= delta:
                continue
            top = min(ceiling, proven * _CLOSE)
            top = top if beyond(top - proven) <= delta else ceiling
            if top == ceiling and beyond(top - proven) > delta:
                return ceiling
            proven = min(ceiling, proven + crossing(beyond, delta, top - proven)[1])
        return proven

    def proves(self, n: int, delta: float, epsilon: float) -> bool:
        """Whether every pair's sum is at most ``delta`` at ``epsilon``. False says nothing: where
        the likely worst pair is well above delta, no other one is looked at.
        """
        if self.value(self._alone(), n, delta, epsilon, ROUGH_CONTOUR) > _WELL_ABOVE * delta:
            return False
        pairs = self.near(n, delta, epsilon)
        if not len(pairs[0]) or self.value(pairs, n, delta, epsilon, ROUGH_CONTOUR) <= delta:
            return True
        return all(
            any(
                self.value(group, n, delta, epsilon, contour) <= delta
                for contour in (ROUGH_CONTOUR, DEFAULT_CONTOUR)
            )
            for group in self.groups(pairs, n, epsilon)
        )

    def curve(self, n: int, delta: float, epsilon: float) -> float:
        """At or above every pair's sum at ``epsilon``; tight near ``delta``."""
        least = 1e-3 * delta
        pairs = self.near(n, least, epsilon)
        groups = self.groups(pairs, n, epsilon) if len(pairs[0]) else []
        return max([least, *(self.value(group, n, delta, epsilon) for group in groups)])


def _rough(curve: Callable[[float], float], delta: float, top: float) -> float:
    """A little below where the curve crosses ``delta``, in (0, ``top``]: only a guide."""
    low, high = 0.0, top
    middle = min(top, 0.25)
    for _ in range(40):
        if curve(middle) > delta:
            low = middle
        else:
            high = middle
        if high - low <= 0.02 * high:
            break
        middle = high / 4.0 if low == 0.0 else (low + high) / 2.0
    return max(low, 0.98 * high)


@lru_cache(maxsize=8)  # one law is asked for several n, targets and epsilons in a row
def many_pairs(law: FiniteLaw) -> ManyPairs | None:
    """All pairs of a table; None if it is too large, or too telling for floats."""
    rows = worst_rows(law)
    if len(rows) < 2 or len(rows) ** 2 * len(rows[0]) > MOST or law.max_ratio > _LARGEST:
        return None
    return _of_rows(law, rows, None)


def some_pairs(law: FiniteLaw, asked: NDArray[np.bool_]) -> ManyPairs | None:
    """The ordered pairs (x, x') of a table that are ``asked`` for, bool[inputs, inputs] with one
    True or more off the diagonal; None if they are too many, or the table too telling for floats.

    Lemma 5.3 of the blanket is about one pair at a time, whatever the others answer: w is the least
    of all rows. So a bound over some pairs holds for exactly these changes of one answer.
    """
    if int(asked.sum()) * len(law.rows[0]) > MOST or law.max_ratio > _LARGEST:
        return None
    return _of_rows(law, law.rows, asked)


def _of_rows(
    law: FiniteLaw, rows: Sequence[tuple[int, ...]], asked: NDArray[np.bool_] | None
) -> ManyPairs | None:
    total = law.total
    shares = np.array([[weight / total for weight in row] for row in rows])
    masses = np.array([min(column) / total for column in zip(*law.rows, strict=True)])
    if float(masses.min()) < 1.0 / _LARGEST**4:
        return None
    ratios = shares / masses
    product = (ratios * masses) @ ratios.T
    own = np.diag(product)
    spread = own[:, None] + own[None, :] - 2.0 * product
    if asked is not None:
        spread = np.where(asked, spread, -math.inf)
    x, other = divmod(int(spread.argmax()), len(rows))
    return ManyPairs(ratios, masses, (x, other), asked)


def law_sum(law: Iterable[tuple[Fraction, Fraction]], n: int) -> CellSum:
    """The sum of n values of a law, to be asked at epsilon = 0: first - second is the value."""
    return CellSum(n, tuple(Cell(mass, max(t, _ZERO), max(-t, _ZERO)) for t, mass in law))


def _knots(values: Floats, slack: float) -> Floats:
    """Places from below all values and 0 to above them, rising; where they lie decides tightness
    only.
    """
    ends = (min(0.0, float(values.min())) - slack, max(0.0, float(values.max())) + slack)
    inner = np.unique(values[0])
    if len(inner) > _KNOTS:
        inner = np.quantile(inner, np.linspace(0.0, 1.0, _KNOTS))
    even = np.linspace(*ends, _KNOTS // 2)
    knots = np.unique(np.concatenate([np.array([*ends, 0.0]), inner, even]))
    return knots[(knots >= ends[0]) & (knots <= ends[1])]


def _second_derivative(knots: Floats, heights: Floats) -> tuple[tuple[Fraction, Fraction], ...]:
    """(t, mass) of the lower convex hull of the heights, the last of which is taken for 0: h is 0
    there. Its slopes go from -1 on the left to 0 on the right. Exact but that slopes are rounded
    towards -1, which lifts the hull: it is 0 at the last knot.
    """
    points = [(Fraction(t), Fraction(y)) for t, y in zip(knots, heights, strict=True)]
    points[-1] = (points[-1][0], _ZERO)
    hull = lower_hull(points)
    # A slope below -1 is one of rounding, of the leftmost chords: h falls by no more than the step.
    slopes = [-_UNITS]
    for (left, low), (right, high) in pairwise(hull):
        slopes.append(max(-_UNITS, math.floor((high - low) / (right - left) * _UNITS)))
    slopes.append(0)
    masses = [Fraction(after - before, _UNITS) for before, after in pairwise(slopes)]
    return tuple((t, mass) for (t, _), mass in zip(hull, masses, strict=True) if mass > 0)
