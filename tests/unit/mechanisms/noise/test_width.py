"""The noise of a sum is below its tail bound: exact laws, closed forms; and widths at their
edges.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.errors import Kind, ShoalError
from shoal.mechanisms.noise.width import noise_tail, word_bits_for
from shoal.task import MechanismSpec
from tests.cases import for_each

UNIT = 1 << 16


def skellam(variance: int, shares: int) -> MechanismSpec:
    return MechanismSpec.of("skellam", variance=variance, shares=shares)


def laplace(scale: int, shares: int) -> MechanismSpec:
    return MechanismSpec.of("discrete_laplace", scale=scale, shares=shares)


# --- tails ----------------------------------------------------------------------------------------


@for_each(
    "devices, per_device, variance, dimension, tail, bits",
    [
        (100, 1000, 10**5, 10**3, 2659, 32),
        (1000, 7, 10**3, 10**5, 284, 16),
        (10**4, 127, 10**5, 10**5, 2827, 32),
        (10**6, 32767, 10**9, 10**6, 290636, 64),
    ],
)
def test_published_tails(
    devices: int, per_device: int, variance: int, dimension: int, tail: int, bits: int
) -> None:
    """The variance here is that of all devices: shares = devices. Planted: one side of the tail
    alone, or log2 for ln -> fails.
    """
    assert noise_tail(skellam(variance, devices), dimension, devices) == tail
    assert word_bits_for(devices, per_device, tail) == bits


def convolved(law: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of X - Y for independent X, Y with this law on 0, 1, ...: probabilities of the differences 0,
    1, ...
    """
    return np.convolve(law, law[::-1])[len(law) - 1 :]


def poisson(mean: float, length: int) -> NDArray[np.float64]:
    return np.array(
        [math.exp(x * math.log(mean) - mean - math.lgamma(x + 1)) for x in range(length)]
    )


def negative_binomial(shape: float, p: float, length: int) -> NDArray[np.float64]:
    logs = [
        math.lgamma(shape + x)
        - math.lgamma(shape)
        - math.lgamma(x + 1)
        + shape * math.log1p(-p)
        + x * math.log(p)
        for x in range(length)
    ]
    law: NDArray[np.float64] = np.exp(np.array(logs))
    return law


def exact_tail(law: NDArray[np.float64], dimension: int) -> int:
    """The smallest T with 2 d P[S >= T] <= 2^-40: all terms are positive, so sums from the far end
    keep their digits.
    """
    tails = 2 * dimension * np.cumsum(law[::-1])[::-1]
    return int(np.argmax(tails <= 2.0**-40))


@for_each(
    "variance, shares, devices",
    [(1, 10, 10), (1, 10, 16), (25, 7, 9), (400, 60, 100), (400, 100, 60)],
)
@for_each("dimension", [1, 1000])
def test_skellam_tail_is_above_the_law_and_close(
    variance: int, shares: int, devices: int, dimension: int
) -> None:
    """Planted: variance of the shares' number instead of the devices' -> fails for 16, 9 and 100
    devices.
    """
    found = noise_tail(skellam(variance, shares), dimension, devices)
    exact = exact_tail(convolved(poisson(variance * devices / shares / 2, 900)), dimension)
    assert exact <= found <= 1.06 * exact + 2


@for_each(
    "scale, shares, devices",
    [
        (1, 1, 2),
        (UNIT, 10, 10),
        (UNIT, 10, 16),
        (UNIT, 60, 20),
        (10 * UNIT, 60, 90),
        (UNIT // 2, 3, 7),
    ],
)
@for_each("dimension", [1, 1000])
def test_discrete_laplace_tail_is_above_the_law_and_close(
    scale: int, shares: int, devices: int, dimension: int
) -> None:
    """Planted: shares / devices instead of devices / shares -> fails; ln(1 - p) once instead of
    twice -> fails.
    """
    found = noise_tail(laplace(scale, shares), dimension, devices)
    p = math.exp(-UNIT / scale)
    if p == 0:
        assert found == 1  # the noise is 0 with overwhelming probability
        return
    exact = exact_tail(convolved(negative_binomial(devices / shares, p, 1200)), dimension)
    assert exact <= found <= 1.25 * exact + 2


@for_each("scale", [UNIT // 3, UNIT, 7 * UNIT, 1000 * UNIT, 1 << 50])
def test_discrete_laplace_tail_in_closed_form(scale: int) -> None:
    """With as many devices as shares the two-sided tail is 2 p^T / (1 + p), for any number of
    shares.
    """
    p = math.exp(-UNIT / scale)
    exact = math.ceil(
        (math.log(2) - math.log1p(p) + 40 * math.log(2) + math.log(1000)) * scale / UNIT
    )
    found = [noise_tail(laplace(scale, shares), 1000, shares) for shares in (1, 60, 10**6)]
    assert exact <= found[0] <= 1.2 * exact + 2
    assert len(set(found)) == 1


def test_tails_grow_with_everything() -> None:
    """So the bound for the most devices holds for fewer, and the largest parameters that a task can
    hold are computed.
    """
    for spec in (skellam(10**6, 50), laplace(9 * UNIT, 50)):
        by_devices = [noise_tail(spec, 1000, n) for n in (1, 2, 50, 51, 10**3, 10**6)]
        by_dimension = [noise_tail(spec, d, 100) for d in (1, 2, 10**3, 1 << 20)]
        assert by_devices == sorted(set(by_devices))
        assert by_dimension == sorted(set(by_dimension))
    for spec in (
        skellam(2**64 - 1, 1),
        laplace(2**64 - 1, 1),
        skellam(1, 2**64 - 1),
        laplace(1, 2**64 - 1),
        laplace(1, 1),
    ):
        assert noise_tail(spec, 1 << 20, 10**6) >= 1


@for_each(
    "spec, dimension, devices",
    [
        (skellam(0, 5), 1, 1),
        (skellam(5, 0), 1, 1),
        (laplace(0, 5), 1, 1),
        (laplace(5, 0), 1, 1),
        (MechanismSpec.of("skellam", variance=5), 1, 1),
        (MechanismSpec.of("krr", variance=5, shares=5), 1, 1),
        (skellam(5, 5), 0, 1),
        (skellam(5, 5), 1, 0),
    ],
)
def test_noise_that_has_no_tail(spec: MechanismSpec, dimension: int, devices: int) -> None:
    with pytest.raises(ShoalError) as caught:
        noise_tail(spec, dimension, devices)
    assert caught.value.kind is Kind.INVALID


# --- widths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "next_bits"), [(16, 32), (32, 64), (64, None)])
def test_widths_at_their_edges(bits: int, next_bits: int | None) -> None:
    """The largest sum that fits is read back, and one more is not given this width. Planted:
    2^(w-1) as the limit -> fails.
    """
    most = (1 << bits - 1) - 1
    assert (
        word_bits_for(1, most, 0)
        == word_bits_for(1, most - 5, 5)
        == word_bits_for(most, 1, 0)
        == bits
    )
    if next_bits:
        assert word_bits_for(1, most, 1) == word_bits_for(1, 0, most + 1) == next_bits
    else:
        with pytest.raises(ShoalError, match="coarser grid") as caught:
            word_bits_for(2, most, 0)
        assert caught.value.kind is Kind.INVALID


@pytest.mark.parametrize("arguments", [(0, 1, 1), (1, -1, 1), (1, 1, -1)])
def test_widths_of_nothing(arguments: tuple[int, int, int]) -> None:
    with pytest.raises(ShoalError):
        word_bits_for(*arguments)
