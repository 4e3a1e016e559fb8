"""Subset selection: the best set size, large domains, and what the suite does not list."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from shoal.domain import Categories
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY, Tally, create, design
from shoal.mechanisms.categories.krr import law as kary
from shoal.mechanisms.categories.krr import least_uniform
from shoal.mechanisms.categories.subset import (
    SubsetSelection,
    best_d,
    most_include,
    ratio,
    variance,
)
from shoal.privacy import PureLaw, epsilon0_upper
from shoal.task import MechanismSpec
from tests.cases import for_each
from tests.sizes import size

WORDS = 1 << 64


def labels(k: int) -> tuple[str, ...]:
    return tuple(map(str, range(k)))


def domain(k: int) -> Categories:
    return Categories(labels(k - 1))


@for_each("k", [2, 3, 4, 5, 7, 16, size(31, 61)])
@for_each("epsilon0", [1e-6, 0.1, 0.5, 1.0, 1.7, 2.0, 3.0, 5.0, 20.0])
def test_the_standard_set_size_has_the_least_variance_of_all(k: int, epsilon0: float) -> None:
    """All d compared, with their own integers. Planted: the ends of the range of d left out; the
    largest taken -> fails.
    """
    all_of_them = {d: variance(k, d, most_include(k, d, epsilon0)) for d in range(1, k)}
    assert all_of_them[best_d(k, epsilon0)] == min(all_of_them.values())
    assert design("subset", domain(max(k, 3)), epsilon0).get("d") == best_d(max(k, 3), epsilon0)


@for_each("epsilon0", [0.5, 1.0, 2.0, 4.0])
@for_each("k", [16, 128])
def test_the_variance_is_that_of_the_literature(k: int, epsilon0: float) -> None:
    """p and q of Ye and Barg, and the support estimator's variance (Wang et al. 2017, section 4),
    averaged over cells.
    """
    d, e = best_d(k, epsilon0), math.exp(epsilon0)
    p = d * e / (d * e + k - d)
    q = ((d - 1) * d * e + (k - d) * d) / ((k - 1) * (d * e + k - d))
    expected = q * (1 - q) / (p - q) ** 2 + (1 - p - q) / (p - q) / k
    assert float(variance(k, d, most_include(k, d, epsilon0))) == pytest.approx(expected, rel=1e-9)
    mechanism = SubsetSelection(labels(k), d, most_include(k, d, epsilon0))
    errors = mechanism.expected_stderr(np.full(k, 10, dtype=np.int64))
    assert errors == pytest.approx(math.sqrt(10 * k * expected), rel=1e-9)


@for_each("k, d", [(2, 1), (3, 2), (22, 4), (300, 1), (32_768, 8_813)])
@for_each("epsilon0", [1e-9, 1.0, 5.0, 20.0, 44.0])
def test_one_step_less_noise_would_break_the_promise(k: int, d: int, epsilon0: float) -> None:
    """Planted: the share left out rounded down -> the first assertion fails."""
    include = most_include(k, d, epsilon0)
    assert epsilon0_upper(PureLaw(ratio(k, d, include))) <= epsilon0
    assert include == WORDS - 1 or epsilon0_upper(PureLaw(ratio(k, d, include + 1))) > epsilon0


def test_sets_of_one_cell_are_k_ary_randomized_response() -> None:
    """The same ratio to within a step, and the same accuracy."""
    k, asked = 7, 4.0
    same, other = ratio(k, 1, most_include(k, 1, asked)), kary(k, least_uniform(k, asked))
    assert float(same) == pytest.approx(float(other.max_ratio), rel=1e-12)
    p, q = Fraction(other.same, other.total), Fraction(other.other, other.total)
    krr = (p * (1 - p) + (k - 1) * q * (1 - q)) / (k * (p - q) ** 2)
    assert float(variance(k, 1, most_include(k, 1, asked))) == pytest.approx(float(krr), rel=1e-9)


def test_an_estimate_by_hand() -> None:
    """k = 4, d = 2, I = 3/4: q = (2 - 3/4) / 3 = 5/12, p - q = 1/3. 800 reports, 400 with "0": (400
    - 1000/3) * 3 = 200.
    """
    mechanism = SubsetSelection(labels(4), 2, 3 * WORDS // 4)
    estimate = mechanism.estimate(Tally(np.array([400, 600, 300, 300]), 800))
    assert estimate.values == pytest.approx([200, 800, -100, -100])
    assert estimate.values.sum() == pytest.approx(800)
    # Each device of the cell adds p (1 - p) = 27/144, each other q (1 - q) = 35/144, over (1/3)^2.
    assert estimate.stderr**2 == pytest.approx(
        [(d * 27 + (800 - d) * 35) / 16 for d in (200, 800, 0, 0)]
    )


def test_the_gap_has_no_cancellation() -> None:
    """Almost pure noise: p - q = (k I - d 2^64) / ((k - 1) 2^64) = 4 / (3 * 2^64). Planted: p - q
    from floats -> 0, a division by it.
    """
    mechanism = SubsetSelection(labels(4), 2, WORDS // 2 + 1)
    assert mechanism.estimate(Tally(np.array([2, 1, 1, 0]), 2)).values == pytest.approx(
        [0.75 * WORDS, 0, 0, -0.75 * WORDS]
    )


def test_large_domains_are_drawn_in_blocks_and_one_by_one_alike() -> None:
    """Bytes of the two draws, exactly d marks, and the true cell as often as it should be (false
    alarm 6e-7 at this seed).

    Planted: a block's rows numbered from the start of the batch; the first draw taken beside the
    true cell -> fails.
    """
    k, d = 1_000, 90
    mechanism = SubsetSelection(labels(k), d, WORDS // 2)
    count = size(9_000, 40_000)  # more than two blocks
    values = np.arange(count, dtype=np.int64) * 7 % k
    reports = mechanism.randomize(values, SeededEntropy("large"))[:, 0]
    marks = np.unpackbits(reports, axis=1).astype(np.bool_)
    assert mechanism.valid(reports).all()
    assert (marks.sum(axis=1) == d).all()
    assert abs(marks[np.arange(count), values].mean() - 0.5) < 5 * 0.5 / math.sqrt(count)
    assert np.array_equal(mechanism.tally(reports).counts, marks[:, :k].sum(axis=0))
    for value in (0, 1, k - 2, k - 1):
        one = mechanism.randomize_one(value, SeededEntropy(value))
        assert one == (mechanism.randomize(np.array([value]), SeededEntropy(value)).tobytes(),)


@for_each("k", [3, 9, 16, 20])
def test_a_report_has_exactly_d_marks_and_no_spare_ones(k: int) -> None:
    """Every report with one mark added, taken away or moved beyond the last cell is refused, and
    refused by ``tally``.

    Planted: d marks or fewer accepted; spare bits counted as marks -> fails.
    """
    mechanism = SubsetSelection(labels(k), 2, WORDS - 1)
    width = mechanism.report_size * 8
    for marked in ([], [0], [0, 1, 2], [1, width - 1], [width - 2, width - 1], list(range(k))):
        bits = np.zeros(width, dtype=np.uint8)
        bits[marked] = 1
        row = np.packbits(bits).reshape(1, -1)
        right = len(marked) == 2 and max(marked) < k
        assert mechanism.valid(row).tolist() == [right]
        if not right:
            with pytest.raises(ShoalError) as caught:
                mechanism.tally(row)
            assert caught.value.kind is Kind.INVALID


@for_each(
    "k, d, include, said",
    [
        (4, 0, WORDS - 1, '"d" is 0'),
        (4, 4, WORDS - 1, '"d" is 4: it is 1 to k - 1 = 3'),
        (4, 2, WORDS // 2, '"include"'),
        (4, 2, 0, '"include"'),
        (4, 2, WORDS, '"include"'),
        (32_769, 2, WORDS - 1, "32769 cells is longer than a report"),
    ],
)
def test_other_integers_are_refused(k: int, d: int, include: int, said: str) -> None:
    """Planted: an ``include`` of d / k, a report that says nothing, accepted -> fails (its estimate
    would divide by 0).
    """
    with pytest.raises(ShoalError) as caught:
        SubsetSelection(labels(k), d, include)
    assert caught.value.kind is Kind.INVALID
    assert said in str(caught.value)


def test_a_domain_too_large_for_a_bitmap_has_no_settings() -> None:
    with pytest.raises(ShoalError, match="40000 cells") as caught:
        design("subset", domain(40_000), 1.0)
    assert caught.value.kind is Kind.INVALID
    assert create(design("subset", domain(32_768), 8.0), domain(32_768)).report_size == 4096


def test_settings_by_number_reach_half_of_the_cells() -> None:
    names = [setting.name for setting in REGISTRY["subset"].settings(domain(26))]
    assert names == ["standard", "d=1", "d=2", "d=3", "d=4", "d=6", "d=8", "d=12"]
    assert design("subset", domain(26), 5.0, "d=6").get("d") == 6
    with pytest.raises(ShoalError, match='"k" is 3'):
        create(MechanismSpec.of("subset", k=3, d=1, include=WORDS - 1), domain(4))
