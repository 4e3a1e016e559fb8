"""`dummies`: every device sends its true cell as it is, and Poisson dummies in every cell.

**The law.** A device adds to each cell a Poisson number of dummies with rate w / 2^64, w the
smallest integer that is not below 2^64 `dummies` / (2^32 `shares`). So n honest devices add
independent Poisson numbers of mean L = n w / 2^64 to all cells. What others send, and the other
devices' true cells, are constants of the histogram that is seen: they can be taken away again. What
is left are dummies and one message, in the cell x or in x'; with A and B the dummies there,

    P(a, b) = f(a - 1) f(b),  Q(a, b) = f(a) f(b - 1),  f(a - 1) / f(a) = a / L,
    delta(e) = sum of (P - e Q)_+ = E[(A - e B)_+] / L,  A and B independent, Poisson of mean L.

Exchanging x and x' exchanges P and Q: both directions are one number, whatever the others answered.
For each b, the sum over a > e b is L P(A >= a0 - 1) - e b P(A >= a0), a0 the first such a.

**Devices without room.** A device whose dummies are more than ``slots`` - 1 sends none. Whether it
does so says nothing of its answer. All n together do so at most with chance t = n P(Poisson(k w /
2^64) >= slots); but for that the laws are those above, so the divergence is delta(e) give or take
(1 + e) t.

**More devices than shares.** Their noise is further noise, that looks at no answer: it shows no
more. So what holds of as many devices as the noise is shared over, holds of more.

**A true cell that is drawn** (`uniform`): the view is a mixture of the views of the cells that may
be drawn, and the divergence of mixtures is at most the largest of their parts (convexity in both
together). So the bound from above stays; no bound from below is known here.

**Numbers.** Poisson weights are products from the largest one outwards; sums have positive terms
alone, each off by at most ``_ROUND`` for every operation. Differences of two of them are off by as
much of either; what is left outside of the window is below a geometric series, and added.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shoal.checker.composition import MANY_KNOTS, MOST_RELEASES, Curve, Total, total_delta
from shoal.checker.errors import UnreadableError
from shoal.checker.expectation import Between
from shoal.checker.exponential import exp_above, exp_below, log_above
from shoal.checker.findings import Decision, Outcome

_WORDS = 1 << 64
_UNIT = 1 << 32  # dummies are counted in this part of one
_ROUND = 16 * 2.0**-53
_TINY = 1e-300  # what leaves the range of floats is less
_LARGEST_MEAN = 4e6  # of dummies in a cell: its window is a hundred thousand numbers
_DEVIATIONS, _MORE = 20.0, 150.0  # of a window on either side of the mean
_LARGEST_EPSILON = 600.0
_TERMS = 400  # of the chance of a device without room


@dataclass(frozen=True, slots=True)
class DummiesLaw:
    """``cells``: of the domain, of a discovery those of its largest level; ``weight``: dummies of
    one device in one cell, out of 2^64. ``uniform``: chance that the true cell is drawn from all;
    0: it is sent as it is.
    """

    cells: int
    shares: int
    slots: int
    weight: int
    uniform: Fraction

    @property
    def ratio(self) -> Fraction | None:
        """Of the chances of one report after two answers, at most; None: without end."""
        if not self.uniform:
            return None
        other = self.uniform / self.cells
        return (1 - self.uniform + other) / other

    @property
    def rate(self) -> Fraction:
        """Dummies of one device in one cell, on average."""
        return Fraction(self.weight, _WORDS)

    def mean(self, devices: int) -> float:
        """Dummies of so many devices in one cell."""
        return float(self.rate * devices)

    def decide(self, honest: int, epsilon: float, delta: float) -> Decision:
        """Whether (``epsilon``, ``delta``) holds where so many devices are honest."""
        if not 0 <= epsilon <= _LARGEST_EPSILON or not 0 <= delta < 1:
            raise UnreadableError("epsilon is from 0 to 600 here, delta from 0 to 1")
        if self.ratio is not None and Fraction(epsilon) >= log_above(self.ratio):
            return Decision(Outcome.HOLDS, "the draw of the true cell alone promises as much")
        if honest < 1 or self.mean(min(honest, self.shares)) > _LARGEST_MEAN:
            return Decision(Outcome.OPEN, "so few or so many dummies are not counted here")
        for devices in {min(honest, self.shares), honest}:
            if self.mean(devices) > _LARGEST_MEAN:
                continue
            if self.divergence(devices, exp_below(epsilon)).high <= delta:
                return Decision(Outcome.HOLDS, "its answer among the dummies, exactly")
        if self.mean(honest) > _LARGEST_MEAN:
            return Decision(Outcome.OPEN, "so many dummies are not counted here")
        if not self.uniform and self.divergence(honest, exp_above(epsilon)).low > delta:
            return Decision(Outcome.WRONG, "among these dummies an answer shows more")
        return Decision(Outcome.OPEN, "no bound is at most delta, and none is above it")

    def curve(self, honest: int) -> Curve | None:
        """The divergence as a function of e >= 1, from above; None where that is not counted."""
        if honest < 1 or self.mean(honest) > _LARGEST_MEAN:
            return None
        return lambda e: self.divergence(honest, e).high

    def divergence(self, honest: int, e: Fraction) -> Between:
        """Both sides of it, at e >= 1; of a cell that is drawn the upper one counts alone."""
        found, charge = _exact(self.mean(honest), e), (1.0 + float(e)) * self.without_room(honest)
        charge *= 1.0 + _ROUND
        return Between(max(0.0, found.low - charge), min(1.0, found.high + charge))

    def without_room(self, devices: int) -> float:
        """The chance t of the module's text, from above."""
        mean = float(self.rate * self.cells) * (1.0 + _ROUND)
        if self.slots <= mean:
            return 1.0
        first = math.exp(self.slots * math.log(mean) - mean - math.lgamma(self.slots + 1.0))
        ratios = mean / np.arange(self.slots + 1.0, self.slots + _TERMS)
        terms = np.append(1.0, np.cumprod(ratios))
        # those that are left out fall at least as fast as a geometric series
        rest = float(terms[-1]) * mean / (self.slots + _TERMS - mean)
        return min(1.0, devices * (first * (float(terms.sum()) + rest) * (1.0 + 1e-9) + _TINY))


def dummies_law(parameters: Mapping[str, int]) -> DummiesLaw:
    """Of a task's integers. Raises UnreadableError for those that it can't have."""
    try:
        cells, shares, slots = (parameters[name] for name in ("k", "shares", "slots"))
        dummies = parameters["dummies"]
    except KeyError as missing:
        raise UnreadableError(f"the task's dummies has no parameter {missing}") from None
    uniform = Fraction(parameters.get("uniform", 0), _WORDS)
    if not (cells >= 2 and shares >= 1 and slots >= 2 and dummies >= 1 and 0 <= uniform < 1):
        raise UnreadableError("dummies wants two cells and slots or more, a share and a dummy")
    weight = -(-dummies * (_WORDS // _UNIT) // shares)
    return DummiesLaw(cells, shares, slots, weight, uniform)


@lru_cache(maxsize=64)
def repeated(
    law: DummiesLaw, honest: int, epsilon: float, releases: int, delta: float
) -> Total | None:
    """So many releases of one law together, at ``delta`` for all of them; None where that is not
    counted. ``epsilon``: of one of them, about.
    """
    curve = law.curve(honest)
    if curve is None or not 1 <= releases <= MOST_RELEASES:
        return None
    return total_delta([curve] * releases, [epsilon] * releases, delta, MANY_KNOTS)


@dataclass(frozen=True, slots=True)
class PoissonLaw:
    """``chances[i]``: of the number ``first`` + i. ``rest``: all others, at most. ``round``: by
    what part of itself a sum of chances may be off.
    """

    first: int
    chances: NDArray[np.float64]
    rest: float
    round: float


@lru_cache(maxsize=16)
def poisson(mean: float) -> PoissonLaw:
    """Of a mean > 0."""
    top = math.floor(mean)
    reach = math.ceil(_DEVIATIONS * math.sqrt(mean) + _MORE)
    down, up = max(0, top - reach), top + reach
    lower = np.cumprod(np.arange(top, down, -1, dtype=np.float64) / mean)[::-1]
    upper = np.cumprod(mean / np.arange(top + 1, up + 1, dtype=np.float64))
    weights = np.concatenate((lower, [1.0], upper))
    total = float(weights.sum())
    beyond = float(weights[-1]) * mean / (up + 1.0 - mean)
    below = float(weights[0]) * down / (mean - down) if down else 0.0
    chances = weights / total
    chances.flags.writeable = False
    return PoissonLaw(down, chances, (beyond + below) / total + _TINY, _ROUND * len(weights))


@lru_cache(maxsize=1 << 15)
def _exact(mean: float, e: Fraction) -> Between:
    """E[(A - e B)_+] / mean."""
    if mean <= 0.0:
        return Between(1.0, 1.0)
    law, slope = poisson(mean), float(e)
    numbers = law.first + np.arange(len(law.chances), dtype=np.float64)
    # P(A >= first + i), and 0 beyond
    above = np.append(np.cumsum(law.chances[::-1])[::-1], 0.0)
    place = np.minimum(np.floor(slope * numbers), numbers[-1] + 1.0) + 1.0 - law.first
    start = np.clip(place, 0, len(law.chances)).astype(np.int64)
    before = np.clip(place - 1.0, 0, len(law.chances)).astype(np.int64)
    first = above[before]
    second = slope * numbers / mean * above[start]
    found = float((law.chances * (first - second)).sum())
    wrong = law.round * float((law.chances * (first + second)).sum())
    # dummies outside of the window: many of them at x, few at x', or few at x
    outside = (4.0 + 2.0 * slope) * (law.rest + float(law.chances[-1]))
    return Between(max(0.0, found - wrong - outside), found + wrong + outside)
