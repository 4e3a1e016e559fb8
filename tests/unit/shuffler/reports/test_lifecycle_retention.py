"""The end of a window's retention, whatever goes wrong before it: the reports are deleted."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shoal import failpoints
from tests.unit.shuffler.reports.test_lifecycle import DEADLINE, Line, S
from tests.worlds.services.shuffler import START


@pytest.fixture
async def line(tmp_path: Path) -> AsyncIterator[Line]:
    one = Line(tmp_path)
    yield one
    failpoints.arm("")
    await one.stop()


def held_files(line: Line) -> list[str]:
    return [
        path.name
        for path in line.world.data_dir.iterdir()
        if path.name.startswith(("inbox", "batch"))
    ]


def always(point: str, error: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail at this point every time, until the patch is undone."""
    real = failpoints.hit

    def hit(name: str) -> None:
        if name == point:
            raise error
        real(name)

    monkeypatch.setattr(failpoints, "hit", hit)


NO_SPACE = OSError(errno.ENOSPC, "full")


@pytest.mark.parametrize("point", ["seal.read", "seal.write", "seal.flush", "seal.rename"])
@pytest.mark.parametrize("restart", [False, True])
async def test_retention_ends_even_while_sealing_fails(
    line: Line,
    point: str,
    restart: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also when the service was down at that time. Planted: no (CLOSING, EXPIRED) in ``core`` ->
    the inbox and its secret stay.
    """
    published = line.world.publish(retention_s=10_000)
    line.start()
    await line.submit(published, 5)
    with monkeypatch.context() as patch:
        always(point, NO_SPACE, patch)
        await line.tick(DEADLINE)
        await line.tick(START + 9_999)
        assert line.state(published) is S.CLOSING
        # planted: no unlink in ``batch.write`` -> fails
        assert not [name for name in held_files(line) if name.startswith("batch")]
        if restart:
            await line.stop()
            line.start()
        await line.tick(START + 10_000)
    record = line.record(published)
    assert record is not None
    assert (record.state, record.outcome, record.reports) == (S.SHREDDED, S.EXPIRED, 5)
    assert not held_files(line)
    assert not line.sink.attempts
    (error,) = [entry for entry in caplog.records if entry.levelname == "ERROR"]
    assert error.getMessage().endswith(" n=5")


@pytest.mark.parametrize("late", [0, 365 * 86_400])
async def test_a_window_that_was_open_when_all_stopped_is_not_delivered_after_its_retention(
    line: Line, late: int
) -> None:
    """Closed and deleted by the first tick. Planted: no look at retention before sealing ->
    delivered.
    """
    published = line.world.publish(retention_s=10_000)
    line.start()
    await line.submit(published, 5)
    await line.stop()
    line.clock.time = START + 10_000 + late
    line.start()
    await line.tick()
    record = line.record(published)
    assert record is not None
    assert (record.state, record.outcome, record.reports) == (S.SHREDDED, S.EXPIRED, 5)
    assert not held_files(line)
    assert not line.sink.attempts


@pytest.mark.parametrize("point", ["state.closing", "state.expired"])
async def test_reports_go_at_the_end_of_retention_even_if_no_state_can_be_written(
    line: Line, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the deed comes before the word, which comes once there is room. Planted: no ``shred`` on
    failure -> fails.
    """
    published = line.world.publish(retention_s=10_000)
    line.start()
    await line.submit(published, 5)
    with monkeypatch.context() as patch:
        always(point, NO_SPACE, patch)
        await line.tick(START + 10_000)
        assert line.state(published) is (S.OPEN if point == "state.closing" else S.CLOSING)
        assert not held_files(line)
        await line.stop()
        line.start()
        await line.tick()
    await line.tick(line.clock.now() + 1)
    record = line.record(published)
    assert record is not None
    assert (record.state, record.outcome) == (S.SHREDDED, S.EXPIRED)
    assert not held_files(line)


async def test_retention_ends_a_delivery_that_goes_on_and_on(line: Line) -> None:
    """Planted: no look at windows with work under way -> the attempt goes on, this fails by its
    limit.
    """
    published = line.world.publish(retention_s=10_000)
    line.start()
    line.sink.endless = True
    await line.submit(published, 5)
    line.clock.time = DEADLINE
    await line.lifecycle.tick()
    await line.sink.began.wait()
    line.clock.time = START + 9_999
    await line.lifecycle.tick()
    await asyncio.sleep(0)
    assert line.state(published) is S.DELIVERING
    await asyncio.wait_for(line.tick(START + 10_000), 5)
    record = line.record(published)
    assert record is not None
    assert (record.state, record.outcome, record.reports) == (S.SHREDDED, S.EXPIRED, 5)
    assert not held_files(line)
    assert not line.lifecycle.trouble()


async def test_a_stop_ends_a_delivery_that_goes_on_and_the_next_start_resumes_it(
    line: Line,
) -> None:
    """The bound must not swallow the stop. Planted: every cancellation taken for the end of
    retention -> the stop hangs.
    """
    published = line.world.publish(retention_s=10_000)
    line.start()
    line.sink.endless = True
    await line.submit(published, 5)
    line.clock.time = DEADLINE
    await line.lifecycle.tick()
    await line.sink.began.wait()
    await asyncio.wait_for(line.stop(), 5)
    line.start()
    assert line.state(published) is S.DELIVERING
    await line.tick()
    record = line.record(published)
    assert record is not None
    assert (record.state, record.outcome) == (S.SHREDDED, S.ACKNOWLEDGED)


async def test_an_inbox_that_cannot_be_counted_is_deleted_all_the_same(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged file. Planted: the failure of ``held`` passed on -> fails."""
    published = line.world.publish(retention_s=10_000)
    line.start()
    await line.submit(published, 5)
    with monkeypatch.context() as patch:
        always("seal.read", NO_SPACE, patch)
        await line.tick(DEADLINE)
    (inbox,) = line.world.data_dir.glob("inbox-*.db")
    inbox.write_bytes(b"no database" * 1_000)
    await line.tick(START + 10_000)
    assert line.state(published) is S.SHREDDED
    assert not held_files(line)
