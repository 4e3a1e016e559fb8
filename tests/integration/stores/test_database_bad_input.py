"""A database that cannot be used for a reason of its machine's: a full disk, a standby that is
gone, a clock that is wrong. Each is a typed refusal and a condition, and nothing that was
acknowledged is lost. Servers that are away or wrong: test_database.py; other replicas:
test_fellows.py.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from shoal.errors import Kind
from shoal.shuffler.stores.postgresql import watch
from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.failures import FULL, DatabaseError
from shoal.shuffler.stores.postgresql.store import PostgresStore, open_reports
from tests.conformance.store.harness import (
    HASH,
    HOP_KEY,
    OPEN_ENDED,
    ROW,
    TASK,
    reports,
    seal,
    submissions,
)
from tests.worlds import postgres
from tests.worlds.clock import Machine, keeper
from tests.worlds.small_disk import small_disk

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)
ME = b"\x07" * 32


async def opened(dsn: str, folder: Path) -> PostgresStore:
    store = await open_reports(await Database.open(dsn, ME), folder, commit_ms=0)
    store.adopt(TASK, HASH, OPEN_ENDED, ROW, lambda _: HOP_KEY)
    return store


def told(store: PostgresStore) -> list[tuple[str, str]]:
    return [(one.code, one.subject) for one in store.damage()]


async def test_a_full_disk_is_overload_until_there_is_room(tmp_path: Path) -> None:
    """A tablespace on a disk that is really full. Planted: 53100 taken for INTERNAL -> fails; no
    condition -> fails; over with a known report -> the last but one look fails.
    """
    with postgres.Server() as server, small_disk(server.folder / "small") as disk:
        if not disk.real:
            pytest.skip("this user may not mount a small disk for the server")
        postgres.give(disk.folder)
        store = await opened(server.database(), tmp_path)
        try:
            kept, sent = reports(5), reports(400)
            assert await store.append(submissions(kept)) == [None] * 5
            server.sql(f"CREATE TABLESPACE small LOCATION '{disk.folder}'")
            await store._db.execute("ALTER TABLE inbox_1 SET TABLESPACE small")
            disk.fill()
            assert await store.append(submissions(sent)) == [Kind.OVERLOADED] * 400
            assert told(store) == [("disk_full", "database")]
            some = await store.append(submissions(kept[:1] + sent))
            assert some == [None] + [Kind.OVERLOADED] * 400
            assert told(store) == [("disk_full", "database")]
            disk.restore()
            assert await store.append(submissions(sent)) == [None] * 400
            assert told(store) == []
            sealed, rows = await seal(store)
            assert (sorted(rows), sealed.damaged) == (sorted(kept + sent), 0)
        finally:
            await store.close()


async def test_a_window_that_is_closed_leaves_no_full_disk_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing comes any more that could show that there is room. Planted: what was refused kept
    after the close -> fails.
    """
    store = await opened(postgres.shared().database(), tmp_path)
    try:
        assert await store.append(submissions(reports(2))) == [None, None]

        async def full(*_: object) -> None:
            raise DatabaseError(Kind.OVERLOADED, "full", sqlstate=FULL)

        with monkeypatch.context() as patch:
            patch.setattr(store, "_store_block", full)
            patch.setattr(store, "_store_alone", full)
            assert await store.append(submissions(reports(1))) == [Kind.OVERLOADED]
        assert told(store) == [("disk_full", "database")]
        await seal(store)
        assert told(store) == []
    finally:
        await store.close()


async def test_a_standby_that_is_gone_is_told_and_nothing_is_acknowledged(tmp_path: Path) -> None:
    """A commit waits for it no longer than a call may take, and counts once when it is repeated.
    Planted: whether a standby follows not looked at -> no condition, fails.
    """
    with postgres.Server(["fsync = on"]) as server:
        store = await opened(server.database(), tmp_path)
        looks = watch.DatabaseWatch(store._db, replicas=2, without_standby=False)
        try:
            sent = reports(3)
            assert await store.append(submissions(reports(2))) == [None] * 2
            server.configure("synchronous_standby_names = 'gone'")
            await looks.look()
            assert [(one.subject, one.stops) for one in looks.conditions()] == [("standby", True)]
            waiting = asyncio.create_task(store.append(submissions(sent)))
            await asyncio.to_thread(wait_ends, server)
            assert await waiting == [Kind.UNAVAILABLE] * 3
            server.configure("synchronous_standby_names = ''")
            assert await store.append(submissions(sent)) == [None] * 3
            assert (await seal(store))[0].rows == 5
        finally:
            await store.close()


def wait_ends(server: postgres.Server) -> None:
    """The session that waits for the standby ends, as if the time of its call were over."""
    look = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    )
    while server.sql(look) == ["0"]:
        pass


async def test_a_clock_that_differs_from_the_databases_decides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine's is two hours slow. Planted: the server's clock not told to the keeper -> it
    decides, fails.
    """
    slow = time.time() - 7_200
    clock = keeper(tmp_path / "clock", Machine(slow))
    assert clock.decide() is not None
    real = watch.look
    monkeypatch.setattr(watch, "look", lambda database: real(database, lambda: slow))
    async with await Database.open(postgres.shared().database(), ME) as database:
        looks = watch.DatabaseWatch(database, replicas=2, without_standby=True)
        await looks.look()
        looks.tell_clock(clock)
        clock.look()
        assert clock.decide() is None
        found = {(one.subject, one.stops) for one in looks.conditions()}
        assert ("clock", True) in found
        assert [one.code for one in clock.conditions()] == ["clock"]
