"""The one place that talks to PostgreSQL, against real servers: when a commit counts, what a
failure means, and whose the tables are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress

import pytest

from shoal.errors import Kind, ShoalError
from shoal.shuffler.stores.postgresql import database as module
from shoal.shuffler.stores.postgresql import schema
from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.failures import DatabaseError
from tests.worlds import postgres
from tests.worlds.ports import free_port

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)
ME, OTHER = b"\x01" * 32, b"\x02" * 32
INSERT = "INSERT INTO task VALUES ($1, $1)"
Write = Callable[[Database, bytes], Coroutine[None, None, None]]


async def statement(database: Database, name: bytes) -> None:
    await database.execute(INSERT, name)


async def transaction(database: Database, name: bytes) -> None:
    async with database.transaction() as connection:
        await connection.execute(INSERT, name)


async def several(database: Database, name: bytes) -> None:
    await database.executemany(INSERT, [(name,), (name + b"2",)])


WAYS = pytest.mark.parametrize("write", [statement, transaction, several])


async def tasks(database: Database) -> list[bytes]:
    return [row["task_id"] for row in await database.fetch("SELECT task_id FROM task ORDER BY 1")]


# --- transactions


@WAYS
async def test_what_was_written_is_there_for_everybody(write: Write) -> None:
    """Planted: COMMIT left out -> the second sees nothing, fails."""
    dsn = postgres.shared().database()
    async with await Database.open(dsn, ME) as one, await Database.open(dsn, ME) as two:
        await write(one, b"a")
        assert (await tasks(two))[0] == b"a"


async def test_a_failure_undoes_a_transaction() -> None:
    """Planted: ROLLBACK left out -> the pool's next user commits it, fails."""
    async with await Database.open(postgres.shared().database(), ME, connections=1) as database:

        async def fail() -> None:
            async with database.transaction() as connection:
                await connection.execute(INSERT, b"a")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        await statement(database, b"b")
        assert await tasks(database) == [b"b"]


async def test_a_transaction_whose_failure_was_swallowed_is_no_commit() -> None:
    """The server answers such a COMMIT with ROLLBACK, and no error. Planted: its answer not looked
    at -> nothing is raised, fails.
    """
    async with await Database.open(postgres.shared().database(), ME) as database:
        await statement(database, b"a")

        async def swallow() -> None:
            async with database.transaction() as connection:
                with suppress(Exception):
                    await connection.execute(INSERT, b"b")
                    await connection.execute(INSERT, b"a")

        with pytest.raises(DatabaseError) as refused:
            await swallow()
        assert refused.value.kind is Kind.INTERNAL
        assert await tasks(database) == [b"a"]


async def test_a_cancelled_transaction_leaves_nothing_and_no_lock() -> None:
    """Planted: the connection kept in use -> the second waits for the first's row, times out."""
    async with await Database.open(postgres.shared().database(), ME) as database:
        begun = asyncio.Event()

        async def hold() -> None:
            async with database.transaction() as connection:
                await connection.execute(INSERT, b"a")
                begun.set()
                await asyncio.Event().wait()

        holding = asyncio.create_task(hold())
        await begun.wait()
        holding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await holding
        async with asyncio.timeout(20):
            await statement(database, b"a")


async def test_a_deadlock_is_told_or_tried_again() -> None:
    """Two transactions take two rows in opposite orders: one of them is undone, and says so.
    Planted: every failure INTERNAL -> fails.
    """
    async with await Database.open(postgres.shared().database(), ME) as database:
        await several(database, b"a")
        both = asyncio.Barrier(2)
        change = "UPDATE task SET schedule_hash = 'x' WHERE task_id = $1"

        async def change_all(*names: bytes) -> None:
            async with database.transaction() as connection:
                await connection.execute(change, names[0])
                await both.wait()
                await connection.execute(change, names[1])

        ends = await asyncio.gather(
            change_all(b"a", b"a2"), change_all(b"a2", b"a"), return_exceptions=True
        )
        (failure,) = [end for end in ends if end is not None]
        assert isinstance(failure, DatabaseError)
        assert (failure.kind, failure.again, failure.unknown) == (Kind.UNAVAILABLE, True, False)


# --- what is no acknowledgement


async def cancelled_wait(write: Write) -> BaseException | None:
    """How a write ends whose wait for the standby an operator cancels; it is on the primary."""
    with postgres.Server() as server:
        async with await Database.open(server.database(), ME) as database:
            server.configure("synchronous_standby_names = 'nobody'")
            writing = asyncio.create_task(write(database, b"a"))
            cancel = (
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            )
            while await asyncio.to_thread(server.sql, cancel) == []:
                assert not writing.done()
            (end,) = await asyncio.gather(writing, return_exceptions=True)
            assert (await tasks(database))[0] == b"a"
            return end


@WAYS
async def test_a_cancelled_wait_for_the_standby_is_no_acknowledgement(write: Write) -> None:
    """The server says success, and a warning. Planted: ``warnings.check()`` left out of either way
    -> no exception, fails; warnings not sent for this user (``client_min_messages`` not set) ->
    fails with the test below.
    """
    end = await cancelled_wait(write)
    assert isinstance(end, DatabaseError)
    assert (end.kind, end.unknown) == (Kind.UNAVAILABLE, True)


@WAYS
async def test_without_the_rule_it_would_be_one(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the server alone says success."""
    monkeypatch.setattr(module._Warnings, "check", lambda _self: None)
    assert await cancelled_wait(write) is None


async def test_settings_of_a_user_do_not_go_before_ours() -> None:
    """A user for whom warnings are hidden and commits do not wait. Planted: our settings not sent
    -> fails.
    """
    with postgres.Server() as server:
        for setting in ("client_min_messages = error", "synchronous_commit = off"):
            server.sql(f"ALTER ROLE postgres SET {setting}")
        async with await Database.open(server.database(), ME) as database:
            assert await database.fetchval("SHOW client_min_messages") == "warning"
            assert await database.fetchval("SHOW synchronous_commit") == "on"


@WAYS
async def test_a_lost_server_is_an_unknown_end_and_its_return_is_used(write: Write) -> None:
    """Killed while a write waits for the standby: then it is there, or not. Planted: told as a
    refusal (``unknown`` false) -> fails.
    """
    with postgres.Server() as server:
        async with await Database.open(server.database(), ME) as database:
            server.configure("synchronous_standby_names = 'nobody'")
            writing = asyncio.create_task(write(database, b"a"))
            waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            while await asyncio.to_thread(server.sql, waits) == []:
                assert not writing.done()
            await asyncio.to_thread(server.kill)
            (end,) = await asyncio.gather(writing, return_exceptions=True)
            assert isinstance(end, DatabaseError)
            assert (end.kind, end.unknown) == (Kind.UNAVAILABLE, True)
            with pytest.raises(ShoalError) as refused:
                await write(database, b"b")
            assert refused.value.kind is Kind.UNAVAILABLE
            assert not getattr(refused.value, "unknown", False)
            (server.data / "postgresql.auto.conf").write_text("")
            server.start()
            with suppress(ShoalError):  # the connection that was lost may not be seen to be
                await write(database, b"b")
            await write(database, b"c")
            assert b"c" in await tasks(database)


# --- whom we talk to


async def refused(dsn: str, identity: bytes = ME, name: str = "shoal") -> ShoalError:
    with pytest.raises(ShoalError) as caught:
        await Database.open(dsn, identity, name)
    return caught.value


async def test_who_cannot_be_used_is_refused_in_one_line() -> None:
    """Nobody there, no such password or database; and no line shows the password. Planted: the text
    of the driver passed on -> it names the address, fails.
    """
    server = postgres.shared()
    dsn = server.database()
    free = free_port()
    wrong = {
        dsn.replace(f":{server.port}/", f":{free}/"): Kind.UNAVAILABLE,
        dsn.replace(server.password, "no"): Kind.CONFIG,
        server.dsn("nobody"): Kind.CONFIG,
        f"{dsn}?sslmode=verify-full": Kind.CONFIG,
    }
    for one, kind in wrong.items():
        error = await refused(one)
        assert error.kind is kind, error
        assert "\n" not in str(error)
        assert server.password not in str(error)
        assert str(server.port) not in str(error)


async def test_a_standby_is_not_written_to_and_the_primary_is_found() -> None:
    """Several hosts in one DSN, as a failover needs. Planted: any server taken -> the first is read
    only, fails.
    """
    with postgres.Server() as server, server.standby("two") as standby:
        name = server.database().rpartition("/")[2]
        server.wait_for("two")
        assert (await refused(standby.dsn(name))).kind is Kind.UNAVAILABLE
        both = server.dsn(name).replace(
            f"@127.0.0.1:{server.port}", f"@127.0.0.1:{standby.port},127.0.0.1:{server.port}"
        )
        async with await Database.open(both, ME) as database:
            await statement(database, b"a")
            server.kill()
            standby.promote()
            with suppress(ShoalError):  # the connection that was lost may not be seen to be
                await statement(database, b"b")
            await statement(database, b"c")
            assert {b"a", b"c"} <= set(await tasks(database))


async def test_too_many_connections_are_overload() -> None:
    """Planted: 53300 taken for INTERNAL -> fails."""
    with postgres.Server(["max_connections = 8", "superuser_reserved_connections = 0"]) as server:
        async with await Database.open(server.database(), ME, connections=20) as database:
            gate = asyncio.Event()

            async def hold() -> None:
                async with database.transaction():
                    await gate.wait()

            holding = [asyncio.create_task(hold()) for _ in range(12)]
            done, _ = await asyncio.wait(holding, return_when=asyncio.FIRST_COMPLETED)
            gate.set()
            failures = [one.exception() for one in done]
            await asyncio.gather(*holding, return_exceptions=True)
            assert {getattr(one, "kind", None) for one in failures} == {Kind.OVERLOADED}


# --- whose tables


async def test_replicas_that_start_together_make_the_tables_once() -> None:
    """Planted: no lock -> the schema exists already, fails now and then."""
    dsn = postgres.shared().database()
    databases = await asyncio.gather(*(Database.open(dsn, ME) for _ in range(5)))
    assert await databases[0].fetchval("SELECT count(*) FROM cluster") == 1
    for database in databases:
        await database.close()


async def test_another_shufflers_tables_are_refused_and_left_alone() -> None:
    """Planted: the key not compared -> opened, fails."""
    dsn = postgres.shared().database()
    await (await Database.open(dsn, ME)).close()
    assert (await refused(dsn, OTHER)).kind is Kind.CONFIG
    async with await Database.open(dsn, OTHER, "another") as database:
        assert await database.fetchval("SELECT shuffler_key FROM cluster") == OTHER
        assert await database.fetchval("SELECT shuffler_key FROM shoal.cluster") == ME


async def test_newer_tables_and_older_servers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: either not looked at -> opened, fails. Newer ones that let this program go on are
    left as they are. Planted: the version alone asked -> refused, fails.
    """
    server = postgres.shared()
    dsn = server.database()
    await (await Database.open(dsn, ME)).close()
    server.sql("UPDATE shoal.cluster SET version = 99", dsn.rpartition("/")[2])
    async with await Database.open(dsn, ME) as database:
        assert await database.fetchval("SELECT version FROM cluster") == 99
    server.sql("UPDATE shoal.cluster SET least = 99", dsn.rpartition("/")[2])
    assert "newer" in str(await refused(dsn))
    monkeypatch.setattr(schema, "LEAST_SERVER", 990_000)
    assert "PostgreSQL 99" in str(await refused(server.database()))


async def test_an_older_version_is_brought_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """By whoever comes first, without what it holds. Planted: from the first script on -> the table
    exists, fails.
    """
    dsn = postgres.shared().database()
    async with await Database.open(dsn, ME) as database:
        await statement(database, b"a")
    older = len(schema.scripts())
    now = [*schema.scripts(), "ALTER TABLE task ADD COLUMN more int DEFAULT 7"]
    monkeypatch.setattr(schema, "scripts", lambda: now)
    for _ in range(2):
        async with await Database.open(dsn, ME) as database:
            assert await database.fetchval("SELECT more FROM task") == 7
            found = await database.fetchrow("SELECT version, least FROM cluster")
            assert found is not None
            assert tuple(found) == (older + 1, older + 1)


async def test_a_user_who_may_not_make_tables_is_told_what_to_grant() -> None:
    """Planted: told as a failure of the server -> INTERNAL, fails."""
    with postgres.Server() as server:
        dsn = server.database()
        server.sql("CREATE ROLE poor LOGIN PASSWORD 'word'")
        poor = dsn.replace(f"postgres:{server.password}", "poor:word")
        error = await refused(poor)
        assert error.kind is Kind.CONFIG
        assert "GRANT" in str(error)
        server.sql("CREATE SCHEMA shoal AUTHORIZATION poor", dsn.rpartition("/")[2])
        await (await Database.open(poor, ME)).close()
