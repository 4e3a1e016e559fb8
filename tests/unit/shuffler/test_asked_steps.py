"""What a shuffler passes on of discoveries: the first step of each window, to everybody alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from shoal.clocks.clock import FakeClock
from shoal.crypto.discovery_steps import trust_step
from shoal.protos import directory_pb2
from shoal.shuffler.asked_steps import AskedSteps
from shoal.shuffler.core import WindowId
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
        self.verifiers = dict[bytes, object]()


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
    assert len((await bench.catalogue()).bundles) == 2
    await bench.steps.hear([FIRST.data])
    assert list((await bench.catalogue()).steps) == [FIRST.data]
    bench.clock.advance(LENGTH)
    await bench.steps.hear([SECOND.data])
    assert list((await bench.catalogue()).steps) == [FIRST.data, SECOND.data]
    bench.clock.advance(LENGTH)
    assert list((await bench.catalogue()).steps) == [SECOND.data]
    bench.clock.advance(LENGTH)
    assert list((await bench.catalogue()).steps) == [SECOND.data]


@pytest.mark.parametrize(
    ("at", "window", "taken"),
    [
        (-0.1, 1, False),  # before the task
        (0.1, 1, True),
        (0.1, 2, False),  # a window is between
        (1.1, 1, True),
        (1.74, 1, True),
        (1.76, 1, False),  # it has run for three quarters
        (2.1, 1, False),  # it is over
    ],
)
async def test_a_step_counts_when_there_is_time_to_hear_it(
    tmp_path: Path, at: float, window: int, taken: bool
) -> None:
    """Else the analyzer could choose a moment in which few devices ask. Planted: each of the two
    limits left out -> its lines fail.
    """
    bench = Bench(tmp_path, WORLD)
    bench.clock.advance(at * LENGTH - 1.0)
    step = FIRST if window == 1 else SECOND
    await bench.steps.hear([step.data])
    assert bench.steps.listed() == ((step.data,) if taken else ())
    assert bench.steps.find(step.name) == (WindowId(WORLD.task_id, window) if taken else None)
    bench.clock.advance(5 * LENGTH)
    await bench.steps.hear([step.data])
    assert list(bench.steps.conditions()) == []


async def test_a_question_is_found_by_its_name_also_after_a_restart(tmp_path: Path) -> None:
    """And who verifies proofs for it. An end is no question. Planted: names in memory alone; the
    task's verifier for its own name alone -> fails.
    """
    first = Bench(tmp_path, WORLD)
    await first.steps.hear([FIRST.data])
    bench = Bench(tmp_path, WORLD)
    bench.book.verifiers[WORLD.task_id.raw] = "the task's"
    assert bench.steps.find(FIRST.name) == WindowId(WORLD.task_id, 1)
    assert bench.book.verifiers[FIRST.name.raw] == "the task's"
    assert bench.steps.find(OTHER.name) is bench.steps.find(WORLD.task_id) is None
    end = step_of(WORLD, 2, None)
    bench.clock.advance(LENGTH)
    await bench.steps.hear([end.data])
    assert bench.steps.listed() == (FIRST.data, end.data)
    assert bench.steps.find(end.name) is None


async def test_a_second_step_of_a_window_is_told_to_nobody_also_after_a_restart(
    tmp_path: Path,
) -> None:
    """Planted: the newest is passed on -> fails; known in memory alone -> the second half."""
    for bench in (Bench(tmp_path, WORLD), Bench(tmp_path, WORLD)):
        await bench.steps.hear([FIRST.data])
        assert list(bench.steps.conditions()) == []
        await bench.steps.hear([OTHER.data])
        assert bench.steps.listed() == (FIRST.data,)
        (condition,) = bench.steps.conditions()
        assert "words" in condition.message
        assert "docs/DISCOVERY.md" in condition.message
        assert not condition.stops
        await bench.steps.hear([FIRST.data])
        assert list(bench.steps.conditions()) == []


async def test_what_is_no_step_of_a_served_task_is_passed_by(tmp_path: Path) -> None:
    """One that is wrong keeps nothing of the others back. Planted: the first one that is wrong
    ends it -> nothing is listed.
    """
    bench = Bench(tmp_path, WORLD, PLAIN)
    stranger = words_world()
    strange = step_of(stranger, 1, LEVEL).data
    await bench.steps.hear([b"\xff", strange, FIRST.data[:-1], b"", FIRST.data])
    assert bench.steps.listed() == (FIRST.data,)


async def test_the_analyzer_is_asked_soon_while_a_window_waits(tmp_path: Path) -> None:
    """Planted: window 0 waits too -> the first assert fails; over is never over -> the last."""
    bench = Bench(tmp_path, WORLD, PLAIN)
    assert (bench.steps.awaited, bench.steps.under_way) == (False, True)
    bench.clock.advance(LENGTH)
    assert bench.steps.awaited
    await bench.steps.hear([FIRST.data])
    assert (bench.steps.awaited, bench.steps.under_way) == (False, True)
    bench.clock.advance(LENGTH)
    assert bench.steps.awaited
    await bench.steps.hear([step_of(WORLD, 2, None).data])
    assert (bench.steps.awaited, bench.steps.under_way) == (False, False)
    assert not Bench(tmp_path, PLAIN).steps.under_way


async def test_manifests_name_what_a_window_asks(tmp_path: Path) -> None:
    """Nothing of window 0, of a window that is not known yet, of another task. Planted: the name
    of the last step for every window -> fails.
    """
    bench = Bench(tmp_path, WORLD, PLAIN)
    window = WindowId(WORLD.task_id, 1)
    assert bench.steps.named(window) == b""
    await bench.steps.hear([FIRST.data])
    assert bench.steps.named(window) == FIRST.name.raw
    assert bench.steps.named(WindowId(WORLD.task_id, 0)) == b""
    assert bench.steps.named(WindowId(WORLD.task_id, 2)) == b""
    assert bench.steps.named(WindowId(PLAIN.task_id, 1)) == b""
    bench.book.served.clear()
    assert bench.steps.named(window) == b""


async def test_a_step_is_verified_once_however_often_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delivered twice, and after a restart. Planted: verified whenever it is heard -> fails; what
    is known believed by its window alone -> the other step is no condition, fails.
    """
    verified = list[bytes]()

    def counting(data: bytes, *given: Any) -> Any:
        verified.append(data)
        return trust_step(data, *given)

    monkeypatch.setattr("shoal.shuffler.asked_steps.trust_step", counting)
    bench = Bench(tmp_path, WORLD)
    for _ in range(3):
        await bench.steps.hear([FIRST.data])
    assert verified == [FIRST.data]
    await bench.steps.hear([OTHER.data])
    assert len(list(bench.steps.conditions())) == 1
    await bench.steps.hear([FIRST.data])
    assert list(bench.steps.conditions()) == []
    assert bench.steps.listed() == (FIRST.data,)


async def test_steps_out_of_order_and_after_a_restore(tmp_path: Path) -> None:
    """The second is heard before the first, then the first, and both again by a shuffler whose
    folder was restored from before it heard any. Planted: a later step known -> an earlier one
    refused, fails.
    """
    bench = Bench(tmp_path, WORLD)
    bench.clock.advance(LENGTH)
    await bench.steps.hear([SECOND.data])
    await bench.steps.hear([FIRST.data])
    assert bench.steps.listed() == (FIRST.data, SECOND.data)
    restored = Bench(tmp_path / "restored", WORLD)
    restored.clock.advance(LENGTH)
    await restored.steps.hear([SECOND.data, FIRST.data, SECOND.data])
    assert restored.steps.listed() == bench.steps.listed()
    assert list(restored.steps.conditions()) == []


async def test_steps_of_one_shuffler_go_with_the_retention_of_their_task(tmp_path: Path) -> None:
    """Planted: with a store of several alone -> fails."""
    bench = Bench(tmp_path, WORLD)
    await bench.steps.hear([FIRST.data])
    bench.clock.time = START + 10.0 * WORLD.served.task.retention_s
    await bench.steps.look()
    assert not list((tmp_path / "steps").iterdir())
    assert bench.steps.listed() == ()
    assert bench.steps.find(FIRST.name) is None
