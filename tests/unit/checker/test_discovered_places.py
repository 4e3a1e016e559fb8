"""Whether what a discovery of places says that it found can be what its task asks."""

from __future__ import annotations

from collections.abc import Callable

from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.checker.findings import Outcome
from shoal.checker.questions.discovered import discovered, shown_level
from shoal.domain import Discovery
from shoal.entropy import SeededEntropy
from shoal.protos import release_pb2, task_pb2
from shoal.questions.place_paths import PlacePaths
from shoal.questions.places import Places
from tests.cases import for_each
from tests.worlds.place_trees import places_of
from tests.worlds.words import found_in, release_of, words_world

# its cells end between microdegrees, at every level
CITY = PlacePaths(Places(48_060_000, 11_360_000, 48_250_003, 11_720_005, 1, 1), 4)
SMALL = Discovery(1, 3, 4, (), CITY)
WORLD = words_world(SMALL)
PLACES = places_of(400, SeededEntropy("places"))
FIRST = found_in(WORLD, SMALL.level(0), PLACES, 0)
assert FIRST.found is not None
NEXT = SMALL.after(0, FIRST.found.beginnings)
assert NEXT is not None
RELEASES = tuple(
    release_of(WORLD, one) for one in (FIRST, found_in(WORLD, NEXT, PLACES, 1, "again"))
)
TASK = task_pb2.Task.FromString(WORLD.task_bytes)
Change = Callable[[release_pb2.Release], None]


def outcomes(release: release_pb2.Release) -> dict[str, Outcome]:
    return {one.what: one.outcome for one in discovered(release, TASK)}


def _label(release: release_pb2.Release) -> None:
    release.estimates[0].label = release.estimates[1].label


def _threshold(release: release_pb2.Release) -> None:
    release.discovered.threshold = 1


def _favourite(release: release_pb2.Release) -> None:
    beginnings = release.discovered.beginnings
    beginnings[0] = min(one for one in release.discovered.asked if one not in beginnings)
    told = sorted(beginnings)
    del beginnings[:]
    beginnings.extend(told)


def _order(release: release_pb2.Release) -> None:
    told = list(reversed(release.discovered.beginnings))
    del release.discovered.beginnings[:]
    release.discovered.beginnings.extend(told)


def _many(release: release_pb2.Release) -> None:
    """All of a lower threshold."""
    found = release.discovered
    rows = zip(release.estimates, found.asked, strict=False)
    told = sorted(cell for row, cell in rows if row.value >= 1.0)
    found.threshold, found.no_room = 1, 0
    del found.beginnings[:]
    found.beginnings.extend(told)


def _hidden(release: release_pb2.Release) -> None:
    del release.discovered.beginnings[0]


def _box(release: release_pb2.Release) -> None:
    release.discovered.parts.map.south += 1


def _level(release: release_pb2.Release) -> None:
    release.discovered.level = 3


def _cell_left_out(release: release_pb2.Release) -> None:
    del release.discovered.asked[-1]
    del release.estimates[-2]


def _symbol(release: release_pb2.Release) -> None:
    release.discovered.asked[-1] = release.discovered.asked[-1][:-1] + b"\x10"


def _room(release: release_pb2.Release) -> None:
    release.discovered.no_room += 1


def _preferred(release: release_pb2.Release) -> None:
    """The most crowded cell had no room, and others had."""
    rows = zip(release.estimates, release.discovered.asked, strict=False)
    largest = max(rows, key=lambda pair: pair[0].value)[1]
    release.discovered.beginnings.remove(largest)
    release.discovered.no_room += 1


LEVEL = "the cells are all that such a level asks for"
REACHED = "followed are the cells that reach the threshold, of too many the largest"
LIES: dict[str, tuple[Change, str]] = {
    "another label": (_label, "every estimate is of the cell that it names"),
    "another threshold": (_threshold, REACHED),
    "one that is not": (_favourite, REACHED),
    "one is not told": (_hidden, REACHED),
    "another order": (_order, REACHED),
    "more than there is room for": (_many, "no more cells are followed than the task allows"),
    "others had no room": (_room, REACHED),
    "the largest had no room": (_preferred, REACHED),
    "another map": (_box, "the map is the task's"),
    "another level": (_level, "the level is one of the discovery's"),
    "a cell left out": (_cell_left_out, LEVEL),
    "no symbol": (_symbol, LEVEL),
}


def test_what_was_released_holds() -> None:
    """Planted: a label of other digits in place_paths.py -> fails; edges rounded down -> fails."""
    for data in RELEASES:
        release = decode_release(data)
        assert set(outcomes(release).values()) == {Outcome.HOLDS}
        assert len(outcomes(release)) == 6
        assert shown_level(release) == to_json(release)["discovered"]


@for_each("change, what", LIES.values(), ids=list(LIES))
def test_what_it_can_not_be_is_wrong(change: Change, what: str) -> None:
    """Planted: each statement that always holds, each part of REACHED left out -> its case fails;
    but for "all of them reach it", which follows from the others.
    """
    for data in RELEASES:
        release = decode_release(data)
        change(release)
        assert outcomes(release)[what] is Outcome.WRONG
