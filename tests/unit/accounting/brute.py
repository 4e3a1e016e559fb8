"""The truth at small n, in exact rational arithmetic: every dataset, every output, no formula from
the package.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations_with_replacement, permutations
from math import comb

Histogram = tuple[int, ...]
Law = dict[Histogram, Fraction]


def rows_of_kary(k: int, same: int, other: int) -> list[list[Fraction]]:
    total = same + (k - 1) * other
    return [[Fraction(same if x == y else other, total) for y in range(k)] for x in range(k)]


def histogram_law(inputs: Sequence[int], rows: Sequence[Sequence[Fraction]]) -> Law:
    """The law of the multiset of outputs when each input is randomized by its row and all are
    shuffled.
    """
    width = len(rows[0])
    law: Law = {(0,) * width: Fraction(1)}
    for x in inputs:
        longer: Law = defaultdict(Fraction)
        for histogram, probability in law.items():
            for y in range(width):
                key = (*histogram[:y], histogram[y] + 1, *histogram[y + 1 :])
                longer[key] += probability * rows[x][y]
        law = dict(longer)
    return law


def divergence(p: Law, q: Law, e: Fraction) -> Fraction:
    """sum (P - e Q)_+ over all outcomes, for rational e = e^epsilon."""
    return sum(
        (max(Fraction(0), mass - e * q.get(key, Fraction(0))) for key, mass in p.items()),
        Fraction(0),
    )


def add_one(base: Law, row: Sequence[Fraction]) -> Law:
    longer: Law = defaultdict(Fraction)
    for histogram, probability in base.items():
        for y, weight in enumerate(row):
            longer[(*histogram[:y], histogram[y] + 1, *histogram[y + 1 :])] += probability * weight
    return dict(longer)


class Truth:
    """All pairs of shuffled views that differ in one answer, for one table and n."""

    def __init__(
        self, rows: Sequence[Sequence[Fraction]], n: int, *, symmetric: bool = False
    ) -> None:
        inputs = range(len(rows))
        # For a table that looks the same under every relabelling, one ordered pair of answers
        # stands for all.
        self._pairs = [(0, 1)] if symmetric else list(permutations(inputs, 2))
        self._views: dict[tuple[int, ...], list[Law]] = {}
        for others in combinations_with_replacement(inputs, n - 1):
            base = histogram_law(others, rows)
            self._views[others] = [add_one(base, row) for row in rows]

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


def positive_part_expectation(
    n: int, gamma: Fraction, laws: Sequence[Fraction], values: Sequence[Fraction]
) -> Fraction:
    """E[(L_1 + ... + L_M)_+] / (gamma n), M ~ Bin(n, gamma), L_i = values[y] with probability
    laws[y]: by full enumeration.
    """
    total = Fraction(0)
    sums: dict[Fraction, Fraction] = {Fraction(0): Fraction(1)}
    for m in range(n + 1):
        weight = comb(n, m) * gamma**m * (1 - gamma) ** (n - m)
        total += weight * sum((p * x for x, p in sums.items() if x > 0), Fraction(0))
        longer: dict[Fraction, Fraction] = defaultdict(Fraction)
        for x, p in sums.items():
            for probability, value in zip(laws, values, strict=True):
                longer[x + value] += p * probability
        sums = dict(longer)
    return total / (gamma * n)


def clones_divergence(n: int, ratio: Fraction, clone: Fraction, e: Fraction) -> Fraction:
    """The divergence of the pair of Theorem 3.1 of Feldman, McMillan, Talwar 2021, written out as
    the theorem states it.
    """
    keep = ratio / (ratio + 1)
    p: dict[tuple[int, int], Fraction] = defaultdict(Fraction)
    q: dict[tuple[int, int], Fraction] = defaultdict(Fraction)
    for c in range(n):
        for a in range(c + 1):
            mass = (
                comb(n - 1, c) * clone**c * (1 - clone) ** (n - 1 - c) * Fraction(comb(c, a), 2**c)
            )
            for bit, share in ((1, keep), (0, 1 - keep)):
                p[a + bit, c - a + 1 - bit] += mass * share
                q[a + 1 - bit, c - a + bit] += mass * share
    return sum((max(Fraction(0), mass - e * q[key]) for key, mass in p.items()), Fraction(0))
