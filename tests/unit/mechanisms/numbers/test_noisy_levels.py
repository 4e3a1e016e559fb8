"""Clamped noise on levels: what an output counts for, what the docstrings state, and refusals."""

from __future__ import annotations

import math
from collections.abc import Sequence

import mpmath
import numpy as np
import pytest

from shoal.domain import Categories, Numeric, YesNo
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Tally, create, design
from shoal.mechanisms.numbers.gaussian import UNIT, noise
from shoal.mechanisms.numbers.noisy_levels import BIAS, NoisyLevels
from shoal.mechanisms.parts.decay import BITS, least_noise_of_rows, powers
from shoal.mechanisms.parts.tables import MEAN_OF_ALL, row
from shoal.mechanisms.parts.thresholds import WORDS
from shoal.privacy import FiniteLaw, epsilon0_upper
from shoal.task import MechanismSpec
from tests.cases import for_each

DOMAIN = Numeric(10, 30, 5)


def made(name: str, epsilon0: float, domain: Numeric = DOMAIN, setting: str = "") -> NoisyLevels:
    mechanism = create(design(name, domain, epsilon0, setting), domain)
    assert isinstance(mechanism, NoisyLevels)
    return mechanism


def test_a_clamped_laplace_report_counts_for_its_level_and_an_end_for_its_tail() -> None:
    """Inside the level itself; at an end the mean of what lies at or beyond it, a / (1 - a) steps
    out: noise without a memory.

    Planted: ends that count for themselves -> this fails, and so does the bias below.
    """
    mechanism = made("laplace", 1.0)
    a, (scores, _) = mechanism.spec.get("decay") / WORDS, mechanism.scores()
    beyond = a / (1 - a) / 2  # a step is half of a half width
    assert scores == pytest.approx([-1 - beyond, -0.5, 0, 0.5, 1 + beyond], abs=1e-6)


@for_each("name, setting", [("laplace", ""), ("gaussian", ""), ("gaussian", "range=3")])
@for_each("epsilon0", [0.1, 1.0, 6.0])
def test_the_bias_is_below_what_is_stated(name: str, setting: str, epsilon0: float) -> None:
    """For every cell, "no answer" as the middle included, by adding up the table. Planted: BIAS
    times 1000 in ``_solve`` -> fails.
    """
    mechanism = made(name, epsilon0, Numeric(0, 1, 6), setting)
    means = mechanism.table.probabilities() @ mechanism.scores()[0]
    assert np.abs(means - [*np.linspace(-1, 1, 6), 0]).max() <= BIAS * 1.01


def test_an_estimate_by_hand() -> None:
    mechanism = create(MechanismSpec.of("laplace", k=3, decay=WORDS // 2), Numeric(0, 1, 2))
    # P(0 | 0) = 1 / (1 + 1/2), P(0 | 1) = 1/3: scores of +-3 half widths.
    estimate = mechanism.estimate(Tally(np.array([25, 75]), 100))
    assert estimate.labels == (MEAN_OF_ALL,)
    assert estimate.values[0] == pytest.approx(0.5 + 0.5 * (75 - 25) / 100 * 3)
    # 9 - 1 at either level
    assert estimate.stderr[0] == pytest.approx(0.5 * math.sqrt(8) / 10, rel=1e-6)
    empty = mechanism.estimate(Tally(np.array([0, 0]), 0))
    assert (empty.values[0], empty.ci_low[0], empty.ci_high[0]) == (0.5, 0, 1)


def test_the_unclamped_noise_is_as_private_as_the_docstring_says() -> None:
    """delta of Canonne, Kamath, Steinke, theorem 7, added up. Planted: another margin rule ->
    another sigma, and this fails.
    """
    spec = design("gaussian", Numeric(0, 1, 5), 1.0)
    assert (spec.get("margin"), round(spec.get("sigma") / UNIT, 2)) == (6, 6.57)
    s, d = mpmath.mpf(spec.get("sigma")) / UNIT, 4
    weights = {z: mpmath.exp(-(mpmath.mpf(z) ** 2) / (2 * s**2)) for z in range(-150, 151)}

    def above(bound: mpmath.mpf) -> mpmath.mpf:
        return sum(weight for z, weight in weights.items() if z > bound) / sum(weights.values())

    for epsilon, delta in ((1.0, 0.0203), (0.5, 0.0881)):
        found = above(epsilon * s**2 / d - d / 2) - mpmath.exp(epsilon) * above(
            epsilon * s**2 / d + d / 2
        )
        assert float(found) == pytest.approx(delta, abs=5e-5)


def test_both_sums_over_all_integers_meet_at_sigma_4() -> None:
    """By terms just below, by the formula from there on. Planted: sqrt(pi) for sqrt(2 pi) -> this
    fails.
    """
    below, above = noise(4 * UNIT - 1, 30), noise(4 * UNIT, 30)
    for one, two in zip((*below[0], *below[1]), (*above[0], *above[1]), strict=True):
        assert one == pytest.approx(two, rel=1e-7)
    assert 2 * above[1][1] + above[0][0] == pytest.approx(4 * math.sqrt(2 * math.pi) * 2**BITS)


def test_powers_are_rounded_down() -> None:
    found = powers(WORDS - 1, 6)
    exact = [(WORDS - 1) ** d * 2**BITS // WORDS**d for d in range(6)]
    assert all(0 <= two - one <= 6 for one, two in zip(found, exact, strict=True))


def test_the_search_finds_rows_that_decide() -> None:
    """The largest ratio is between rows 1 and 2, none of them looked at first. Planted: the first
    two rows only -> epsilon0 above 1.
    """

    def weights(noise: int, cells: Sequence[int]) -> list[list[int]]:
        return [[[noise + each, 1_000_000] for each in (2, 1000, 0, 3)][cell] for cell in cells]

    found = least_noise_of_rows(weights, 4, 10**6, 1.0)
    law = [
        FiniteLaw(tuple(row(each) for each in weights(noise, range(4))))
        for noise in (found, found - 1)
    ]
    assert epsilon0_upper(law[0]) <= 1.0 < epsilon0_upper(law[1])


@pytest.mark.parametrize("name", ["laplace", "gaussian"])
def test_what_does_not_fit_is_refused(name: str) -> None:
    other = {"decay": 5} if name == "laplace" else {"margin": 0, "sigma": UNIT}
    for domain in (YesNo(), Categories(("a", "b", "c"))):
        with pytest.raises(ShoalError, match="numeric domain") as caught:
            design(name, domain, 1.0)
        assert caught.value.kind is Kind.INVALID
    with pytest.raises(ShoalError, match="set k = 6"):
        create(MechanismSpec.of(name, k=7, **other), DOMAIN)
    with pytest.raises(ShoalError, match="use fewer levels"):
        design(name, Numeric(0, 1, 300), 1.0)


def test_scores_that_floats_cannot_hold_are_refused() -> None:
    """30 levels under noise of 20 levels in a range that is the domain. Planted: the search for
    scores to the last singular value -> an estimate of thousands, and this fails.
    """
    domain = Numeric(0, 1, 30)
    mechanism = create(MechanismSpec.of("gaussian", k=31, margin=0, sigma=20 * UNIT), domain)
    with pytest.raises(ShoalError, match="wider range") as caught:
        mechanism.estimate(Tally(np.full(30, 10), 300))
    assert caught.value.kind is Kind.INVALID
