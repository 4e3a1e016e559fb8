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
from itertools import product

from shoal.arrays import NDArray, np
from shoal.mechanisms.longitudinal.bloom import Filters
from shoal.mechanisms.parts.laws import table_of
from shoal.mechanisms.parts.thresholds import WORDS
from shoal.privacy import FiniteLaw, RealPair, SymmetricLaw

MOST_PAIRED = 64  # labels among which a lower bound's pair is looked for
_MOST_THIRD = 2  # bits of a filter up to which a third label is looked for


@dataclass(frozen=True, slots=True)
class FilterPair:
    """The two labels whose filters differ in the most bits over all cohorts (``privacy.RealPair``),
    at q* = ``high`` and p* = ``low``. And, for the others to hold, a third whose filter has the
    fewest bits in which the two differ (filters of one or two bits: of more the classes are many).

    Bits are drawn independently, and alike under labels that have the same of them. Looked for
    among at most ``MOST_PAIRED`` labels: the bound of any of them is attained.
    """

    cells: tuple[int, ...]
    filters: Filters
    high: int
    low: int

    def law(self) -> FiniteLaw:
        """The labels' laws of one report, exactly, cohorts included: a table of two rows or three.
        For lower bounds.
        """
        rates = Fraction(self.low, WORDS**2), Fraction(self.high, WORDS**2)
        chosen = self._chosen()
        # Which of the labels have a bit: one binary digit for each label.
        kinds = range(1, (1 << len(chosen)) - 1)
        classes: list[tuple[Fraction, ...]] = []
        for counts, share in self._cohorts(chosen).items():
            for ones in product(*(range(count + 1) for count in counts)):
                drawn = [
                    [
                        _ones(one, count, rates[kind >> label & 1])
                        for kind, one, count in zip(kinds, ones, counts, strict=True)
                    ]
                    for label in range(len(chosen))
                ]
                classes.append(tuple(math.prod(chances, start=share) for chances in drawn))
        return table_of(classes)

    def _has(self) -> NDArray[np.bool_]:
        """bool[labels, cohorts, bits]: the filters."""
        cohorts = np.arange(self.filters.cohorts)
        return np.stack(
            [self.filters.filters(cohorts, np.full(len(cohorts), cell)) for cell in self.cells]
        )

    def _chosen(self) -> list[int]:
        """Places of the pair and of the third label; of one label twice if there is no other."""
        has, best, pair = self._has(), -1, [0, 0]
        for at in range(len(self.cells) - 1):
            differing = np.logical_xor(has[at], has[at + 1 :]).sum(axis=(1, 2))
            if differing.max() > best:
                best, pair = int(differing.max()), [at, at + 1 + int(differing.argmax())]
        if len(self.cells) < 3 or self.filters.hashes > _MOST_THIRD:
            return pair
        apart = np.logical_xor(has[pair[0]], has[pair[1]])
        inside = (has & apart).sum(axis=(1, 2))
        inside[pair] = has[0].size + 1
        return [*pair, int(inside.argmin())]

    def _cohorts(self, chosen: list[int]) -> dict[tuple[int, ...], Fraction]:
        """How many bits of each kind a cohort's filters have -> share of the cohorts."""
        kinds = sum(has.astype(np.int64) << label for label, has in enumerate(self._has()[chosen]))
        counts = np.stack(
            [np.sum(kinds == kind, axis=1) for kind in range(1, (1 << len(chosen)) - 1)], axis=1
        )
        found = Counter(map(tuple, counts.tolist()))
        return {key: Fraction(count, len(counts)) for key, count in found.items()}


def _ones(ones: int, count: int, rate: Fraction) -> Fraction:
    """How likely just ``ones`` of ``count`` bits are 1."""
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
