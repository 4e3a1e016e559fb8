"""Groups at small sizes in exact fractions: all datasets, all groups, whole views."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import product

from tests.unit.accounting.brute import Law, divergence

Datasets = Sequence[tuple[int, ...]]


def pairs(answers: int, n: int, group: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All pairs of datasets that differ in the first ``group`` devices at most."""
    for others in product(range(answers), repeat=n - group):
        for one, two in product(product(range(answers), repeat=group), repeat=2):
            yield (*one, *others), (*two, *others)


def group_delta(
    view: Callable[[tuple[int, ...]], Law], answers: int, n: int, group: int
) -> Callable[[Fraction], Fraction]:
    """The largest divergence at e = e^epsilon of any such pair; ``view``: a dataset's law, in which
    devices are exchangeable.
    """
    laws = {data: view(data) for data in _multisets(answers, n)}
    worst = {(tuple(sorted(one)), tuple(sorted(two))) for one, two in pairs(answers, n, group)}
    return lambda e: max(divergence(laws[one], laws[two], e) for one, two in worst)


def _multisets(answers: int, n: int) -> set[tuple[int, ...]]:
    return {tuple(sorted(data)) for data in product(range(answers), repeat=n)}


def float_up(value: Fraction) -> float:
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


def curve_up(exact: Callable[[Fraction], Fraction]) -> Callable[[float], float]:
    """An upper curve of floats: exact at multiples of 1/64 and flat after each, as divergences
    fall; flat from 12 on.
    """

    @cache
    def at(k: int) -> float:
        e = Fraction(math.exp(k / 64)) * (1 - Fraction(1, 1 << 50))
        return float_up(exact(max(Fraction(1), e)))

    return lambda epsilon: at(min(math.floor(64 * epsilon), 64 * 12))


def e_above(epsilon: float) -> Fraction:
    return Fraction(math.exp(epsilon)) * (1 + Fraction(1, 1 << 50))
