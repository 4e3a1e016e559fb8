"""Stores on one database, as several shufflers have them, each in a folder of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from shoal.crypto.hpke import HpkePrivateKey
from shoal.errors import ShoalError
from shoal.shuffler.core import Capacity
from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.store import PostgresStore, open_reports
from tests.conformance.store.harness import HASH, HOP_KEY, OPEN_ENDED, ROW, TASK
from tests.worlds import postgres

SHUFFLER = b"\x07" * 32  # a public signing key, as good as any
# of ``replica_stores``: ``dsn`` is of the first, and of all by default; a ``folder`` that is there
# is the same replica again, as after kill -9
Replicas = Callable[..., Awaitable[PostgresStore]]


@asynccontextmanager
async def replica_stores(root: Path) -> AsyncIterator[Replicas]:
    """Makes one more replica. All are closed at the end."""
    opened, dsns = list[PostgresStore](), list[str]()

    async def make(
        capacity: Capacity = OPEN_ENDED,
        hop_key: HpkePrivateKey | None = HOP_KEY,
        folder: str = "",
        dsn: str = "",
        connections: int = 12,
    ) -> PostgresStore:
        if not dsns:
            dsns.append(dsn or postgres.shared().database())
        place = root / (folder or f"replica-{len(opened)}")
        place.mkdir(exist_ok=True)
        database = await Database.open(dsn or dsns[0], SHUFFLER, connections=connections)
        store = await open_reports(database, place, commit_ms=0)
        opened.append(store)
        store.adopt(TASK, HASH, capacity, ROW, lambda _: hop_key)
        return store

    yield make
    for store in opened:
        with suppress(ShoalError):  # of a database that a test left away
            await store.close()
