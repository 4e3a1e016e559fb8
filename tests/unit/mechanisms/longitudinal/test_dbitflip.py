"""dBitFlip beside the conformance suite: the paper's figures, long reports, and which integers are
refused.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from shoal.domain import Categories, YesNo
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Tally, create, design
from shoal.mechanisms.longitudinal.dbitflip import FAMILY, law
from shoal.mechanisms.longitudinal.protocol import Longitudinal
from shoal.task import MechanismSpec
from tests.cases import for_each

WORDS = 1 << 64


def domain(k: int) -> Categories:
    return Categories(tuple(f"c{i}" for i in range(k - 1)))


def test_the_flips_are_the_papers_but_for_one_bucket() -> None:
    """Ding et al. 2017, section 3: a bit is right with e^(epsilon / 2) / (e^(epsilon / 2) + 1). One
    bucket alone may use all of epsilon.
    """
    for d, half in ((1, 1.0), (4, 0.5), (16, 0.5)):
        flip = design("dbitflip", domain(64), 1.5, f"d={d}").get("flip")
        assert flip / WORDS == pytest.approx(1 / (math.exp(1.5 * half) + 1), rel=1e-12)


def test_settings_are_powers_of_four_and_all_as_far_as_they_fit() -> None:
    assert [one.name for one in FAMILY.settings(YesNo())] == ["d=1", "d=2"]
    assert [one.name for one in FAMILY.settings(domain(64))] == ["d=1", "d=4", "d=16", "d=64"]
    assert [one.name for one in FAMILY.settings(domain(60_000))] == [
        "d=1",
        "d=4",
        "d=16",
        "d=64",
        "d=256",
        "d=1024",
    ]
    with pytest.raises(ShoalError, match="longer than a report"):
        create(MechanismSpec.of("dbitflip", d=4_000, flip=1, k=60_000), domain(60_000))


@pytest.mark.parametrize("d", [1, 20])
def test_a_law_of_many_buckets_is_stated_soon_and_soundly(d: int) -> None:
    """20 of 300 buckets: the least weights are stated a little smaller than they are, the ratio
    exactly.
    """
    flip = WORDS // 9
    found = law(300, d, flip)
    assert found.max_ratio == Fraction(WORDS - flip, flip) ** min(d, 2)


def test_buckets_of_two_bytes_are_counted_where_they_are() -> None:
    """Planted: the numbers read little-endian -> other cells are counted."""
    many = domain(1_000)
    mechanism = create(design("dbitflip", many, 12.0, "d=256"), many)
    assert mechanism.report_size == 2 * 256 + 32
    values = np.full(2_000, 700)
    reports = mechanism.randomize(values, SeededEntropy("two bytes")).reshape(
        -1, mechanism.report_size
    )
    estimate = mechanism.estimate(mechanism.tally(reports))
    assert int(np.argmax(estimate.values)) == 700
    assert abs(estimate.values[700] - 2_000) < 5 * estimate.stderr[700]


def test_a_bucket_that_nobody_chose_says_so() -> None:
    """0 devices, and an interval from nobody to everybody at least. Planted: 0 / 0 -> no number."""
    five = domain(5)
    mechanism = create(design("dbitflip", five, 1.0), five)
    estimate = mechanism.estimate(Tally(np.array([0, 7, 0, 0, 0, 0, 3, 0, 0, 0]), 7))
    assert (estimate.values[0], estimate.stderr[0]) == (0.0, 7.0)
    assert estimate.ci_low[0] <= 0.0
    assert estimate.ci_high[0] >= 7.0


def test_a_device_keeps_one_answer_for_every_chosen_bucket_and_one_for_all_others() -> None:
    five = domain(5)
    for d, keys in ((1, 2), (4, 5), (5, 5)):
        mechanism = create(design("dbitflip", five, 1.0, f"d={d}"), five)
        assert isinstance(mechanism, Longitudinal)
        choice = mechanism.choose_one(SeededEntropy(d))
        assert mechanism.keys == keys == len({mechanism.key_of(choice, cell) for cell in range(5)})


@for_each("k, d, flip", [(5, 6, 1), (5, 0, 1), (5, 1, WORDS // 2), (5, 1, 0), (6, 1, 1)])
def test_other_integers_are_refused(k: int, d: int, flip: int) -> None:
    create(MechanismSpec.of("dbitflip", d=1, flip=1, k=5), domain(5))
    with pytest.raises(ShoalError, match="dbitflip") as caught:
        create(MechanismSpec.of("dbitflip", d=d, flip=flip, k=k), domain(5))
    assert caught.value.kind is Kind.INVALID
