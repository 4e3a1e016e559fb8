"""What a local randomizer promises, as integers: the only thing the accountant ever sees of a
mechanism.

A mechanism draws from integer thresholds, so its output law is a table of integers. That table (or
the one number that bounds it) is a ``LocalPrivacy``. No float epsilon is carried: ``epsilon0`` is
computed from the very integers that the randomizer compares against, and rounded up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, runtime_checkable

from shoal.errors import Kind, ShoalError

# math.log and a correctly rounded quotient are each good to about one unit in the last place
# (2.2e-16 relative); eight units are added so that the returned epsilon is never below the real
# one.
_ULPS = 8


@runtime_checkable
class LocalPrivacy(Protocol):
    """The output law of one report under every input, or a bound on it."""

    @property
    def max_ratio(self) -> Fraction:
        """sup over inputs x, x' and outputs y of P(y | x) / P(y | x'), exactly; >= 1."""
        ...


def epsilon0_upper(privacy: LocalPrivacy) -> float:
    """ln(max_ratio), rounded up: never below the local epsilon that the integers give. Direction:
    upper bound.
    """
    return log_upper(privacy.max_ratio)


def log_upper(ratio: Fraction) -> float:
    """ln(ratio) rounded up, for a ratio >= 1; 0.0 exactly for ratio 1."""
    # In whole numbers: a designer asks this some hundred times, and a quotient of integers is
    # rounded as the float of a fraction is.
    top, bottom = ratio.numerator, ratio.denominator
    if top < bottom:
        raise ShoalError(Kind.INVALID, f"a privacy ratio is at least 1, got {ratio}")
    if top == bottom:
        return 0.0
    excess = top - bottom
    value = math.log1p(excess / bottom) if excess < bottom else _log_big(top, bottom)
    for _ in range(_ULPS):
        value = math.nextafter(value, math.inf)
    return value


def _log_big(top: int, bottom: int) -> float:
    """ln of a ratio >= 2, in lowest terms, that may lie beyond the range of a float."""
    shift = max(0, top.bit_length() - bottom.bit_length() - 512)
    return math.log(top / (bottom << shift)) + shift * math.log(2.0)


@dataclass(frozen=True, slots=True)
class KaryLaw:
    """k inputs, k outputs: the true value has integer weight ``same``, each other value weight
    ``other``.

    P(y | x) = same / total if y == x else other / total, total = same + (k - 1) * other. Randomized
    response over k values (Kairouz, Bonawitz, Ramage 2016), and binary randomized response when it
    is symmetric (k = 2).
    """

    k: int
    same: int
    other: int

    def __post_init__(self) -> None:
        if self.k < 2 or self.other < 1 or self.same < self.other:
            raise ShoalError(Kind.INVALID, "a k-ary law wants k >= 2 and same >= other >= 1")

    @property
    def total(self) -> int:
        """The sum of one input's weights: what a weight is divided by to be a probability."""
        return self.same + (self.k - 1) * self.other

    @property
    def max_ratio(self) -> Fraction:
        """As ``LocalPrivacy.max_ratio``."""
        return Fraction(self.same, self.other)


@dataclass(frozen=True, slots=True)
class FiniteLaw:
    """Any finite randomizer: ``rows[x][y]`` is the integer weight of output y under input x; all
    rows have one sum.

    Every weight is >= 1: an output that is impossible under one input and possible under another
    has no finite epsilon0.
    """

    rows: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if len(self.rows) < 2 or not self.rows[0]:
            raise ShoalError(Kind.INVALID, "a finite law wants at least two inputs and one output")
        if len({len(row) for row in self.rows}) != 1 or len({sum(row) for row in self.rows}) != 1:
            raise ShoalError(Kind.INVALID, "the rows of a finite law have one length and one sum")
        if min(min(row) for row in self.rows) < 1:
            raise ShoalError(
                Kind.INVALID, "every output of a finite law has positive weight under every input"
            )

    @property
    def total(self) -> int:
        """The sum of one input's weights, the same for all: what a weight is divided by."""
        return sum(self.rows[0])

    @property
    def max_ratio(self) -> Fraction:
        """As ``LocalPrivacy.max_ratio``."""
        return max(Fraction(max(column), min(column)) for column in zip(*self.rows, strict=True))


class RealPair(Protocol):
    """Two of a task's own answers, or more, whose law is made when somebody asks. Hashable: it is
    part of a law.
    """

    def law(self) -> FiniteLaw:
        """Two rows or more: the output law of a report under each of these answers. The first two
        are the pair, each further one is what the others may answer. Outputs of one proportion may
        be joined.
        """
        ...


@dataclass(frozen=True, slots=True)
class SymmetricLaw:
    """A randomizer to which every ordered pair of different inputs looks alike: integer weights of
    *classes* of outputs.

    Fix inputs x, x' and a third one z. Class i has weight one[i] under x, two[i] under x', third[i]
    under z, and least[i] is the sum, over its outputs y, of a positive weight that is at most the
    weight of y under *every* input, not only these three. ``third`` is None if there are only two
    inputs, or if not all z look alike (then no lower bound uses a third answer). P(class | x) =
    one[i] / total.

    A mechanism earns it by three facts, all of them claims about its code that a test should
    enumerate at small sizes: inside a class the proportions one : two : third : least are the same
    for every output (that is what makes it a class); the classes and their weights are the same
    whichever different x, x' (and z) are fixed; and every weight is >= 1. A k-valued report is a
    table; this is for reports too many to list (bit vectors, subsets, hashes). Where pairs do not
    all look alike, a mechanism may state the law of *some real* pairs if it proves that in both
    upper bounds made of a symmetric law, the blanket's sum and the clones', every other pair stays
    at or below these (``hadamard_response``: cells of two blocks). ``least`` must hold for every
    input all the same; its tests enumerate the pairs stated, and compare the sums of the others.
    Where the pair stated need not be one of the task's own (public hash functions may send any two
    of its labels to one value somewhere), ``real`` names a pair that is. Upper bounds are made of
    the pair stated, lower bounds of the real one: a lower bound that no dataset of this task
    attains would be a lie. It may name a third answer too, for the others to give, where not all z
    look alike and so ``third`` says nothing. ``alike``: the classes stated are exactly those of
    *every* pair x, x' of different inputs, and of every other z if there are more than two (then
    ``third`` is theirs), with one weight per output behind ``least``. Bounds that go through what
    the others answer need it (``bounds.swap``).

    Checked here: positive weights, one total, least <= every other weight, and that exchanging x
    and x' changes nothing.
    """

    one: tuple[int, ...]
    two: tuple[int, ...]
    least: tuple[int, ...]
    third: tuple[int, ...] | None = None
    real: RealPair | None = None
    alike: bool = False

    def __post_init__(self) -> None:
        rows = [self.one, self.two, *([] if self.third is None else [self.third])]
        if not self.one or any(len(row) != len(self.one) for row in (*rows, self.least)):
            raise ShoalError(
                Kind.INVALID, "the weights of a symmetric law have one length, at least 1"
            )
        if len({sum(row) for row in rows}) != 1:
            raise ShoalError(
                Kind.INVALID, "the weights of a symmetric law under one, two and third have one sum"
            )
        if min(self.least) < 1 or any(
            low > weight for row in rows for low, weight in zip(self.least, row, strict=True)
        ):
            raise ShoalError(
                Kind.INVALID,
                "the least weights of a symmetric law are at least 1 and at most those of any "
                "input",
            )
        if self._classes() != self._classes(exchanged=True):
            raise ShoalError(
                Kind.INVALID, "a symmetric law does not change when its two inputs are exchanged"
            )

    def _classes(self, *, exchanged: bool = False) -> dict[tuple[Fraction, ...], int]:
        """Proportions to the least weight -> least weight of all classes with these proportions."""
        one, two = (self.two, self.one) if exchanged else (self.one, self.two)
        third = self.third if self.third is not None else self.least
        classes: dict[tuple[Fraction, ...], int] = {}
        for a, b, c, low in zip(one, two, third, self.least, strict=True):
            key = (Fraction(a, low), Fraction(b, low), Fraction(c, low))
            classes[key] = classes.get(key, 0) + low
        return classes

    @property
    def total(self) -> int:
        """The sum of either input's weights: what a weight is divided by to be a probability."""
        return sum(self.one)

    @property
    def max_ratio(self) -> Fraction:
        """As ``LocalPrivacy.max_ratio``."""
        return max(Fraction(a, b) for a, b in zip(self.one, self.two, strict=True))


@dataclass(frozen=True, slots=True)
class PureLaw:
    """Nothing is known of the randomizer but that it is epsilon0-LDP with e^epsilon0 <=
    ``ratio``.
    """

    ratio: Fraction

    def __post_init__(self) -> None:
        if self.ratio.numerator < self.ratio.denominator:
            raise ShoalError(Kind.INVALID, "a privacy ratio is at least 1")

    @property
    def max_ratio(self) -> Fraction:
        """As ``LocalPrivacy.max_ratio``."""
        return self.ratio
