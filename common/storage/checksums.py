"""Nothing stored is trusted when it is read: checksums of rows, and what a damaged SQLite file
looks like.

The checksums have no key: they find what a disk, a copy or a mistake changed. Whoever may write to
a service's folder on purpose is kept away by its rights (mode 0700), and finds releases, manifests
and tasks signed.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

DIGEST_SIZE = 16  # bytes
_DAMAGE = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_ERROR,  # a table or a column that was there is gone: the schema is damaged
        sqlite3.SQLITE_CONSTRAINT,  # what is stored contradicts itself
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_FORMAT,
        sqlite3.SQLITE_TOOBIG,
    }
)
Value = bytes | int | float | str | None


class DamagedError(sqlite3.DatabaseError):
    """What was read is not what was written."""


@contextmanager
def legible() -> Iterator[None]:
    """Around the statements that make SQLite read a file's schema. Of a damaged one it quotes bytes
    in its message, and where they are no UTF-8 Python raises UnicodeDecodeError in place of what
    SQLite says: DamagedError here.
    """
    try:
        yield
    except UnicodeDecodeError:
        raise DamagedError("schema") from None


def row_digest(*values: Value) -> bytes:
    """The first 16 bytes of SHA-256 over the values of a row, each with its type and length. Any
    change of a value changes it.
    """
    digest = hashlib.sha256()
    for value in values:
        if isinstance(value, bytes):
            kind, data = b"b", value
        else:  # repr of a float is exact
            kind, data = type(value).__name__[:1].encode(), repr(value).encode()
        digest.update(kind + len(data).to_bytes(8, "big") + data)
    return digest.digest()[:DIGEST_SIZE]


def fits(row: Sequence[Value]) -> bool:
    """Whether the last value of a row is the digest of those before it."""
    return row[-1] == row_digest(*row[:-1])


def teach(connection: sqlite3.Connection) -> None:
    """Let a file's migrations compute digests, as the SQL function ``row_digest``."""
    connection.create_function("row_digest", -1, row_digest, deterministic=True)


def is_damaged(error: Exception) -> bool:
    """Whether a failure says that the file's content is wrong, not that the disk is full, busy or
    away.
    """
    if isinstance(error, DamagedError):
        return True
    return (
        isinstance(error, sqlite3.Error)
        and (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF in _DAMAGE
    )


def is_whole(connection: sqlite3.Connection) -> bool:
    """Whether SQLite finds the whole file in order, its indices too. Reads all of it."""
    try:
        with legible():
            return connection.execute("PRAGMA integrity_check(1)").fetchall() == [("ok",)]
    except sqlite3.Error as error:
        if not is_damaged(error):
            raise
        return False


def set_aside(path: Path) -> Path:
    """Rename a damaged SQLite file and what belongs to it, for its operator to look at; returns the
    new name. Raises OSError.

    Beside it nothing is left that a new file of the old name could take for its own log.
    """
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    for suffix in ("-wal", "-journal", ""):
        old = path.with_name(path.name + suffix)
        if old.exists():
            os.rename(old, path.with_name(f"{aside.name}{suffix}"))
    path.with_name(path.name + "-shm").unlink(missing_ok=True)
    return aside


def readable(
    connection: sqlite3.Connection, table: str, columns: str, order: str
) -> list[tuple[Value, ...]]:
    """The rows of a table that a damaged file still gives: from its beginning, and from its end, up
    to what can't be read.

    ``order``: the columns of the primary key, as names without direction.
    """
    found: dict[tuple[Value, ...], None] = {}
    for direction in ("ASC", "DESC"):
        by = ", ".join(f"{name.strip()} {direction}" for name in order.split(","))
        try:
            with legible():
                cursor = connection.execute(f"SELECT {columns} FROM {table} ORDER BY {by}")  # noqa: S608 - constant names
                while True:
                    row = cursor.fetchone()
                    if row is None:
                        break
                    found[row] = None
        except sqlite3.Error:
            continue
    return list(found)
