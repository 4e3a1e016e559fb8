"""The integral of a sum of losses against enumeration in exact fractions."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np

from shoal.checker.several.losses_sum import SMOOTHING, LossSummand, smoothed_divergence
from tests.cases import for_each

# e^loss and chance: of P, and where they sum to less than 1 the rest is infinite
COIN = ((Fraction(3), Fraction(3, 4)), (Fraction(1, 3), Fraction(1, 4)))
RARE = ((Fraction(9), Fraction(1, 50)), (Fraction(11, 10), Fraction(4, 5)))
MANY = tuple((Fraction(7, place), Fraction(1, 10)) for place in range(3, 13))
Law = tuple[tuple[Fraction, Fraction], ...]


def exact(laws: list[tuple[Law, int]], e: Fraction) -> Fraction:
    every = [law for law, count in laws for _ in range(count)]
    total = Fraction(0)
    for places in itertools.product(*every):
        chance = math.prod((p for _, p in places), start=Fraction(1))
        ratio = math.prod((r for r, _ in places), start=Fraction(1))
        total += chance * max(Fraction(0), 1 - e / ratio)
    return total


def summands(laws: list[tuple[Law, int]]) -> list[LossSummand]:
    return [
        LossSummand(
            np.array([math.log(ratio) for ratio, _ in law]),
            np.array([float(chance) for _, chance in law]),
            1e-15,
            count,
        )
        for law, count in laws
    ]


@for_each(
    "laws",
    [
        [(COIN, 1)],
        [(COIN, 4)],
        [(RARE, 3)],
        [(MANY, 2), (COIN, 3)],
        [(MANY, 1), (RARE, 2), (COIN, 1)],
    ],
)
@for_each("e", [Fraction(1), Fraction(5, 4), Fraction(4), Fraction(30)])
def test_a_sum_of_losses_is_what_enumeration_says(laws: list[tuple[Law, int]], e: Fraction) -> None:
    """Both sides, at every smoothing, which closes in. The lower side looks at an epsilon that is
    9.5 tau larger.

    Planted: the pole at -1 left out; no shift of the lower side; the first frequency counted
    whole; each law once, however many losses it has; images not taken off, or a period of 6 /
    theta -> each fails.
    """
    true = float(exact(laws, e))
    for smoothing in SMOOTHING:
        found = smoothed_divergence(summands(laws), math.log(e), smoothing)
        assert found.low <= true * (1 + 1e-12)
        assert true * (1 - 1e-12) <= found.high <= true + 0.41 * smoothing
        assert found.high - found.low <= 12 * smoothing


def test_nothing_beyond_the_largest_loss() -> None:
    """P(loss > 4 ln 3) is 0. Planted: a lower side with a sign exchanged -> fails."""
    found = smoothed_divergence(summands([(COIN, 4)]), 4.6, SMOOTHING[1])
    assert found.low == 0.0
    assert found.high < 1e-9
