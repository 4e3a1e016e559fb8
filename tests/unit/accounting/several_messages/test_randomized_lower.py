"""Lower curves where all draw their true messages, against exact laws of what others draw."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from shoal.accounting.numerics.curve import Direction
from shoal.accounting.several_messages.noise import NoiseProtocol
from shoal.accounting.several_messages.randomized_lower import lower_curve
from shoal.accounting.several_messages.randomized_truth import RandomizedTruth
from shoal.mechanisms.several.noise_law import RATE_BITS, NoiseKind, NoiseLaw, Truth
from shoal.privacy import KaryLaw
from tests.cases import for_each

Array = NDArray[np.float64]
DELTA = 1e-3
EPSILONS = (0.0, 0.4, 1.0, 1.6)
DEVICES = 20_001
TRUTH = KaryLaw(5, 40_000, 1)  # others draw x half a time
BIT = KaryLaw(2, 40_000, 1)

DUMMIES = NoiseLaw(Truth.CELL, 5, DEVICES, 60, dummies=Fraction(3))
CELLS = NoiseLaw(Truth.CELL, 5, DEVICES, 60, Fraction(1, 8), 3, Fraction(1, 2), 1)
COUNT = NoiseLaw(Truth.SIGN, 1, DEVICES, 60, Fraction(1, 2), 6, Fraction(3), 2)


def noise(law: NoiseLaw, wide: int) -> Array:
    """float64[u, v] of one cell: an event after the other, by what is drawn."""
    found = np.zeros((wide, wide))
    found[0, 0] = 1.0
    for rate in law.rates():
        mean = rate.weight * DEVICES / (1 << RATE_BITS)
        plus = 0 if rate.kind is NoiseKind.MINUS else rate.size
        minus = rate.size if rate.kind is not NoiseKind.PLUS else 0
        drawn = np.zeros_like(found)
        for times in range(wide):
            u, v = plus * times, minus * times
            if u >= wide or v >= wide:
                break
            part = stats.poisson.pmf(times, mean)
            drawn[u:, v:] += part * found[: wide - u, : wide - v]
        found = drawn
    return found


def shifted(array: Array, axis: int, by: int) -> Array:
    """Further messages; what leaves the table is lost, equally under both."""
    out: Array = np.roll(array, by, axis)
    index = [slice(None)] * array.ndim
    index[axis] = slice(0, by) if by > 0 else slice(by, None)
    out[tuple(index)] = 0.0
    return out


def of_two_cells(law: NoiseLaw, truth: KaryLaw, others: int, wide: int) -> tuple[Array, Array]:
    """P and Q of cells x and x', float64[u, v, u', v'] (v and v' of one place for dummies), with
    ``others`` who hold a third cell, in exact multinomial numbers.
    """
    one = noise(law, wide)
    one = one[:, :1] if not law.signed else one
    both = np.multiply.outer(one, one)
    chance = truth.other / truth.total
    moved = np.zeros_like(both)
    for i in range(9):
        for j in range(9):
            part = stats.multinomial.pmf(
                (i, j, others - i - j), others, (chance, chance, 1 - 2 * chance)
            )
            moved += (
                part * shifted(shifted(both, 0, i) if i else both, 2, j)
                if j
                else (part * (shifted(both, 0, i) if i else both))
            )
    same, rest = truth.same / truth.total, (truth.k - 2) * chance
    x, other_x = shifted(moved, 0, 1), shifted(moved, 2, 1)
    return (
        same * x + chance * other_x + rest * moved,
        chance * x + same * other_x + rest * moved,
    )


def of_count(law: NoiseLaw, truth: KaryLaw, others: int, wide: int) -> tuple[Array, Array]:
    """P and Q, float64[u, v]: v less what comes if all others send -."""
    one = noise(law, wide)
    chance = truth.other / truth.total
    room = np.zeros((wide + 9, wide + 9))
    for moved in range(9):  # so many + in place of -
        part = stats.binom.pmf(moved, others, chance)
        room[moved : moved + wide, 8 - moved : 8 - moved + wide] += part * one
    plus, minus = np.pad(room, ((1, 0), (0, 1))), np.pad(room, ((0, 1), (1, 0)))
    same = truth.same / truth.total
    return same * plus + chance * minus, chance * plus + same * minus


def divergence(p: Array, q: Array, e: float) -> float:
    return float(np.maximum(p - e * q, 0.0).sum())


@for_each("kind", ["dummies", "cells", "count"])
def test_lower_curves_are_below_exact_laws_and_near(kind: str) -> None:
    """With 20,000 others, of whom one draws x or x' on average. The truth is between the curves,
    and so is what two cells show of it.

    Planted: what others draw left out (``extra`` = 0, no mean, no moves of a count) -> above the
    truth, fails; c and C exchanged -> fails.
    """
    law, truth = {"dummies": (DUMMIES, TRUTH), "cells": (CELLS, TRUTH), "count": (COUNT, BIT)}[kind]
    others = DEVICES - 1
    p, q = (
        of_count(law, truth, others, 48)
        if kind == "count"
        else of_two_cells(law, truth, others, 30 if kind == "dummies" else 13)
    )
    lower = lower_curve(law, truth, DEVICES, DELTA)
    protocol = RandomizedTruth(NoiseProtocol(law), truth)
    upper = protocol.curve(DEVICES, Direction.UPPER, DELTA)
    for epsilon in EPSILONS:
        e = math.exp(epsilon)
        exact = max(divergence(p, q, e), divergence(q, p, e))
        assert lower(epsilon) <= exact * (1 + 1e-6)
        assert lower(epsilon) >= 0.98 * exact - 2e-6
        assert exact <= upper(epsilon)
        assert lower(epsilon) == protocol.curve(DEVICES, Direction.LOWER, DELTA)(epsilon)


def test_where_none_is_known_it_is_nothing() -> None:
    """Two cells; many who draw another cell; as many as there are; an epsilon that the draw keeps.

    Planted: the window's end not held against how many others there are -> a ratio of 0 / 0, fails;
    the device's own draw left out (a = 1) -> fails.
    """
    two = replace(DUMMIES, cells=2)
    assert lower_curve(two, KaryLaw(2, 40_000, 1), DEVICES, DELTA)(0.0) == 0.0
    much = KaryLaw(5, 3, 1)
    assert lower_curve(replace(DUMMIES, shares=1), much, 100_000, DELTA)(0.0) == 0.0
    assert lower_curve(replace(DUMMIES, shares=3), much, 3, DELTA)(0.0) == 0.0
    assert lower_curve(DUMMIES, TRUTH, DEVICES, DELTA)(math.log(40_000)) == 0.0
    assert lower_curve(COUNT, BIT, DEVICES, DELTA)(math.log(40_000)) == 0.0


@for_each("law", [replace(DUMMIES, shares=1), replace(COUNT, shares=1)])
def test_one_device_alone_is_hidden_by_nobody(law: NoiseLaw) -> None:
    """No others: the curves meet, but for the third cells and the charges. Planted: N + 1 others ->
    not near, fails.
    """
    truth = KaryLaw(2 if law.truth is Truth.SIGN else 5, 60, 1)
    lower = lower_curve(law, truth, 1, DELTA)
    protocol = RandomizedTruth(NoiseProtocol(law), truth)
    assert lower(0.7) == pytest.approx(protocol.curve(1, Direction.UPPER, DELTA)(0.7), rel=0.15)
    assert lower(0.7) <= protocol.curve(1, Direction.UPPER, DELTA)(0.7)
