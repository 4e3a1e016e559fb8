"""Shares of Skellam noise: what they add up to, in exact convolutions of the tables that are
sampled from.
"""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.noise.exact import ExactSampler
from shoal.mechanisms.noise.skellam import MOST_RATE, SkellamShare, create
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.sizes import size


def share(variance: int, shares: int) -> SkellamShare:
    return create(MechanismSpec.of("skellam", variance=variance, shares=shares))


def law_of(sampler: ExactSampler) -> NDArray[np.float64]:
    """pmf(0..), from the table: exact but for 2^-64 per entry and the rounding to float64."""
    ends = [0] * (sampler.first > 0) + [int(b) for b in sampler.boundaries]
    steps = [float(Fraction(b - a, 1 << 64)) for a, b in zip([0, *ends], ends, strict=False)]
    return np.array([0.0] * (sampler.first - (sampler.first > 0)) + steps)


def power(law: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """The law of a sum of n independent variables, by repeated squaring."""
    result = np.array([1.0])
    while n:
        if n & 1:
            result = np.convolve(result, law)
        law, n = np.convolve(law, law), n >> 1
        law = law[: max(np.flatnonzero(law > 1e-30)) + 1]
    return result


def skellam_pmf(k: int, variance: int) -> float:
    """exp(-v) I_|k|(v), from the Bessel function."""
    with mpmath.workdps(40):
        return float(mpmath.exp(-variance) * mpmath.besseli(abs(k), variance))


@for_each("variance, shares", [(1, 1), (1, 60), (7, 3), (100, 60), (size(400, 5_000), 720)])
def test_the_shares_add_up_to_the_skellam_law(variance: int, shares: int) -> None:
    """The convolution of all shares' laws equals exp(-v) I_k(v) to 1e-12 at every k. Planted: rate
    = v / shares -> fails.
    """
    one = law_of(share(variance, shares).sampler)
    difference = np.convolve(one, one[::-1])
    total = power(difference, shares)
    centre = (len(one) - 1) * shares
    # power() cuts what is below 1e-30 on the right only; the left end stays, so that the centre is
    # where it was.
    for k in range(-12, 13):
        assert total[centre + k] == pytest.approx(skellam_pmf(k, variance), abs=1e-12)


def test_more_devices_than_shares_add_more_noise() -> None:
    """75 shares of 60: the Skellam law of variance 125, of 100."""
    noise = share(100, 60)
    assert noise.variance * 75 == pytest.approx(125)
    one = law_of(noise.sampler)
    total = power(np.convolve(one, one[::-1]), 75)
    assert total[(len(one) - 1) * 75] == pytest.approx(skellam_pmf(0, 125), abs=1e-12)


@for_each(
    "variance, shares",
    [(1, 1_000_000), (1, 1), (10**6, 720), (10**10, 720), (size(10**9, 2**34), 1)],
)
def test_every_supported_size_is_the_poisson_law(variance: int, shares: int) -> None:
    """The table's mean and variance, summed in float64, and its size: 18 standard deviations at
    most.
    """
    noise = share(variance, shares)
    rate = variance / (2 * shares)
    table = noise.sampler.boundaries
    assert table.size <= 18.5 * math.sqrt(rate) + 24
    law = np.diff(table.astype(np.float64) / 2.0**64, prepend=0.0)
    k = np.arange(law.size) + noise.sampler.first - rate
    assert float(law @ k) == pytest.approx(0, abs=1e-9 * max(rate, 1))
    assert float(law @ k**2) == pytest.approx(rate, rel=1e-6)
    assert noise.variance == pytest.approx(2 * rate)


def test_a_share_that_is_too_large_is_refused() -> None:
    assert share(6 * 10**9, 1000).rate == 3_000_000
    with pytest.raises(ShoalError, match='"variance" is at most 2\\^34 times "shares"') as caught:
        share(2 * MOST_RATE * 5 + 1, 5)
    assert caught.value.kind is Kind.INVALID


def test_a_sample_is_the_difference_of_two_draws() -> None:
    """Both halves are drawn, in order, from separate words. Planted: one half drawn twice -> all
    zeros, and this fails.
    """
    noise = share(1000, 3)
    drawn = noise.sample(1000, SeededEntropy(3))
    entropy = SeededEntropy(3)
    assert np.array_equal(
        drawn, noise.sampler.draw(1000, entropy) - noise.sampler.draw(1000, entropy)
    )
    assert drawn.dtype == np.int64
    assert (drawn > 0).any()
    assert (drawn < 0).any()
    assert noise.sample(0, SeededEntropy(1)).shape == (0,)
