"""The life of a window under a clock that a test moves: closing, deciding, waiting, delivering,
giving up only by retention.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from shoal import failpoints
from shoal.clocks.clock import FakeClock
from shoal.codec import decode_manifest
from shoal.crypto.trust import ServedTask
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.services.given_up import GivenUpWindows
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.reports.lifecycle import Lifecycle
from shoal.shuffler.reports.noise import AddedNoise, NoiseSource
from shoal.shuffler.stores.sqlite.store import SqliteStore
from shoal.shuffler.stores.store import AdmittedReport, WindowRecord
from shoal.shuffler.stores.threaded import ThreadedStore
from shoal.shuffler.tasks import ShufflerTasks
from tests.worlds.services.shuffler import GRACE, LENGTH, START, Published, World

S = WindowState
DEADLINE = START + LENGTH + GRACE


POINTS = (
    *("state.closing", "seal.write", "seal.flush", "seal.rename", "state.sealed", "inbox.unlink"),
    *("state.delivering", "state.acknowledged", "batch.unlink", "state.shredded"),
)


class Sink:
    """Takes batches in place of the analyzer. ``answers``: one per attempt, True when it is
    empty.
    """

    def __init__(self, store: ThreadedStore) -> None:
        self.store = store
        self.answers: list[bool | ShoalError] = []
        self.attempts: list[float] = []
        self.batches: dict[WindowId, bytes] = {}
        self.clock: FakeClock
        # an attempt that goes on for ever, as with an analyzer that takes a row at a time
        self.endless = False
        self.began = asyncio.Event()

    async def attempt(self, served: ServedTask, window: WindowId, record: WindowRecord) -> bool:
        self.attempts.append(self.clock.now())
        self.began.set()
        if self.endless:
            await asyncio.Event().wait()
        manifest = decode_manifest(record.manifest)
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, ShoalError):
            raise answer
        data = await self.store.read_rows(window, 0, record.rows)
        assert Digest.of(data) == manifest.rows_hash
        assert (manifest.task_id, manifest.window, manifest.rows) == (
            window.task_id,
            window.window,
            record.rows,
        )
        if answer:
            self.batches[window] = data
        return answer


class Line:
    """Store, book and lifecycle over one world; ``start`` again after ``crash``."""

    def __init__(self, folder: Path) -> None:
        self.world, self.clock = World(folder), FakeClock(START)
        self.world.data_dir.mkdir()
        self.answers: list[bool | ShoalError] = []
        self.forgotten = 0
        self.delay = 0.0
        self.noise: NoiseSource | None = None

    def start(self) -> None:
        world = self.world
        self.files = SqliteStore(world.data_dir)
        self.store = ThreadedStore(self.files, commit_ms=0)
        self.sink = Sink(self.store)
        self.sink.clock, self.sink.answers = self.clock, self.answers
        noise = AddedNoise(self.noise)
        self.book = ShufflerTasks(
            self.store,
            self.clock,
            world.tasks_dir,
            world.keys_dir,
            frozenset({world.authority.public}),
            world.shuffler.public,
            noise=noise,
        )

        async def forget() -> None:
            self.forgotten += 1

        self.lifecycle = Lifecycle(
            self.book,
            self.store,
            self.sink,
            self.clock,
            SeededEntropy("lifecycle"),
            self.delay,
            forget,
            given_up=GivenUpWindows(world.data_dir),
            noise=noise,
        )

    async def stop(self) -> None:
        await self.lifecycle.stop()
        await self.store.close()

    async def submit(self, published: Published, count: int, window: int = 0) -> list[Kind | None]:
        return await self.store.append(
            [
                AdmittedReport(WindowId(published.task_id, window), (published.sealed(),))
                for _ in range(count)
            ]
        )

    async def tick(self, at: float | None = None, times: int = 1) -> None:
        """Tick at this time, then every second."""
        if at is not None:
            self.clock.time = at
        for number in range(times):
            self.clock.advance(1 if number else 0)
            await self.lifecycle.tick()
            await self.lifecycle.settle()

    def record(self, published: Published, window: int = 0) -> WindowRecord | None:
        return self.store.record(WindowId(published.task_id, window))

    def state(self, published: Published, window: int = 0) -> WindowState | None:
        record = self.record(published, window)
        return record.state if record else None


@pytest.fixture
async def line(tmp_path: Path) -> AsyncIterator[Line]:
    one = Line(tmp_path)
    yield one
    failpoints.arm("")
    await one.stop()


@pytest.mark.parametrize(
    ("count", "outcome"),
    [(0, S.WITHHELD), (1, S.WITHHELD), (2, S.WITHHELD), (3, S.ACKNOWLEDGED), (4, S.ACKNOWLEDGED)],
)
async def test_a_window_closes_at_its_deadline_and_is_decided_by_its_distinct_reports(
    line: Line, count: int, outcome: WindowState
) -> None:
    """min_batch 3 at n-1, n, n+1. Planted: closing a second early -> fails; counting rows (each
    report came twice) -> fails at 2.
    """
    outcome = S.ACKNOWLEDGED if count >= 3 else S.WITHHELD
    published = line.world.publish()
    line.start()
    sent = [
        AdmittedReport(WindowId(published.task_id, 0), (published.sealed(),)) for _ in range(count)
    ]
    await line.store.append([*sent, *sent])
    await line.tick(DEADLINE - 1)
    assert line.state(published) is (S.OPEN if count else None)
    await line.tick(DEADLINE, times=2)
    record = line.record(published)
    assert record is not None
    assert (record.state, record.outcome) == (S.SHREDDED, outcome)
    assert record.reports == count
    assert len(line.sink.batches) == (outcome is S.ACKNOWLEDGED)
    assert not list(line.world.data_dir.glob("*-0*"))
    assert line.state(published, 1) is None


async def test_max_batch_closes_before_the_deadline_and_duplicates_do_not(line: Line) -> None:
    """Planted: ``due`` told of every submission, repeats among them -> closed at the duplicates,
    fails.
    """
    published = line.world.publish(max_batch=5)
    line.start()
    sent = [AdmittedReport(WindowId(published.task_id, 0), (published.sealed(),)) for _ in range(4)]
    assert await line.store.append([*sent, *sent, *sent]) == [None] * 12
    await line.tick(START + 5, times=2)
    assert line.state(published) is S.OPEN
    assert {*await line.submit(published, 2)} == {None, Kind.WINDOW_FULL}
    await line.tick(times=2)
    record = line.record(published)
    assert record is not None
    assert (record.state, record.reports) == (S.SHREDDED, 5)
    assert await line.store.append(sent[:1]) == [Kind.WINDOW_FULL]


async def test_repeats_of_one_report_keep_nobody_out(line: Line) -> None:
    """A flood against ``max_batch``. Planted: repeats counted against the inbox's room -> the
    honest are OVERLOADED, and so is a retry.
    """
    published = line.world.publish(max_batch=100)
    line.start()
    one = AdmittedReport(WindowId(published.task_id, 0), (published.sealed(),))
    for _ in range(100):
        assert await line.store.append([one] * 8) == [None] * 8
    assert Counter(await line.submit(published, 100)) == {None: 99, Kind.WINDOW_FULL: 1}
    assert await line.store.append([one]) == [None]
    await line.tick(times=2)
    record = line.record(published)
    assert record is not None
    assert (record.state, record.reports) == (S.SHREDDED, 100)


async def test_there_is_no_way_to_close_a_window_now(line: Line) -> None:
    """Many ticks, a restart and a stop leave it open."""
    published = line.world.publish()
    line.start()
    await line.submit(published, 10)
    await line.tick(START + 10, times=5)
    await line.stop()
    line.start()
    await line.tick(DEADLINE - 3, times=3)
    assert line.state(published) is S.OPEN


async def test_a_clock_that_goes_back_does_not_reopen_a_window(line: Line) -> None:
    """Also not one that never had a report. Planted: ``lapse`` not recorded -> fails."""
    published = line.world.publish()
    line.start()
    await line.tick(DEADLINE)
    line.clock.time = START
    assert await line.submit(published, 1) == [Kind.WINDOW_CLOSED]


async def test_delivery_waits_a_random_time_below_the_limit(line: Line) -> None:
    """60 windows, delays from the seeded stream: all within the limit, spread over it, and none at
    once.
    """
    line.delay = 1_000.0
    published = line.world.publish(count=60, length_s=60, grace_s=0)
    line.start()
    for window in range(60):
        await line.submit(published, 3, window)
    sealed_at = START + 60 * 60
    await line.tick(sealed_at)
    assert not line.sink.attempts
    while len(line.sink.batches) < 60 and line.clock.now() < sealed_at + 1_100:
        await line.tick(line.clock.now() + 20)
    waits = sorted(at - sealed_at for at in line.sink.attempts)
    assert len(waits) == 60
    assert waits[-1] <= 1_020
    # mean 500 + 10, standard error 37: false alarm below 1e-8, and the stream is fixed
    assert 300 < sum(waits) / 60 < 740
    assert all(sum(low <= wait < low + 340 for wait in waits) >= 8 for low in (0, 340, 680))


async def test_a_failing_analyzer_is_tried_again_later_and_later_until_it_acknowledges(
    line: Line,
) -> None:
    """Nothing is lost, the pauses grow, the batch stays on disk. Planted: shredding after the first
    attempt -> fails.
    """
    published = line.world.publish()
    line.start()
    await line.submit(published, 3)
    kinds = [
        Kind.UNAVAILABLE,
        Kind.DEADLINE,
        Kind.BAD_SIGNATURE,
        Kind.MISMATCH,
        Kind.FORBIDDEN,
        Kind.OVERLOADED,
    ]
    line.answers += [ShoalError(kind, "no") for kind in kinds] + [False, False]
    await line.tick(DEADLINE)
    window = WindowId(published.task_id, 0)
    for number, kind in enumerate(kinds):
        assert line.lifecycle.trouble() == {window: (kind, number + 1)}
        assert line.state(published) is S.DELIVERING
        assert list(line.world.data_dir.glob("batch-*"))
        while len(line.sink.attempts) == number + 1:
            await line.tick(line.clock.now() + 1)
        assert line.clock.now() - line.sink.attempts[-2] <= 2 ** (number + 1) + 1
    assert not line.lifecycle.trouble()
    await line.tick(line.clock.now() + 1, times=2)
    assert len(line.sink.attempts) == 9
    record = line.record(published)
    assert record is not None
    assert (record.state, record.outcome) == (S.SHREDDED, S.ACKNOWLEDGED)


async def test_retention_ends_even_while_the_analyzer_is_away(line: Line) -> None:
    published = line.world.publish(retention_s=10_000)
    line.start()
    await line.submit(published, 3)
    line.answers += [ShoalError(Kind.UNAVAILABLE, "no")] * 50
    await line.tick(DEADLINE)
    await line.tick(START + 9_999)
    assert line.state(published) is S.DELIVERING
    await line.tick(START + 10_000)
    record = line.record(published)
    assert record is not None
    assert (record.state, record.outcome) == (S.SHREDDED, S.EXPIRED)
    assert not list(line.world.data_dir.glob("batch-*"))


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("failure", ["eio", "enospc"])
async def test_a_failing_disk_delays_and_does_not_decide(
    line: Line, point: str, failure: str
) -> None:
    published = line.world.publish()
    line.start()
    await line.submit(published, 3)
    failpoints.arm(f"{point}={failure}@1")
    await line.tick(DEADLINE)
    assert line.state(published) is not S.SHREDDED
    await line.tick(times=5)
    record = line.record(published)
    assert record is not None
    assert (record.state, record.outcome, record.reports) == (S.SHREDDED, S.ACKNOWLEDGED, 3)
    assert len(line.sink.batches[WindowId(published.task_id, 0)]) == 3 * record.row_size


async def test_one_stuck_window_does_not_hold_up_another(line: Line) -> None:
    first, second = line.world.publish(name="first"), line.world.publish(name="second")
    line.start()
    await line.submit(first, 3)
    failpoints.arm("seal.write=eio@1")
    await line.tick(DEADLINE - 1)
    await line.submit(second, 3)
    await line.tick(DEADLINE)
    assert {line.state(first), line.state(second)} == {S.CLOSING, S.SHREDDED}


async def test_one_window_that_cannot_be_closed_does_not_hold_up_another_nor_keys(
    line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    """Planted: one ``try`` around all windows and keys -> the second stays open, the key stays."""
    first, second, third = (line.world.publish(name=name, count=1) for name in ("a", "b", "c"))
    line.start()
    await line.submit(first, 3)
    await line.submit(second, 3)
    failpoints.arm("state.closing=enospc@1")
    await line.tick(DEADLINE)
    assert {line.state(first), line.state(second)} == {S.OPEN, S.SHREDDED}
    assert line.state(third) is S.SHREDDED  # it was empty
    assert (line.forgotten, len(line.book.keys)) == (1, 1)
    assert [entry.levelname for entry in caplog.records].count("ERROR") == 1
    await line.tick(times=2)
    assert {line.state(first), line.state(second)} == {S.SHREDDED}
    assert not line.book.keys


async def test_empty_windows_that_cannot_be_recorded_hold_up_nothing(line: Line) -> None:
    """Planted: no ``try`` around ``_lapse`` -> the tick raises."""
    first, second = line.world.publish(name="a"), line.world.publish(name="b")
    line.start()
    await line.submit(first, 3)
    failpoints.arm("state.lapse=enospc@1")
    await line.tick(DEADLINE)
    assert (line.state(first), line.state(second)) == (S.SHREDDED, None)
    await line.tick()
    assert line.state(second) is S.SHREDDED


async def test_keys_go_with_their_last_window_and_workers_are_told(line: Line) -> None:
    published = line.world.publish()
    line.start()
    await line.submit(published, 3)
    await line.tick(DEADLINE)
    assert (line.forgotten, len(line.book.keys)) == (0, 1)
    await line.tick(DEADLINE + LENGTH)
    assert (line.forgotten, len(line.book.keys)) == (1, 0)
    assert not list(line.world.keys_dir.iterdir())


async def test_a_key_that_cannot_be_deleted_stops_nothing(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = line.world.publish(count=1)
    line.start()
    await line.submit(published, 3)

    def refuse(_: Path) -> None:
        raise ShoalError(Kind.KEY_FILE, "can't be deleted")

    monkeypatch.setattr("shoal.shuffler.tasks.delete_key_file", refuse)
    await line.tick(DEADLINE, times=2)
    assert line.state(published) is S.SHREDDED


async def test_run_ticks_until_stopped_and_survives_a_bug(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.world.publish()
    line.start()
    monkeypatch.setattr("shoal.shuffler.reports.lifecycle.TICK_S", 0.0)
    stop, calls, real = asyncio.Event(), list[int](), line.lifecycle.tick

    async def counted() -> None:
        calls.append(1)
        if len(calls) == 4:
            stop.set()
        if len(calls) < 3:
            raise (
                RuntimeError("a bug") if len(calls) == 1 else ShoalError(Kind.INTERNAL, "a failure")
            )
        await real()

    tick: Callable[[], Awaitable[None]] = counted
    monkeypatch.setattr(line.lifecycle, "tick", tick)
    await line.lifecycle.run(stop)
    assert len(calls) == 4
