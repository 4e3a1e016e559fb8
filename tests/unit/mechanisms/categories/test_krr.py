"""k-ary randomized response: its integers and its estimate."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from shoal.domain import Categories
from shoal.errors import ShoalError
from shoal.mechanisms import Tally, create, design
from shoal.mechanisms.categories.krr import KaryResponse, law, least_uniform
from shoal.privacy import epsilon0_upper
from shoal.task import MechanismSpec
from tests.cases import for_each

WORDS = 1 << 64
LABELS = ("a", "b", "c", "no answer")


def test_the_weights_are_those_of_kairouz() -> None:
    """P(truth) = e^eps / (e^eps + k - 1) to within the integers' grid, for k = 7 and eps = 4."""
    weights = law(7, least_uniform(7, 4.0))
    assert weights.total == 7 * WORDS
    assert weights.same / weights.total == pytest.approx(math.exp(4) / (math.exp(4) + 6), rel=1e-12)


@for_each("k", [2, 3, 22, 300, 65_536])
@for_each("epsilon0", [1e-9, 1e-3, 1.0, 5.0, 20.0, 44.0])
def test_one_step_less_noise_would_break_the_promise(k: int, epsilon0: float) -> None:
    """Planted: rounding T down instead of up -> the first assertion fails."""
    uniform = least_uniform(k, epsilon0)
    assert epsilon0_upper(law(k, uniform)) <= epsilon0
    assert uniform == 1 or epsilon0_upper(law(k, uniform - 1)) > epsilon0


def test_beyond_64_bits_the_finest_noise_is_taken() -> None:
    """ln(7 (2^64 - 1) + 1) = 46.3: an asked epsilon0 of 100 gives that, never no noise at all."""
    assert least_uniform(7, 100.0) == 1
    assert law(7, 1).max_ratio == 7 * (WORDS - 1) + 1


def test_an_estimate_by_hand() -> None:
    """k = 4, T = 2^63: q = 1/8, p = 5/8, p - q = 1/2. 800 reports, 300 of "a": (300 - 100) * 2 =
    400.
    """
    estimate = KaryResponse(LABELS, WORDS // 2).estimate(Tally(np.array([300, 200, 200, 100]), 800))
    assert estimate.labels == LABELS
    assert estimate.values == pytest.approx([400, 200, 200, 0])
    assert estimate.values.sum() == pytest.approx(800)
    # Each device of the cell adds p (1 - p) = 15/64, each other q (1 - q) = 7/64, over (1/2)^2.
    assert estimate.stderr**2 == pytest.approx(
        [(d * 15 + (800 - d) * 7) / 16 for d in (400, 200, 200, 0)]
    )


def test_the_gap_has_no_cancellation() -> None:
    """Almost pure noise: p - q is (2^64 - T) / 2^64 to full precision. Planted: p - q from rounded
    floats -> inf or far off.
    """
    response = KaryResponse(LABELS, WORDS - 3)
    assert Fraction(response.gap) == Fraction(3, WORDS)


@pytest.mark.parametrize(("labels", "uniform"), [(("a",), 5), (LABELS, 0), (LABELS, WORDS)])
def test_other_integers_are_refused(labels: tuple[str, ...], uniform: int) -> None:
    with pytest.raises(ShoalError):
        KaryResponse(labels, uniform)


def test_k_must_be_the_domain_s_size() -> None:
    domain = Categories(("a", "b", "c"))
    assert create(design("krr", domain, 1.0), domain).report_size == 1
    with pytest.raises(ShoalError, match='"k" is 3, but the domain has 4 cells: set k = 4'):
        create(MechanismSpec.of("krr", k=3, uniform=5), domain)
