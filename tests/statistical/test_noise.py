"""Noise as it is drawn: counts, moments and independence, with the production entropy's code path
and fixed seeds.

- counts: chi-square of 2,000,000 drawn shares (reduced: 200,000) against the pmf, from closed forms
  in mpmath and not from the sampler's table; cells are merged until each expects 20 or more; fails
  below a p-value of 10^-6;
- moments: mean and variance of the draws within 5 standard errors (6e-7 each); the fourth moment is
  the law's own;
- neighbours: the correlation of consecutive coordinates, and of the two halves of a vector, within
  5 / sqrt(draws);
- sums: as many simulated devices as shares, added: chi-square against the Skellam and the discrete
  Laplace law.

About 30 assertions, fixed seeds: over all seeds one of 40,000 runs would fail without a cause.

Planted, one at a time, each of these fails here: Poisson(v / shares) for v / (2 shares) (counts);
the plus and minus half from the same words (counts); words shifted right by one bit ("half
thresholds", counts); word % (number of entries) as an index (counts); a table shifted by one entry
(with two halves shifted alike: the unit tests; shifted in one half: mean); noise on coordinates
that are not zero only (the sum of zero vectors).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.domain import Norm, Vector
from shoal.entropy import SeededEntropy
from shoal.mechanisms.noise.registry import create_noise
from shoal.mechanisms.quantize import quantize
from shoal.task import MechanismSpec
from tests.sizes import size

DRAWS = size(200_000, 2_000_000)
FALSE_ALARM = 1e-6

SKELLAM = [(1, 60), (100, 60), (5_000, 7), (10**6, 720)]
LAPLACE = [(65_536, 60), (65_536 * 10, 60), (65_536 * 3, 1), (65_536 * 200, 720)]
SPECS = [MechanismSpec.of("skellam", variance=v, shares=h) for v, h in SKELLAM]
SPECS += [MechanismSpec.of("discrete_laplace", scale=s, shares=h) for s, h in LAPLACE]


def one_sided(spec: MechanismSpec) -> NDArray[np.float64]:
    """pmf of one half of a share, by closed forms in logarithms; the rest is below 1e-13."""
    h = spec.get("shares")
    if spec.name == "skellam":
        rate = spec.get("variance") / (2 * h)
        k = np.arange(int(rate + 12 * math.sqrt(rate) + 30))
        logs = k * math.log(rate) - rate - np.array([math.lgamma(i + 1) for i in k])
    else:
        x, r = 65_536 / spec.get("scale"), 1 / h
        k = np.arange(int(32 / x) + 2)
        logs = (
            r * math.log(-math.expm1(-x))
            - k * x
            + np.array([math.lgamma(i + r) - math.lgamma(r) - math.lgamma(i + 1) for i in k])
        )
    pmf: NDArray[np.float64] = np.exp(logs)
    return pmf


def share_law(spec: MechanismSpec) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(values, pmf) of one share."""
    half = one_sided(spec)
    both = np.convolve(half, half[::-1])
    return np.arange(both.size) - (half.size - 1), both


def p_value(drawn: NDArray[np.int64], values: NDArray[np.int64], law: NDArray[np.float64]) -> float:
    """Of the chi-square statistic, neighbouring values merged from the left until a cell expects
    20; the rest joins the last cell.
    """
    counts = np.bincount(np.clip(drawn, values[0], values[-1]) - values[0], minlength=law.size)
    expected = law / law.sum() * drawn.size
    starts, running = [0], 0.0
    for i, mean in enumerate(expected[:-1]):
        running += mean
        if running >= 20 and expected[i + 1 :].sum() >= 20:
            starts.append(i + 1)
            running = 0.0
    observed, means = np.add.reduceat(counts, starts), np.add.reduceat(expected, starts)
    assert len(starts) >= 3
    statistic = float(((observed - means) ** 2 / means).sum())
    return float(
        mpmath.gammainc((len(starts) - 1) / 2, statistic / 2, mpmath.inf, regularized=True)
    )


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_shares_follow_their_law(spec: MechanismSpec) -> None:
    drawn = create_noise(spec).sample(DRAWS, SeededEntropy(f"counts {spec}"))
    assert p_value(drawn, *share_law(spec)) > FALSE_ALARM


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_shares_have_mean_zero_and_their_variance(spec: MechanismSpec) -> None:
    noise = create_noise(spec)
    drawn = noise.sample(DRAWS, SeededEntropy(f"moments {spec}")).astype(np.float64)
    values, law = share_law(spec)
    fourth = float(law @ values.astype(np.float64) ** 4)
    assert float(law @ values.astype(np.float64) ** 2) == pytest.approx(noise.variance, rel=1e-6)
    assert abs(drawn.mean()) < 5 * math.sqrt(noise.variance / DRAWS)
    assert abs((drawn**2).mean() - noise.variance) < 5 * math.sqrt(
        (fourth - noise.variance**2) / DRAWS
    )


@pytest.mark.parametrize("spec", [SPECS[2], SPECS[3], SPECS[5]], ids=str)
def test_coordinates_are_independent(spec: MechanismSpec) -> None:
    noise = create_noise(spec)
    drawn = noise.sample(DRAWS, SeededEntropy(f"neighbours {spec}")).astype(np.float64) / math.sqrt(
        noise.variance
    )
    half = DRAWS // 2
    assert abs(float(drawn[1:] @ drawn[:-1])) < 5 * math.sqrt(DRAWS)
    assert abs(float(drawn[:half] @ drawn[half : 2 * half])) < 5 * math.sqrt(half)


def skellam_law(variance: int, reach: int) -> NDArray[np.float64]:
    positive = [
        float(mpmath.exp(-variance) * mpmath.besseli(k, variance)) for k in range(reach + 1)
    ]
    return np.array([*reversed(positive[1:]), *positive])


def laplace_law(scale: int, reach: int) -> NDArray[np.float64]:
    p = math.exp(-65_536 / scale)
    return (1 - p) / (1 + p) * p ** np.abs(np.arange(-reach, reach + 1))


@pytest.mark.parametrize(
    ("spec", "law", "reach"),
    [
        (
            MechanismSpec.of("skellam", variance=40, shares=20),
            lambda reach: skellam_law(40, reach),
            60,
        ),
        (
            MechanismSpec.of("discrete_laplace", scale=131_072, shares=20),
            lambda reach: laplace_law(131_072, reach),
            70,
        ),
    ],
    ids=["skellam", "discrete_laplace"],
)
def test_a_sum_of_zero_vectors_is_the_stated_noise_on_every_coordinate(
    spec: MechanismSpec, law: Callable[[int], NDArray[np.float64]], reach: int
) -> None:
    """20 devices with nothing to say. A coordinate that nobody fills is as noisy as any other, or a
    lone value would show.
    """
    noise, dimension = create_noise(spec), size(10_000, 100_000)
    domain = Vector(dimension, Norm.L2, 1.0, 1_000)
    total = np.zeros(dimension, dtype=np.int64)
    for device in range(20):
        entropy = SeededEntropy(f"zero {device}")
        total += quantize(None, domain, entropy).vector + noise.sample(dimension, entropy)
    assert p_value(total, np.arange(-reach, reach + 1), law(reach)) > FALSE_ALARM
