"""What the analyzer says that it can take, and what a shuffler makes of its word and of its
silence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from shoal.clocks.clock import FakeClock
from shoal.errors import Kind, ShoalError
from shoal.protos import delivery_pb2
from shoal.shuffler.analyzer_capacity import Serving
from shoal.shuffler.asked_steps import AskedSteps
from shoal.shuffler.core import WindowId
from tests.worlds.services.shuffler import START, Published, World


class Book:
    def __init__(self, *published: Published) -> None:
        self.served = {one.task_id: one.served for one in published}
        self.shredded: set[WindowId] = set()

    def is_over(self, window: WindowId) -> bool:
        return window in self.shredded


class Bench:
    """A serving whose analyzer answers what ``reply`` holds, or raises it."""

    def __init__(self, folder: Path, tasks: int = 2) -> None:
        world = World(folder)
        self.published = [world.publish(name=f"t{number}") for number in range(tasks)]
        self.clock, self.asked = FakeClock(START), list[int]()
        self.reply: delivery_pb2.ServesReply | Exception = delivery_pb2.ServesReply()
        self.book = Book(*self.published)
        steps = AskedSteps(cast(Any, self.book), self.clock, None)
        self.serving = Serving(cast(Any, self.book), self._ask, steps, self.clock.now)

    async def _ask(self, request: bytes) -> bytes:
        asked = delivery_pb2.ServesRequest.FromString(request).tasks
        self.asked.append(len(asked))
        for one in asked:
            assert one.schedule_hash in {each.served.keys.digest.raw for each in self.published}
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply.SerializeToString()

    def codes(self) -> list[tuple[str, str, bool]]:
        return [(one.code, one.subject, one.stops) for one in self.serving.conditions()]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_its_word_pauses_exactly_the_windows_that_it_names(bench: Bench) -> None:
    """A whole task that is missing stops the service; windows, which may be given up on purpose and
    months ahead, leave it ready for all others. Planted: a task named without windows taken for
    none; windows that stop it -> fails.
    """
    one, two = bench.published
    windows = [WindowId(each.task_id, number) for each in (one, two) for number in (0, 1)]
    await bench.serving.look()
    assert not any(map(bench.serving.refuses, windows))
    assert bench.codes() == []
    reply = delivery_pb2.ServesReply()
    reply.unserved.add(task_id=one.task_id.raw, windows=[1])
    reply.unserved.add(task_id=two.task_id.raw)
    bench.reply = reply
    await bench.serving.look()
    assert list(map(bench.serving.refuses, windows)) == [False, True, True, True]
    assert sorted(bench.codes()) == sorted(
        ("task", f"{each.task_id.short}/analyzer", each is two) for each in (one, two)
    )
    # one that is over here too is nobody's trouble any more. Planted: it is told -> fails
    bench.book.shredded.add(windows[1])
    assert bench.codes() == [("task", f"{two.task_id.short}/analyzer", True)]
    bench.reply = delivery_pb2.ServesReply()
    await bench.serving.look()
    assert not any(map(bench.serving.refuses, windows))
    assert bench.codes() == []


async def test_its_silence_changes_no_task_and_is_shown_in_time(bench: Bench) -> None:
    """Reports are kept meanwhile, so nothing is refused for it; for ten minutes it is shown, then
    the shuffler is not ready.

    Planted: UNAVAILABLE left out of what counts -> "ready" for ever, fails. Planted: what was
    paused forgotten at a failure -> fails.
    """
    one, _ = bench.published
    reply = delivery_pb2.ServesReply()
    reply.unserved.add(task_id=one.task_id.raw)
    bench.reply = reply
    await bench.serving.look()
    bench.reply = ShoalError(Kind.UNAVAILABLE, "away")
    paused = bench.codes()
    for _ in range(2):
        await bench.serving.look()
    assert bench.codes() == paused
    bench.clock.advance(599)
    await bench.serving.look()
    assert bench.codes() == [("analyzer", "", False), *paused]
    # an operator reads there why. Planted: the reason left out -> fails
    assert "away (no answer for 9 min;" in next(bench.serving.conditions()).message
    bench.clock.advance(1)
    assert bench.codes() == [("analyzer", "", True), *paused]
    bench.reply = ValueError("garbled")
    await bench.serving.look()
    assert bench.codes() == [("analyzer", "", True), *paused]
    bench.reply = delivery_pb2.ServesReply()
    await bench.serving.look()
    assert bench.codes() == []


async def test_a_full_analyzer_is_said_in_one_line(bench: Bench) -> None:
    bench.reply = delivery_pb2.ServesReply(trouble="its disk\nis full" + "x" * 10_000)
    await bench.serving.look()
    assert bench.codes() == [("analyzer", "trouble", True)]
    (one,) = bench.serving.conditions()
    assert len(one.message) < 300


async def test_many_tasks_are_asked_for_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.shuffler.analyzer_capacity._TASKS", 2)
    bench = Bench(tmp_path, tasks=5)
    await bench.serving.look()
    assert bench.asked == [2, 2, 1]
