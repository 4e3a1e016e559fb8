"""A window that an operator gave up, in every state and whatever breaks: nothing of it is left, and
nothing of it is delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shoal import failpoints
from shoal.errors import Kind, ShoalError
from shoal.services.given_up import GivenUp, add
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.store import AdmittedReport
from tests.unit.shuffler.reports.test_lifecycle import DEADLINE, Line, S
from tests.unit.shuffler.reports.test_lifecycle_retention import held_files
from tests.worlds.services.shuffler import LENGTH, START, Published


@pytest.fixture
async def line(tmp_path: Path) -> AsyncIterator[Line]:
    one = Line(tmp_path)
    yield one
    failpoints.arm("")
    await one.stop()


def give_up(line: Line, published: Published, window: int = 0) -> None:
    entry = GivenUp(published.task_id.hex, window, int(line.clock.now()), "alice", "lost", "open")
    add(line.world.data_dir, entry)


def ended(line: Line, published: Published, window: int = 0) -> tuple[S, S | None]:
    record = line.record(published, window)
    assert record is not None
    return record.state, record.outcome


async def test_a_window_that_has_not_begun_never_opens(line: Line) -> None:
    """Also where its first report is on its way. Planted: only windows that have begun are looked
    at -> it opens, fails.
    """
    published = line.world.publish()
    line.start()
    give_up(line, published, 1)
    await line.tick()
    assert ended(line, published, 1) == (S.SHREDDED, S.WITHHELD)
    assert await line.submit(published, 3, 1) == [Kind.WINDOW_CLOSED] * 3
    assert await line.submit(published, 3, 0) == [None] * 3
    await line.tick(DEADLINE, times=2)
    assert ended(line, published) == (S.SHREDDED, S.ACKNOWLEDGED)
    await line.tick(DEADLINE + LENGTH, times=2)
    assert not list(line.world.keys_dir.iterdir())
    assert list(line.sink.batches) == [WindowId(published.task_id, 0)]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("disputed", [False, True])
async def test_an_open_window_is_deleted_and_takes_no_more(
    line: Line, restart: bool, disputed: bool
) -> None:
    """By an operator's word, whatever the clock says. Planted: only what is due is closed -> it
    stays open, fails. Planted: sealed and delivered all the same -> a batch arrives, fails.
    """
    published = line.world.publish()
    line.start()
    sent = [AdmittedReport(WindowId(published.task_id, 0), (published.sealed(),)) for _ in range(5)]
    assert await line.store.append(sent) == [None] * 5
    if restart:
        await line.stop()
    give_up(line, published)
    if restart:
        line.start()
    line.clock.disputed = disputed
    await line.tick(START + 10, times=3)
    assert ended(line, published) == (S.SHREDDED, S.EXPIRED)
    assert not held_files(line)
    # a retry of what was acknowledged hears the truth: the window is decided
    assert await line.store.append(sent[:1]) == [Kind.WINDOW_CLOSED]
    line.clock.disputed = False
    await line.tick(DEADLINE, times=3)
    assert not line.sink.attempts
    give_up(line, published)  # twice is once
    await line.tick(times=3)
    assert ended(line, published) == (S.SHREDDED, S.EXPIRED)


async def test_a_delivery_under_way_ends(line: Line) -> None:
    """To an analyzer that takes a row at a time, for ever. Planted: only retention ends it -> the
    batch stays, fails.
    """
    published = line.world.publish()
    line.start()
    line.sink.endless = True
    await line.submit(published, 3)
    line.clock.time = DEADLINE
    for _ in range(3):
        line.clock.advance(1)
        await line.lifecycle.tick()
        if line.sink.began.is_set():
            break
        await asyncio.wait_for(line.sink.began.wait(), 30)
    assert line.state(published) is S.DELIVERING
    give_up(line, published)
    await line.tick(times=2)
    assert ended(line, published) == (S.SHREDDED, S.EXPIRED)
    assert not held_files(line)


async def test_a_window_that_was_delivered_stays_what_it_is(line: Line) -> None:
    published = line.world.publish()
    line.start()
    await line.submit(published, 3)
    await line.tick(DEADLINE, times=2)
    give_up(line, published)
    await line.tick(times=2)
    assert ended(line, published) == (S.SHREDDED, S.ACKNOWLEDGED)


async def test_a_line_about_what_there_is_not_does_nothing(line: Line) -> None:
    """A window beyond the last, a task of somebody else."""
    published = line.world.publish()
    line.start()
    give_up(line, published, 77)
    add(line.world.data_dir, GivenUp("ab" * 32, 0, 0, "alice", "lost", "open"))
    await line.submit(published, 3)
    await line.tick(DEADLINE, times=2)
    assert ended(line, published) == (S.SHREDDED, S.ACKNOWLEDGED)
    assert line.state(published, 77) is None


@pytest.mark.parametrize(
    "point",
    [
        *("state.lapse", "state.closing", "state.closing.done", "state.expired"),
        *("state.expired.done", "inbox.unlink", "batch.unlink", "state.shredded"),
    ],
)
@pytest.mark.parametrize("sealed", [False, True])
async def test_a_step_that_breaks_is_done_again(line: Line, point: str, sealed: bool) -> None:
    """A failing disk at each step, then the same folder in a new process. Planted: the word taken
    for done when its line is read -> what broke stays, fails.
    """
    published = line.world.publish(count=3)
    line.start()
    await line.submit(published, 4)
    if sealed:
        line.answers += [ShoalError(Kind.UNAVAILABLE, "no")] * 100
        await line.tick(DEADLINE)
        assert line.state(published) is S.DELIVERING
    give_up(line, published)
    give_up(line, published, 2)
    failpoints.arm(f"{point}=eio@1")
    await line.tick()
    await line.stop()
    failpoints.arm("")
    line.start()
    await line.tick(times=3)
    assert ended(line, published) == (S.SHREDDED, S.EXPIRED)
    assert ended(line, published, 2) == (S.SHREDDED, S.WITHHELD)
    assert not held_files(line)
    assert not line.sink.batches
