"""The truth at small n, in exact rational arithmetic: every dataset, every output, no formula from
the package. Probabilities are whole numbers over one common total: sums of fractions, each brought
to lowest terms, give the same and take ten times as long.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations_with_replacement, permutations
from math import comb, lcm

Histogram = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Law:
    """Outcomes and their probabilities: weights[outcome] / total."""

    weights: dict[Histogram, int]
    total: int


def whole(values: Iterable[Fraction]) -> tuple[list[int], int]:
    """The same numbers as (numerators, their common denominator)."""
    listed = list(values)
    common = lcm(*(value.denominator for value in listed))
    return [value.numerator * (common // value.denominator) for value in listed], common


def rows_of_kary(k: int, same: int, other: int) -> list[list[Fraction]]:
    total = same + (k - 1) * other
    return [[Fraction(same if x == y else other, total) for y in range(k)] for x in range(k)]


def histogram_law(inputs: Sequence[int], rows: Sequence[Sequence[Fraction]]) -> Law:
    """The law of the multiset of outputs when each input is randomized by its row and all are
    shuffled.
    """
    law = Law({(0,) * len(rows[0]): 1}, 1)
    for x in inputs:
        law = add_one(law, rows[x])
    return law


def divergence(p: Law, q: Law, e: Fraction) -> Fraction:
    """sum (P - e Q)_+ over all outcomes, for rational e = e^epsilon."""
    up, down, other = q.total * e.denominator, p.total * e.numerator, q.weights
    losses = (up * mass - down * other.get(key, 0) for key, mass in p.weights.items())
    return Fraction(sum(loss for loss in losses if loss > 0), p.total * up)


def add_one(base: Law, row: Sequence[Fraction]) -> Law:
    weights, total = whole(row)
    longer: dict[Histogram, int] = defaultdict(int)
    for y, weight in enumerate(weights):
        for histogram, mass in base.weights.items():
            longer[(*histogram[:y], histogram[y] + 1, *histogram[y + 1 :])] += mass * weight
    return Law(dict(longer), base.total * total)


class Truth:
    """All pairs of shuffled views that differ in one answer, for one table and n."""

    def __init__(
        self, rows: Sequence[Sequence[Fraction]], n: int, *, symmetric: bool = False
    ) -> None:
        inputs = range(len(rows))
        # For a table that looks the same under every relabelling, one ordered pair of answers
        # stands for all.
        self._pairs = [(0, 1)] if symmetric else list(permutations(inputs, 2))
        answers = sorted({answer for pair in self._pairs for answer in pair})
        bases: dict[tuple[int, ...], Law] = {(): histogram_law((), rows)}
        for size in range(1, n):
            for others in combinations_with_replacement(inputs, size):
                bases[others] = add_one(bases[others[:-1]], rows[others[-1]])
        self._views: dict[tuple[int, ...], dict[int, Law]] = {
            others: {answer: add_one(base, rows[answer]) for answer in answers}
            for others, base in bases.items()
            if len(others) == n - 1
        }

    def delta(self, e: Fraction) -> Fraction:
        """The largest divergence over all datasets and pairs of answers, both directions (the pairs
        are ordered or symmetric).
        """
        return max(
            divergence(views[a], views[b], e)
            for views in self._views.values()
            for a, b in self._pairs
        )

    def delta_at(self, others: tuple[int, ...], pair: tuple[int, int], e: Fraction) -> Fraction:
        views = self._views[tuple(sorted(others))]
        return divergence(views[pair[0]], views[pair[1]], e)


@lru_cache(maxsize=64)
def kary_truth(k: int, same: int, other: int, n: int) -> Truth:
    """That of k-ary randomized response, for one pair of answers; kept, for the tests that ask for
    the same again.
    """
    return Truth(rows_of_kary(k, same, other), n, symmetric=True)


def longer_sums(
    sums: dict[int, int], masses: Sequence[int], steps: Sequence[int]
) -> dict[int, int]:
    """The law of a sum (value -> weight) with one more summand, which takes ``steps`` with weights
    ``masses``.
    """
    longer: dict[int, int] = defaultdict(int)
    for step, weight in zip(steps, masses, strict=True):
        for at, mass in sums.items():
            longer[at + step] += mass * weight
    return dict(longer)


def positive_part_expectation(
    n: int, gamma: Fraction, laws: Sequence[Fraction], values: Sequence[Fraction]
) -> Fraction:
    """E[(L_1 + ... + L_M)_+] / (gamma n), M ~ Bin(n, gamma), L_i = values[y] with probability
    laws[y]: by full enumeration.
    """
    (masses, total), (steps, unit) = whole(laws), whole(values)
    above = Fraction(0)
    sums = {0: 1}
    for m in range(n + 1):
        weight = comb(n, m) * gamma**m * (1 - gamma) ** (n - m)
        positive = sum(mass * at for at, mass in sums.items() if at > 0)
        above += weight * Fraction(positive, total**m * unit)
        sums = longer_sums(sums, masses, steps)
    return above / (gamma * n)


def clones_divergence(n: int, ratio: Fraction, clone: Fraction, e: Fraction) -> Fraction:
    """The divergence of the pair of Theorem 3.1 of Feldman, McMillan, Talwar 2021, written out as
    the theorem states it.
    """
    (keep, change), _ = whole((ratio, Fraction(1)))
    (copy, apart), one = whole((clone, 1 - clone))
    p: dict[Histogram, int] = defaultdict(int)
    q: dict[Histogram, int] = defaultdict(int)
    for c in range(n):
        # each of the n - 1 others is a clone, of one kind or the other, or neither
        for a in range(c + 1):
            mass = comb(n - 1, c) * comb(c, a) * copy**c * (2 * apart) ** (n - 1 - c)
            for bit, share in ((1, keep), (0, change)):
                p[a + bit, c - a + 1 - bit] += mass * share
                q[a + 1 - bit, c - a + bit] += mass * share
    total = (2 * one) ** (n - 1) * (keep + change)
    return divergence(Law(p, total), Law(q, total), e)
