"""One bit per device: the papers' formulas, in fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from shoal.domain import Categories, Domain, Numeric, YesNo
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import create, design
from shoal.mechanisms.numbers.means import TableMean, places
from shoal.privacy import KaryLaw, epsilon0_upper
from shoal.task import MechanismSpec
from tests.cases import for_each

WORDS = 1 << 64


def made(levels: int, epsilon0: float) -> TableMean:
    domain = Numeric(0, 1, levels)
    mechanism = create(design("one_bit_mean", domain, epsilon0), domain)
    assert isinstance(mechanism, TableMean)
    return mechanism


@for_each("levels", [2, 3, 6])
@for_each("epsilon0", [0.1, 1.0, 5.0])
def test_the_bit_is_that_of_the_papers(levels: int, epsilon0: float) -> None:
    """P(1) = 1 / (E + 1) + x (E - 1) / (E + 1), x in [0, 1] (Ding et al. 2017, section 2), scores
    and variance (E + 1)^2 / (E - 1)^2 - t^2 (Duchi et al. 2018), unbiased exactly. Planted: "no
    answer" at the low end; half of the slope -> fails.
    """
    mechanism, e = made(levels, epsilon0), math.exp(epsilon0)
    for (_, one), place in zip(mechanism.table.rows, places(mechanism.domain), strict=True):
        assert one / WORDS == pytest.approx(
            1 / (e + 1) + float(1 + place) / 2 * (e - 1) / (e + 1), rel=1e-11
        )
        mean = (
            sum(
                Fraction(2 * bit - 1) * weight * mechanism.scores[1]
                for bit, weight in ((0, WORDS - one), (1, one))
            )
            / WORDS
        )
        assert mean == place
    assert mechanism.scores[0] == -mechanism.scores[1]
    assert float(mechanism.scores[1]) == pytest.approx((e + 1) / (e - 1), rel=1e-11)
    low, high = mechanism.table.rows[0], mechanism.table.rows[levels - 1]
    assert (
        epsilon0_upper(mechanism.privacy())
        == epsilon0_upper(KaryLaw(2, same=high[1], other=low[1]))
        <= epsilon0
    )


@for_each(
    "domain, slope, message",
    [
        (YesNo(), 5, "numeric domain"),
        (Categories(("a", "b")), 5, "numeric domain"),
        (Numeric(0, 1, 5), WORDS // 8, '"slope" is 1 to'),
        (Numeric(0, 1, 40_000), 5, "use fewer levels"),
    ],
)
def test_what_does_not_fit_is_refused(domain: Domain, slope: int, message: str) -> None:
    with pytest.raises(ShoalError, match=message) as caught:
        create(MechanismSpec.of("one_bit_mean", k=min(domain.size, 32_768), slope=slope), domain)
    assert caught.value.kind is Kind.INVALID
    if slope == 5:
        with pytest.raises(ShoalError, match=message):
            design("one_bit_mean", domain, 1.0)
