"""Several machines for one batch: a real analyzer, a scheduler and workers as processes, over
TLS.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.analyzer.batches.chunk_source import ChunkSource
from shoal.analyzer.batches.executor import Executor, ProcessExecutor
from shoal.analyzer.batches.key_delivery import InMemoryDelivery, KeyDelivery
from shoal.analyzer.batches.opening import Opened, open_batch
from shoal.analyzer.batches.row_opening import RowContext
from shoal.analyzer.machines.cluster import Cluster
from shoal.analyzer.machines.connection import WorkerConnection
from shoal.analyzer.machines.engine import MachinesDelivery, MachinesExecutor
from shoal.analyzer.records import StoredRelease
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.errors import Kind, ShoalError
from shoal.protos import delivery_pb2
from tests.conformance.opening.together import mixed_rows
from tests.sizes import size
from tests.worlds.machines import Machines, Process, machines
from tests.worlds.services.analyzer import World, make_task
from tests.worlds.services.analyzer_process import Analyzer, serving
from tests.worlds.services.analyzer_service import chunks, shared_pool, tries

# The real clock: windows that were over long ago.
PAST = make_task()
TASK = replace(
    PAST, windows=replace(PAST.windows, start_s=1_700_000_000), retention_s=100 * 366 * 86_400
)

WAYS: list[tuple[str, dict[str, Any] | None]] = [
    ("here", None),
    ("sent", {}),
    ("shared", {"shared_spool": "true"}),
]


def released(folder: Path) -> list[StoredRelease]:
    store = AnalyzerStore(folder / "data" / FILE_NAME, read_only=True)
    try:
        return store.releases()
    finally:
        store.close()


async def test_the_release_is_that_of_one_machine(tmp_path: Path) -> None:
    """Signed bytes and all, with rows sent along and with rows that workers read in a shared
    folder. Planted: the last chunk left out, or a worker's chunk counted twice -> this fails.
    """
    world = World(TASK)
    rows = mixed_rows(world, 1_500, 3)
    batch = world.batch(rows)
    found = {}
    for name, more in WAYS:
        folder = tmp_path / name
        folder.mkdir()
        with machines(
            tmp_path / f"machines-{name}", analyzer=world.analyzer, spool=folder / "data" / "spool"
        ) as there:
            opening = {} if more is None else {"opening": there.opening(**more)}
            with serving(world, folder, **opening) as analyzer:
                caller = analyzer.caller()
                await caller.done(batch)
                await caller.channel.close()
        found[name] = released(folder)
    assert len(found["here"]) == 1
    assert found["sent"] == found["here"]
    assert found["shared"] == found["here"]


def pool_of(analyzer: Analyzer) -> list[int]:
    """Its children that are workers of a pool."""
    lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in analyzer.workers()}
    return [pid for pid, line in lines.items() if b"spawn_main" in line]


async def test_without_its_scheduler_a_batch_waits_and_is_opened_when_it_is_back(
    tmp_path: Path,
) -> None:
    """Planted: a batch without workers ended as if it had no rows; a local pool started -> each
    fails.
    """
    world = World(TASK)
    batch = world.batch(world.seal_cells([i % 7 for i in range(60)]))
    with machines(tmp_path / "machines", analyzer=world.analyzer) as there:
        there.scheduler.kill()
        with serving(world, tmp_path, opening=there.opening(wait_s="1")) as analyzer:
            caller = analyzer.caller()
            await caller.offer(batch)
            await caller.deliver(chunks(batch))
            analyzer.until("a batch can't be released yet")
            assert pool_of(analyzer) == []  # it would only idle
            reply = await caller.offer(batch)
            assert reply.state == delivery_pb2.BATCH_STATE_PROCESSING
            assert released(tmp_path) == []
            there.scheduler.restart()
            analyzer.until("window released")
            await caller.done(batch)
            await caller.channel.close()
    assert len(released(tmp_path)) == 1


class Killing:
    """A source in memory that kills processes while it is read."""

    def __init__(self, rows: list[bytes], victims: list[Process], at: int) -> None:
        self.data, self.victims, self.at, self.reads = rows, victims, at, 0

    @property
    def rows(self) -> int:
        return len(self.data)

    @property
    def row_size(self) -> int:
        return len(self.data[0])

    def read(self, rows: range) -> bytes:
        self.reads += 1
        if self.reads == self.at:
            for victim in self.victims:
                victim.kill()
        return b"".join(self.data[row] for row in rows)


class MidBatch:
    """Two workers that are connected, a batch, and what it is when one process opens it."""

    def __init__(self, there: Machines, cluster: Cluster, world: World) -> None:
        self.there, self.cluster, self._world = there, cluster, world
        self._rows = mixed_rows(world, size(6_000, 60_000), 5)

    async def opened_here(self) -> Opened:
        return await self._opened(
            Killing(self._rows, [], 0), ProcessExecutor(shared_pool()), InMemoryDelivery()
        )

    async def opened(self, *victims: Process, at: int) -> Opened:
        """By the workers, in chunks of four requests, while ``victims`` are killed at a read."""
        executor, delivery = MachinesExecutor(self.cluster, 64), MachinesDelivery(self.cluster)
        found = await self._opened(Killing(self._rows, list(victims), at), executor, delivery)
        assert all(victim.process.poll() is not None for victim in victims)
        return found

    async def _opened(
        self, source: ChunkSource, executor: Executor, delivery: KeyDelivery
    ) -> Opened:
        world, key = self._world, self._world.keys[0]
        context = RowContext.of(world.task, world.task_id, 0, key.config.key_id, world.row_size())
        return await open_batch(source, context, key, executor, delivery)


@asynccontextmanager
async def in_mid_batch(folder: Path, wait_s: float) -> AsyncIterator[MidBatch]:
    """Connected inside; afterwards, with whoever was killed started again, all come back."""
    with machines(folder, again=False) as there:
        cluster = there.cluster(wait_s)
        async with cluster.used():
            await everybody(there, cluster)
            yield MidBatch(there, cluster, World(TASK))
        for process in (there.scheduler, *there.workers):
            if process.process.poll() is not None:
                process.restart()
        async with cluster.used():
            await everybody(there, cluster)


async def test_a_worker_killed_in_mid_batch_changes_nothing(tmp_path: Path) -> None:
    """Chunks of which some parts were opened start over. Control: with both killed the attempt
    fails as one that can be made again. Planted: the chunks of a lost worker left out, or only the
    parts that it had not answered sent to the next one -> this fails.
    """
    async with in_mid_batch(tmp_path, wait_s=2.0) as batch:
        wanted = await batch.opened_here()
        first, second = batch.there.workers
        assert await batch.opened(first, at=11) == wanted
        with pytest.raises(ShoalError) as caught:
            await batch.opened(second, at=9)
        assert caught.value.kind is Kind.UNAVAILABLE


async def test_a_scheduler_killed_in_mid_batch_changes_nothing(tmp_path: Path) -> None:
    """Workers that are at work need it no more, and register when it is back. Planted: a worker
    that closes when its scheduler goes, as Dask's do -> this fails.
    """
    async with in_mid_batch(tmp_path, wait_s=0.0) as batch:
        wanted = await batch.opened_here()
        before = set(batch.cluster._connections.values())
        assert await batch.opened(batch.there.scheduler, at=5) == wanted
        assert not any(one.lost for one in before)


async def test_looks_at_once_make_one_connection_to_a_worker(tmp_path: Path) -> None:
    """One that nobody knew of would keep the worker at work for good. Planted: looks that don't
    wait for one another -> this fails.
    """
    async with in_mid_batch(tmp_path, wait_s=0.0) as batch:
        cluster = batch.there.cluster(wait_s=0.0)
        async with cluster.looked():
            found = set(cluster._connections.values())
            for one in found:
                await one.close()
            await asyncio.gather(*(cluster.look() for _ in range(4)))
            # by type: what lazy packages keep must not be asked what it is
            ours = {one for one in gc.get_objects() if issubclass(type(one), WorkerConnection)}
            there = {one for one in ours if not one.lost}
            assert len(there) == 2 * len(batch.there.workers)


async def everybody(there: Machines, cluster: Cluster) -> None:
    """Until all workers are there; inside ``used``."""
    for _ in tries():
        await cluster.look()
        if cluster.size == len(there.workers):
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the workers did not come")
