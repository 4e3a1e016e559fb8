"""The law of one report of RAPPOR: a noisy Bloom filter (``rappor`` has the mechanism, and q*, p*).

**The law that is stated** is that of two cells whose filters share nothing and have all h bits, in
every cohort: classes (a, b), a of the first's bits set and b of the second's. Relative to P0, under
which all bits are independent and 1 with probability p*, a cell's probabilities are the product
over its filter's bits of phi, phi = q* / p* where the report has the bit, else (1 - q*) / (1 - p*)
< 1. So w = ((1 - q*) / (1 - p*))^h P0 is at most the weight of an output under every cell:
``least``. Every other pair stays at or below in both upper bounds made of it. Phi has mean 1 under
P0, so for a pair that shares bits, with products S, A, B of the phi of the bits shared, of the
first's own and of the second's own, a report adds L = (S A - e S B) / w0 to the *blanket's sum*
(accounting/numerics/cells.py), w0 = w / P0 a constant. Replace the second S by an independent copy
S': given A and B the function (s, s') -> g(s A - e s' B) is submodular for convex g, and of all
joint laws of two equal marginals S = S' gives its least mean (Lorentz, "An inequality for
rearrangements", 1953). So L becomes larger in convex order. Multiply A, S, S' and B by independent
phi up to h factors on each side: L before is the conditional mean of L after, so it becomes larger
again, and is then that of the stated pair. This holds in every cohort, and the stated law is the
same in all, so it holds for the mixture. Sums of independent values keep the order, and (.)_+ is
convex. The *clones' sum* (accounting/bounds/clones.py) of a pair is never below its blanket's: with
v = min(2 w / (P(x) + P(x'))) times (P(x) + P(x')) / 2 <= w for w, the L of w is the conditional
mean of that of v, and that one of the clones', whose two outcomes every output is a mixture of
(Jensen, twice). Nothing here asks which cells there are, so the law depends on neither domain nor
seed. Where no two cells are that far apart the truth is smaller, and a *lower* bound made of the
law speaks of a larger vocabulary.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from shoal.arrays import np
from shoal.mechanisms.longitudinal.bloom import Filters
from shoal.mechanisms.parts.laws import table_of
from shoal.mechanisms.parts.thresholds import WORDS
from shoal.privacy import FiniteLaw, RealPair, SymmetricLaw

MOST_PAIRED = 64  # labels among which a lower bound's pair is looked for


@dataclass(frozen=True, slots=True)
class FilterPair:
    """The two labels whose filters differ in the most bits over all cohorts (``privacy.RealPair``),
    at q* = ``high`` and p* = ``low``.

    In a cohort where one filter has a bits that the other has not, and the other b, a report's bits
    elsewhere are drawn alike under both. Looked for among at most ``MOST_PAIRED`` labels: the bound
    of any pair is attained.
    """

    cells: tuple[int, ...]
    filters: Filters
    high: int
    low: int

    def law(self) -> FiniteLaw:
        """The two labels' laws of one report, exactly, cohorts included: a table of two rows. For
        lower bounds.
        """
        high, low = Fraction(self.high, WORDS**2), Fraction(self.low, WORDS**2)
        return table_of(
            (share * one * two, share * _ones(one_set, a, low) * _ones(two_set, b, high))
            for (a, b), share in self._differences().items()
            for one_set, one in enumerate(_binomial(a, high))
            for two_set, two in enumerate(_binomial(b, low))
        )

    def _differences(self) -> dict[tuple[int, int], Fraction]:
        """(bits of the first's own, of the second's own) -> share of the cohorts, for the best
        pair; {(0, 0): 1} for a single label.
        """
        cohorts, cells = np.arange(self.filters.cohorts), np.array(self.cells, dtype=np.int64)
        has = np.stack(
            [self.filters.filters(cohorts, np.repeat(cell, len(cohorts))) for cell in cells]
        )
        best, own = -1, [(0, 0)]
        for at in range(len(cells) - 1):
            differing = np.logical_xor(has[at], has[at + 1 :]).sum(axis=(1, 2))
            other = at + 1 + int(differing.argmax())
            if differing.max() > best:
                best = int(differing.max())
                only = ((has[at] & ~has[other]).sum(axis=1), (has[other] & ~has[at]).sum(axis=1))
                own = list(zip(*(part.tolist() for part in only), strict=True))
        return {pair: Fraction(count, len(own)) for pair, count in Counter(own).items()}


def _binomial(count: int, rate: Fraction) -> list[Fraction]:
    """How likely 0, 1, ... of ``count`` bits are 1."""
    return [_ones(ones, count, rate) for ones in range(count + 1)]


def _ones(ones: int, count: int, rate: Fraction) -> Fraction:
    return math.comb(count, ones) * rate**ones * (1 - rate) ** (count - ones)


def chained(half_f: int, p: int, q: int) -> tuple[int, int]:
    """(q*, p*) out of 2^128."""
    return (WORDS - half_f) * q + half_f * p, half_f * q + (WORDS - half_f) * p


def ratio(hashes: int, high: int, low: int) -> Fraction:
    """e^epsilon0 for bits that are 1 with probability ``high`` where the filter has them, ``low``
    where not, out of 2^128: for a *pair* of cells, h bits one way and h the other.
    """
    whole = WORDS**2
    bit_ratio = Fraction(high * (whole - low), low * (whole - high))
    return math.prod([bit_ratio] * hashes, start=Fraction(1))


def law(hashes: int, high: int, low: int, real: RealPair | None = None) -> SymmetricLaw:
    """The law of two cells whose filters share nothing, at q* = ``high`` and p* = ``low`` out of
    2^128: (h + 1)^2 classes. ``real``: two labels, for lower bounds.
    """
    whole = WORDS**2

    def weight(set_bits: int, rate: int) -> int:
        return (
            math.comb(hashes, set_bits)
            * int(rate**set_bits)
            * int((whole - rate) ** (hashes - set_bits))
        )

    pairs = [(a, b) for a in range(hashes + 1) for b in range(hashes + 1)]
    scale = (whole - low) ** hashes
    one = [weight(a, high) * weight(b, low) * scale for a, b in pairs]
    two = [weight(a, low) * weight(b, high) * scale for a, b in pairs]
    least = [weight(a, low) * weight(b, low) * (whole - high) ** hashes for a, b in pairs]
    common = math.gcd(*one, *two, *least)
    first, second, under = (tuple(value // common for value in row) for row in (one, two, least))
    return SymmetricLaw(one=first, two=second, least=under, real=real)
