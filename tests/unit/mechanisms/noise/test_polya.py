"""Shares of discrete Laplace noise: the exponential to the last bit, published check values, and
what the shares add up to.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest

from shoal.entropy import SeededEntropy
from shoal.mechanisms.noise.polya import (
    LEAST_SCALE,
    MOST_SCALE,
    UNIT,
    PolyaShare,
    create,
    exp_floor,
)
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.sizes import size


def share(scale: int, shares: int) -> PolyaShare:
    return create(MechanismSpec.of("discrete_laplace", scale=scale, shares=shares))


@for_each(
    "scale",
    [
        LEAST_SCALE,
        LEAST_SCALE + 1,
        30_000,
        UNIT - 1,
        UNIT,
        UNIT + 1,
        131_072,
        10**6 + 7,
        MOST_SCALE,
    ],
)
@for_each("bits", [1, 64, 144, 1_000])
def test_the_exponential_is_exact(scale: int, bits: int) -> None:
    """floor(2^bits exp(-65536 / scale)) against mpmath with 200 more bits. Planted: no squarings ->
    fails.
    """
    with mpmath.workprec(bits + 200):
        assert exp_floor(UNIT, scale, bits) == int(
            mpmath.floor(mpmath.ldexp(mpmath.exp(-mpmath.mpf(UNIT) / scale), bits))
        )


@pytest.mark.parametrize(
    ("scale", "total"), [(UNIT, 1.841347), (2 * UNIT, 7.835396), (10 * UNIT, 199.8334)]
)
def test_published_variances(scale: int, total: float) -> None:
    """2 p / (1 - p)^2 of b = 1, 2, 10: of all shares together, and of the table that one share is
    drawn from.
    """
    noise = share(scale, 60)
    assert noise.variance * 60 == pytest.approx(total, rel=3e-7)
    law = np.diff(noise.sampler.boundaries.astype(np.float64) / 2.0**64, prepend=0.0)
    k = np.arange(law.size)
    one = law @ k**2 - (law @ k) ** 2
    assert 2 * one == pytest.approx(noise.variance, rel=1e-9)


def test_published_probability_of_zero() -> None:
    """P[NB(1/60, 1/e) = 0] = (1 - 1/e)^(1/60) = 0.992385."""
    noise = share(UNIT, 60)
    assert noise.sampler.first == 0
    assert int(noise.sampler.boundaries[0]) / 2**64 == pytest.approx(0.992385, abs=5e-7)
    assert int(noise.sampler.boundaries[0]) / 2**64 == pytest.approx(
        (1 - math.exp(-1)) ** (1 / 60), rel=1e-15
    )


def power(law: np.ndarray, n: int, length: int) -> np.ndarray:
    """The first ``length`` probabilities of a sum of n independent non-negative variables: exact,
    whatever is cut off.
    """
    result = np.array([1.0])
    while n:
        if n & 1:
            result = np.convolve(result, law)[:length]
        law, n = np.convolve(law, law)[:length], n >> 1
    return result


@for_each("scale, shares", [(UNIT, 1), (UNIT, 60), (5 * UNIT // 2, 7), (10 * UNIT, size(60, 720))])
def test_the_shares_add_up_to_the_discrete_laplace_law(scale: int, shares: int) -> None:
    """(1 - p) / (1 + p) p^|x|, to 1e-12 of the probability at 0 or more: the shares' tables
    convolved, the two halves subtracted.

    Planted: r = 1 / (shares + 1) -> fails. Planted: p = exp(-scale / 65536) -> fails.
    """
    noise = share(scale, shares)
    table = [0, *(int(b) for b in noise.sampler.boundaries)]
    one = np.array([float(Fraction(b - a, 1 << 64)) for a, b in pairwise(table)])
    p = math.exp(-UNIT / scale)
    length = int(45 / -math.log(p)) + 2
    half = power(one, shares, length)
    assert half == pytest.approx((1 - p) * p ** np.arange(half.size), abs=1e-12)
    both = np.convolve(half, half[::-1])
    x = np.abs(np.arange(both.size) - (half.size - 1))
    assert both == pytest.approx((1 - p) / (1 + p) * p**x, abs=1e-12)


def test_the_ends_of_the_scale() -> None:
    """At b = 1/16 almost no noise; at b = 32,768 (small size: 2,048) a table of 44 b entries or
    fewer, with the stated variance.
    """
    assert int(share(LEAST_SCALE, 1).sampler.boundaries[0]) / 2**64 == pytest.approx(
        1 - math.exp(-16), rel=1e-12
    )
    scale = size(2_048, 32_768) * UNIT
    noise = share(scale, 60)
    assert noise.sampler.boundaries.size <= 44 * scale / UNIT
    law = np.diff(noise.sampler.boundaries.astype(np.float64) / 2.0**64, prepend=0.0)
    k = np.arange(law.size)
    assert 2 * (law @ k**2 - (law @ k) ** 2) == pytest.approx(noise.variance, rel=1e-9)


def test_a_sample_is_the_difference_of_two_draws() -> None:
    """Both halves are drawn, in order, from separate words. Planted: one half drawn twice -> all
    zeros, and this fails.
    """
    noise = share(20 * UNIT, 3)
    drawn, entropy = noise.sample(1_000, SeededEntropy(3)), SeededEntropy(3)
    assert np.array_equal(
        drawn, noise.sampler.draw(1_000, entropy) - noise.sampler.draw(1_000, entropy)
    )
    assert drawn.dtype == np.int64
    assert drawn.min() < 0 < drawn.max()
