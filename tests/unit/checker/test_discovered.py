"""A release of a discovery, looked at without the code that made it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.checker.findings import Outcome
from shoal.checker.questions.discovered import discovered, shown_level
from shoal.protos import release_pb2, task_pb2
from tests.cases import for_each
from tests.worlds.services.analyzer import World, make_task
from tests.worlds.words import SMALL, found_in, release_of, words_world

WORLD = words_world()
WORDS = ("cat",) * 150 + ("cow",) * 120 + ("a",) * 100 + ("",) * 30
LEVEL = SMALL.level(1, [b"\x00", b"\x02"])
RELEASE = release_of(WORLD, found_in(WORLD, LEVEL, WORDS, 1))
Change = Callable[[release_pb2.Release], object]


def task_of(world: World) -> task_pb2.Task:
    return task_pb2.Task.FromString(world.task_bytes)


def outcomes(release: release_pb2.Release, world: World = WORLD) -> dict[str, Outcome]:
    return {one.what: one.outcome for one in discovered(release, task_of(world))}


def _label(release: release_pb2.Release) -> None:
    release.estimates[0].label = "b"


def _small(release: release_pb2.Release) -> None:
    release.estimates[1].value = release.discovered.threshold - 0.5


def _threshold(release: release_pb2.Release) -> None:
    release.discovered.threshold = 10_000


def _level(release: release_pb2.Release) -> None:
    release.discovered.level = 2


def _levels(release: release_pb2.Release) -> None:
    release.discovered.levels = 9


def _symbol(release: release_pb2.Release) -> None:
    release.discovered.beginnings[1] = b"\x02\x20"


def _end(release: release_pb2.Release) -> None:
    release.discovered.beginnings[1] = b"\x1f\x1f"


def _twice(release: release_pb2.Release) -> None:
    release.discovered.beginnings.append(release.discovered.beginnings[-1])
    row = release.estimates[-2]
    del release.estimates[-1]
    release.estimates.append(row)
    release.estimates.add(label="another, or none")


def _many(release: release_pb2.Release) -> None:
    rows = list(release.estimates)
    del release.estimates[:]
    del release.discovered.beginnings[:]
    for letter in range(5):
        release.discovered.beginnings.append(bytes((2, letter)))
        release.estimates.add(label=f"c{chr(97 + letter)}\u2026", value=1_000.0)
    release.estimates.append(rows[-1])


LIES: dict[str, tuple[Change, str]] = {
    "another label": (_label, "every estimate is of the beginning that it names"),
    "below the threshold": (_small, "every beginning reaches the threshold"),
    "another threshold": (_threshold, "every beginning reaches the threshold"),
    "another level": (_level, "every beginning is as long as the level asks"),
    "more levels": (_levels, "the level is one of the discovery's"),
    "no symbol": (_symbol, "every beginning is as long as the level asks"),
    "an end inside": (_end, "every beginning is as long as the level asks"),
    "one of them twice": (_twice, "every estimate is of the beginning that it names"),
    "more than are followed": (
        _many,
        "no more beginnings are followed than the task allows",
    ),
}


def test_what_was_released_holds() -> None:
    release = decode_release(RELEASE)
    assert set(outcomes(release).values()) == {Outcome.HOLDS}
    assert len(outcomes(release)) == 5
    assert shown_level(release) == to_json(release)["discovered"]


@for_each("change, what", LIES.values(), ids=list(LIES))
def test_what_it_can_not_be_is_wrong(change: Change, what: str) -> None:
    """Planted: each statement that always holds -> its case fails."""
    release = decode_release(RELEASE)
    change(release)
    assert outcomes(release)[what] is Outcome.WRONG


def test_of_which_devices_numbers_are_is_held_against_the_task() -> None:
    """A release from before the field says nothing. Planted: the statement always holds -> fails;
    another number of windows passed over -> fails.
    """
    fresh = replace(SMALL, fresh=True)
    world = words_world(fresh)
    data = release_of(world, found_in(world, fresh.level(1, [b"\x00", b"\x02"]), WORDS, 1))
    release, what = decode_release(data), "a device answers as many windows as the task says"
    windows = task_of(world).windows.count
    assert release.discovered.drawn == windows > 1
    assert outcomes(release, world)[what] is Outcome.HOLDS
    assert shown_level(release) == to_json(release)["discovered"]
    assert to_json(release)["discovered"]["draws_one_of"] == windows
    release.discovered.drawn = windows + 1
    assert outcomes(release, world)[what] is Outcome.WRONG
    release.discovered.drawn = 0
    assert what not in outcomes(release, world)
    ours = decode_release(RELEASE)
    assert ours.discovered.drawn == 0
    ours.discovered.drawn = windows
    assert outcomes(ours)[what] is Outcome.WRONG


def test_other_tasks_tell_no_words() -> None:
    other = World(make_task())
    assert list(outcomes(decode_release(RELEASE), other).values()) == [Outcome.WRONG]
    assert outcomes(release_pb2.Release(), other) == {}
