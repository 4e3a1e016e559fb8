"""The certificate turned around: every answer is enough, and hardly anything less is."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest

from shoal.accounting import certify
from shoal.accounting.accountant import upper_bound
from shoal.accounting.solving.solve import largest_epsilon0, smallest_delta, smallest_n
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.categories import krr
from shoal.privacy import FiniteLaw, LocalPrivacy, epsilon0_upper
from tests.cases import for_each
from tests.sizes import size
from tests.unit.accounting.laws import kary, pure

Family = Callable[[float], LocalPrivacy]
FAMILIES: dict[str, Family] = {
    "pure": pure,
    "rr": lambda epsilon0: kary(2, epsilon0),
    "krr16": lambda epsilon0: kary(16, epsilon0),
    "krr16-thresholds": lambda epsilon0: krr.law(16, krr.least_uniform(16, epsilon0)),
}
POINTS = [
    (1000, 0.3, 1e-8),
    (1000, 2.0, 1e-6),
    (100_000, 1.0, 1e-12),
    (100_000, 0.05, 1e-8),
    (1_000_000, 0.05, 1e-8),
]
BATCHES = [
    (2, 0.3),
    (10, 1.5),
    (1000, 0.05),
    (1000, 0.4),
    (10_000, 0.3),
    (100_000, 0.03),
    (100_000, 0.1),
]


@for_each("n, target, delta", POINTS[: size(3, 5)])
@for_each("name", list(FAMILIES))
def test_largest_epsilon0(name: str, n: int, target: float, delta: float) -> None:
    """Enough, and 0.1 % more is not. Planted: ``high`` returned -> the first assertion fails;
    _TIGHT = 5e-3 -> the second.
    """
    epsilon0, law = largest_epsilon0(FAMILIES[name], target, delta, n)
    assert certify(law, n, delta).epsilon_upper <= target
    assert certify(FAMILIES[name](epsilon0 * 1.001), n, delta).epsilon_upper > target
    assert epsilon0_upper(law) == pytest.approx(epsilon0, rel=1e-9)
    assert epsilon0 >= target * (1 - 1e-9)


def test_largest_epsilon0_of_honest_reports() -> None:
    """Half of 2000 honest is 1000. Planted: the honest fraction ignored -> this fails."""
    whole = largest_epsilon0(pure, 0.3, 1e-8, 1000)[0]
    assert largest_epsilon0(pure, 0.3, 1e-8, 2000, honest_fraction=Fraction(1, 2))[0] == whole


@for_each("name", list(FAMILIES))
@for_each("n", [1, 2, 10**9])
def test_largest_epsilon0_at_the_edges(name: str, n: int) -> None:
    """Nobody to hide among: the target itself. A target above the cap: itself as well. A batch
    beyond what is computed: still proven.
    """
    for target in (0.5, 39.9, 45.0):
        epsilon0, law = largest_epsilon0(FAMILIES[name], target, 1e-6, n)
        assert certify(law, n, 1e-6).epsilon_upper <= target
        assert epsilon0 >= target * (1 - 1e-9)
        if n == 1 or target == 45.0:
            assert epsilon0 <= target


def test_largest_epsilon0_where_even_the_cap_is_enough() -> None:
    """A family that never gives more than 1 away. Planted: no look at the cap -> the bisection ends
    below 40.
    """
    epsilon0, law = largest_epsilon0(lambda epsilon0: kary(2, min(epsilon0, 1.0)), 0.9, 1e-6, 1000)
    assert (epsilon0, law) == (40.0, kary(2, 1.0))


@for_each("n, target", BATCHES[: size(4, 7)])
@for_each("law", [pure(2.0), kary(2, 2.0), kary(16, 2.0), FiniteLaw(((5, 3, 2), (1, 3, 6)))])
def test_smallest_delta(law: LocalPrivacy, n: int, target: float) -> None:
    """Enough, and 0.1 % less is not, by the bounds that searches ask (a certificate may know a
    closer one). Planted: no search below the value of the curve (the exact
    route's is looser than its certificate) -> the second assertion fails; the unproven end of the
    bracket returned -> the first.
    """
    delta = smallest_delta(law, target, n)
    assert certify(law, n, delta).epsilon_upper <= target
    if delta > 1e-100:
        assert upper_bound(law, n, delta * 0.999)[0] > target


def test_smallest_delta_far_out() -> None:
    """Below 1e-100 nothing is computed; from epsilon0 on nothing is needed. Planted: the clip at
    1e-100 left out -> certify refuses.
    """
    law = kary(2, 3.0)
    assert smallest_delta(law, 2.0, 100_000) == 1e-100
    assert certify(law, 100_000, 1e-100).epsilon_upper <= 2.0
    assert smallest_delta(law, epsilon0_upper(law), 10) == 0.0
    assert smallest_delta(law, 100.0, 1) == 0.0


def test_smallest_delta_agrees_with_the_certificate() -> None:
    """There and back: the delta of the certified epsilon is the delta of the certificate. Planted:
    halved -> this fails.
    """
    for delta in (1e-3, 1e-8, 1e-30):
        upper = certify(kary(16, 3.0), 500, delta).epsilon_upper
        assert smallest_delta(kary(16, 3.0), upper, 500) == pytest.approx(delta, rel=1e-3)


def test_the_three_agree() -> None:
    """n for epsilon0, epsilon0 for n, delta for both: one and the same certificate, to 0.2 %."""
    target = size(4, 1) / 10
    n = smallest_n(kary(2, 2.0), target, 1e-8)
    assert largest_epsilon0(FAMILIES["rr"], target, 1e-8, n)[0] == pytest.approx(2.0, rel=1e-3)
    assert smallest_delta(kary(2, 2.0), target, n) == pytest.approx(1e-8, rel=0.02)


@for_each("target", [0.0, -1.0, math.nan, math.inf])
def test_bad_targets(target: float) -> None:
    for solve in (
        lambda: smallest_n(kary(2, 1.0), target, 1e-6),
        lambda: largest_epsilon0(pure, target, 1e-6, 10),
        lambda: smallest_delta(kary(2, 1.0), target, 10),
    ):
        with pytest.raises(ShoalError, match="target epsilon") as error:
            solve()
        assert error.value.kind is Kind.CONFIG
        assert "\n" not in str(error.value)


@for_each(
    "n, delta, share",
    [(0, 1e-6, 1.0), (10, 0.0, 1.0), (10, 1.0, 1.0), (10, 1e-6, 0.0), (10, 1e-6, 1.5)],
)
def test_bad_numbers(n: int, delta: float, share: float) -> None:
    with pytest.raises(ShoalError) as error:
        largest_epsilon0(pure, 0.3, delta, n, honest_fraction=share)
    assert error.value.kind is Kind.CONFIG
    if delta == 1e-6:
        with pytest.raises(ShoalError) as error:
            smallest_delta(kary(2, 1.0), 0.3, n, honest_fraction=share)
        assert error.value.kind is Kind.CONFIG


def test_no_delta_is_enough_for_one_report() -> None:
    with pytest.raises(ShoalError, match="no delta below 1") as error:
        smallest_delta(kary(2, 1.0), 0.3, 1)
    assert error.value.kind is Kind.CONFIG
