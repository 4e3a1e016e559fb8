"""What a replica acknowledged and the database lost is told, whoever restarts, and whatever the
database says of itself: see ``shoal.shuffler.stores.postgresql.replicas.losses``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from shoal.errors import Kind
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.stores.postgresql.database import WHICH
from shoal.shuffler.stores.postgresql.store import PostgresStore
from tests.conformance.store.harness import (
    TASK,
    mine,
    reports,
    seal,
    submissions,
)
from tests.worlds import postgres
from tests.worlds.postgres import Server
from tests.worlds.replica_stores import replica_stores

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)
ONE = WindowId(TASK, 0)
Open = Callable[[str, str], Awaitable[PostgresStore]]


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Open]:
    """Opens the replica of a folder on a database. As after kill -9: nothing needs closing."""
    async with replica_stores(tmp_path) as make:

        async def opening(dsn: str, folder: str) -> PostgresStore:
            return await make(dsn=dsn, folder=folder)

        yield opening


async def put(store: PostgresStore, count: int) -> None:
    assert await store.append(submissions(reports(count))) == [None] * count


def told(store: PostgresStore) -> int:
    """Rows that this replica says are missing."""
    list(store.damage())  # never raises
    return sum(word.lost for word in store._told.of(ONE))


async def lost(server: Server, name: str, first: int) -> None:
    """Blocks from this number on are gone, and the server started anew, as after a failover."""
    server.sql(f"DELETE FROM shoal.inbox_1 WHERE number >= {first}", name)  # noqa: S608 - a number
    server.stop()
    server.start()


async def test_a_standby_without_the_last_commits_is_told_by_a_replica_that_restarted(
    opened: Open,
) -> None:
    """The replica was killed, and stored nothing more. Planted: nothing read from the file at the
    start -> 0, fails. Planted: no last word entered -> the batch says 0, fails.
    """
    with Server() as server, server.standby("two") as standby:
        name = server.database().rpartition("/")[2]
        store = await opened(server.dsn(name), "one")
        await put(store, 10)
        (at,) = server.sql("SELECT pg_current_wal_lsn()")
        behind = f"SELECT pg_last_wal_replay_lsn() < '{at}'"
        while await asyncio.to_thread(standby.sql, behind) != ["f"]:
            pass
        standby.kill()
        await put(store, 7)
        await put(store, 5)
        server.kill()
        standby.start()
        await asyncio.to_thread(standby.promote)
        again = await opened(standby.dsn(name), "one")
        assert told(again) == 12
        assert [one.code for one in again.damage()] == ["damage"]
        sealed, _ = await seal(again)
        assert (sealed.rows, sealed.damaged) == (10, 12)


async def test_a_replica_that_lives_tells_when_the_server_is_another(opened: Open) -> None:
    """It stores nothing more, and another one seals. Planted: never compared after the start ->
    0, fails.
    """
    with Server() as server:
        dsn = server.database()
        one, two = await opened(dsn, "one"), await opened(dsn, "two")
        await put(two, 1)
        for _ in range(3):
            await put(one, 10)
        await lost(server, dsn.rpartition("/")[2], 3)
        for _ in range(600):
            if told(one):
                break
            await asyncio.sleep(0.05)
        assert (told(one), told(two)) == (10, 0)
        sealed, _ = await seal(two)
        assert (sealed.rows, sealed.damaged) == (21, 10)


async def test_who_closes_a_window_looks_first(opened: Open) -> None:
    """Before any look of once a second. Planted: not compared there -> the batch says 0, fails."""
    dsn = postgres.shared().database()
    one = await opened(dsn, "one")
    await put(one, 10)
    await put(one, 4)
    await one._db.execute("DELETE FROM inbox_1 WHERE number = 2")
    sealed, _ = await seal(one)
    assert (sealed.rows, sealed.damaged, told(one)) == (10, 4, 4)


async def test_who_was_away_while_a_window_was_sealed_tells(opened: Open) -> None:
    """The inbox is gone by then. Planted: what was sealed of each writer not kept -> 0, fails. It
    is told at every start, until the window is shredded. Planted: what was found not noted -> 0
    after that, fails.
    """
    dsn = postgres.shared().database()
    one, two = await opened(dsn, "one"), await opened(dsn, "two")
    for store in (one, two):
        await put(store, 10)
    await one.close()
    await two._db.execute("DELETE FROM inbox_1 WHERE writer = $1", one._told.of(ONE)[0].writer)
    sealed, _ = await seal(two)
    assert (sealed.rows, sealed.damaged, told(two)) == (10, 0, 0)
    for _ in range(2):
        again = await opened(dsn, "one")
        assert told(again) == 10
        await again.close()
    state, claim = WindowState, await mine(two, ONE)
    await two.advance(claim, state.SEALED, state.EXPIRED)
    await two.shred(claim)
    await two.advance(claim, state.EXPIRED, state.SHREDDED)
    again = await opened(dsn, "one")
    assert not list(again.damage())
    assert again._told.windows() == []


async def test_what_is_all_there_is_not_missed(opened: Open) -> None:
    """Restarts, commits of unknown outcome, a window that was emptied, one that was sealed.
    Planted: blocks of unknown outcome counted for those that were acknowledged -> 0 lost at the
    end, fails. Planted: a window that was emptied compared all the same -> 10 lost, fails.
    """
    dsn = postgres.shared().database()
    one = await opened(dsn, "one")
    await put(one, 10)
    claim = await mine(one, ONE)
    await one.shred(claim)
    again = await opened(dsn, "one")
    assert told(again) == 0
    await put(again, 10)
    unknown = again._boxes[ONE].next_place()  # was committed, and nobody heard of it
    await again._db.execute(
        "INSERT INTO inbox_1 SELECT writer, $1, acked, 10, keys, body FROM inbox_1",
        unknown.number,
    )
    await put(again, 10)
    last = await opened(dsn, "one")
    assert told(last) == 0
    await last._db.execute("DELETE FROM inbox_1 WHERE number = 1")
    assert told(await opened(dsn, "one")) == 10


async def test_a_window_that_is_gone_is_told(opened: Open) -> None:
    """The database was put back to before it, or made anew. Planted: a window without a row passed
    over -> 0, fails.
    """
    one = await opened(postgres.shared().database(), "one")
    await put(one, 10)
    await one.close()
    other = postgres.shared().database()
    again = await opened(other, "one")
    assert told(again) == 10
    await put(again, 5)  # the window is made anew
    sealed, _ = await seal(again)
    assert (sealed.rows, sealed.damaged) == (5, 10)


async def test_a_database_put_back_from_a_dump_is_another(opened: Open) -> None:
    """Same server, same name, same start. Planted: the table left out of what names it -> equal,
    fails.
    """
    server = postgres.shared()
    dsn = server.database()
    name = dsn.rpartition("/")[2]
    one = await opened(dsn, "one")
    before = await one._losses.which()
    assert not one._losses.is_other(before)
    copy = server.database().rpartition("/")[2]
    server.copy(name, copy)
    server.sql("DROP SCHEMA shoal CASCADE", name)
    server.copy(copy, name)
    assert one._losses.is_other(await one._losses.which())


async def put_back(server: Server, dsn: str, copy: str) -> None:
    """The content of ``copy``, by another number of each table."""
    name = dsn.rpartition("/")[2]
    await asyncio.to_thread(server.sql, "DROP SCHEMA shoal CASCADE", name)
    await asyncio.to_thread(server.copy, copy, name)


async def test_a_replica_that_lives_goes_on_with_what_a_restore_left(opened: Open) -> None:
    """It opens a window that was lost anew, with what is sent again, though another one's row has
    its number now; and goes on with one that has less in it. Planted: rows never forgotten ->
    INTERNAL for ever, fails. Planted: the number alone asked -> a report of window 1 is
    acknowledged into window 2, and is in no batch, fails.
    """
    server = postgres.shared()
    dsn, copy = server.database(), server.database().rpartition("/")[2]
    one = await opened(dsn, "one")
    kept, sent = reports(4), reports(5)
    assert await one.append(submissions(kept)) == [None] * 4
    await asyncio.to_thread(server.copy, dsn.rpartition("/")[2], copy)
    assert await one.append(submissions(sent)) == [None] * 5
    assert await one.append(submissions(sent, 1)) == [None] * 5
    assert one._looking is not None
    one._looking.cancel()  # it has not looked yet
    await put_back(server, dsn, copy)
    two = await opened(dsn, "two")
    assert await two.append(submissions(reports(3), 2)) == [None] * 3
    assert two._rows[WindowId(TASK, 2)].id == one._rows[WindowId(TASK, 1)].id
    assert await one.append(submissions(reports(2), 1)) == [None] * 2
    await one._looked()
    for window in (0, 1):
        assert await one.append(submissions(sent, window)) == [None] * 5
    assert [(await seal(one, window))[0].rows for window in (0, 1)] == [9, 7]
    assert (await seal(two, 2))[0].rows == 3


async def test_what_was_decided_and_is_not_any_more_is_named(opened: Open) -> None:
    """Planted: taken back here, too -> its reports are taken, and nobody closes it, fails."""
    server = postgres.shared()
    dsn, copy = server.database(), server.database().rpartition("/")[2]
    one = await opened(dsn, "one")
    await put(one, 4)
    await asyncio.to_thread(server.copy, dsn.rpartition("/")[2], copy)
    await one.close_intake(await mine(one, ONE))
    await put_back(server, dsn, copy)
    await one._looked()
    told = [one.message for one in one.damage() if one.code == "database"]
    assert ["start this replica again" in each for each in told] == [True]
    assert await one.append(submissions(reports(1))) == [Kind.WINDOW_CLOSED]
    again = await opened(dsn, "one")
    assert not [one for one in again.damage() if one.code == "database"]
    await put(again, 1)
    assert (await seal(again))[0].rows == 5


async def test_a_user_without_rights_may_ask_which_database_it_is() -> None:
    """Planted: a function for superusers (pg_ls_waldir) -> refused, fails."""
    server = postgres.shared()
    with suppress(AssertionError):
        server.sql("CREATE ROLE plain")
    (which,) = server.sql(f"SET ROLE plain; {WHICH}")
    assert len(which.split()) >= 4


async def test_repeats_of_what_was_lost_are_stored_again(opened: Open) -> None:
    """Once the loss was noticed. Planted: what was read kept -> acknowledged from memory, and
    nowhere, fails.
    """
    with Server() as server:
        dsn = server.database()
        one, sent = await opened(dsn, "one"), reports(10)
        assert await one.append(submissions(sent)) == [None] * 10
        await lost(server, dsn.rpartition("/")[2], 1)
        for _ in range(600):
            if told(one):
                break
            await asyncio.sleep(0.05)
        assert await one.append(submissions(sent)) == [None] * 10
        assert (await seal(one))[0].rows == 10


async def test_a_disk_that_takes_nothing_is_told_and_stops_nothing(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the failure raised -> UNAVAILABLE for what the database has, fails."""

    def full(*_: object) -> int:
        raise OSError

    one = await opened(postgres.shared().database(), "one")
    with monkeypatch.context() as disk:
        disk.setattr("shoal.shuffler.stores.told.os.pwrite", full)
        await put(one, 3)
        assert [condition.code for condition in one.damage()] == ["disk_read_only"]
    await put(one, 3)
    assert not list(one.damage())
    assert one._told.of(ONE)[0].acked == 6


async def test_refusals_leave_nothing_waiting(opened: Open) -> None:
    """A block that the database did not take has no number that is excepted for ever. Planted: ->
    it is, fails.
    """
    dsn = postgres.shared().database()
    one = await opened(dsn, "one")
    await put(one, 3)
    await one._db.execute("UPDATE win SET epoch = epoch + 1")
    await put(one, 3)
    (word,) = one._told.of(ONE)
    assert (word.acked, word.waiting) == (6, ())
    assert Kind.UNAVAILABLE not in await one.append(submissions(reports(1)))
