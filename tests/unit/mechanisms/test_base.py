"""Tallies add and are stored canonically; estimates are whole and finite."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.errors import Kind, ShoalError
from shoal.mechanisms.base import Estimate, Tally
from tests.cases import for_each

TALLY = Tally(np.array([3, 0, 2]), 5)
SUMS = Tally(np.array([-20, 0, 35]), 5, weight=7)


def test_tallies_add_and_leave_their_parts_alone() -> None:
    total = TALLY + Tally(np.array([1, 1, 1]), 3)
    assert total == Tally(np.array([4, 1, 3]), 8)
    assert total.counts.dtype == np.int64
    assert Tally(np.array([3, 0, 2]), 5) == TALLY != total


def test_a_tally_cannot_be_changed() -> None:
    """Planted: keeping the caller's array -> the caller changes a stored tally and this fails."""
    mine = np.array([3, 0, 2])
    tally = Tally(mine, 5)
    mine[0] = 1
    assert tally == TALLY
    with pytest.raises(ValueError, match="read-only"):
        tally.counts[0] = 1


def test_tallies_of_different_cells_do_not_add() -> None:
    with pytest.raises(ShoalError, match="different tasks") as caught:
        _ = TALLY + Tally(np.array([1, 1]), 2)
    assert caught.value.kind is Kind.INVALID


@for_each(
    "tally",
    [
        TALLY,
        Tally(np.zeros(1, np.int64), 0),
        Tally(np.array([2**61, 0]), 2**62 - 1),
        Tally(np.zeros(65_536, np.int64), 9),
        SUMS,
        Tally(np.array([-(2**61), 2**61]), 2**31, weight=2**30),
    ],
)
def test_a_stored_tally_comes_back(tally: Tally) -> None:
    data = tally.to_bytes()
    assert Tally.from_bytes(data) == tally
    assert Tally.from_bytes(data).to_bytes() == data
    assert hash(Tally.from_bytes(data)) == hash(tally)


def test_what_was_added_can_be_taken_off() -> None:
    """Planted: the weight lost in a difference -> fails."""
    for one in (TALLY, SUMS):
        assert one + one - one == one
    with pytest.raises(ShoalError):
        _ = TALLY - (TALLY + TALLY)


@for_each("counts, rows, weight", [([36], 5, 7), ([-36], 5, 7), ([0], 2**32, 2**31), ([0], 1, -1)])
def test_sums_beyond_their_weight_are_refused(counts: list[int], rows: int, weight: int) -> None:
    """Planted: the lower end not compared; the product not bounded -> fails."""
    with pytest.raises(ShoalError) as caught:
        Tally(np.array(counts, dtype=np.int64), rows, weight)
    assert caught.value.kind is Kind.INVALID


def test_sums_and_counts_do_not_add() -> None:
    """Planted: weights not compared -> fails."""
    for other in (TALLY, Tally(SUMS.counts, 5, weight=8)):
        with pytest.raises(ShoalError, match="different tasks"):
            _ = SUMS + other


def test_the_stored_form_of_sums_is_fixed() -> None:
    assert (
        SUMS.to_bytes().hex()
        == "02"
        + "0000000000000005"
        + "00000003"
        + "0000000000000007"
        + "ffffffffffffffec"
        + "0000000000000000"
        + "0000000000000023"
    )
    for damaged in (SUMS.to_bytes()[:-1], SUMS.to_bytes()[:13] + bytes(8) + SUMS.to_bytes()[21:]):
        with pytest.raises(ShoalError) as caught:
            Tally.from_bytes(damaged)
        assert caught.value.kind is Kind.INVALID


def test_the_stored_form_is_fixed() -> None:
    """Stored tallies outlive a version of the code. Planted: little-endian counts -> this fails."""
    assert (
        TALLY.to_bytes().hex()
        == "01"
        + "0000000000000005"
        + "00000003"
        + "0000000000000003"
        + "0000000000000000"
        + "0000000000000002"
    )


@for_each(
    "data",
    [
        b"",
        TALLY.to_bytes()[:-1],
        TALLY.to_bytes() + b"\0",
        b"\x02" + TALLY.to_bytes()[1:],
        TALLY.to_bytes()[:8] + b"\x02" + TALLY.to_bytes()[9:],  # fewer rows than counts
        TALLY.to_bytes()[:-8] + b"\xff" * 8,  # a negative count
        b"\x01" + b"\xff" * 8 + TALLY.to_bytes()[9:],  # rows beyond 2^62
        b"\x01" + bytes(12),  # no cells
    ],
)
def test_damaged_tallies_are_refused(data: bytes) -> None:
    with pytest.raises(ShoalError) as caught:
        Tally.from_bytes(data)
    assert caught.value.kind is Kind.INVALID


@for_each("counts, rows", [([[1]], 1), ([], 0), ([2], 1), ([-1, 1], 5), ([1], -1), ([1], 2**62)])
def test_impossible_tallies_are_refused(counts: list[int], rows: int) -> None:
    with pytest.raises(ShoalError):
        Tally(np.array(counts, dtype=np.int64), rows)


def test_wald_interval() -> None:
    estimate = Estimate.wald(("a", "b"), np.array([-5.0, 10.0]), np.array([1.0, 0.0]))
    assert estimate.ci_low == pytest.approx([-6.959963984540054, 10])
    assert estimate.ci_high == pytest.approx([-3.040036015459946, 10])
    assert estimate.level == 0.95


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_estimate_is_finite(value: float) -> None:
    with pytest.raises(ShoalError):
        Estimate.wald(("a",), np.array([value]), np.array([1.0]))


def test_an_estimate_has_one_entry_per_label() -> None:
    with pytest.raises(ShoalError):
        Estimate.wald(("a", "b"), np.array([1.0]), np.array([1.0]))
