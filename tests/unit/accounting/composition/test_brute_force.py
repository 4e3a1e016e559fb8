"""Composition by brute force: every dataset and every output, in fractions."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations_with_replacement

from shoal.accounting.composition.compose import (
    compose,
)
from shoal.accounting.composition.losses import LossLaw, loss_law
from shoal.privacy import KaryLaw, epsilon0_upper
from tests.cases import for_each
from tests.sizes import size
from tests.unit.accounting.brute import add_one, histogram_law, rows_of_kary

# A discrete pair as {likelihood ratio: probability under the first}: all that a divergence depends
# on.
Losses = dict[Fraction, Fraction]


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
            losses: Losses = defaultdict(Fraction)
            for key, mass in p.items():
                losses[mass / q[key]] += mass
            found.append(dict(losses))
    return found


def product(first: Losses, second: Losses) -> Losses:
    result: Losses = defaultdict(Fraction)
    for r, p in first.items():
        for s, q in second.items():
            result[r * s] += p * q
    return dict(result)


def delta_of(losses: Losses, e: Fraction) -> Fraction:
    return sum((p * (1 - e / r) for r, p in losses.items() if r > e), Fraction(0))


def adaptive(rounds: Sequence[list[Losses]], e: Fraction) -> Fraction:
    """The largest divergence when every round's pair is chosen knowing the earlier rounds'
    views.
    """
    if not rounds:
        return max(Fraction(0), 1 - e)
    return max(
        sum((p * adaptive(rounds[1:], e / r) for r, p in pair.items()), Fraction(0))
        for pair in rounds[0]
    )


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
