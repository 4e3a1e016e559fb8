"""What is told of a level: what reached the threshold, as it was counted, and nothing else."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from shoal.accounting.several_messages.liars import liar_words
from shoal.analyzer.results.discovered import findings
from shoal.analyzer.results.processed import beside
from shoal.analyzer.results.release import FRESH_DEVICES, conclude
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.analyzer.results.report_page import render_report
from shoal.analyzer.results.word_tree import word_tree
from shoal.mechanisms.base import Tally
from shoal.mechanisms.several.levels import level_of
from shoal.mechanisms.several.registry import create
from shoal.questions.spelling import ANOTHER, shown, spell
from tests.worlds.words import SMALL, found_in, words_world

WORLD = words_world()
# two of the last are below every threshold
WORDS = ("cat",) * 150 + ("cow",) * 120 + ("a",) * 100 + ("x",) * 2 + ("",) * 28


def test_beginnings_above_the_threshold_with_their_devices() -> None:
    """Each within 9 standard errors (a false alarm below 1e-9). Planted: cells of another order
    -> fails; a count below the threshold told -> "x" is there.
    """
    level = SMALL.level(1, [spell(one, 3)[:1] for one in "acx"])
    prepared = found_in(WORLD, level, WORDS, 1)
    release = decode_release(conclude(prepared, [], WORLD.analyzer).release)
    told = to_json(release)
    truth = Counter(shown(spell(word, 2)) if word else ANOTHER for word in WORDS)
    assert [row["label"] for row in told["estimates"]] == ["a", "ca…", "co…", ANOTHER]
    for row in told["estimates"]:
        assert abs(row["value"] - truth[row["label"]]) < 9 * row["stderr"]
    found = told["discovered"]
    assert (found["level"], found["no_room"], found["whole"]) == (1, 0, [True, False, False])
    assert all(row["value"] >= found["threshold"] > 2 for row in told["estimates"][:-1])
    assert "processed" not in told
    assert list(release.discovered.beginnings) == [spell("a", 3), b"\x02\x00", b"\x02\x0e"]


def test_beginnings_without_room_are_counted_and_not_named() -> None:
    """A discovery follows four. Planted: all are named -> five."""
    words = tuple(letter for letter in "abcdef" for _ in range(60)) + ("",) * 40
    prepared = found_in(WORLD, SMALL.level(0), [f"{word}xx" if word else "" for word in words], 0)
    assert prepared.found is not None
    assert (len(prepared.found.beginnings), prepared.found.no_room) == (4, 2)


def test_messages_for_cells_that_the_level_has_not_change_nothing() -> None:
    """The task's mechanism has more cells than the level. Planted: they are added to the last cell
    -> another estimate.
    """
    level = SMALL.level(1, [spell("c", 3)[:1]])
    prepared = found_in(WORLD, level, WORDS, 1)
    tally = prepared.opened.tally
    counts = tally.counts.copy()
    assert (counts[level.size :] == 0).all()
    counts[level.size :] += 10
    made = create(WORLD.task.mechanism, SMALL)
    again = findings(made, level, Tally(counts, int(counts.sum())), prepared.n)
    assert prepared.found is not None
    assert again.estimate.values.tolist() == prepared.found.estimate.values.tolist()


def test_a_hostile_device_pushes_a_word_by_no_more_than_is_told() -> None:
    """One that sends all its messages for one beginning. Planted: a message more -> fails."""
    level = SMALL.level(0)
    made = create(WORLD.task.mechanism, SMALL)
    honest = found_in(WORLD, level, WORDS, 0)
    most = made.messages
    assert f"{most}" in liar_words(made)
    tally = honest.opened.tally
    counts = tally.counts.copy()
    counts[25] += most
    assert honest.found is not None
    before = dict(zip(honest.found.estimate.labels, honest.found.estimate.values, strict=True))
    pushed = findings(made, level, Tally(counts, tally.rows + most), honest.n).estimate
    for label, value in zip(pushed.labels, pushed.values, strict=True):
        if label == "z\u2026":
            assert most - 20 <= value <= most + 20  # its noise alone
        else:
            assert value == before[label]
    assert "z\u2026" in pushed.labels


def test_owners_may_keep_an_epsilon0() -> None:
    """True messages are drawn too, of a level's cells, by the task's integers: with fewer cells
    they keep more. Planted: not drawn at a level, or seldomer than stated -> fails.
    """
    world = words_world(devices=4_000, epsilon0=7.0)
    words = ("cat",) * 2_000 + ("dog",) * 1_500 + ("",) * 500
    prepared = found_in(world, SMALL.level(0), words, 0)
    assert prepared.guarantee.epsilon0 == pytest.approx(7.0)
    assert prepared.found is not None
    level = level_of(create(world.task.mechanism, SMALL), SMALL.level(0))
    assert level.epsilon0 == pytest.approx(5.6086838)  # ln(1 + 32 (2^64 - u) / u)
    told = prepared.found.estimate
    assert told.labels == ("c\u2026", "d\u2026", ANOTHER)
    for value, error, true in zip(told.values, told.stderr, (2_000, 1_500, 500), strict=True):
        assert abs(value - true) < 6 * error


def test_of_devices_that_answer_once_the_numbers_are_of_a_window() -> None:
    """Said under every release's estimates, on the page and with the tree, and of no other
    discovery; so is of which devices a share is honest. Planted: the field not set -> fails; not
    read -> fails.
    """
    for fresh in (False, True):
        asked = replace(SMALL, fresh=fresh)
        world = words_world(asked)
        prepared = found_in(world, asked.level(0), WORDS, 0)
        told = to_json(decode_release(conclude(prepared, [], world.analyzer).release))
        windows = world.served.task.windows.count
        assert told["discovered"].get("draws_one_of") == (windows if fresh else None)
        said = f"Each device answers one of {windows} windows alone"
        assert any(said in line for line in beside(told)) == fresh
        assert (said in render_report([told])) == fresh
        assert word_tree([told]).scale.startswith(said) == fresh
        privacy = told["privacy"]
        assert (FRESH_DEVICES in privacy["assumptions"]) == fresh
