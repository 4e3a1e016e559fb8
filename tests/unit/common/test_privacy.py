"""Integer laws and their epsilon0: exact ratios, and a logarithm that is never rounded down."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest

from shoal.entropy import SeededEntropy, uniform_below
from shoal.errors import Kind, ShoalError
from shoal.privacy import FiniteLaw, KaryLaw, LocalPrivacy, PureLaw, epsilon0_upper, log_upper
from tests.cases import for_each


def exact_log(ratio: Fraction) -> mpmath.mpf:
    with mpmath.workdps(800):
        return mpmath.log(mpmath.mpf(ratio.numerator) / mpmath.mpf(ratio.denominator))


def ratios() -> list[Fraction]:
    entropy = SeededEntropy("ratios")
    found = [
        Fraction(2),
        Fraction(3),
        Fraction(2**64 - 1, 2**64 - 2),
        1 + Fraction(1, 2**200),
        1 + Fraction(1, 10**400),
        Fraction(10**400),
    ]
    found += [
        2 - Fraction(1, 2**64),
        2 + Fraction(1, 2**64),
        Fraction(2**64 * 65_536),
        Fraction(7**500, 3**200),
    ]
    for bits in (2, 8, 32, 63, 64):
        for _ in range(100):
            other = 1 + uniform_below(1 << bits, entropy)
            found.append(1 + Fraction(1 + uniform_below(1 << 64, entropy), other))
            found.append(1 + Fraction(other, (1 << 64) + uniform_below(1 << 64, entropy)))
    return found


def test_log_upper_is_above_and_close() -> None:
    """Above ln(ratio) (computed with 800 digits), by at most 3e-15 of it (or by the smallest
    floats). Planted: no ulps added -> about half of the ratios come out below and this fails.
    """
    for ratio in ratios():
        value, exact = log_upper(ratio), exact_log(ratio)
        assert mpmath.mpf(value) >= exact
        assert mpmath.mpf(value) <= exact * (1 + mpmath.mpf("3e-15")) + mpmath.mpf("1e-322")


def test_log_of_one_is_zero() -> None:
    assert log_upper(Fraction(1)) == 0.0


def test_log_below_one_is_refused() -> None:
    with pytest.raises(ShoalError) as caught:
        log_upper(Fraction(1, 2))
    assert caught.value.kind is Kind.INVALID


def test_the_two_coin_form_is_ln_3() -> None:
    law = KaryLaw(2, same=3 * 2**62, other=2**62)
    assert law.max_ratio == 3
    assert math.log(3) <= epsilon0_upper(law) < math.log(3) * (1 + 3e-15)


def test_a_kary_law_is_its_own_table() -> None:
    law = KaryLaw(4, same=11, other=3)
    table = FiniteLaw(tuple(tuple(11 if x == y else 3 for y in range(4)) for x in range(4)))
    assert law.total == table.total == 20
    assert law.max_ratio == table.max_ratio == Fraction(11, 3)


def test_the_ratio_of_a_table_is_taken_per_output() -> None:
    """Planted: ratios along rows instead of columns -> 98 instead of 9 and this fails."""
    assert FiniteLaw(((98, 1, 1), (90, 9, 1))).max_ratio == 9


@pytest.mark.parametrize(
    "law", [KaryLaw(2, 3, 1), FiniteLaw(((1, 2), (2, 1))), PureLaw(Fraction(5, 2))]
)
def test_every_law_is_a_local_privacy(law: LocalPrivacy) -> None:
    assert isinstance(law, LocalPrivacy)
    assert law.max_ratio >= 1


@for_each(
    "make",
    [
        lambda: KaryLaw(1, 2, 1),
        lambda: KaryLaw(3, 1, 2),
        lambda: KaryLaw(3, 2, 0),
        lambda: FiniteLaw(((1, 2),)),
        lambda: FiniteLaw(((), ())),
        lambda: FiniteLaw(((1, 2), (1, 3))),
        lambda: FiniteLaw(((1, 2), (3,))),
        lambda: FiniteLaw(((0, 3), (1, 2))),
        lambda: PureLaw(Fraction(99, 100)),
    ],
)
def test_impossible_laws_are_refused(make: object) -> None:
    """Planted: a zero weight let through -> the ratio would divide by zero (no finite epsilon0) and
    this fails.
    """
    assert callable(make)
    with pytest.raises(ShoalError) as caught:
        make()
    assert caught.value.kind is Kind.INVALID
