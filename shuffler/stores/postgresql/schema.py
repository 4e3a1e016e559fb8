"""The tables, brought up to date by whichever replica starts first, and whose they are.

One schema of a database belongs to one shuffler: the row of ``cluster`` holds the public half of
its signing key, so that another one, which would take its windows over and could not open them, is
refused. Migrations are files, ``migrations/shoal_NNN.sql``, each carried out once, in one
transaction with all that are missing.

Replicas are exchanged one after the other, so programs of two versions serve one schema for a
while. A migration says with which older ones it is compatible (``-- least: N``): those go on, and
start. One that says nothing is with none: they are stopped in the transaction that carries it out.
It waits for their steps and vectors and gives open windows a new epoch; whoever reads a window's
row, or holds a claim in a step, then looks at ``least`` (``check_least``). So nothing that an older
program acknowledges comes after it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    from asyncpg import Record
    from asyncpg.pool import PoolConnectionProxy

    Connection: TypeAlias = PoolConnectionProxy[Record]

_MIGRATIONS = Path(__file__).parent / "migrations"
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_LEAST = re.compile(r"^-- least: (\d+)$", re.MULTILINE)
_LOOKING = 5  # the version from which on programs look at ``least``
# what steps, blocks and vectors lock, in their order
_STOP = (
    "LOCK TABLE claim IN ACCESS EXCLUSIVE MODE",
    "LOCK TABLE win IN ACCESS EXCLUSIVE MODE",
    "LOCK TABLE sums IN ACCESS EXCLUSIVE MODE",
    "UPDATE win SET epoch = epoch + 1, changed = now() WHERE state = 1",
)
_LOCK = 0x53484F41  # "SHOA": of the advisory lock that migrations are made under
LEAST_SERVER = 140_000  # PostgreSQL 14: what was tried, and is maintained


class OutdatedError(ShoalError):
    """A replica that knows more has changed the tables; devices are to try another one."""

    def __init__(self) -> None:
        super().__init__(
            Kind.UNAVAILABLE,
            "store: a newer replica has changed the tables in a way that this program does not "
            "know: nothing is taken or decided here; upgrade this replica",
        )


def check_name(schema: str) -> str:
    """Raises CONFIG for what would have to be quoted, or belongs to PostgreSQL."""
    if not _NAME.fullmatch(schema) or schema.startswith("pg_") or schema == "information_schema":
        raise ShoalError(
            Kind.CONFIG,
            "store.schema: small letters, digits and underscores, at most 63, for example shoal",
        )
    return schema


def scripts() -> list[str]:
    """Migrations in order: the first makes version 1."""
    return [path.read_text() for path in sorted(_MIGRATIONS.glob("shoal_*.sql"))]


def least_of(all_scripts: Sequence[str], first: int = 0) -> int:
    """The version from which on programs may use the tables, once scripts from this place on are
    carried out.
    """
    said = [
        int(found.group(1)) if (found := _LEAST.search(script)) else number
        for number, script in enumerate(all_scripts, start=1)
    ]
    return max(said[first:], default=1)


async def prepare(connection: Connection, schema: str, identity: bytes) -> None:
    """Make or mend the tables, inside a transaction of the caller, whose search path is ``schema``.
    ``identity``: the shuffler's public signing key. May be repeated, and called by several replicas
    at a time. Raises CONFIG: too old a server, a newer version, another shuffler's.
    """
    check_server(connection)
    await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
    if not await connection.fetchval("SELECT to_regnamespace($1) IS NOT NULL", schema):
        await connection.execute(f"CREATE SCHEMA {check_name(schema)}")
    found, all_scripts = await version(connection, schema, identity), scripts()
    least = least_of(all_scripts, found)
    if _LOOKING <= found < least:
        for statement in _STOP:
            await connection.execute(statement)
    for script in all_scripts[found:]:
        await connection.execute(script)
    if found == 0:
        await connection.execute(
            "INSERT INTO cluster (version, shuffler_key, least) VALUES ($1, $2, $3)",
            *(len(all_scripts), identity, least),
        )
    elif found < len(all_scripts):
        await connection.execute(
            "UPDATE cluster SET version = $1, least = greatest(least, $2)", len(all_scripts), least
        )


async def check_least(connection: Connection, known: int) -> None:
    """Whether a program that knows so many versions may still use the tables, in a transaction
    that has read a window's row or a claim, or locked a row of sums. Raises UNAVAILABLE: a replica
    that knows more has changed them.
    """
    least = await connection.fetchval(  # a copy of before ``_LOOKING`` may have been put back
        "SELECT (to_jsonb(c) ->> 'least')::int FROM cluster c"
    )
    if least is not None and least > known:
        raise OutdatedError


def check_server(connection: Connection) -> None:
    """Raises CONFIG for one that is too old."""
    if connection.get_server_version().major * 10_000 < LEAST_SERVER:
        raise ShoalError(
            Kind.CONFIG,
            f"store: PostgreSQL {LEAST_SERVER // 10_000} or later is wanted: upgrade the server",
        )


async def version(connection: Connection, schema: str, identity: bytes) -> int:
    """Of this shuffler's tables; 0: there are none yet. Raises CONFIG: a newer version that does
    not let this program go on, another shuffler's, or tables that are not this program's.
    """
    if not await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", f"{schema}.cluster"):
        return 0
    row = await connection.fetchrow(  # "least": since ``_LOOKING``
        "SELECT version, shuffler_key, (to_jsonb(c) ->> 'least')::int AS least"  # noqa: S608 - a checked name
        f" FROM {schema}.cluster c"
    )
    found = row["version"] if row is not None else None
    if row is None or not isinstance(found, int) or found < 1:
        raise ShoalError(
            Kind.CONFIG,
            f"store: the schema {schema} has a table cluster without a version: it is damaged, or "
            "not this program's; name another schema",
        )
    known = len(scripts())
    if found > known and (row["least"] or found) > known:
        raise ShoalError(
            Kind.CONFIG,
            f"store: the schema {schema} was written by a newer version of this program: upgrade",
        )
    if row["shuffler_key"] != identity:
        raise ShoalError(
            Kind.CONFIG,
            f"store: the schema {schema} belongs to a shuffler with another signing key: name "
            "another schema or database, or use its signing_key",
        )
    return found
