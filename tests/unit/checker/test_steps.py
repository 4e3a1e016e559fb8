"""A whole discovery, checked across its release files: as it was, and changed in every link."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from shoal.checker.check import check_releases
from shoal.checker.findings import Outcome
from shoal.entropy import SeededEntropy
from shoal.ids import Digest
from shoal.protos import directory_pb2
from tests.cases import for_each
from tests.worlds.place_trees import SMALL as SMALL_MAP
from tests.worlds.place_trees import places_of
from tests.worlds.release_files import (
    File,
    outcomes,
    part,
    played,
    put,
    release_anew,
    step_anew,
)
from tests.worlds.services.analyzer import World
from tests.worlds.words import SMALL, words_world

WORLD = words_world()
MAP = words_world(SMALL_MAP)
PLACES = places_of(400, SeededEntropy("places"))
WORDS = ("cat",) * 150 + ("cow",) * 120 + ("a",) * 100 + ("",) * 30
STEP = "the window has a step, of this task and window"
NAMED = "all reports of the batch answer that step, as the shuffler says"
LEVEL = "the level is the one that the step asks"
GOES_ON = "every beginning goes on from one that the step follows"
FOLLOWS = "the step follows all that the release it names told to go on"
THRESHOLD = "the threshold is that of its cells and devices"
OVER = "nothing was left to follow where the discovery ended"
TOTAL = "epsilon of all releases so far, together"
ALL = "epsilon of all windows of the discovery, together"
Files = dict[int, File]


@cache
def _played() -> Files:
    """Window 1 is lost: level 1 is asked in window 2, and level 2 in window 3."""
    return played(WORLD, WORDS, lost=(1,))


def files() -> Files:
    return copy.deepcopy(_played())


def test_a_whole_discovery_holds() -> None:
    """Every statement of every file: chain, levels, thresholds, epsilon of each, of all so far, and
    of all windows. Planted: epsilon of all windows one per mille smaller than what is proven, or a
    total that leaves one release out -> the released total is below it, and open.
    """
    found = outcomes(files(), WORLD)
    assert sorted(found) == [0, 2, 3]
    for statements in found.values():
        assert set(statements.values()) == {Outcome.HOLDS}, statements
        assert {STEP, NAMED, LEVEL, FOLLOWS, GOES_ON, THRESHOLD, ALL} <= statements.keys()
    assert [OVER in statements for statements in found.values()] == [False, False, True]


def test_refused_messages_are_reports_of_as_many_as_a_device_sends() -> None:
    """The threshold is that of the devices that were heard: a level's estimates take one report off
    for as many refused messages as one has there. Planted: each refused message a report, or none
    taken off -> a threshold that is said to be wrong.
    """
    found = outcomes(played(WORLD, (*WORDS, *("",) * 500), refused=500), WORLD)
    assert len(found) == 3
    assert {one[THRESHOLD] for one in found.values()} == {Outcome.HOLDS}


def test_fresh_devices_have_the_epsilon_of_one_window() -> None:
    """Planted: six windows composed -> another epsilon is said; the word of the task not looked at
    -> as much.
    """
    world = words_world(replace(SMALL, fresh=True))
    data = [json.dumps(file).encode() for file in played(world, WORDS, lost=(1,)).values()]
    for check in check_releases(data, [world.authority.public]):
        assert check.outcome is Outcome.HOLDS
        (told,) = [one.why for one in check.checked if one.what == ALL]
        assert told.startswith("4 at delta 1e-06: a device answers in one window alone")


@cache
def _played_on_a_map() -> Files:
    return played(MAP, PLACES)


def test_a_whole_discovery_of_places_holds() -> None:
    """The same chain, with parts of a map for letters. Planted: thresholds of 32 symbols -> those
    of places are wrong, fails.
    """
    found = outcomes(_played_on_a_map(), MAP)
    assert len(found) == SMALL_MAP.levels
    for statements in found.values():
        # the total so far is a close call here, and may be left open
        assert {one for one, how in statements.items() if how is not Outcome.HOLDS} <= {TOTAL}
        assert {STEP, NAMED, LEVEL, FOLLOWS, GOES_ON, THRESHOLD, ALL} <= statements.keys()
        assert statements[TOTAL] is not Outcome.WRONG


def test_a_map_whose_step_asks_something_else_is_caught() -> None:
    """One part less than what the release goes on from, or a part that no map has. Planted: parts
    not compared with those that are told -> the first fails; symbols of words taken for those of
    parts -> the second.
    """

    def less(step: directory_pb2.DiscoveryStep) -> None:
        del step.followed[-1]

    def beyond(step: directory_pb2.DiscoveryStep) -> None:
        step.followed[-1] = b"\x10"

    for change, caught in ((less, GOES_ON), (beyond, STEP)):
        some = copy.deepcopy(_played_on_a_map())
        step_anew(some[1], MAP, change)
        assert outcomes(some, MAP)[1][caught] is Outcome.WRONG


def test_a_question_that_no_shuffler_named_is_open() -> None:
    """An analyzer that writes the manifest itself, and has no signature for it. Planted: the
    manifest believed as it is -> fails.
    """
    some = files()
    del some[2]["signed"]["manifest_signature"]
    del some[0]["signed"]["manifest"]
    found = outcomes(some, WORLD)
    assert found[2][NAMED] is found[0][NAMED] is Outcome.OPEN
    assert found[3][NAMED] is Outcome.HOLDS


def test_a_missing_level_leaves_the_next_one_open() -> None:
    """Planted: a step of a release that is nowhere is believed -> fails."""
    some = files()
    del some[2]
    found = outcomes(some, WORLD)
    assert found[3][FOLLOWS] is Outcome.OPEN
    assert found[0][FOLLOWS] is Outcome.HOLDS


def _swapped(some: Files) -> None:
    """Window 2 shows the step of window 3, whole and signed."""
    put(some[2], "step", part(some[3], "step"), part(some[3], "step_signature"))


def _no_step(some: Files) -> None:
    del some[3]["signed"]["step"]


def _step_of_the_first(some: Files) -> None:
    put(some[0], "step", part(some[2], "step"), part(some[2], "step_signature"))


def _another_window(some: Files) -> None:
    step_anew(some[3], WORLD, lambda step: setattr(step, "window", 4))


def _one_more(some: Files) -> None:
    """The analyzer follows a beginning that nobody was told to have, aimed at somebody."""
    step_anew(some[2], WORLD, lambda step: step.followed.append(b"\x19"))


def _one_less(some: Files) -> None:
    step_anew(some[2], WORLD, lambda step: step.followed.pop())


def _level_skipped(some: Files) -> None:
    """The step of the last level names the release of the first."""
    named = Digest.of(part(some[0], "release")).raw
    step_anew(some[3], WORLD, lambda step: setattr(step, "release_hash", named))


def _level_of_another_task(some: Files) -> None:
    task = replace(WORLD.task, name="others")
    other = played(World(task, WORLD.authority, WORLD.shuffler, WORLD.analyzer), WORDS)
    some[1] = other[1]
    named = Digest.of(part(other[1], "release")).raw
    step_anew(some[3], WORLD, lambda step: setattr(step, "release_hash", named))


def _step_of_another_task(some: Files) -> None:
    step_anew(some[3], WORLD, lambda step: setattr(step, "task_id", bytes(32)))


def _out_of_order(some: Files) -> None:
    step_anew(some[3], WORLD, lambda step: step.followed.sort(reverse=True))


def _level_not_asked(some: Files) -> None:
    release_anew(some[2], WORLD, lambda release: setattr(release.discovered, "level", 2))


def _word_from_nowhere(some: Files) -> None:
    """A word of a beginning that was not followed."""

    def change(release: object) -> None:
        release.discovered.beginnings[0] = b"\x19\x00"  # type: ignore[attr-defined] # a message

    release_anew(some[2], WORLD, change)


def _threshold(by: int) -> Callable[[Files], None]:
    def change(some: Files) -> None:
        def forge(release: object) -> None:
            release.discovered.threshold += by  # type: ignore[attr-defined] # a message

        release_anew(some[3], WORLD, forge)

    return change


def _ended_early(some: Files) -> None:
    """The discovery is said to be over after level 1, which has more to follow."""
    put(some[2], "end", part(some[3], "end"), part(some[3], "end_signature"))
    named = Digest.of(part(some[2], "release")).raw
    step_anew(some[2], WORLD, lambda step: setattr(step, "release_hash", named), "end")


def _end_of_another(some: Files) -> None:
    put(some[2], "end", part(some[3], "end"), part(some[3], "end_signature"))


def _end_names_another(some: Files) -> None:
    named = Digest.of(part(some[2], "release")).raw
    step_anew(some[3], WORLD, lambda step: setattr(step, "release_hash", named), "end")


TAMPERED: dict[str, tuple[Callable[[Files], None], int, str, Outcome]] = {
    "a step swapped": (_swapped, 2, STEP, Outcome.WRONG),
    "a step after the fact": (_one_more, 2, NAMED, Outcome.WRONG),
    "no step": (_no_step, 3, STEP, Outcome.OPEN),
    "a step of window 0": (_step_of_the_first, 0, STEP, Outcome.WRONG),
    "a step of another window": (_another_window, 3, STEP, Outcome.WRONG),
    "a step of another task": (_step_of_another_task, 3, STEP, Outcome.WRONG),
    "steps out of order": (_out_of_order, 3, STEP, Outcome.WRONG),
    "a beginning too many": (_one_more, 2, FOLLOWS, Outcome.WRONG),
    "a beginning too few": (_one_less, 2, FOLLOWS, Outcome.WRONG),
    "a level left out": (_level_skipped, 3, FOLLOWS, Outcome.WRONG),
    "a level of another task": (_level_of_another_task, 3, FOLLOWS, Outcome.WRONG),
    "a level that was not asked": (_level_not_asked, 2, LEVEL, Outcome.WRONG),
    "a word from nowhere": (_word_from_nowhere, 2, GOES_ON, Outcome.WRONG),
    "a threshold too low": (_threshold(-1), 3, THRESHOLD, Outcome.WRONG),
    "a threshold too high": (_threshold(1), 3, THRESHOLD, Outcome.WRONG),
    "an end too early": (_ended_early, 2, OVER, Outcome.WRONG),
    "an end of another release": (_end_of_another, 2, OVER, Outcome.WRONG),
    "an end that names another": (_end_names_another, 3, OVER, Outcome.WRONG),
}


@for_each("change, window, what, outcome", TAMPERED.values(), ids=list(TAMPERED))
def test_a_chain_that_was_tampered_with_is_caught(
    change: Callable[[Files], None], window: int, what: str, outcome: Outcome
) -> None:
    """By an analyzer that signs what it likes. Planted: each statement that always holds -> its
    case fails.
    """
    some = files()
    change(some)
    assert outcomes(some, WORLD)[window][what] is outcome


def test_a_step_of_another_signer_is_wrong() -> None:
    """Planted: signatures of steps are not looked at -> fails."""
    some = files()
    put(some[2], "step", part(some[2], "step"), part(some[3], "step_signature"))
    assert outcomes(some, WORLD)[2]["the task's analyzer signed what the window asks"] is (
        Outcome.WRONG
    )
