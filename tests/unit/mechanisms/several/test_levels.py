"""The histogram of a level, and what is followed from it."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import pytest

from shoal.arrays import np
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.base import Estimate
from shoal.mechanisms.categories.krr import KaryResponse
from shoal.mechanisms.several.histogram import BundledHistogram
from shoal.mechanisms.several.levels import (
    FALSE_WORDS,
    FoundBeginning,
    chance_of,
    histogram_of,
    kept,
    least_number,
    of_level,
    threshold,
)
from shoal.mechanisms.several.noise_law import NoiseLaw, Truth
from shoal.questions.discovery import Discovery
from shoal.questions.spelling import END, shown, spell
from tests.cases import for_each

ASKED = Discovery(1, 4, 40)
SHARES = 10


def task_mechanism(dummies: Fraction = Fraction(3), uniform: int | None = None) -> BundledHistogram:
    """Of the largest level."""
    law = NoiseLaw(Truth.CELL, ASKED.size, SHARES, 400, dummies=dummies)
    names = tuple(map(str, range(ASKED.size)))
    return BundledHistogram(names, law, None if uniform is None else KaryResponse(names, uniform))


def followed(*texts: str) -> list[bytes]:
    return sorted(spell(text, len(text)) for text in texts)


def test_a_level_has_the_noise_of_the_task_in_each_of_its_cells() -> None:
    """So the promise is the task's, whatever is followed. Planted: noise of the task's size spread
    over the level's cells, or the rates scaled with them -> fails.
    """
    task = task_mechanism()
    for level in (ASKED.level(0), ASKED.level(1, followed("a", "b"))):
        made = histogram_of(task, level)
        assert made.noise.rates() == task.noise.rates()
        assert (made.noise.cells, made.noise.slots) == (level.size, task.noise.slots)
        assert made.report_size == task.report_size == 2
        assert made.mean_messages == 1 + level.size * (task.mean_messages - 1) / ASKED.size


def test_messages_of_a_level_are_tallied_by_the_task_and_cut_to_the_level() -> None:
    """What the analyzer opens is the task's; nothing is lost on the way. Planted: a message as wide
    as a small level needs -> the task's tally refuses it.
    """
    task, level = task_mechanism(), ASKED.level(0)
    made = histogram_of(task, level)
    assert level.size <= 256 < ASKED.size
    rows = made.randomize(np.array([3, 3, 31], dtype=np.int64), SeededEntropy(1)).rows
    assert task.valid(rows).all()
    whole, part = task.tally(rows), made.tally(rows)
    cut = of_level(whole, level)
    assert (cut.counts == part.counts).all()
    assert whole.counts.sum() == part.counts.sum() == len(rows)
    stray = np.vstack([rows, np.array([[4, 0]], dtype=np.uint8)])  # of no cell of this level
    assert of_level(task.tally(stray), level).counts.tolist() == part.counts.tolist()


def test_the_mechanism_of_another_question_is_refused() -> None:
    with pytest.raises(ShoalError) as refused:
        histogram_of(task_mechanism(), Discovery(1, 4, 41).level(0))
    assert refused.value.kind is Kind.INVALID


@for_each("holders", [0, 2])
@for_each("least", [0, 2, 4, 9])
def test_the_chance_of_a_cell_is_that_of_its_poisson_number(holders: int, least: int) -> None:
    """Against a plain sum. The estimate is holders + Poisson(3) - 3. Planted: > for >=, or the mean
    not subtracted -> fails.
    """
    made = task_mechanism()
    expected = sum(
        math.exp(-3.0) * 3.0**count / math.factorial(count)
        for count in range(80)
        if holders + count - 3 >= least
    )
    assert chance_of(made, SHARES, holders, least) == pytest.approx(expected, abs=1e-9)


@for_each("least", [-1, 0, 1, 3])
def test_the_chance_where_true_messages_are_drawn_is_that_of_every_draw(least: int) -> None:
    """Three devices, two of them holders, all draws enumerated, and the Poisson sum. Planted: the
    estimate's division by p - q left out -> fails.
    """
    weight = 1 << 62  # a quarter is drawn from all cells
    made = histogram_of(task_mechanism(Fraction(2), weight), ASKED.level(0))
    law = made.truth_law
    assert law is not None
    p, q = law.same / law.total, law.other / law.total
    mean = 2.0 * 3 / SHARES
    expected = 0.0
    for kept_first, kept_second, come in product((True, False), repeat=3):
        chance = (p if kept_first else 1 - p) * (p if kept_second else 1 - p)
        chance *= q if come else 1 - q
        for count in range(60):
            estimate = (kept_first + kept_second + come + count - mean - 3 * q) / (p - q)
            if estimate >= least:
                expected += chance * math.exp(-mean) * mean**count / math.factorial(count)
    assert chance_of(made, 3, 2, least) == pytest.approx(expected, abs=1e-9)


def test_the_threshold_is_the_smallest_that_lets_half_a_false_word_through() -> None:
    """Over all levels. Planted: one level's share for all of them, or one device fewer -> fails."""
    made = histogram_of(task_mechanism(Fraction(50)), ASKED.level(0))
    least = threshold(made, ASKED.levels, 25)  # 125 dummies expected
    cells = made.noise.cells - 1

    def expected(value: int) -> float:
        logs = (
            count * math.log(125.0) - 125.0 - math.lgamma(count + 1)
            for count in range(125 + value, 600)
        )
        return ASKED.levels * cells * sum(map(math.exp, logs))

    assert expected(least) <= FALSE_WORDS < expected(least - 1)


def test_the_least_number_is_found_exactly() -> None:
    """Planted: a bracket of two taken for closed -> fails."""
    assert [least_number(least.__le__) for least in range(1, 40)] == list(range(1, 40))


def estimate_of(level_size: int, values: dict[int, float]) -> Estimate:
    """Of a level: 0 in all other cells."""
    filled = np.zeros(level_size)
    for cell, value in values.items():
        filled[cell] = value
    ones = np.ones(level_size)
    labels = tuple(map(str, range(level_size)))
    return Estimate(labels, filled, ones, filled - 2, filled + 2)


def names(found: list[FoundBeginning]) -> list[str]:
    return [shown(one.symbols) for one in found]


def test_what_reaches_the_threshold_is_followed_and_a_whole_word_is_told() -> None:
    """Planted: > for >=; whole words followed; cells that no word has kept -> fails."""
    level = ASKED.level(1, followed("a", "b"))
    whole, blank = 32 + END, 28  # "b", and "a " of which "a " may go on
    found, left_out = kept(
        level, estimate_of(level.size, {0: 10.0, 1: 9.99, whole: 50.0, blank: 10.0, 64: 99.0}), 10.0
    )
    assert names(found) == ["aa\u2026", "a \u2026", "b"]
    assert left_out == 0
    assert [one.is_whole for one in found] == [False, False, True]
    assert (found[2].value, found[2].stderr, found[2].ci_low, found[2].ci_high) == (50, 1, 48, 52)
    after = level.discovery.after(level.number, (one.symbols for one in found))
    assert after is not None
    assert after.followed == (bytes([0, 0]), bytes([0, blank]))
    assert after.number == 2


def test_of_too_many_the_most_frequent_are_followed_in_order() -> None:
    """Ties go to the first in order, on every machine. Planted: the first ones by name -> fails."""
    asked = Discovery(1, 3, 2)
    level = asked.level(0)
    found, left_out = kept(level, estimate_of(level.size, {5: 9.0, 6: 11.0, 7: 9.0, 1: 4.0}), 4.0)
    assert names(found) == ["f\u2026", "g\u2026"]
    assert left_out == 2


def test_the_last_level_and_one_without_survivors_are_the_end() -> None:
    """At the last level nothing is dropped for want of room: nothing is followed from there."""
    asked = Discovery(1, 2, 2)
    last = asked.level(1, followed("a", "b"))
    found, left_out = kept(last, estimate_of(last.size, {0: 5.0, 1: 5.0, 33: 5.0, END: 5.0}), 5.0)
    assert names(found) == ["aa\u2026", "ab\u2026", "a", "bb\u2026"]
    assert left_out == 0
    assert last.discovery.after(last.number, (one.symbols for one in found)) is None
    assert ASKED.after(0, []) is None
