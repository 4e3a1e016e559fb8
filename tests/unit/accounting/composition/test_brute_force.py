"""Composition by brute force: every dataset and every output, in whole numbers over one total."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from math import prod

from shoal.accounting.composition.compose import (
    compose,
)
from shoal.accounting.composition.losses import LossLaw, loss_law
from shoal.privacy import KaryLaw, epsilon0_upper
from tests.cases import for_each
from tests.sizes import size
from tests.unit.accounting.brute import add_one, histogram_law, rows_of_kary


@dataclass(frozen=True)
class Losses:
    """A discrete pair: the weights of each likelihood ratio under the first law and under the
    second, both out of ``total``. All that a divergence depends on.
    """

    weights: tuple[tuple[int, int], ...]
    total: int


def views(k: int, same: int, other: int, n: int) -> list[Losses]:
    """The losses of every pair of shuffled views of n reports that differ in one answer (0 and 1:
    the table is symmetric), both ways.
    """
    rows = rows_of_kary(k, same, other)
    found = []
    for others in combinations_with_replacement(range(k), n - 1):
        base = histogram_law(others, rows)
        one, two = add_one(base, rows[0]), add_one(base, rows[1])
        for p, q in ((one, two), (two, one)):
            ratios: dict[Fraction, tuple[int, int]] = {}
            for key, mass in p.weights.items():
                ratio = Fraction(mass, q.weights[key])
                first, second = ratios.get(ratio, (0, 0))
                ratios[ratio] = first + mass, second + q.weights[key]
            found.append(Losses(tuple(ratios.values()), p.total))
    return found


def delta_of(losses: Losses, e: Fraction) -> Fraction:
    return adaptive([[losses]], e)


def adaptive(rounds: Sequence[list[Losses]], e: Fraction) -> Fraction:
    """The largest divergence when every round's pair is chosen knowing the earlier rounds'
    views.
    """
    total = prod(pairs[0].total for pairs in rounds) * e.denominator
    return Fraction(largest_excess(rounds, e.denominator, e.numerator), total)


def largest_excess(rounds: Sequence[list[Losses]], up: int, down: int) -> int:
    """The largest sum of (up P - down Q)_+ over the views of all rounds, in weights."""
    excesses = []
    for pair in rounds[0]:
        scaled = [(up * p, down * q) for p, q in pair.weights]
        if len(rounds) == 1:
            excesses.append(sum(p - q for p, q in scaled if p > q))
        else:
            excesses.append(sum(largest_excess(rounds[1:], p, q) for p, q in scaled))
    return max(excesses)


def law_of(pairs: list[Losses], epsilon0: float, tail: float = 1e-12) -> LossLaw:
    def curve(epsilon: float) -> float:
        e = Fraction(math.exp(epsilon) * (1 - 4e-16))
        return math.nextafter(float(max(delta_of(pair, e) for pair in pairs)), 1.0)

    return loss_law(curve, epsilon0, tail)


SMALL = [(2, 3, 1, 3), (3, 4, 1, 3), (2, 9, 1, 4), (2, 21, 20, 2)]


@for_each("k, same, other, n", SMALL)
@for_each("rounds", [2, 3])
def test_adaptive_rounds_by_brute_force(k: int, same: int, other: int, n: int, rounds: int) -> None:
    """Every dataset, every output, in fractions; the adversary picks each round's neighbours after
    seeing the earlier views.

    Planted: an optimistic hull -> this fails. Planted: each round composed at delta, not the total
    -> this fails.
    """
    pairs = views(k, same, other, n)
    if rounds == 3:
        pairs = pairs[: size(3, 8)]
    epsilon0 = epsilon0_upper(KaryLaw(k, same, other))
    for tail in (1e-3, 1e-12):
        law = law_of(pairs, epsilon0, tail)
        for delta in (0.3, 0.05, 1e-3, 1e-6):
            found = compose([(law, rounds)], delta).epsilon_upper
            assert adaptive([pairs] * rounds, Fraction(math.exp(found) * (1 + 1e-15))) <= Fraction(
                delta
            )
            if tail < delta * 1e-4 and delta < 0.1 and found > 0.01:
                below = Fraction(math.exp(found - 0.03 * rounds * epsilon0))
                assert adaptive([pairs] * rounds, below) > Fraction(delta)


def test_four_different_rounds_by_brute_force() -> None:
    """Different randomizers and batch sizes. Planted: the counts of the rounds ignored -> this
    fails.
    """
    kinds = [views(*numbers)[:2] for numbers in SMALL]
    laws = [
        law_of(pairs, epsilon0_upper(KaryLaw(k, same, other)))
        for pairs, (k, same, other, _) in zip(kinds, SMALL, strict=True)
    ]
    order = [0, 1, 2, 3]
    for delta in (0.1, 1e-3, 1e-6):
        found = compose([(laws[i], 1) for i in order], delta).epsilon_upper
        assert adaptive(
            [kinds[i] for i in order], Fraction(math.exp(found) * (1 + 1e-15))
        ) <= Fraction(delta)
        twice = compose([(laws[3], 2), (laws[2], 1)], delta).epsilon_upper
        assert adaptive(
            [kinds[3], kinds[3], kinds[2]], Fraction(math.exp(twice) * (1 + 1e-15))
        ) <= Fraction(delta)
