"""Budgets over several releases, turned around: what is found keeps the total, and hardly more
would not.
"""

from __future__ import annotations

import math
from functools import partial

import pytest

from shoal.accounting.accountant import LARGEST_EPSILON0
from shoal.accounting.solving import solve_total
from shoal.accounting.solving.solve_total import (
    boundary,
    largest_epsilon0_of_rounds,
    smallest_delta_of_rounds,
    smallest_n_of_rounds,
    total_epsilon,
)
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.parts.laws import ratio_below
from shoal.privacy import KaryLaw, LocalPrivacy
from tests.cases import for_each


def coin(epsilon0: float, k: int = 2) -> KaryLaw:
    ratio = ratio_below(epsilon0)
    return KaryLaw(k, ratio.numerator, ratio.denominator)


def test_the_largest_epsilon0_for_a_total(monkeypatch: pytest.MonkeyPatch) -> None:
    """By composition itself. Planted: the target taken for one round's -> .8 over ten rounds is
    exceeded, and this fails.
    """
    monkeypatch.setattr(solve_total, "_TIGHT", 0.02)  # few evaluations: each builds a law of losses
    found = largest_epsilon0_of_rounds(coin, 0.8, 1e-6, 50, 4)
    assert total_epsilon(coin(found), 50, 1e-6, 4) <= 0.8
    assert total_epsilon(coin(found * 1.05), 50, 1e-6, 4) > 0.8


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A total that a person can check, instead of composition: ln(ratio) sqrt(rounds ln(1 / delta)
    / n).
    """

    def total(privacy: LocalPrivacy, n_honest: int, delta: float, rounds: int) -> float:
        return math.log(float(privacy.max_ratio)) * math.sqrt(
            rounds * math.log(1.0 / delta) / n_honest
        )

    monkeypatch.setattr(solve_total, "total_epsilon", total)


@pytest.mark.usefixtures("cheap")
def test_each_of_the_three_by_a_formula() -> None:
    """Planted: rounds, delta or the honest share left out of one of them; the end of a bracket that
    is not proven returned -> fails.
    """
    assert largest_epsilon0_of_rounds(
        coin, 0.5, 1e-6, 2_000, 8, honest_fraction=0.5
    ) == pytest.approx(0.5 * math.sqrt(1_000 / (8 * math.log(1e6))), rel=1e-3)
    wanted = 2 * 8 * math.log(1e6) * (1.5 / 0.5) ** 2
    assert (
        wanted
        <= smallest_n_of_rounds(coin(1.5), 0.5, 1e-6, 8, honest_fraction=0.5)
        <= wanted * 1.002
    )
    delta = smallest_delta_of_rounds(coin(1.5), 0.5, 2_000, 8, honest_fraction=0.5)
    wanted = math.exp(-1_000 / 8 * (0.5 / 1.5) ** 2)
    assert wanted * (1 - 1e-9) <= delta <= wanted * 1.001
    assert largest_epsilon0_of_rounds(coin, 500.0, 1e-6, 10, 8) == LARGEST_EPSILON0


@pytest.mark.usefixtures("cheap")
def test_what_cannot_be_reached_is_said() -> None:
    for ask in (
        partial(smallest_n_of_rounds, coin(6.0), 1e-9, 1e-6, 100, most=1_000),
        partial(smallest_delta_of_rounds, coin(6.0), 1e-9, 2, 100),
    ):
        with pytest.raises(ShoalError) as caught:
            ask()
        assert caught.value.kind is Kind.CONFIG


@for_each("power", [0.5, 1.0, 3.0, -1.0])
def test_a_boundary_is_on_the_safe_side_and_close(power: float) -> None:
    """Of rising and of falling functions. Planted: the last point looked at returned, proven or not
    -> fails.
    """
    looked: list[float] = []

    def value(x: float) -> float:
        looked.append(x)
        return float(x**power)

    inside, outside = (0.01, 40.0) if power > 0 else (40.0, 0.01)
    at = boundary(value, inside, outside, 2.0)
    assert value(at) <= 2.0
    assert at in looked
    assert abs(math.log(at) - math.log(2.0) / power) <= solve_total._TIGHT
    assert len(looked) < 30


def test_a_boundary_of_steps_is_on_the_safe_side() -> None:
    """A family that rounds has steps. Planted: trust in the interpolation -> fails."""
    assert boundary(lambda x: math.ceil(x * 10.0) / 10.0, 0.1, 9.0, 2.0) == pytest.approx(
        2.0, rel=1e-3
    )
    assert math.ceil(boundary(lambda x: math.ceil(x * 10.0) / 10.0, 0.1, 9.0, 2.0) * 10.0) <= 20
