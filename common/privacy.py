"""What a local randomizer promises, as integers: the only thing the accountant ever sees of a mechanism.

A mechanism draws from integer thresholds, so its output law is a table of integers. That table (or the one number
that bounds it) is a ``LocalPrivacy``. No float epsilon is carried: ``epsilon0`` is computed from the very integers that
the randomizer compares against, and rounded up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, runtime_checkable

from shoal.errors import Kind, ShoalError

# math.log and a correctly rounded quotient are each good to about one unit in the last place (2.2e-16 relative);
# eight units are added so that the returned epsilon is never below the real one.
_ULPS = 8


@runtime_checkable
class LocalPrivacy(Protocol):
    """The output law of one report under every input, or a bound on it."""

    @property
    def max_ratio(self) -> Fraction:
        """sup over inputs x, x' and outputs y of P(y | x) / P(y | x'), exactly; >= 1."""
        ...


def epsilon0_upper(privacy: LocalPrivacy) -> float:
    """ln(max_ratio), rounded up: never below the local epsilon that the integers give. Direction: upper bound."""
    return log_upper(privacy.max_ratio)


def log_upper(ratio: Fraction) -> float:
    """ln(ratio) rounded up, for a ratio >= 1; 0.0 exactly for ratio 1."""
    if ratio < 1:
        raise ShoalError(Kind.INVALID, f"a privacy ratio is at least 1, got {ratio}")
    if ratio == 1:
        return 0.0
    excess = ratio - 1
    value = math.log1p(float(excess)) if excess < 1 else _log_big(ratio)
    for _ in range(_ULPS):
        value = math.nextafter(value, math.inf)
    return value


def _log_big(ratio: Fraction) -> float:
    """ln of a ratio >= 2 that may lie beyond the range of a float."""
    shift = max(0, ratio.numerator.bit_length() - ratio.denominator.bit_length() - 512)
    return math.log(float(ratio / (1 << shift))) + shift * math.log(2.0)


@dataclass(frozen=True, slots=True)
class KaryLaw:
    """k inputs, k outputs: the true value has integer weight ``same``, each other value weight ``other``.

    P(y | x) = same / total if y == x else other / total, total = same + (k - 1) * other. Randomized response over k
    values (Kairouz, Bonawitz, Ramage 2016), and binary randomized response when it is symmetric (k = 2).
    """

    k: int
    same: int
    other: int

    def __post_init__(self) -> None:
        if self.k < 2 or self.other < 1 or self.same < self.other:
            raise ShoalError(Kind.INVALID, "a k-ary law wants k >= 2 and same >= other >= 1")

    @property
    def total(self) -> int:
        return self.same + (self.k - 1) * self.other

    @property
    def max_ratio(self) -> Fraction:
        return Fraction(self.same, self.other)


@dataclass(frozen=True, slots=True)
class FiniteLaw:
    """Any finite randomizer: ``rows[x][y]`` is the integer weight of output y under input x; all rows have one sum.

    Every weight is >= 1: an output that is impossible under one input and possible under another has no finite epsilon0.
    """

    rows: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if len(self.rows) < 2 or not self.rows[0]:
            raise ShoalError(Kind.INVALID, "a finite law wants at least two inputs and one output")
        if len({len(row) for row in self.rows}) != 1 or len({sum(row) for row in self.rows}) != 1:
            raise ShoalError(Kind.INVALID, "the rows of a finite law have one length and one sum")
        if min(min(row) for row in self.rows) < 1:
            raise ShoalError(Kind.INVALID, "every output of a finite law has positive weight under every input")

    @property
    def total(self) -> int:
        return sum(self.rows[0])

    @property
    def max_ratio(self) -> Fraction:
        return max(Fraction(max(column), min(column)) for column in zip(*self.rows, strict=True))


@dataclass(frozen=True, slots=True)
class PureLaw:
    """Nothing is known of the randomizer but that it is epsilon0-LDP with e^epsilon0 <= ``ratio``."""

    ratio: Fraction

    def __post_init__(self) -> None:
        if self.ratio < 1:
            raise ShoalError(Kind.INVALID, "a privacy ratio is at least 1")

    @property
    def max_ratio(self) -> Fraction:
        return self.ratio
