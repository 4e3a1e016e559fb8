"""The divergence of a small batch by listing everything: all datasets, all outcomes, in exact
fractions. What the two other ways are held against, and the answer itself where n is small.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

MOST_STEPS = 20_000
Table = Sequence[Sequence[Fraction]]
_Outcomes = dict[tuple[int, ...], int]


def steps(table: Table, n: int) -> int:
    """How many numbers ``exact_divergence`` would look at, about."""
    inputs, outputs = len(table), len(table[0])
    datasets = math.comb(n - 1 + inputs - 1, inputs - 1)
    return datasets * math.comb(n + outputs - 1, outputs - 1) * inputs * inputs


def in_integers(table: Table) -> tuple[list[list[int]], int]:
    """Numerators over one denominator for all of the table, and that."""
    whole = math.lcm(*(share.denominator for row in table for share in row))
    return [[int(share * whole) for share in row] for row in table], whole


def exact_divergence(table: Table, n: int, e: Fraction) -> Fraction:
    """max over all pairs of datasets of n reports that differ in one answer of the sum, over all
    histograms of reports, of (P - e Q)_+. ``table``: P(output | answer), all of them.

    With one denominator for all of the table, a law of m reports is integers over its m-th power.
    """
    inputs = range(len(table))
    rows, whole = in_integers(table)
    largest = 0
    for others in itertools.combinations_with_replacement(inputs, n - 1):
        known = _histograms(rows, others)
        laws = [_with(known, rows[x]) for x in inputs]
        for first, second in itertools.permutations(laws, 2):
            largest = max(largest, _positive(first, second, e))
    return Fraction(largest, whole**n * e.denominator)


def _histograms(rows: Sequence[Sequence[int]], answers: Sequence[int]) -> _Outcomes:
    law: _Outcomes = {(0,) * len(rows[0]): 1}
    for answer in answers:
        law = _with(law, rows[answer])
    return law


def _with(law: _Outcomes, row: Sequence[int]) -> _Outcomes:
    """One report more."""
    grown: _Outcomes = {}
    for counts, chance in law.items():
        for more, share in _next(counts, row):
            grown[more] = grown.get(more, 0) + chance * share
    return grown


def _next(counts: tuple[int, ...], row: Sequence[int]) -> Iterator[tuple[tuple[int, ...], int]]:
    for output, share in enumerate(row):
        yield (*counts[:output], counts[output] + 1, *counts[output + 1 :]), share


def _positive(first: _Outcomes, second: _Outcomes, e: Fraction) -> int:
    """Times the denominator of ``e``."""
    up, down = e.numerator, e.denominator
    differences = (chance * down - up * second[counts] for counts, chance in first.items())
    return sum(excess for excess in differences if excess > 0)
