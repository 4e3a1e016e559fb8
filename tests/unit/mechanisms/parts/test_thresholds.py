"""The search for the least noise, and what every designer refuses before it looks for integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest

from shoal.domain import Categories, Domain, Numeric
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY, design, serves
from shoal.mechanisms.parts.thresholds import WORDS, least_noise
from shoal.privacy import KaryLaw, LocalPrivacy, PureLaw, epsilon0_upper
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


def _by_halving(law: Callable[[int], LocalPrivacy], highest: int, epsilon0: float) -> int:
    low, high = 0, highest
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if epsilon0_upper(law(middle)) <= epsilon0 else (middle, high)
    return high


def _kary(noise: int) -> LocalPrivacy:
    return KaryLaw(16, same=16 * (WORDS - noise) + noise, other=noise)


def _bit(noise: int) -> LocalPrivacy:
    return PureLaw(Fraction(WORDS // 2 * (WORDS - noise), noise * (WORDS // 2)))


def _steep(noise: int) -> LocalPrivacy:
    return PureLaw(1 + Fraction(1 << 66, noise * noise))


def _stairs(noise: int) -> LocalPrivacy:
    return PureLaw(Fraction(2 ** (64 - noise.bit_length()) + 1))


@for_each("law, highest", [(_kary, WORDS - 1), (_bit, WORDS // 2 - 1), (_steep, 1 << 52)])
@for_each("epsilon0", [1e-9, 0.03, 0.5, 1.0, 7.767, 30.0])
def test_fewer_laws_lead_to_the_integer_of_a_search_by_halves(
    law: Callable[[int], LocalPrivacy], highest: int, epsilon0: float
) -> None:
    """Planted: ``middle >= beyond`` instead of ``within`` taken to hold -> another integer; no
    bracket from floats first -> 64 laws.
    """
    seen: list[int] = []

    def counted(noise: int) -> LocalPrivacy:
        seen.append(noise)
        return law(noise)

    assert least_noise(counted, highest, epsilon0) == _by_halving(law, highest, epsilon0)
    assert len(seen) == len(set(seen)) <= 40


@pytest.mark.parametrize("epsilon0", [0.7, 3.0, 20.0])
def test_a_curve_of_stairs_misleads_no_search(epsilon0: float) -> None:
    """Planted: the last bracket's end returned, unhalved -> fails."""
    found = least_noise(_stairs, WORDS - 1, epsilon0)
    assert found == _by_halving(_stairs, WORDS - 1, epsilon0)
