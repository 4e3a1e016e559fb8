"""The hybrid mechanism: two unbiased parts, and the paper's variance as the yardstick."""

from __future__ import annotations

import math

import pytest

from shoal.domain import Numeric, YesNo
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import create, design
from shoal.mechanisms.numbers.hybrid import continuous
from shoal.mechanisms.numbers.means import TableMean, places
from shoal.privacy import epsilon0_upper
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.unit.mechanisms.numbers.test_piecewise import EPSILONS, exact, paper

WORDS = 1 << 64
LEVELS = Numeric(0, 1, 21)


def made(epsilon0: float, name: str = "hybrid", domain: Numeric = LEVELS) -> TableMean:
    mechanism = create(design(name, domain, epsilon0), domain)
    assert isinstance(mechanism, TableMean)
    return mechanism


def paper_hybrid(epsilon0: float) -> float:
    """N. Wang et al. 2019, equation 11 above 0.61; (E + 1)^2 / (E - 1)^2, one bit's, below."""
    e, root = math.exp(epsilon0), math.exp(epsilon0 / 2)
    bit = ((e + 1) / (e - 1)) ** 2
    return bit if epsilon0 <= 0.61 else (root + 3) / (3 * root * (root - 1)) + bit / root


@for_each("levels", [2, 3, 4])
@for_each("epsilon0", [0.5, 0.62, 2.0, 6.0])
def test_both_parts_are_unbiased_and_keep_epsilon0(levels: int, epsilon0: float) -> None:
    """In fractions, the whole and each part; and each part uses what epsilon0 allows, to 1e-6.

    Planted: one part's threshold for the other's share of words -> fails.
    """
    mechanism = made(epsilon0, domain=Numeric(0, 1, levels))
    assert [mean for mean, _ in exact(mechanism)] == list(places(mechanism.domain))
    share, rows = mechanism.spec.get("piecewise"), mechanism.table.rows
    columns = [max(column) / min(column) for column in zip(*rows, strict=True)]
    for part in (columns[-2:], columns[:-2]) if share else (columns,):
        assert max(part) == pytest.approx(math.exp(epsilon0), rel=1e-6)
    for row, place in zip(rows, places(mechanism.domain), strict=True):
        assert sum(row[:-2]) == share
        assert sum(w * s for w, s in zip(row[-2:], mechanism.scores[-2:], strict=True)) == place * (
            WORDS - share
        )
    assert share / WORDS == pytest.approx(
        1 - math.exp(-epsilon0 / 2) if epsilon0 > 0.61 else 0.0, abs=1e-9
    )
    assert epsilon0_upper(mechanism.privacy()) <= epsilon0


def test_small_epsilon0_is_one_bit_alone() -> None:
    """Planted: the coin of the paper's formula everywhere -> fails."""
    assert made(0.6).table == made(0.6, "one_bit_mean").table
    assert made(0.62).table.outputs > 2
    assert continuous(0.6093) == pytest.approx(continuous(0.6094), rel=1e-3), (
        "where both are as good"
    )


@for_each("epsilon0", EPSILONS)
def test_the_worst_case_is_the_papers_to_1_percent_or_below(epsilon0: float) -> None:
    """And below that of its parts, as the paper has them, where it has both. From 3 on the wide
    windows of ``piecewise`` err less still.

    Planted: piecewise with the coin's other side -> fails.
    """
    worst = max(float(variance) for _, variance in exact(made(epsilon0)))
    assert continuous(epsilon0) == pytest.approx(paper_hybrid(epsilon0))
    assert worst <= 1.01 * paper_hybrid(epsilon0)
    if epsilon0 > 0.61:
        assert worst < min(
            paper(epsilon0, 1.0),
            paper_hybrid(0.6) if epsilon0 < 0.61 else (1 + 2 / math.expm1(epsilon0)) ** 2,
        )
    other = max(float(variance) for _, variance in exact(made(epsilon0, "piecewise")))
    assert (other < worst) is (epsilon0 >= 3)


@for_each(
    "changes, message",
    [
        ({"piecewise": WORDS // 2 + 1}, '"piecewise" is even'),
        ({"window": 0}, "none is"),
        ({"piecewise": 0}, "none is"),
        ({"outputs": 0}, "none is"),
        ({"slope": WORDS // 16}, '"slope" is 1 to'),
        ({"gain": WORDS // 16}, '"gain" is 1 to'),
        ({"window": 8}, '"window" is 1 to 7'),
        ({"k": 7}, '"k" is 7'),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, int], message: str) -> None:
    integers = {"k": 6, "piecewise": WORDS // 2, "outputs": 8, "window": 3, "gain": 5, "slope": 5}
    create(MechanismSpec.of("hybrid", **integers), Numeric(0, 1, 5))
    with pytest.raises(ShoalError, match=message) as caught:
        create(MechanismSpec.of("hybrid", **(integers | changes)), Numeric(0, 1, 5))
    assert caught.value.kind is Kind.INVALID
    with pytest.raises(ShoalError, match="numeric domain"):
        design("hybrid", YesNo(), 1.0)
    with pytest.raises(ShoalError, match="use fewer levels"):
        design("hybrid", Numeric(0, 1, 7_000), 1.0)
