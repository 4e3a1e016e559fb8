"""The table ``inbox`` of an inbox's file: a row for each report, as versions before blocks wrote
them. It is read, never written.

Every row has a CRC-32 of key and message, but for those of the first two versions; these are
verified by their key, which is a MAC of the message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from zlib import crc32

from shoal.errors import Kind, ShoalError
from shoal.ids import StorageKey
from shoal.shuffler.stores.sqlite.blocks import Rows
from shoal.shuffler.stores.storage_keys import key_of
from shoal.storage import sqlite
from shoal.storage.sqlite import DamagedError

_CHUNK = 16_384  # keys per step of a scan
_STEP = 256  # rows that sealing looks at together


def has(connection: sqlite.Connection, table: str, column: str) -> bool:
    """Whether the file's table has this column, whatever version it says it is of."""
    query = "SELECT 1 FROM pragma_table_info(?) WHERE name = ?"
    return connection.execute(query, (table, column)).fetchone() is not None


def count(connection: sqlite.Connection) -> int:
    """Rows of the table."""
    (rows,) = connection.execute("SELECT coalesce(max(rowid), 0) FROM inbox").fetchone()
    return int(rows)


def check_secret(connection: sqlite.Connection, secret: bytes) -> None:
    """Of a file whose secret has no digest. Raises DamagedError if it made no key of the first
    row.
    """
    for row in connection.execute("SELECT key, sealed FROM inbox LIMIT 1"):
        if not intact(secret, row):
            raise DamagedError("secret")


def keys(connection: sqlite.Connection) -> Iterator[bytes]:
    """The storage keys of all rows, joined, in steps."""
    cursor = connection.execute("SELECT key FROM inbox")
    while chunk := cursor.fetchmany(_CHUNK):
        yield b"".join(
            [key for (key,) in chunk if isinstance(key, bytes) and len(key) == StorageKey.SIZE]
        )


def rows(connection: sqlite.Connection, secret: bytes, row_size: int) -> Iterator[Rows]:
    """The rows that are whole, in the order of the file, in steps. Raises INTERNAL for a message
    that is not of ``row_size`` bytes.
    """
    crc = "crc" if has(connection, "inbox", "crc") else "NULL"
    cursor = connection.execute(f"SELECT key, sealed, {crc} FROM inbox")  # noqa: S608 - constant names
    while step := cursor.fetchmany(_STEP):
        whole = [(key, sealed) for key, sealed, crc in step if _whole(secret, key, sealed, crc)]
        if any(len(sealed) != row_size for _, sealed in whole):
            raise ShoalError(Kind.INTERNAL, "an inbox has a message of a wrong size")
        yield joined(whole, len(step) - len(whole))


def joined(some: Sequence[tuple[bytes, bytes]], damaged: int = 0) -> Rows:
    """``some``: keys and messages."""
    return Rows(b"".join([key for key, _ in some]), b"".join([row for _, row in some]), damaged)


def intact(secret: bytes, row: tuple[bytes, bytes]) -> bool:
    """Whether the key is that of the message."""
    return isinstance(row[1], bytes) and key_of(secret, row[1]) == row[0]


def _whole(secret: bytes, key: bytes, sealed: bytes, crc: int | None) -> bool:
    try:
        return len(key) == StorageKey.SIZE and (
            crc32(sealed, crc32(key)) == crc or (crc is None and intact(secret, (key, sealed)))
        )
    except TypeError:
        return False
