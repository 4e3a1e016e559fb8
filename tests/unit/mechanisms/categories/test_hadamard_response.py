"""Hadamard response: its errors in exact arithmetic, its blocks, and domains that the suite does
not list.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from shoal.accounting.bounds.clones import kary_clones, symmetric_clones
from shoal.accounting.numerics.cells import blanket_sums, dataset_sums
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY, Tally, create, design
from shoal.mechanisms.categories.hadamard import HadamardBit, least_flip
from shoal.mechanisms.categories.hadamard_response import (
    HadamardResponse,
    block_size,
    most_include,
    paper_blocks,
    ratio,
    two_blocks,
)
from shoal.privacy import FiniteLaw, KaryLaw, PureLaw, epsilon0_upper
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.unit.mechanisms.categories.of_cells import (
    WORDS,
    check_errors,
    check_large,
    domain,
    labels,
)


@for_each(
    "k, count, include",
    [
        (5, 2, WORDS // 2),
        (5, 3, WORDS // 3),
        (7, 2, WORDS - 1),
        (6, 5, WORDS // 5),
        (9, 4, WORDS - 10**15),
    ],
)
def test_mean_and_variance_are_those_of_the_law(k: int, count: int, include: int) -> None:
    """The estimate is linear in the reports: its mean and variance in rationals, output by output,
    from the law's table.

    Planted: the square of the mean left out for a device's own cell; strangers of the block taken
    for those of others -> fails.
    """
    mechanism = HadamardResponse(labels(k), count, include)
    law = mechanism.privacy()
    assert isinstance(law, FiniteLaw)

    def chances(cell: int) -> list[Fraction]:
        return [Fraction(weight, law.total) for weight in law.rows[cell]]

    check_errors(mechanism, k, mechanism.outputs, chances)


@pytest.mark.parametrize("epsilon0", [0.3, 1.0, 3.0])
def test_one_block_is_as_accurate_as_one_hadamard_bit(epsilon0: float) -> None:
    held = np.array([5, 0, 90, 7, 1, 0, 20], dtype=np.int64)
    block = HadamardResponse(labels(7), 1, most_include(1, epsilon0)).expected_stderr(held)
    assert block == pytest.approx(
        HadamardBit(labels(7), least_flip(epsilon0)).expected_stderr(held), rel=1e-9
    )


@for_each("k, count", [(64, 1), (64, 4), (64, 16), (60, 3)])
def test_the_variance_of_an_even_population(k: int, count: int) -> None:
    """(2 B - 1 + e)^2 / (B (e - 1)^2) per device at a cell that nobody holds, e = e^epsilon0: least
    near B = (e - 1) / 2.
    """
    epsilon0 = 3.0
    e = math.exp(epsilon0)
    held = np.full(k, 1000, dtype=np.int64)
    mechanism = HadamardResponse(labels(k), count, most_include(count, epsilon0))
    expected = (2 * count - 1 + e) ** 2 / (count * (e - 1) ** 2)
    assert mechanism.expected_stderr(held)[0] ** 2 / held.sum() == pytest.approx(
        expected - 1 / k, rel=1e-9
    )


def test_an_estimate_by_hand() -> None:
    """k = 3, B = 2, b = 4, I = 5/8: the other three halves have 1/8 each, the gap is 1/2.

    Cells 0 and 2 are of block 0, with rows 1 and 2: + - + - and + + - -. Cell 1 is of block 1, row
    1. Counts of block 0: 30, 20, 10, 0, of block 1: 15, 5, 10, 10. Sums: cell 0: 40 - 20 = 20; cell
    2: 50 - 10 = 40; cell 1: 25 - 15 = 10. Estimates: 40, 20, 80.
    """
    mechanism = HadamardResponse(labels(3), 2, 5 * (WORDS // 8))
    estimate = mechanism.estimate(Tally(np.array([30, 20, 10, 0, 15, 5, 10, 10]), 100))
    assert estimate.values == pytest.approx([40, 20, 80])
    # A device of the cell: 3/4 - 1/4 = 1/2; squares of the others: the block's reports less 3/4 per
    # device of the cell. All over 1/4. Cell 1's block has 40 reports: 40 - 15 = 25 of others. Cell
    # 2's 60
    # - 60 = 0.
    assert estimate.stderr**2 == pytest.approx([4 * (20 + 30), 4 * (10 + 25), 4 * 40])


def test_errors_are_never_estimated_below_those_of_an_empty_block() -> None:
    """No report of block 1 at all: its cells still have the error of 100 devices elsewhere.
    Planted: no such floor -> an error of 0.
    """
    mechanism = HadamardResponse(labels(3), 2, 5 * (WORDS // 8))
    estimate = mechanism.estimate(Tally(np.array([100, 0, 0, 0, 0, 0, 0, 0]), 100))
    assert estimate.stderr[1] ** 2 == pytest.approx(100 * 0.25 * 4)


@for_each(
    "k, count, order",
    [
        (2, 1, 4),
        (3, 1, 4),
        (4, 1, 8),
        (3, 2, 4),
        (4, 2, 4),
        (6, 2, 4),
        (7, 2, 8),
        (7, 7, 2),
        (65_536, 8, 16_384),
    ],
)
def test_blocks_are_as_small_as_their_rows_allow(k: int, count: int, order: int) -> None:
    """The row of ones is used by no cell."""
    assert block_size(k, count) == order
    assert (order - 1) * count >= k
    assert order == 2 or (order // 2 - 1) * count < k


@for_each(
    "epsilon0, count",
    [
        (1e-9, 1),
        (0.5, 1),
        (0.7, 2),
        (1.0, 2),
        (2.0, 4),
        (3.0, 16),
        (5.0, 64),
        (9.0, 64),
        (600.0, 64),
    ],
)
def test_the_paper_s_number_of_blocks(epsilon0: float, count: int) -> None:
    """k = 100: the largest power of two up to e^epsilon0, and up to 64."""
    assert paper_blocks(100, epsilon0) == count
    assert design("hadamard_response", domain(100), epsilon0).get("blocks") == count


@for_each("count", [1, 2, 3, 64])
@for_each("epsilon0", [1e-9, 1.0, 5.0, 20.0, 44.0])
def test_one_step_less_noise_would_break_the_promise(count: int, epsilon0: float) -> None:
    """Planted: the share left out rounded down -> the first assertion fails."""
    include = most_include(count, epsilon0)
    assert epsilon0_upper(PureLaw(ratio(count, include))) <= epsilon0
    assert include == WORDS - 1 or epsilon0_upper(PureLaw(ratio(count, include + 1))) > epsilon0


@for_each("k, count, width", [(5, 2, 1), (300, 4, 2), (20_000, 8, 2), (65_536, 16, 4)])
def test_large_domains_are_found_again(k: int, count: int, width: int) -> None:
    """Planted: the highest bit of the row for its lowest -> fails."""
    mechanism = HadamardResponse(labels(k), count, most_include(count, 4.0))
    assert mechanism.report_size == width
    check_large(mechanism, k)


@for_each(
    "k, count, include, said",
    [
        (1, 1, WORDS - 1, "k is 2"),
        (4, 0, WORDS - 1, '"blocks" is 0'),
        (4, 5, WORDS - 1, '"blocks" is 5: it is 1 to k = 4'),
        (4, 2, WORDS // 4, '"include"'),
        (4, 2, 0, '"include"'),
        (4, 2, WORDS, '"include"'),
    ],
)
def test_other_integers_are_refused(k: int, count: int, include: int, said: str) -> None:
    with pytest.raises(ShoalError) as caught:
        HadamardResponse(labels(k), count, include)
    assert caught.value.kind is Kind.INVALID
    assert said in str(caught.value)


def test_settings_by_number_reach_the_number_of_cells() -> None:
    names = [setting.name for setting in REGISTRY["hadamard_response"].settings(domain(20))]
    assert names == ["standard", "B=1", "B=2", "B=4", "B=8", "B=16"]
    with pytest.raises(ShoalError, match='"k" is 3'):
        create(MechanismSpec.of("hadamard_response", k=3, blocks=1, include=WORDS - 1), domain(4))


@for_each("count", [2, 3, 8, 65_536])
def test_two_blocks_are_bounded_as_randomized_response_over_the_halves(count: int) -> None:
    """To tell cells of different blocks apart a report says its half: k-ary response over 2 B
    halves, B of which can be true.

    Planted: one half less outside the supports -> fails.
    """
    include = most_include(count, 4.0)
    law, halves = (
        two_blocks(count, include),
        KaryLaw(2 * count, same=include * (2 * count - 1), other=WORDS - include),
    )
    assert law.max_ratio == halves.max_ratio == ratio(count, include)
    assert blanket_sums(law, 1000) == blanket_sums(halves, 1000)
    assert symmetric_clones(law, 1000) == kary_clones(halves, 1000)
    assert set(dataset_sums(law, 1000)) <= set(dataset_sums(halves, 1000))
