"""Lives of shufflers on one database, for test_postgresql_owners.py: everything is the production
code, but for the analyzer's end (a folder that all share) and shorter times.

Run as a program it is a warm process like shuffler_child: see there.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal import codec, failpoints
from shoal.clocks.clock import FakeClock
from shoal.crypto.trust import ServedTask
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.limits import LIMITS
from shoal.services.process import DataFolder
from shoal.services.settings import load_settings
from shoal.shuffler.config import ShufflerConfig
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.reports.lifecycle import Lifecycle
from shoal.shuffler.stores import claims
from shoal.shuffler.stores.objects.bucket import Bucket
from shoal.shuffler.stores.postgresql import batches, database, store, windows
from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.store import PostgresStore, open_reports
from shoal.shuffler.stores.store import AdmittedReport, WindowRecord
from shoal.shuffler.tasks import ShufflerTasks
from tests.faults.shuffler_child import main

LEASE_S = 0.3  # a claim holds as long, by the database's clock
LOOK_S = 0.05
DATABASE_S = 3.0  # how long a session may stand still within a transaction
PATIENCE_S = 60.0


class SharedSink:
    """An analyzer's end that all replicas reach: it keeps one batch with its manifest, whole or not
    at all, and says so; any other one of the same window is left beside it.
    """

    def __init__(self, folder: Path, store: PostgresStore) -> None:
        self._folder, self._store = folder, store

    async def attempt(self, served: ServedTask, window: WindowId, record: WindowRecord) -> bool:
        """As ``Delivery.attempt``."""
        failpoints.hit("sink.attempt")
        data = await self._store.read_rows(window, 0, record.rows)
        manifest = codec.decode_manifest(record.manifest)
        if hashlib.sha256(data).digest() != manifest.rows_hash.raw:  # as the analyzer does
            raise ShoalError(Kind.MISMATCH, "rows that the manifest is not of")
        whole = len(record.manifest).to_bytes(4, "big") + record.manifest + data
        name = f"batch-{window.window}-{hashlib.sha256(whole).hexdigest()}"
        fresh = self._folder / f"new-{os.getpid()}"
        fresh.write_bytes(whole)
        fresh.rename(self._folder / name)
        failpoints.hit("sink.answer")
        return True


@asynccontextmanager
async def replica(folder: Path, clock: FakeClock) -> AsyncIterator[tuple[ShufflerTasks, Any]]:
    """A shuffler's tasks and its store, as its service opens them; ``folder`` is its own."""
    plan = json.loads((folder / "plan.json").read_text())
    config = load_settings(ShufflerConfig, folder / "shuffler.toml")
    signer = bytes.fromhex(plan["signer"])
    with DataFolder(config.data_dir) as data:
        options = plan.get("objects")
        place = "s3://batches/some"
        bucket = Bucket.open(place, options, signer, "shoal", plain=True) if options else None
        opened = await Database.open(plan["dsn"], signer)
        store = await open_reports(opened, data, commit_ms=0, bucket=bucket)
        try:
            book = ShufflerTasks(
                store, clock, config.tasks_dir, config.keys_dir, config.authority_keys, signer
            )
            yield book, store
        finally:
            await store.close()


async def fill(folder: Path, at: float, reports: Sequence[bytes]) -> None:
    """The replica takes these reports to window 0, all of them."""
    task_id = TaskId.parse(json.loads((folder / "plan.json").read_text())["task"])
    async with replica(folder, FakeClock(at)) as (_, store):
        group = [AdmittedReport(WindowId(task_id, 0), (one,)) for one in reports]
        assert await store.append(group) == [None] * len(group)


async def life(folder: Path) -> None:
    """Whatever there is to be done after the window's end, until it is SHREDDED and no key of it is
    left here. Raises TimeoutError if that does not come.
    """
    plan = json.loads((folder / "plan.json").read_text())
    clock = FakeClock(plan["deadline"])
    async with asyncio.timeout(plan["patience_s"]), replica(folder, clock) as (book, store):
        sink = SharedSink(Path(plan["delivered"]), store)
        lifecycle = Lifecycle(book, store, sink, clock, SYSTEM, 0.0)
        while not over(folder, store):
            await lifecycle.tick()
            await lifecycle.settle()
            clock.advance(60)
            await asyncio.sleep(LOOK_S / 2)
        await lifecycle.stop()


def over(folder: Path, store: PostgresStore) -> bool:
    """The replica has no work and no key any more."""
    records = store.records().values()
    return all(one.state is WindowState.SHREDDED for one in records) and not kept(folder)


def kept(folder: Path) -> list[str]:
    """Key files of windows that the replica has."""
    places = folder / "keys", folder / "data" / "window-keys"
    return [path.name for place in places if place.is_dir() for path in place.iterdir()]


def hasty() -> None:
    """Shorter times, for good: the child ends with them."""
    patch = pytest.MonkeyPatch()
    patch.setattr(claims, "CLAIM_S", LEASE_S)
    patch.setattr(windows, "_LOOK_S", LOOK_S)
    patch.setattr(database, "LIMITS", replace(LIMITS, database_s=DATABASE_S))


def unfenced() -> None:
    """The planted defect: every claim is as good as the last one, in each statement, and a batch is
    recorded without a look whether it is there, which would find out, too.
    """

    @asynccontextmanager
    async def step(self: Any, *_claims: Any) -> AsyncIterator[Any]:
        async with self._db.transaction() as connection:
            yield connection

    async def unchecked(*_args: Any, **_more: Any) -> None:
        pass

    patch = pytest.MonkeyPatch()
    patch.setattr(store, "check_written", unchecked)
    patch.setattr(windows.SharedWindows, "_step", step)
    patch.setattr(batches, "_HELD", "SELECT 1 WHERE ($1::bytea, $2::int, $3::bytea, $4::bigint)"
                  " IS NOT NULL")  # fmt: skip


def owner(folder: Path) -> None:
    """A life with shorter times."""
    hasty()
    asyncio.run(life(folder))


def owner_without_fences(folder: Path) -> None:
    """``owner``, with the planted defect."""
    unfenced()
    owner(folder)


def recorded(folder: Path) -> None:
    """``owner``, and which points it passed how often, as ``passed.json``."""
    passed = failpoints.record(True)
    owner(folder)
    (folder / "passed.json").write_text(json.dumps(dict(passed)))


if __name__ == "__main__":
    main({"owner": owner, "owner without fences": owner_without_fences, "record": recorded})
