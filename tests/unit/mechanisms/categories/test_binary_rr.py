"""Binary randomized response: the classic form, its integers, its estimate."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.domain import Categories, YesNo
from shoal.entropy import SYSTEM, SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Tally, create, design
from shoal.mechanisms.categories.binary_rr import BinaryResponse, symmetric, two_coin
from shoal.privacy import FiniteLaw, KaryLaw, epsilon0_upper
from tests.cases import for_each

WORDS = 1 << 64


def test_two_coins_are_three_quarters_and_one_quarter() -> None:
    """Enumerating the two fair coins: heads first -> the truth; tails first -> the second coin."""
    outcomes = {
        answer: [answer if first else second for first in (1, 0) for second in (1, 0)]
        for answer in (0, 1)
    }
    spec = two_coin()
    assert spec.get("yes_if_yes") * 4 == sum(outcomes[1]) * WORDS
    assert spec.get("yes_if_no") * 4 == sum(outcomes[0]) * WORDS
    privacy = create(spec, YesNo()).privacy()
    assert privacy.max_ratio == 3
    assert math.log(3) <= epsilon0_upper(privacy) < math.log(3) * (1 + 1e-14)


def test_design_at_ln_3_is_the_two_coin_form() -> None:
    """Just above ln 3 as a float the designed flip is one quarter, up to the integers that the
    rounding up costs.
    """
    assert abs(symmetric(math.log(3)).get("yes_if_no") - WORDS // 4) < 1e-13 * WORDS


@pytest.mark.parametrize(
    ("yes_if_yes", "yes_if_no", "symmetrical"),
    [(3, 1, False), (WORDS - 5, 5, True), (WORDS - 5, 6, False)],
)
def test_the_law_is_kary_only_when_symmetric(
    yes_if_yes: int, yes_if_no: int, symmetrical: bool
) -> None:
    law = BinaryResponse(yes_if_yes, yes_if_no).privacy()
    assert isinstance(law, KaryLaw if symmetrical else FiniteLaw)
    assert law.total == WORDS


def test_an_estimate_by_hand() -> None:
    """1,000 reports, 600 yes, P(yes|yes) = 3/4, P(yes|no) = 1/4: (600 - 250) / (1/2) = 700;
    variance 1000 * 3/16 / (1/4).
    """
    estimate = create(two_coin(), YesNo()).estimate(Tally(np.array([400, 600]), 1000))
    assert estimate.labels == ("no", "yes")
    assert estimate.values == pytest.approx([300, 700])
    assert estimate.stderr == pytest.approx([math.sqrt(750)] * 2)


def test_an_asymmetric_estimate_by_hand() -> None:
    """p = 1/2, q = 1/8, 1,000 reports, 350 yes: (350 - 125) / (3/8) = 600; each yes adds p(1-p),
    each no q(1-q), over (3/8)^2. Planted: the variance without its f term -> 778 instead of 1,378
    and this fails.
    """
    estimate = BinaryResponse(WORDS // 2, WORDS // 8).estimate(Tally(np.array([650, 350]), 1000))
    assert estimate.values == pytest.approx([400, 600])
    variance = (600 * 1 / 4 + 400 * 7 / 64) / (9 / 64)
    assert estimate.stderr == pytest.approx([math.sqrt(variance)] * 2)


def test_little_noise_is_not_lost() -> None:
    """At epsilon0 near 44 a yes is flipped once in 2^63, and 1 - p would be 0 in floats. Planted: p
    (1 - p) from a float p -> fails.
    """
    found = BinaryResponse(WORDS - 2, 2).expected_stderr(np.array([500, 500]))
    assert found == pytest.approx([math.sqrt(1000 * 2 / WORDS)] * 2, rel=1e-12)
    assert found == pytest.approx(
        BinaryResponse(WORDS - 2, 2).expected_stderr(np.array([0, 1000])), rel=1e-12
    )


def test_estimates_are_not_clipped() -> None:
    """Planted: clipping to [0, n] -> this fails."""
    estimate = create(two_coin(), YesNo()).estimate(Tally(np.array([1000, 0]), 1000))
    assert estimate.values == pytest.approx([1500, -500])
    assert (estimate.ci_high - estimate.ci_low > 0).all()


@for_each("yes_if_yes, yes_if_no", [(5, 5), (4, 5), (5, 0), (WORDS, 5)])
def test_thresholds_that_tell_nothing_or_everything_are_refused(
    yes_if_yes: int, yes_if_no: int
) -> None:
    with pytest.raises(ShoalError, match='"yes_if_no" < "yes_if_yes"') as caught:
        BinaryResponse(yes_if_yes, yes_if_no)
    assert caught.value.kind is Kind.INVALID


@pytest.mark.parametrize("place", [0, 40_000, 99_999])
def test_a_value_that_is_no_answer_is_refused_wherever_it_stands(place: int) -> None:
    """Planted: only the first block looked at -> a 2 counts as a yes."""
    answers = np.zeros(100_000, dtype=np.int64)
    for wrong in (2, -1):
        answers[place] = wrong
        with pytest.raises(ShoalError, match="cells 0 to 1") as caught:
            create(two_coin(), YesNo()).randomize(answers, SeededEntropy(1))
        assert caught.value.kind is Kind.INVALID


def test_reports_of_the_systems_words_are_independent_from_block_to_block() -> None:
    """Four blocks of one answer: how often two places 32,768 apart agree is p^2 + (1 - p)^2 = 5/8,
    within 6 standard errors (2e-9). Planted: the words of the first block used again -> they agree
    always.
    """
    reports = create(two_coin(), YesNo()).randomize(np.zeros(4 * 32_768, dtype=np.int64), SYSTEM)[
        :, 0, 0
    ]
    agree = np.count_nonzero(reports[:-32_768] == reports[32_768:])
    # shared places: the variance is below 2 of each pair
    assert abs(agree - 0.625 * 98_304) < 6 * math.sqrt(98_304 * 2)


def test_another_domain_is_refused() -> None:
    for act in (lambda d: create(two_coin(), d), lambda d: design("binary_rr", d, 1.0)):
        with pytest.raises(ShoalError, match="yes/no domain"):
            act(Categories(("a", "b")))


class Recorded(SeededEntropy):
    """Keeps the words that it gave."""

    def __init__(self) -> None:
        super().__init__("recorded")
        self.given: list[NDArray[np.uint64]] = []

    def words(self, count: int) -> NDArray[np.uint64]:
        self.given.append(super().words(count))
        return self.given[-1]


def test_every_device_of_every_block_is_compared_with_its_own_threshold() -> None:
    """Over four blocks, the last one short. Planted: the last block skipped (its reports are then
    the answers themselves); ``and`` for ``or`` -> this fails.
    """
    mechanism, entropy = BinaryResponse(3 * (WORDS // 4), WORDS // 8), Recorded()
    answers = np.arange(100_000) % 3 % 2
    reports = mechanism.randomize(answers, entropy)[:, 0, 0]
    words = np.concatenate(entropy.given)
    assert words.size == answers.size
    thresholds = np.array([mechanism.yes_if_no, mechanism.yes_if_yes], dtype=np.uint64)
    assert np.array_equal(reports, words < thresholds[answers])
