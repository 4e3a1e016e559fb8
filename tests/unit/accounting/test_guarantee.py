"""Guarantees before collection, basic composition, and the inverse: how many reports."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from shoal.accounting import certify, compose_basic, guaranteed
from shoal.accounting.solve import smallest_n
from shoal.errors import Kind, ShoalError
from shoal.privacy import FiniteLaw, LocalPrivacy
from tests.unit.accounting.laws import kary, pure


def test_guarantee_is_that_of_the_smallest_batch() -> None:
    """Planted: honest_fraction ignored -> this fails."""
    found = guaranteed(kary(16, 4.0), 5000, Fraction(9, 10), 1e-8)
    assert found.epsilon_upper == certify(kary(16, 4.0), 4500, 1e-8).epsilon_upper
    assert (found.n, found.n_honest, found.honest_fraction) == (5000, 4500, Fraction(9, 10))


def test_basic_composition_adds_upward() -> None:
    """0.1 ten times is more than 1.0 exactly, though fsum rounds to 1.0. Planted: plain fsum -> this fails."""
    part = certify(kary(2, 1.0), 100, 1e-6)
    parts = [part] * 10
    total = compose_basic(parts)
    assert total.count == 10
    assert Fraction(total.epsilon_upper) >= 10 * Fraction(part.epsilon_upper)
    assert Fraction(total.delta) >= 10 * Fraction(part.delta)
    assert total.epsilon_upper == pytest.approx(10 * part.epsilon_upper, rel=1e-15)
    tenth = certify(kary(2, 1.0), 1, 0.1)
    assert Fraction(compose_basic([tenth] * 3).delta) >= 3 * Fraction(0.1)
    assert compose_basic([part]).epsilon_upper == part.epsilon_upper


@pytest.mark.parametrize(("parts", "memoized", "words"), [(0, False, "nothing"), (2, True, "memoized"), (4, False, "add up")])
def test_composition_refuses(parts: int, memoized: bool, words: str) -> None:
    """Nothing, memoized answers, deltas of 1 or more. Planted: ``memoized`` ignored -> this fails."""
    with pytest.raises(ShoalError, match=words) as error:
        compose_basic([certify(kary(2, 1.0), 10, 0.3)] * parts, memoized=memoized)
    assert error.value.kind is Kind.CONFIG


@pytest.mark.parametrize(
    ("law", "target", "delta"),
    [
        (kary(2, 1.0), 0.3, 1e-6),
        (kary(16, 4.0), 1.0, 1e-8),
        (pure(2.0), 0.5, 1e-8),
        (FiniteLaw(((7, 3), (2, 8))), 0.2, 1e-6),
        (FiniteLaw(((5, 3, 2), (1, 3, 6))), 0.4, 1e-6),
    ],
)
@pytest.mark.parametrize("share", [Fraction(1), Fraction(2, 3)])
def test_smallest_n(law: LocalPrivacy, target: float, delta: float, share: Fraction) -> None:
    """n is enough and n - 1 is not. Planted: the other end of the bracket returned -> this fails."""
    n = smallest_n(law, target, delta, honest_fraction=share)
    assert certify(law, n, delta, honest_fraction=share).epsilon_upper <= target
    assert certify(law, n - 1, delta, honest_fraction=share).epsilon_upper > target


def test_smallest_n_at_a_large_scale() -> None:
    n = smallest_n(kary(16, 5.5), 0.05, 1e-6)
    assert 1_000_000 < n < 10_000_000
    assert certify(kary(16, 5.5), n, 1e-6).epsilon_upper <= 0.05
    assert certify(kary(16, 5.5), n * 9997 // 10_000, 1e-6).epsilon_upper > 0.05


def test_smallest_n_without_need() -> None:
    assert smallest_n(kary(2, 1.0), 1.01, 1e-6) == 1


@pytest.mark.parametrize(
    ("target", "share", "words"),
    [
        (0.0, 1.0, "above 0"),
        (-1.0, 1.0, "above 0"),
        (math.nan, 1.0, "above 0"),
        (0.1, 0.0, "honest fraction must be above 0"),
        (1e-7, 1.0, "do not reach"),
    ],
)
def test_smallest_n_refuses(target: float, share: float, words: str) -> None:
    with pytest.raises(ShoalError, match=words) as error:
        smallest_n(kary(2, 4.0), target, 1e-8, honest_fraction=share)
    assert error.value.kind is Kind.CONFIG
