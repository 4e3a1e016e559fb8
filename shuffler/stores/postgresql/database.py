"""The one place that talks to PostgreSQL: connections, transactions, and what an answer is worth.

A commit is an acknowledgement only if the server said so **without a warning**: a wait for a
synchronous standby that is cancelled ends as success with a warning, although one machine alone has
the commit. So is a lost connection no answer: whether it was committed is unknown, and whoever
asked says nothing and looks again.

The server's settings that this stands on are set for each connection: warnings are sent, commits
wait for the disk and for the standby where there is one. Every replica connects to the server
itself: a pooler that gives each transaction another connection breaks prepared statements.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from shoal.errors import Kind
from shoal.limits import LIMITS
from shoal.log import get_log
from shoal.shuffler.stores.postgresql import schema as tables
from shoal.shuffler.stores.postgresql.address import check_dsn
from shoal.shuffler.stores.postgresql.failures import (
    FAILURES,
    NO_RIGHT,
    DatabaseError,
    judged,
    no_right,
    unreachable,
    warned,
)

if TYPE_CHECKING:
    from asyncpg.pool import Pool, PoolConnectionProxy

    Connection: TypeAlias = PoolConnectionProxy[asyncpg.Record]

log = get_log("shuffler")
Answer = TypeVar("Answer")
_TRIES = 4  # of one statement that was undone because of another's
_COMMITTED = "COMMIT"  # a transaction that failed before answers its COMMIT with ROLLBACK


def _settings(schema: str) -> dict[str, str]:
    """Of every connection; they go before those of the user and the database."""
    return {
        "application_name": "shoal-shuffler",
        "search_path": schema,
        # what commits are judged by
        "client_min_messages": "warning",
        "synchronous_commit": "on",
        "default_transaction_isolation": "read committed",
        # a replica that stands still gives its locks up, and lives with it
        "idle_in_transaction_session_timeout": f"{LIMITS.database_s:.0f}s",
        "lock_timeout": f"{LIMITS.database_s / 2:.0f}s",
        "statement_timeout": "0",
        "timezone": "UTC",
        "jit": "off",
    }


async def _nothing(_connection: object) -> None:
    """In place of a round trip after each use: no session keeps anything."""


# A transaction that writes nothing does not wait for the standby, though it may have read what is
# on one machine alone (a commit whose wait was cancelled). This writes some bytes to the log.
WAIT = "SELECT pg_logical_emit_message(true, 'shoal', '')"
# Names the database as it is now: server, timeline, start of the server, tables.
WHICH = """
SELECT concat_ws(' ', (SELECT system_identifier FROM pg_control_system()),
    left(pg_walfile_name(pg_current_wal_lsn()), 8), pg_postmaster_start_time(),
    (SELECT oid FROM pg_database WHERE datname = current_database()), to_regclass('cluster')::oid)
"""


def _give_up(connection: Connection) -> None:
    """Its transaction is undone as soon as the server sees it go."""
    with suppress(*FAILURES):  # it broke by itself
        connection.terminate()


class _Warnings:
    """What the server said beside its answers, from WARNING on, since the connection was taken."""

    def __init__(self) -> None:
        self.states: list[str] = []

    def __call__(self, _connection: object, message: Any) -> None:
        if (message.severity_en or message.severity) not in ("NOTICE", "INFO", "LOG", "DEBUG"):
            self.states.append(message.sqlstate or "?")

    def check(self) -> None:
        """Raises UNAVAILABLE."""
        if self.states:
            raise warned(self.states[-1])


class Database:
    """``async with await Database.open(...) as database``. For one event loop."""

    def __init__(self, pool: Pool[asyncpg.Record], schema: str) -> None:
        self._pool, self.schema = pool, schema
        self._known = len(tables.scripts())  # versions of the tables
        self.outdated: tables.OutdatedError | None = None  # from when on nothing is asked any more

    def __repr__(self) -> str:
        return f"<Database {self.schema}>"

    @classmethod
    async def open(
        cls, dsn: str, identity: bytes, schema: str = "shoal", *, connections: int = 12
    ) -> Self:
        """Connect and bring the tables up to date. ``identity``: the shuffler's public signing key.
        ``connections``: at most so many at a time.

        Raises CONFIG (see ``schema.prepare``, ``check_dsn``), UNAVAILABLE, OVERLOADED.
        """
        database = await cls.connect(dsn, schema, connections=connections)
        try:
            async with database.transaction() as connection:
                await tables.prepare(connection, schema, identity)
        except DatabaseError as error:
            await database.close()
            if error.sqlstate == NO_RIGHT:
                raise no_right() from None
            raise
        except BaseException:
            await database.close()
            raise
        return database

    @classmethod
    async def connect(cls, dsn: str, schema: str = "shoal", *, connections: int = 12) -> Self:
        """As ``open``, without a look at the tables."""
        check_dsn(dsn)
        tables.check_name(schema)
        try:
            pool = await asyncpg.create_pool(
                dsn,
                min_size=0,
                max_size=connections,
                timeout=LIMITS.connect_s,
                command_timeout=LIMITS.database_s,
                target_session_attrs=SessionAttribute.read_write,
                reset=_nothing,
                server_settings=_settings(schema),
            )
        except (*FAILURES, OSError, ValueError) as error:
            raise unreachable(error) from None
        database = cls(pool, schema)
        try:
            # a failure of the first is told as one of the configuration where it is
            await pool.release(await pool.acquire(timeout=LIMITS.connect_s))
        except (*FAILURES, OSError, ValueError) as error:
            pool.terminate()
            raise unreachable(error) from None
        except BaseException:
            pool.terminate()
            raise
        return database

    # --- asking

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Commits on exit; an exception undoes everything. When it is left without an exception,
        the commit is on disk here and on the standby that is waited for.

        Raises DatabaseError; ``unknown`` where it may have been committed.
        """
        async with self._connection() as (connection, warnings):
            try:
                await connection.execute("BEGIN")
                yield connection
            except asyncio.CancelledError:
                raise  # the connection is given up, and the transaction with it
            except BaseException:
                with suppress(*FAILURES):
                    await connection.execute("ROLLBACK")
                raise
            if await connection.execute("COMMIT") != _COMMITTED:
                raise DatabaseError(
                    Kind.INTERNAL, "a transaction was to be committed that had failed: try again"
                )
            warnings.check()

    async def fetch(self, sql: str, *args: object) -> list[asyncpg.Record]:
        """One statement, a transaction of its own. All its rows."""
        return await self._once(lambda connection: connection.fetch(sql, *args))

    async def fetchrow(self, sql: str, *args: object) -> asyncpg.Record | None:
        """Its first row; None if it has none."""
        return await self._once(lambda connection: connection.fetchrow(sql, *args))

    async def fetchval(self, sql: str, *args: object) -> Any:
        """The first cell of the first row; None if there is none."""
        return await self._once(lambda connection: connection.fetchval(sql, *args))

    async def execute(self, sql: str, *args: object) -> str:
        """What the server says of it, for example ``UPDATE 1``."""
        return await self._once(lambda connection: connection.execute(sql, *args))

    async def executemany(self, sql: str, args: Sequence[Sequence[object]]) -> None:
        """For each of ``args``, all of them in one transaction."""
        await self._once(lambda connection: connection.executemany(sql, args))

    async def check_least(self, connection: Connection | None = None) -> None:
        """Whether this program may still use the tables: see ``schema.check_least``; in a
        transaction of its own where ``connection`` is None. Once it may not, nothing is asked any
        more. Raises UNAVAILABLE.
        """
        try:
            if connection is not None:
                await tables.check_least(connection, self._known)
                return
            async with self._connection() as (own, _):
                await tables.check_least(own, self._known)
        except tables.OutdatedError as error:
            self.outdated = error
            raise

    async def _once(self, ask: Callable[[Connection], Awaitable[Answer]]) -> Answer:
        tries = 0
        while True:
            tries += 1
            try:
                async with self._connection() as (connection, warnings):
                    answer = await ask(connection)
                    warnings.check()
                    return answer
            except DatabaseError as error:
                if tries == _TRIES or not error.again:
                    raise

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[tuple[Connection, _Warnings]]:
        """A connection, and what is said on it. What failed for a reason of the connection's is not
        used again.
        """
        if self.outdated is not None:
            raise tables.OutdatedError
        warnings = _Warnings()
        try:
            connection = await self._pool.acquire(timeout=LIMITS.connect_s)
        except (*FAILURES, OSError) as error:
            raise unreachable(error, opened=True) from None
        try:
            connection.add_log_listener(warnings)
            yield connection, warnings
        except FAILURES as error:
            failure = judged(error)
            if failure.kind is not Kind.INTERNAL:
                _give_up(connection)
            if failure.unknown:  # the others were to the same server
                await self._pool.expire_connections()
            raise failure from None
        except (DatabaseError, asyncio.CancelledError):
            _give_up(connection)
            raise
        finally:
            with suppress(*FAILURES):
                connection.remove_log_listener(warnings)
            with suppress(*FAILURES):
                await self._pool.release(connection)

    # --- its life

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Connections are closed; what was under way is not known to have been committed."""
        with suppress(*FAILURES):
            await self._pool.close()
