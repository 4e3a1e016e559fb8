"""The queue of complete batches: what fails waits and is tried again, and nobody waits for it."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shoal.analyzer.batches import processing
from shoal.analyzer.batches.executor import ProcessExecutor
from shoal.analyzer.batches.key_delivery import InMemoryDelivery
from shoal.analyzer.batches.opening import open_batch
from shoal.analyzer.batches.processing import Processor
from shoal.analyzer.batches.shredding import Shredder
from shoal.analyzer.batches.spool import Spools, intact, spool_path
from shoal.analyzer.core import Batch, BatchState
from shoal.analyzer.keys import KeyFolder
from shoal.analyzer.records import WindowOutcome
from shoal.analyzer.results import release
from shoal.analyzer.results.release import conclude
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.analyzer.tasks import AnalyzerTasks
from shoal.clocks.backoff import Backoff
from shoal.clocks.clock import FakeClock
from shoal.codec import Manifest
from shoal.errors import Kind, ShoalError
from shoal.services.given_up import GivenUp, GivenUpWindows, add
from tests.worlds.services import analyzer as analyzer_world
from tests.worlds.services.analyzer import World, make_world
from tests.worlds.services.analyzer_service import shared_pool, tries


@dataclass
class Bench:
    world: World
    folder: Path
    store: AnalyzerStore
    processor: Processor
    clock: FakeClock

    def complete(self, window: int) -> Batch:
        """A batch that is PROCESSING, with its rows on disk."""
        made: analyzer_world.Batch = self.world.batch(
            self.world.seal_cells([window] * 30, window), window
        )
        spool_path(self.folder, made.manifest_hash).write_bytes(made.data)
        batch = self.store.accept(made.manifest_bytes)
        assert self.store.move(batch.manifest_hash, BatchState.RECEIVING, BatchState.PROCESSING)
        return batch

    def key_path(self, window: int) -> Path:
        return self.folder / "keys" / f"{self.world.keys[window].config.key_id.hex}.key"

    def released(self) -> list[int]:
        return [stored.window for stored in self.store.releases()]


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(processing, "_AGAIN", Backoff(0.001, 0.001))
    world = make_world()
    world.write(tmp_path)
    store = AnalyzerStore(tmp_path / FILE_NAME)
    tasks = AnalyzerTasks(tmp_path / "tasks", {world.authority.public}, world.analyzer.public)
    keys = KeyFolder(tmp_path / "keys")
    spools = Spools(tmp_path)
    clock = FakeClock(world.after)
    shredder = Shredder(store=store, tasks=tasks, keys=keys, spools=spools, clock=clock)
    processor = Processor(
        store=store,
        tasks=tasks,
        keys=keys,
        spools=spools,
        executor=ProcessExecutor(shared_pool()),
        delivery=InMemoryDelivery(),
        signing_key=world.analyzer,
        shredder=shredder,
    )
    working = asyncio.create_task(processor.run())
    yield Bench(world, tmp_path, store, processor, clock)
    working.cancel()
    await asyncio.wait({working})
    store.close()


async def until(condition: Callable[[], bool]) -> None:
    for _ in tries():
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come to that")


async def test_what_fails_is_tried_again_and_holds_nobody_up(bench: Bench) -> None:
    """Planted: a batch that fails leaves the queue, or stays in front of it -> this fails."""
    first, second = bench.complete(0), bench.complete(1)
    hidden = bench.key_path(0).rename(bench.folder / "hidden")
    bench.processor.add(first)
    bench.processor.add(second)
    await until(lambda: bench.released() == [1])
    await until(lambda: bench.processor.trouble is not None)
    assert "window 0" in (bench.processor.trouble or "")
    hidden.rename(bench.key_path(0))
    await until(lambda: bench.released() == [0, 1])
    await until(lambda: bench.processor.trouble is None and bench.processor.waiting == 0)


async def test_who_comes_while_others_fail_does_not_wait_for_their_pauses(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is held, as a discovery's whose question is not known may be for weeks, and another one
    comes in the middle of a pause without end. Planted: the pause slept to its end, or the new one
    behind what fails -> it is never released, and this fails.
    """
    monkeypatch.setattr(processing, "_AGAIN", Backoff(1e6, 1e6))
    held = bench.complete(0)
    bench.key_path(0).unlink()
    bench.processor.add(held)
    await until(lambda: bench.processor.trouble is not None)
    bench.processor.add(bench.complete(1))
    await until(lambda: bench.released() == [1])
    await until(lambda: bench.processor.waiting == 1)


async def test_the_end_of_what_fails_waits_for_no_pause(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause without end: at the end of its retention a batch that could not be released is
    withheld, and its key goes. Planted: left where it waits -> the key is kept, and this fails.
    """
    monkeypatch.setattr(processing, "_AGAIN", Backoff(1e6, 1e6))
    held = bench.complete(0)

    def level_of(_: object, manifest: Manifest) -> None:
        raise ShoalError(Kind.MISMATCH, "it answers what is not known here")

    monkeypatch.setattr(bench.processor, "_level", level_of)
    bench.processor.add(held)
    await until(lambda: bench.processor.trouble is not None)
    bench.clock.time += bench.world.task.retention_s
    await bench.processor._sweep()
    await until(lambda: bench.released() == [0])
    await until(lambda: not bench.key_path(0).exists())
    await until(lambda: bench.processor.trouble is None)


async def test_a_batch_whose_question_is_not_known_waits_unopened(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it, it costs no work, and it is released once the question is known.
    Planted: opened, or its rows read, first -> counted again and again, fails; withheld for good ->
    released at once, fails.
    """
    first, second = bench.complete(0), bench.complete(1)
    known, opened, tried = list[int](), list[object](), list[int]()
    whole, as_it_is, read = open_batch, intact, list[int]()

    def reading(path: Path, manifest: Manifest) -> bool:
        read.append(manifest.window)
        return as_it_is(path, manifest)

    async def counted(*given: Any) -> Any:
        opened.append(given)
        return await whole(*given)

    def level_of(_: object, manifest: Manifest) -> None:
        tried.append(manifest.window)
        if manifest.window not in known:
            raise ShoalError(Kind.MISMATCH, "it answers what is not known here")

    monkeypatch.setattr(processing, "open_batch", counted)
    monkeypatch.setattr(processing, "intact", reading)
    monkeypatch.setattr(bench.processor, "_level", level_of)
    known.append(1)
    bench.processor.add(first)
    bench.processor.add(second)
    await until(lambda: bench.released() == [1] and tried.count(0) > 2)
    assert len(opened) == 1
    assert read == [1]
    assert "window 0" in (bench.processor.trouble or "")
    known.append(0)
    await until(lambda: bench.released() == [0, 1])


async def test_a_bug_in_one_batch_is_no_end_of_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: only ShoalError and OSError caught -> the queue's task dies, and this fails."""
    first, second = bench.complete(0), bench.complete(1)
    whole = Processor.process

    async def sometimes(self: Processor, batch: Batch) -> None:
        if batch.manifest.window == 0:
            raise ZeroDivisionError
        await whole(self, batch)

    monkeypatch.setattr(Processor, "process", sometimes)
    bench.processor.add(first)
    bench.processor.add(second)
    await until(lambda: bench.released() == [1])


async def test_a_batch_is_queued_once(bench: Bench) -> None:
    batch = bench.complete(0)
    for _ in range(3):
        bench.processor.add(batch)
    assert bench.processor.waiting == 1
    await until(lambda: bench.released() == [0])


async def test_a_start_goes_on_with_what_was_left(bench: Bench) -> None:
    """PROCESSING is opened, and what a DONE batch left behind is deleted. Planted: resume() skips
    either -> this fails.
    """
    batch = bench.complete(0)
    await bench.processor.resume()
    await until(lambda: bench.released() == [0])
    await until(lambda: bench.processor.waiting == 0)
    rows = spool_path(bench.folder, batch.manifest_hash)
    rows.write_bytes(b"left")
    bench.processor._shredder._released.clear()  # as after a restart
    await bench.processor.resume()
    assert not rows.exists()


async def test_a_batch_that_cannot_be_opened_ends_with_its_retention(bench: Bench) -> None:
    """Withheld, counted as nothing, charged at epsilon0; rows and key go. Planted: no look at
    retention -> it is tried for ever.
    """
    batch = bench.complete(0)
    key = bench.key_path(0)
    key.write_bytes(b"no key")
    bench.processor.add(batch)
    await until(lambda: bench.processor.trouble is not None)
    assert bench.released() == []
    bench.clock.time = bench.world.expiry(0)
    await until(lambda: bench.released() == [0] and not key.exists())
    (stored,) = bench.store.releases()
    shown = to_json(decode_release(stored.release))
    assert (shown["n"], shown["estimates"]) == (0, [])
    assert shown["withheld"].startswith("the retention ended")
    assert shown["privacy"]["epsilon_cumulative_upper"] >= shown["privacy"]["epsilon0"]
    assert not spool_path(bench.folder, batch.manifest_hash).exists()
    assert bench.store.ack(batch.manifest_hash) is not None


async def test_a_sweep_ends_an_expired_batch_that_nobody_queued(bench: Bench) -> None:
    """Its shuffler may never ask again. Planted: sweeps that queue nothing -> rows and key stay
    until a restart, and this fails.
    """
    batch = bench.complete(0)
    await bench.processor._sweep()
    assert bench.processor.waiting == 0
    bench.clock.time = bench.world.expiry(0)
    await bench.processor._sweep()
    await until(lambda: bench.released() == [0] and not bench.key_path(0).exists())
    assert not spool_path(bench.folder, batch.manifest_hash).exists()


async def test_an_accountant_that_always_fails_does_not_hold_up_the_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: prepare() asked for the expired batch too -> it never ends, and this fails."""

    def fail(*_: object, **__: object) -> None:
        raise ArithmeticError

    monkeypatch.setattr(release, "guarantee_of", fail)
    monkeypatch.setattr(release, "certify", fail)
    bench.processor.add(bench.complete(0))
    await until(lambda: bench.processor.trouble is not None)
    bench.clock.time = bench.world.expiry(0)
    await until(lambda: bench.released() == [0])
    privacy = to_json(decode_release(bench.store.releases()[0].release))["privacy"]
    assert (
        privacy["epsilon_upper"] == privacy["epsilon_cumulative_upper"] == privacy["epsilon0"] > 0
    )


async def test_no_window_is_given_up_while_its_release_is_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that one with a line is never released: who gives it up waits, and finds it released.
    Planted: lines looked at, and then the release written without holding them -> fails.
    """
    batch = bench.complete(0)
    lines = GivenUpWindows(bench.folder)
    monkeypatch.setitem(bench.processor.__dict__, "_given_up", lines)
    waited = list[bool]()

    def is_held() -> bool:
        handle = os.open(bench.folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
        return False

    def concluded(*arguments: Any) -> WindowOutcome:
        waited.append(is_held())
        return conclude(*arguments)

    monkeypatch.setattr(processing, "conclude", concluded)
    bench.processor.add(batch)
    await until(lambda: bench.released() == [0])
    assert waited == [True]
    await until(lambda: not is_held())
    line = GivenUp(batch.manifest.task_id.hex, 0, 1, "alice", "lost", "processing")
    assert add(bench.folder, line) is None


async def test_a_window_that_is_given_up_while_it_is_opened_is_not_released(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the lines looked at by the sweep alone -> it is released, fails."""
    batch = bench.complete(0)
    task_id = batch.manifest.task_id
    lines = GivenUpWindows(bench.folder)
    parts = bench.processor.__dict__
    monkeypatch.setitem(parts, "_given_up", lines)
    monkeypatch.setitem(parts["_shredder"].__dict__, "_given_up", lines)

    def opened(place: str) -> None:
        if place == "analyzer.batch.opened":
            add(bench.folder, GivenUp(task_id.hex, 0, 1, "alice", "lost", "processing"))

    monkeypatch.setattr(processing, "hit", opened)
    bench.processor.add(batch)
    await until(lambda: bench.released() == [0])
    (stored,) = bench.store.releases()
    assert to_json(decode_release(stored.release))["withheld"]
