"""What a shuffler passes on of discoveries: the first step of each window, to everybody alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from shoal.clocks.clock import FakeClock
from shoal.protos import directory_pb2
from shoal.shuffler.asked_steps import AskedSteps
from shoal.shuffler.directory import Directory
from shoal.shuffler.tasks import ShufflerTasks
from tests.worlds.services.analyzer import LENGTH, START, World, make_task
from tests.worlds.words import SMALL, step_of, words_world

WORLD = words_world()
PLAIN = World(make_task())
LEVEL = SMALL.level(1, [b"\x02", b"\x13"])
FIRST = step_of(WORLD, 1, LEVEL)
SECOND = step_of(WORLD, 2, SMALL.level(2, [b"\x02\x01"]))
OTHER = step_of(WORLD, 1, SMALL.level(1, [b"\x02"]))


class Book:
    def __init__(self, *worlds: World) -> None:
        self.served = {one.task_id: one.served for one in worlds}


class Bench:
    def __init__(self, folder: Path, *worlds: World) -> None:
        self.clock = FakeClock(START + 1.0)
        self.book = Book(*worlds)
        tasks = cast(ShufflerTasks, self.book)
        self.steps = AskedSteps(tasks, self.clock, folder / "steps")
        self.directory = Directory(tasks, self.clock, steps=self.steps.listed)

    async def catalogue(self) -> directory_pb2.Catalogue:
        request = directory_pb2.PageRequest().SerializeToString()
        reply = directory_pb2.PageReply.FromString(
            await self.directory.page(request, cast(Any, None))
        )
        return directory_pb2.Catalogue.FromString(reply.data)


async def test_the_last_step_is_listed_as_soon_as_it_is_known(tmp_path: Path) -> None:
    """Planted: the catalogue is made again for tasks alone -> the old one; all steps listed ->
    two.
    """
    bench = Bench(tmp_path, WORLD, PLAIN)
    assert list((await bench.catalogue()).steps) == []
    bench.steps.hear([FIRST.data])
    assert list((await bench.catalogue()).steps) == [FIRST.data]
    bench.steps.hear([SECOND.data])
    assert list((await bench.catalogue()).steps) == [SECOND.data]
    assert len((await bench.catalogue()).bundles) == 2


def test_a_second_step_of_a_window_is_told_to_nobody_also_after_a_restart(tmp_path: Path) -> None:
    """Planted: the newest is passed on -> fails; known in memory alone -> the second half."""
    for bench in (Bench(tmp_path, WORLD), Bench(tmp_path, WORLD)):
        bench.steps.hear([FIRST.data])
        assert list(bench.steps.conditions()) == []
        bench.steps.hear([OTHER.data])
        assert bench.steps.listed() == (FIRST.data,)
        (condition,) = bench.steps.conditions()
        assert "words" in condition.message
        assert not condition.stops
        bench.steps.hear([FIRST.data])
        assert list(bench.steps.conditions()) == []


def test_what_is_no_step_of_a_served_task_is_passed_by(tmp_path: Path) -> None:
    """One that is wrong keeps nothing of the others back. Planted: the first one that is wrong
    ends it -> nothing is listed.
    """
    bench = Bench(tmp_path, WORLD, PLAIN)
    stranger = words_world()
    bench.steps.hear([b"\xff", step_of(stranger, 1, LEVEL).data, FIRST.data[:-1], b"", FIRST.data])
    assert bench.steps.listed() == (FIRST.data,)


def test_the_analyzer_is_asked_soon_while_a_window_waits(tmp_path: Path) -> None:
    """Planted: window 0 waits too -> the first assert fails; over is never over -> the last."""
    bench = Bench(tmp_path, WORLD, PLAIN)
    assert (bench.steps.awaited, bench.steps.under_way) == (False, True)
    bench.clock.advance(LENGTH)
    assert bench.steps.awaited
    bench.steps.hear([FIRST.data])
    assert (bench.steps.awaited, bench.steps.under_way) == (False, True)
    bench.clock.advance(LENGTH)
    assert bench.steps.awaited
    bench.steps.hear([step_of(WORLD, 2, None).data])
    assert (bench.steps.awaited, bench.steps.under_way) == (False, False)
    assert not Bench(tmp_path, PLAIN).steps.under_way
