"""Settings of rounds: what cannot hold is not made, each with its one line; boundaries are exact;
sizes of vectors.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from shoal.crypto.secagg.parameters import survivors_needed
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.secagg import CHECK_WORDS, WORD_BITS, Mode, PairwisePlan
from tests.cases import for_each

GOOD: dict[str, Any] = {
    "mode": Mode.DEFAULT,
    "cohort_min": 100,
    "cohort_max": 120,
    "survivors_min": 80,
    "dropout_ppm": 200_000,
    "word_bits": 32,
}


def plan(**changes: Any) -> PairwisePlan:
    return PairwisePlan(**{**GOOD, **changes})


@for_each(
    "changes, named",
    [
        ({"survivors_min": 1}, "survivors_min"),
        ({"survivors_min": 0}, "survivors_min"),
        ({"survivors_min": 101}, "cohort_min"),
        ({"cohort_min": 121}, "cohort_max"),
        ({"cohort_max": LIMITS.cohort + 1}, f"{LIMITS.cohort} devices"),
        ({"mode": Mode.STRICT, "cohort_max": LIMITS.cohort + 1}, f"{LIMITS.cohort} devices"),
        (
            {"mode": Mode.HELPER, "cohort_max": LIMITS.helper_cohort + 1},
            f"{LIMITS.helper_cohort} devices",
        ),
        ({"dropout_ppm": -1}, "dropout"),
        ({"dropout_ppm": 1_000_000}, "dropout"),
        ({"word_bits": 0}, "word_bits"),
        ({"word_bits": 8}, "word_bits"),
        ({"word_bits": 33}, "word_bits"),
        *(
            ({name: bad}, name)
            for name in ("join_s", "share_s", "mask_s", "unmask_s")
            for bad in (0, -1, LIMITS.phase_s + 1)
        ),
    ],
)
def test_bad_settings_are_refused_by_name(changes: dict[str, Any], named: str) -> None:
    """In words, without a formula. Planted: any one check of ``PairwisePlan`` removed, the cap of
    helper mode given to all, or the old chain of "<=" -> a line fails.
    """
    with pytest.raises(ShoalError) as caught:
        plan(**changes)
    assert caught.value.kind is Kind.INVALID
    assert named in caught.value.message
    assert "\n" not in caught.value.message
    assert "<=" not in caught.value.message


def test_the_last_good_settings_are_taken() -> None:
    assert plan(survivors_min=2, cohort_min=2, cohort_max=2, dropout_ppm=0).dropout == 0
    assert plan(cohort_max=LIMITS.cohort, dropout_ppm=999_999).dropout == Fraction(
        999_999, 1_000_000
    )
    assert (
        plan(mode=Mode.HELPER, cohort_max=LIMITS.helper_cohort).cohort_max == LIMITS.helper_cohort
    )
    assert plan(join_s=1, share_s=LIMITS.phase_s).seconds == 1 + 2 * LIMITS.phase_s + 120 + 60


def test_check_words_are_64_bits_or_more() -> None:
    """A wrong sum passes with 2^-64 at most, in every width. Planted: 2 check words at 16 bits ->
    this fails.
    """
    for bits in WORD_BITS:
        assert CHECK_WORDS[bits] * bits >= 64
        assert plan(word_bits=bits).vector_bytes(10) == (10 + CHECK_WORDS[bits]) * bits // 8


def test_honest_survivors_are_there_whoever_is_lost() -> None:
    """Corrupt devices stay, honest ones are lost: counted for every size of a round. Exact at the
    smallest where nothing is rounded.

    Planted: floor(honest fraction * survivors_min), 72 of 80 -> fails: of 100 devices 20 honest
    ones are lost, 10 corrupt ones stay.
    """
    made = [
        (100, 80, 200_000, 900_000),
        (96, 77, 200_000, 900_000),
        (30, 24, 200_000, 660_000),
        (100, 100, 300_000, 950_000),
    ]
    for least, survivors, dropout, honest in made:
        one = PairwisePlan(Mode.DEFAULT, least, 1_000, survivors, dropout, 32)
        sure = one.honest_survivors(honest)
        for n in range(least, 1_001):
            corrupt = n * (1_000_000 - honest) // 1_000_000
            assert sure <= survivors_needed(one, n) - corrupt
    assert PairwisePlan(Mode.DEFAULT, 100, 120, 80, 200_000, 32).honest_survivors(900_000) == 70
    assert PairwisePlan(Mode.DEFAULT, 100, 120, 80, 200_000, 32).honest_survivors(1_000_000) == 80
    assert PairwisePlan(Mode.DEFAULT, 100, 120, 50, 500_000, 32).honest_survivors(400_000) == 0
