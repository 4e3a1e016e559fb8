"""What could open reports goes when the last window that wants it is over, and not before."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.analyzer.batches.shredding import Shredder
from shoal.analyzer.batches.spool import Spools, spool_path
from shoal.analyzer.core import BatchState
from shoal.analyzer.keys import KeyFolder
from shoal.analyzer.records import Spending, WindowOutcome
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.analyzer.tasks import AnalyzerTasks
from shoal.clocks.clock import FakeClock
from shoal.errors import Kind, ShoalError
from tests.worlds.services.analyzer import World, make_task, make_world


class Bench:
    def __init__(self, world: World, folder: Path) -> None:
        world.write(folder)
        self.world, self.folder = world, folder
        self.store = AnalyzerStore(folder / FILE_NAME)
        self.clock = FakeClock(world.after)
        self.tasks = AnalyzerTasks(
            folder / "tasks", {world.authority.public}, world.analyzer.public
        )
        self.spools = Spools(folder)
        self.shredder = self.restarted()

    def restarted(self) -> Shredder:
        keys = KeyFolder(self.folder / "keys")
        return Shredder(
            store=self.store, tasks=self.tasks, keys=keys, spools=self.spools, clock=self.clock
        )

    def batch(self, window: int, state: BatchState) -> Path:
        """A batch in that state, with rows on disk: their path."""
        batch = self.store.accept(
            self.world.batch([bytes(self.world.row_size())] * 20, window).manifest_bytes
        )
        if state is not BatchState.RECEIVING:
            self.store.move(batch.manifest_hash, BatchState.RECEIVING, BatchState.PROCESSING)
        if state is BatchState.DONE:
            spending = Spending(self.world.task_id, 0.1, 1e-6)
            self.store.finish(
                batch, lambda _: WindowOutcome(b"r", bytes(64), b"a", bytes(64), None, spending)
            )
        path = spool_path(self.folder, batch.manifest_hash)
        path.write_bytes(b"rows")
        return path

    def release(self, window: int) -> Path:
        path = self.batch(window, BatchState.DONE)
        batch = self.store.batch_of(self.world.task_id, window)
        assert batch is not None
        self.shredder.released(batch)
        return path

    def keys(self) -> list[int]:
        """Windows whose key file is there."""
        return [
            w
            for w, key in enumerate(self.world.keys)
            if (self.folder / "keys" / f"{key.config.key_id.hex}.key").exists()
        ]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(make_world(windows=3), tmp_path)


def test_a_released_window_leaves_neither_rows_nor_key(bench: Bench) -> None:
    assert not bench.release(0).exists()
    assert bench.keys() == [1, 2]
    bench.shredder.sweep()
    assert bench.keys() == [1, 2]


def test_a_shared_key_goes_with_its_last_window(tmp_path: Path) -> None:
    one = make_world().keys[0]
    bench = Bench(World(make_task(windows=3), keys=[one] * 3), tmp_path)
    for window in range(3):
        assert bench.keys() == [0, 1, 2]
        bench.release(window)
    assert bench.keys() == []


def test_a_window_that_is_never_delivered_loses_its_key_when_its_retention_ends(
    bench: Bench,
) -> None:
    """The shuffler withheld it, or never reached us. Planted: sweep() does nothing -> keys live for
    ever, and this fails.
    """
    bench.clock.time = bench.world.expiry(0) - 1
    bench.shredder.sweep()
    assert bench.keys() == [0, 1, 2]
    bench.clock.time += 1
    bench.shredder.sweep()
    assert bench.keys() == [1, 2]
    bench.restarted().sweep()  # idempotent
    assert bench.keys() == [1, 2]


def test_a_batch_that_never_became_whole_goes_too(bench: Bench) -> None:
    rows = bench.batch(0, BatchState.RECEIVING)
    bench.clock.time = bench.world.expiry(0)
    bench.shredder.sweep()
    assert not rows.exists()
    assert bench.keys() == [1, 2]


def test_a_complete_batch_is_still_released(bench: Bench) -> None:
    """It came in time; opening it may take longer. Planted: PROCESSING counted as over -> its key
    goes first, and this fails.
    """
    rows = bench.batch(0, BatchState.PROCESSING)
    bench.clock.time = bench.world.expiry(0)
    bench.shredder.sweep()
    assert rows.exists()
    assert bench.keys() == [0, 1, 2]


def test_a_shared_key_waits_for_a_window_that_is_not_over(tmp_path: Path) -> None:
    """Windows 0 and 1 share a key: 0 is beyond its retention, 1 is not. Planted: the other users
    not asked -> this fails.
    """
    shared = make_world()
    bench = Bench(
        World(make_task(windows=3), keys=[shared.keys[0], shared.keys[0], shared.keys[1]]), tmp_path
    )
    bench.clock.time = bench.world.expiry(0)
    bench.shredder.sweep()
    assert bench.keys() == [0, 1, 2]
    bench.release(1)
    assert bench.keys() == [2]


def test_what_can_not_be_deleted_is_said_and_tried_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_rows = bench.batch(0, BatchState.DONE)
    batch = bench.store.batch_of(bench.world.task_id, 0)
    assert batch is not None

    def refuse(self: KeyFolder, key_id: object) -> None:
        raise ShoalError(Kind.KEY_FILE, "no")

    with monkeypatch.context() as patch:
        patch.setattr(KeyFolder, "delete", refuse)
        with pytest.raises(ShoalError):
            bench.shredder.released(batch)
    assert bench.keys() == [0, 1, 2]
    bench.shredder.released(batch)
    assert not batch_rows.exists()
    assert bench.keys() == [1, 2]


def test_a_key_that_a_task_published_since_the_start_wants_stays(bench: Bench) -> None:
    """Its reports could never be opened otherwise. Planted: no look at the folder before deleting
    -> the key is gone, fails.
    """
    World(
        make_task(name="later", windows=3),
        keys=bench.world.keys,
        authority=bench.world.authority,
        analyzer=bench.world.analyzer,
    ).write(bench.folder)
    assert not bench.release(0).exists()
    assert bench.keys() == [0, 1, 2]


def test_no_key_goes_while_the_tasks_folder_is_not_in_order(bench: Bench) -> None:
    """Half a task may stand there. Planted: deleting whatever reload() says -> fails. The rows go
    at once all the same.
    """
    half = bench.folder / "tasks" / "later.task"
    half.write_bytes(b"half a task")
    assert not bench.release(0).exists()
    bench.shredder.sweep()
    assert bench.keys() == [0, 1, 2]
    half.unlink()
    bench.shredder.sweep()
    assert bench.keys() == [1, 2]


def test_a_postponed_key_that_can_not_be_deleted_stays_postponed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: forgotten before it was deleted -> the key lives until the next start, and this
    fails.
    """
    half = bench.folder / "tasks" / "later.task"
    half.write_bytes(b"half a task")
    bench.release(0)
    half.unlink()

    def refuse(self: KeyFolder, key_id: object) -> None:
        raise ShoalError(Kind.KEY_FILE, "no")

    with monkeypatch.context() as patch:
        patch.setattr(KeyFolder, "delete", refuse)
        with pytest.raises(ShoalError):
            bench.shredder.sweep()
    bench.shredder.sweep()
    assert bench.keys() == [1, 2]
