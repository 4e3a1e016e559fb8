"""The search for the least noise, and what every designer refuses before it looks for integers."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from shoal.domain import Categories, Domain, Numeric
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY, design, serves
from shoal.mechanisms.parts.thresholds import least_noise
from shoal.privacy import LocalPrivacy, PureLaw, epsilon0_upper
from tests.cases import for_each

NO_EPSILON = [math.inf, -math.inf, math.nan, 0.0, -1.0]
DOMAINS: list[Domain] = [Categories(("a", "b", "c")), Numeric(0.0, 1.0, 8)]
DESIGNED = [(name, domain) for name in REGISTRY for domain in DOMAINS if serves(name, domain)]


def _law(noise: int) -> LocalPrivacy:
    return PureLaw(1 + Fraction(1_000, noise))


@for_each("epsilon0", NO_EPSILON)
def test_only_a_finite_epsilon0_above_0_is_looked_for(epsilon0: float) -> None:
    """Planted: the check without ``isfinite`` -> infinity finds the least noise of all, 1, and this
    fails.
    """
    with pytest.raises(ShoalError) as caught:
        least_noise(_law, 1 << 20, epsilon0)
    assert caught.value.kind is Kind.INVALID


@for_each("epsilon0", NO_EPSILON)
@for_each("name, domain", DESIGNED)
def test_no_designer_takes_an_epsilon0_that_is_none(
    name: str, domain: Domain, epsilon0: float
) -> None:
    """Every registered mechanism. Planted: the check of ``least_noise`` without ``isfinite`` ->
    fails.
    """
    with pytest.raises(ShoalError) as caught:
        design(name, domain, epsilon0)
    assert caught.value.kind is Kind.INVALID


@pytest.mark.parametrize("epsilon0", [0.002, 0.5, 3.0])
def test_the_noise_found_holds_and_one_less_does_not(epsilon0: float) -> None:
    """Planted: the lower end of the bracket returned -> fails."""
    noise = least_noise(_law, 1 << 20, epsilon0)
    assert epsilon0_upper(_law(noise)) <= epsilon0 < epsilon0_upper(_law(noise - 1))
