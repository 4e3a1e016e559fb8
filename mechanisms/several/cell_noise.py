"""Noise that a shuffler adds to the cells of a histogram: a law in a task's integers, and draws
from exactly that law.

In every cell, independently, the shuffler adds ``reach`` + Z messages, Z a discrete Laplace number
of ratio q, cut at ``reach`` on either side:

    P(Z = z) = q^|z| / W,    z = -reach .. reach,    W = the sum of all q^|z|.

So a cell gets 0 to 2 ``reach`` messages, ``reach`` on average. With q = Q / 2^32 the weights
Q^|z| 2^(32 (reach - |z|)) are integers: a number is drawn by one uniform integer below their sum,
compared with partial sums. Nothing is rounded anywhere.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

from shoal.mechanisms.base import invalid
from shoal.mechanisms.several.events import below

if TYPE_CHECKING:
    from shoal.entropy import Entropy

Q_BITS = 32
MOST_REACH = 1_024  # partial sums of weights of 4 KiB: 8 MiB
_OUTSIDE = Fraction(1, 20)  # of an interval


@dataclass(frozen=True, slots=True)
class CellNoise:
    """The law of the module's text. ``ratio``: Q, 1 to 2^32 - 1; ``reach``: 1 to 1,024. Raises
    INVALID for anything else.
    """

    ratio: int
    reach: int

    def __post_init__(self) -> None:
        if not (0 < self.ratio < 1 << Q_BITS and 1 <= self.reach <= MOST_REACH):
            raise invalid(
                f"noise of a shuffler has a ratio q in (0, 1) and a reach of 1 to {MOST_REACH}"
            )

    @property
    def q(self) -> Fraction:
        """The ratio, exact."""
        return Fraction(self.ratio, 1 << Q_BITS)

    def probability(self, number: int) -> Fraction:
        """That of ``number`` messages in a cell; exact, 0 outside of 0 .. 2 ``reach``."""
        if not 0 <= number <= 2 * self.reach:
            return Fraction(0)
        weights, sums = _weights(self)
        return Fraction(weights[number], sums[-1])

    def between(self, low: int, high: int) -> Fraction:
        """The probability of ``low`` to ``high`` - 1 messages in a cell, both 0 .. 2 ``reach`` + 1;
        exact.
        """
        _, sums = _weights(self)
        begin, end = (sums[at - 1] if at else 0 for at in (low, high))
        return Fraction(end - begin, sums[-1])

    @property
    def variance(self) -> Fraction:
        """Of the messages in a cell; exact."""
        weights, sums = _weights(self)
        total = sum(w * (number - self.reach) ** 2 for number, w in enumerate(weights))
        return Fraction(total, sums[-1])

    @property
    def deviation(self) -> float:
        """The standard deviation of the messages in a cell."""
        return math.sqrt(self.variance)

    @property
    def within(self) -> int:
        """The least d such that Z lies in -d .. d with probability 0.95 or more."""
        weights, sums = _weights(self)
        most, at, low = _OUTSIDE * sums[-1] / 2, 0, 0
        while at + weights[low] <= most:
            at, low = at + weights[low], low + 1
        return self.reach - low

    def draw(self, entropy: Entropy) -> int:
        """Messages of one cell, 0 to 2 ``reach``."""
        _, sums = _weights(self)
        return bisect_right(sums, below(sums[-1], entropy))


@lru_cache(maxsize=16)
def _weights(law: CellNoise) -> tuple[list[int], list[int]]:
    """The integer weights of 0 .. 2 reach messages, and their partial sums."""
    weights = [
        law.ratio ** abs(z) << Q_BITS * (law.reach - abs(z))
        for z in range(-law.reach, law.reach + 1)
    ]
    return weights, list(accumulate(weights))
