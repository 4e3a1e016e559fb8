"""The account of vectors that are randomized by ranks, against enumeration: no pair of vectors is
told apart better than a vector and its opposite, in the blanket's sum; and the certificate holds of
every dataset of few seeds and few devices.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest

from shoal.accounting.accountant import certify, upper_curve
from shoal.mechanisms.parts.thresholds import WORDS
from shoal.mechanisms.vectors.privunit import law, lengthened, nearest_first
from shoal.privacy import SymmetricLaw
from tests.cases import for_each
from tests.unit.accounting.brute import Truth, positive_part_expectation

GRID = 1 << 20
# The first two are as long as may be, and opposite: lengthened they still are. Others are near to
# one of them, or shorter.
OWNS = [(GRID, 0), (-GRID, 0), (0, GRID), (GRID // 2, GRID // 3), (-GRID // 2, -GRID // 3), (0, 0)]
SEEDS = 3
# Candidates, near ones, T: the last with k = 2, where no report is neither's.
SHAPES = [(4, 1, 1 << 62), (4, 1, 1 << 63), (8, 2, 3 << 61), (4, 2, 1 << 62)]


def rows_of(candidates: int, inside: int, uniform: int) -> list[list[Fraction]]:
    """The law of (seed, index) under each of ``OWNS``, all seeds below ``SEEDS``."""
    threshold = Fraction(uniform, WORDS)
    other = threshold / candidates / SEEDS
    near = (1 - threshold) / inside / SEEDS + other
    rows = []
    for own in OWNS:
        vector = lengthened(np.array(own, dtype=np.int64), GRID)
        row = []
        for seed in range(SEEDS):
            first = set(
                nearest_first(seed.to_bytes(16, "big"), candidates, vector)[:inside].tolist()
            )
            row += [near if j in first else other for j in range(candidates)]
        rows.append(row)
    return rows


def blanket(
    one: list[Fraction], two: list[Fraction], least: list[Fraction], n: int, e: Fraction
) -> Fraction:
    """E[(L_1 + ... + L_M)_+] / (gamma n) of a pair of rows."""
    gamma = sum(least, Fraction(0))
    shares = [low / gamma for low in least]
    values = [(a - e * b) / low * gamma for a, b, low in zip(one, two, least, strict=True)]
    return positive_part_expectation(n, gamma, shares, values)


def stated_rows(stated: SymmetricLaw) -> list[list[Fraction]]:
    return [
        [Fraction(weight, stated.total) for weight in row]
        for row in (stated.one, stated.two, stated.least)
    ]


@for_each("candidates, inside, uniform", SHAPES)
def test_opposite_vectors_have_the_largest_blanket_sum(
    candidates: int, inside: int, uniform: int
) -> None:
    """Every ordered pair, whatever its near candidates have in common, in exact fractions; the
    opposite pair attains the sum that is stated.

    Planted: ``law`` of a pair with one near candidate in common -> fails.
    """
    rows = rows_of(candidates, inside, uniform)
    least = [Fraction(uniform, WORDS) / candidates / SEEDS] * (candidates * SEEDS)
    one, two, low = stated_rows(law(candidates // inside, uniform))
    for n in (2, 5):
        for e in (Fraction(11, 10), Fraction(3, 2), Fraction(5, 2)):
            stated = blanket(one, two, low, n, e)
            sums = {
                pair: blanket(rows[pair[0]], rows[pair[1]], least, n, e)
                for pair in permutations(range(len(OWNS)), 2)
            }
            assert max(sums.values()) == stated == sums[0, 1]
            assert min(sums.values()) < stated


@for_each("candidates, inside, uniform", [(4, 1, 1 << 62), (4, 2, 1 << 62)])
def test_the_certificate_holds_of_every_dataset(candidates: int, inside: int, uniform: int) -> None:
    """Three devices, all vectors of all of them, by enumeration. Planted: the law of twice as many
    candidates at the same T's share of near ones (``law(k)`` with k / 2) -> fails.
    """
    truth = Truth(rows_of(candidates, inside, uniform), 3)
    stated = law(candidates // inside, uniform)
    for delta in (0.3, 0.1, 0.02):
        found = certify(stated, 3, delta)
        e = Fraction(math.exp(found.epsilon_upper)) * (1 + Fraction(1, 10**12))
        assert truth.delta(e) <= Fraction(delta)
        below = Fraction(math.exp(found.epsilon_lower)) * (1 - Fraction(1, 10**9))
        assert found.epsilon_lower == 0.0 or truth.delta(below) >= Fraction(delta)
    curve = upper_curve(stated, 3, 0.05)
    for epsilon in (0.1, 0.5, 1.0):
        e = Fraction(math.exp(epsilon)) * (1 + Fraction(1, 10**12))
        assert float(truth.delta(e)) <= curve(epsilon) * (1 + 1e-9)


def test_shuffling_amplifies_as_of_k_answers() -> None:
    """The same blanket as of k-ary responses with k = K / t: a figure, so that nobody loosens it
    without noticing.
    """
    found = certify(law(16, 4_240_743_540_436_022_921), 10_000, 1e-6)
    assert found.epsilon0 == pytest.approx(4.0, abs=1e-9)
    assert found.epsilon_upper == pytest.approx(0.36159, abs=1e-4)
    assert found.method == "blanket"
