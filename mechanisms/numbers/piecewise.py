"""The mean of a number from one of m outputs, most likely from a window of outputs around the
number.

N. Wang, Xiao, Yang, Zhao, Hui, Shin, Shin, Yu, "Collecting and analyzing multidimensional data with
local differential privacy", ICDE 2019, section III-B: the piecewise mechanism. There the output is
a real number in [-C, C], and e^epsilon0 times as dense in a window of length C - 1, which moves
evenly with the number, as outside of it. Here the output is one of m bins of equal length, and the
window is b of them long. At J + 1 = m - b + 1 *anchors*, the places -1, -1 + 2/J, ... 1, it covers
whole bins; between two anchors it covers a part f of the bin that it enters and 1 - f of the one
that it leaves. That is the paper's mechanism with a window of this length and its output rounded to
a bin, and a bin is exactly as private as what is rounded to it.

**Integers.** With L levels and U = 2 (L - 1), level i is 2 i J / U anchors from the left, and "no
answer" half way. A bin that is covered has the weight B + U ``gain`` out of 2^64, one of which w /
U is covered B + w ``gain``, others B = floor((2^64 - b U gain) / m). What the division leaves over
goes to the first bins, one each, under every cell alike. So e^epsilon0 is (B + U gain) / B.

**Unbiased.** The middle of the window moves exactly evenly with the level, covered parts included.
So the scores of the bins are evenly spaced too, and every level's mean score is its place exactly,
in fractions. With G = b U gain / 2^64, the probability that a report comes from the window, the
variance of one report at place t is

    ((1 - G) (m^2 - 1) / G^2 + (b^2 - 1) / G) / (3 J^2)  +  q(t) / G  -  t^2,

q(t) = t^2 at an anchor and a straight line between two. With many bins and b = m / (s + 1), s =
e^(epsilon0/2), it is the paper's, t^2 / (s - 1) + (s + 3) / (3 (s - 1)^2).

**What reports tell of the error.** At the anchors the variance is a combination of 1 and the
squared scores. Between two anchors it has q(t) - t^2 on top, up to 1 / J^2, which is no combination
of any columns once there are more levels than anchors; ``means`` then errs upwards, by so much at
most.

**The window.** The paper's is nearly the best for the middle of the domain. From epsilon0 = 1 on a
longer one errs less at the ends: the designs take the one whose worst variance is least, of those
within 1 % of the paper's in the middle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from shoal.domain import Domain, Numeric
from shoal.mechanisms.base import Family, Parameter, Setting, invalid
from shoal.mechanisms.categories.krr import check_k
from shoal.mechanisms.numbers.means import TableMean, numeric
from shoal.mechanisms.parts.tables import MOST_ENTRIES, ProbabilityTable, check_entries
from shoal.mechanisms.parts.thresholds import WORDS, least_noise
from shoal.privacy import PureLaw
from shoal.task import MechanismSpec

NAME = "piecewise"
OUTPUTS = Parameter("outputs", 2, MOST_ENTRIES // 3, "number of bins that the output is rounded to")
WINDOW = Parameter("window", 1, MOST_ENTRIES // 3, "length in bins of the window around the number")
GAIN = Parameter(
    "gain",
    1,
    WORDS - 1,
    "by how much, out of 2^64, a bin's weight grows per step in which the window covers it",
)
PARAMETERS = (
    GAIN,
    Parameter("k", 2, MOST_ENTRIES // 2, "number of cells of the domain: its levels and no answer"),
    OUTPUTS,
    WINDOW,
)
SIZES = (8, 16, 32, 64, 128)
_STATED = 1.01  # of the continuous mechanism's variance, at most, at the chosen number of outputs
# of the variance, at most, is what reports don't tell of it: standard errors are at most 5 % too
# large
_UNTOLD = 0.1


@dataclass(frozen=True, slots=True)
class LikelyWindow:
    """``outputs`` bins m and a window of ``window`` of them, 1 <= window < outputs, over ``levels``
    L; weights out of ``total``.
    """

    levels: int
    outputs: int
    window: int
    gain: int
    total: int = WORDS

    def __post_init__(self) -> None:
        if not 1 <= self.window < self.outputs:
            raise invalid(
                f'the parameter "window" is 1 to {self.outputs - 1} for {self.outputs} outputs'
            )
        if not 1 <= self.gain <= self.most:
            raise invalid(
                f'the parameter "gain" is 1 to {self.most} for a window of {self.window} outputs '
                f"and {self.levels} levels"
            )

    @property
    def anchors(self) -> int:
        """J: by so many bins the window moves from end to end."""
        return self.outputs - self.window

    @property
    def steps(self) -> int:
        """U, of which half are left for "no answer" where the number of levels is even."""
        return 2 * (self.levels - 1)

    @property
    def most(self) -> int:
        """The largest gain at which every bin is still possible everywhere."""
        return (self.total - self.outputs) // (self.window * self.steps)

    @property
    def lift(self) -> int:
        """What the weight of an output gains where the window covers it."""
        return self.steps * self.gain

    @property
    def base(self) -> int:
        """The weight of an output that the window does not cover."""
        return (self.total - self.window * self.lift) // self.outputs

    @property
    def ratio(self) -> Fraction:
        """e^epsilon0: the last bin is covered at the high end, not at the low one, and nothing is
        left over for it.
        """
        return Fraction(self.base + self.lift, self.base)

    def rows(self) -> Iterator[tuple[int, ...]]:
        """The weights under every cell, in turn."""
        left = self.total - self.window * self.lift - self.outputs * self.base
        floor = [self.base + (bin_ < left) for bin_ in range(self.outputs)]
        for place in (*range(0, self.steps + 1, 2), self.steps // 2):
            first, part = divmod(place * self.anchors, self.steps)
            weights = floor.copy()
            for bin_ in range(first, first + self.window):
                weights[bin_] += self.lift
            if part:
                weights[first] -= part * self.gain
                weights[first + self.window] += part * self.gain
            yield tuple(weights)

    def scores(self) -> tuple[Fraction, ...]:
        """What each bin counts for, in half widths of the domain from its middle; their mean under
        every cell is its place.
        """
        left = self.total - self.window * self.lift - self.outputs * self.base
        middle = Fraction(self.outputs - 1, 2)
        # of what is left over
        pull = sum((bin_ - middle for bin_ in range(left)), Fraction(0)) / self.total
        scale = Fraction(2 * self.total, self.anchors * self.window * self.lift)
        return tuple((bin_ - middle - pull) * scale for bin_ in range(self.outputs))


@dataclass(frozen=True, slots=True)
class PiecewiseShape:
    """What ``outputs`` bins and a window of ``window`` err at epsilon0, per report, in half widths
    of the domain: for designs.

    ``telling``: G; ``flat``: the mean square score at place 0 if that is an anchor.
    """

    outputs: int
    window: int
    telling: float
    flat: float

    @classmethod
    def of(cls, outputs: int, window: int, epsilon0: float) -> PiecewiseShape:
        """The shape at e^epsilon0 times the weight within the window."""
        gained = window * math.expm1(min(epsilon0, 600.0))
        telling, idle = gained / (outputs + gained), outputs / (outputs + gained)
        spread = (idle * (outputs**2 - 1) / telling + window**2 - 1) / (
            3 * telling * (outputs - window) ** 2
        )
        return cls(outputs, window, telling, spread)

    @property
    def moves(self) -> int:
        """J."""
        return self.outputs - self.window

    @property
    def middle(self) -> float:
        """The variance at place 0, which is half way between two anchors if J is odd."""
        return self.flat + self.moves % 2 / (self.telling * self.moves**2)

    def worst(self, share: float = 1.0, added: float = 0.0) -> float:
        """The largest over all places of ``share`` times the mean square score, plus ``added``,
        less t^2.

        Between the last anchor and the end, q = t^2 + (1 - t) (t - 1 + 2 / J), or next to the
        middle, where q = 1 / J^2 or 2 |t| / J.
        """
        slope = share / self.telling
        # the worst place is so far from the end
        turn = min(max(0.0, 1.0 - slope * (1.0 - 1.0 / self.moves)), 2.0 / self.moves)
        end = slope - 1.0 + turn * (2.0 * (1.0 - slope * (1.0 - 1.0 / self.moves)) - turn)
        centre = (
            slope if self.moves % 2 else min(slope, 2.0) * (2.0 * slope - min(slope, 2.0))
        ) / self.moves**2
        return share * self.flat + added + max(end, centre)


def continuous(epsilon0: float) -> tuple[float, float]:
    """(at place 0, at an end): the variance of the paper's mechanism, in half widths of the
    domain.
    """
    gained = math.expm1(min(epsilon0, 600.0) / 2)
    middle = (gained + 4) / (3 * gained**2)
    return middle, middle + 1 / gained


def most_gain(levels: int, outputs: int, window: int, total: int, epsilon0: float) -> int:
    """The largest gain that keeps epsilon0. Raises INVALID if none does."""
    most = LikelyWindow(levels, outputs, window, 1, total).most

    def law(noise: int) -> PureLaw:
        return PureLaw(LikelyWindow(levels, outputs, window, most - noise + 1, total).ratio)

    return most - least_noise(law, most, epsilon0) + 1


def fitting(size: int, sizes: tuple[int, ...] = SIZES, more: int = 0) -> tuple[int, ...]:
    """Of the numbers of bins, those whose table over ``size`` cells is small enough; ``more``:
    outputs beside the bins. Raises INVALID if none is.
    """
    check_entries(size, sizes[0] + more)
    return tuple(outputs for outputs in sizes if size * (outputs + more) <= MOST_ENTRIES)


def settings_of(
    sizes: tuple[int, ...], design: Callable[[tuple[int, ...], Domain, float], MechanismSpec]
) -> tuple[Setting, ...]:
    """ "standard", which may choose among the sizes, and one of each size."""
    standard = Setting(
        "standard",
        "as many outputs as come within 1 % of the continuous mechanism, if any do",
        partial(design, sizes),
    )
    return (
        standard,
        *(
            Setting(f"m={size}", f"{size} bins of outputs", partial(design, (size,)))
            for size in sizes
        ),
    )


def _shape(sizes: tuple[int, ...], epsilon0: float) -> PiecewiseShape:
    """The smallest size within 1 % of the continuous mechanism in the middle and at the ends whose
    errors can be told, or the largest.
    """
    middle, end = continuous(epsilon0)
    for outputs in sizes:
        shapes = [
            PiecewiseShape.of(outputs, window, epsilon0) for window in range(1, outputs // 2 + 1)
        ]
        near = [shape for shape in shapes if shape.middle <= _STATED * middle]
        found = (
            min(near, key=PiecewiseShape.worst)
            if near
            else min(shapes, key=lambda shape: max(shape.middle / middle, shape.worst() / end))
        )
        if near and found.worst() <= _STATED * end and found.moves**-2 <= _UNTOLD * found.middle:
            break
    return found


def _create(spec: MechanismSpec, domain: Domain) -> TableMean:
    known = numeric(NAME, domain)
    check_k(spec, known)
    check_entries(known.size, spec.get("outputs"))
    window = LikelyWindow(known.levels, spec.get("outputs"), spec.get("window"), spec.get("gain"))
    return TableMean(spec, known, ProbabilityTable(tuple(window.rows())), window.scores())


def _design(sizes: tuple[int, ...], domain: Domain, epsilon0: float) -> MechanismSpec:
    known = numeric(NAME, domain)
    if not (math.isfinite(epsilon0) and epsilon0 > 0):
        raise invalid("epsilon0 is a finite number above 0: give one, such as 2")
    shape = _shape(sizes, epsilon0)
    gain = most_gain(known.levels, shape.outputs, shape.window, WORDS, epsilon0)
    return MechanismSpec.of(
        NAME, k=known.size, outputs=shape.outputs, window=shape.window, gain=gain
    )


def _settings(domain: Domain) -> tuple[Setting, ...]:
    known: Numeric = numeric(NAME, domain)
    return settings_of(fitting(known.size), _design)


FAMILY = Family(
    NAME,
    "an output from a window around the number, or any: the mean of a number, no answer as the "
    "middle",
    PARAMETERS,
    _create,
    _settings,
)
