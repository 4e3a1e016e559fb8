"""The inbox: what a window receives while it is open, one SQLite file per window.

A rowid table without any index takes 250,000 rows a second whatever it holds (a table kept in the
order of random keys falls to 20,000 and writes 50 bytes per byte), so sorting waits until sealing.
Rows of one commit are sorted by key, so the file shows arrival order between commits, never within
one; that is why it, its log and its shared memory file are unlinked before anything is delivered.
The secret that keys the storage keys lives in this file and dies with it.

Of enrolled devices the file holds tags: keyed hashes of their public keys, in a table of its own
that is kept in the order of the tags. That order costs a page of log per tag, which is little
beside the two signatures that were verified for it, and the table doesn't repeat in which commit a
device came. (The log does, until SQLite writes over it.)

Nothing in it is believed: every row has a CRC-32 of its key and bytes, which costs little enough to
be looked at for every row at sealing, and behind it the key, which is a MAC of the bytes; the
secret and every tag carry a checksum; how many rows were acknowledged is counted in another file
(``acknowledged``).
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from shoal import failpoints
from shoal.errors import Kind, ShoalError
from shoal.ids import StorageKey
from shoal.services.process import fsync_folder
from shoal.shuffler.stores import sorting
from shoal.shuffler.stores.distinct import KeySet
from shoal.shuffler.stores.sqlite import disk
from shoal.shuffler.stores.storage_keys import WindowHashes, key_of
from shoal.storage import sqlite
from shoal.storage.salvage import readable
from shoal.storage.sqlite import DamagedError, is_damaged

SUFFIXES = ("", "-wal", "-shm", "-journal")
_SECRET_SIZE = 32  # bytes
_CHUNK = 16_384  # rows per step of a scan
_STEP = 256  # rows that sealing looks at together
_SALVAGE = 1_024  # rows that are read together from a damaged file; halved where that fails
_TAG_CHECK = 4  # bytes after a tag: found before a device is admitted a second time


class Inbox:
    """An open window's file, used by one thread. Raises OSError and sqlite.Error; ``disk.kind_of``
    says what they mean, and ``is_damaged`` whether the file's content is wrong. INTERNAL where
    the program's own migrations have a gap.
    """

    def __init__(self, path: Path, secret: bytes | None = None) -> None:
        """Open or create. A file without a secret was interrupted in its making and holds nothing.
        ``secret``: for a new file that goes on where a damaged one ended.
        """
        failpoints.hit("inbox.create")
        self._connection = disk.connect(path)
        try:
            self._connection.text_factory = bytes
            try:
                disk.migrate(self._connection, path, "inbox")
            except ShoalError as error:
                if error.kind is not Kind.CONFIG:  # the program is damaged, not the file
                    raise
                # its version is newer than any, but state.db's is not
                raise DamagedError("version") from None
            stored = self._connection.execute("SELECT secret, digest FROM secret").fetchone()
            if stored is None:
                failpoints.hit("inbox.secret")
                stored = (secret or os.urandom(_SECRET_SIZE), None)
            if stored[1] is None:  # new, or of the version before
                known = _checked_secret(stored)
                for row in self._connection.execute("SELECT key, sealed FROM inbox LIMIT 1"):
                    if not _intact(known, row):
                        raise DamagedError("secret")
                stored = (known, hashlib.sha256(known).digest())
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.execute("DELETE FROM secret")
                self._connection.execute("INSERT INTO secret VALUES (?, ?)", stored)
                self._connection.execute("COMMIT")
            # Also of a file that is there already: whoever made it may have been cut off before
            # this.
            failpoints.hit("inbox.folder")
            fsync_folder(path.parent)
            self._secret: bytes = _checked_secret(stored)
            self._hashes = WindowHashes(self._secret)
            (self.rows,) = self._connection.execute(
                "SELECT coalesce(max(rowid), 0) FROM inbox"
            ).fetchone()
        except BaseException:
            self._connection.close()
            raise

    def __repr__(self) -> str:
        return f"<Inbox of {self.rows} rows>"

    def key(self, sealed: bytes) -> bytes:
        """See ``WindowHashes.key``."""
        return self._hashes.key(sealed)

    def keys_of(self, digests: Iterable[bytes]) -> list[bytes]:
        """See ``WindowHashes.keys_of``."""
        return self._hashes.keys_of(digests)

    def tag(self, device: bytes) -> bytes:
        """See ``WindowHashes.tag``."""
        return self._hashes.tag(device)

    def append(self, rows: Iterable[tuple[bytes, bytes]], tags: Iterable[bytes] = ()) -> None:
        """One transaction: on return the (key, sealed) rows and the tags would survive a power cut.
        On an exception none was acknowledged.
        """
        # One by one in Python, a row would cost more here than SQLite's insertion of it: map and
        # zip go through them in C.
        ordered = sorted(rows)
        keys, sealed = zip(*ordered, strict=True) if ordered else ((), ())
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            failpoints.hit("inbox.insert")
            checked = zip(keys, sealed, map(crc32, sealed, map(crc32, keys)), strict=True)
            self._connection.executemany(
                "INSERT INTO inbox (key, sealed, crc) VALUES (?, ?, ?)", checked
            )
            entering = [(tag + _tag_check(tag),) for tag in sorted(tags)]
            if entering:
                self._connection.executemany("INSERT INTO admitted (tag) VALUES (?)", entering)
            failpoints.hit("inbox.commit")
            self._connection.execute("COMMIT")
        except (OSError, sqlite.Error):
            sqlite.rollback(self._connection)
            raise
        self.rows += len(ordered)
        failpoints.hit("inbox.committed")

    def keys(self) -> KeySet:
        """The storage keys of all rows: after a start. Reads the file once, in steps. Sets ``rows``
        to those that are there.
        """
        keys, rows = KeySet(), 0
        cursor = self._connection.execute("SELECT key FROM inbox")
        while chunk := cursor.fetchmany(_CHUNK):
            rows += len(chunk)
            keys.load(
                [key for (key,) in chunk if isinstance(key, bytes) and len(key) == StorageKey.SIZE]
            )
        self.rows = rows
        return keys

    def tags(self) -> KeySet:
        """The tags of all admitted devices: after a start. Raises DamagedError if one is not what
        was written.
        """
        tags = KeySet()
        cursor = self._connection.execute("SELECT tag FROM admitted")
        while chunk := cursor.fetchmany(_CHUNK):
            tags.load([_checked_tag(tag) for (tag,) in chunk])
        return tags

    def close(self) -> None:
        """Close the file; SQLite moves the log into it."""
        self._connection.close()


def count_rows(path: Path) -> int:
    """Rows of a closed inbox."""
    connection = disk.connect(path)
    try:
        (rows,) = connection.execute("SELECT coalesce(max(rowid), 0) FROM inbox").fetchone()
    finally:
        connection.close()
    return int(rows)


@dataclass(slots=True)
class RowsRead:
    """What reading an inbox found: rows, and how many of them are not what was written."""

    rows: int = 0
    damaged: int = 0


def distinct_sorted(
    path: Path, spill: Path, row_size: int, tally: RowsRead | None = None
) -> Iterator[memoryview]:
    """The distinct sealed messages of a closed inbox, in storage key order, in blocks of many.

    Equal keys are equal bytes (a collision of 128-bit keyed hashes aside), so one row of each key
    is taken. A row that does not fit its checksum is damaged: counted, and never yielded. Memory
    stays flat, with temporary files in ``spill`` (a small /tmp would fail large windows, and
    ciphertexts stay on one volume): see ``sorting``. Raises INTERNAL for a message that is not of
    ``row_size`` bytes.
    """
    tally = RowsRead() if tally is None else tally
    connection = disk.connect(path)
    try:
        connection.text_factory = bytes
        stored = _stored_secret(connection)
        if stored is None and connection.execute("SELECT 1 FROM inbox LIMIT 1").fetchone() is None:
            return  # interrupted in its making
        here = RowsRead()
        yield from sorting.distinct_sorted(
            _steps(connection, _checked_secret(stored), here, row_size), spill, sorting.RUN_BYTES
        )
        tally.rows, tally.damaged = tally.rows + here.rows, tally.damaged + here.damaged
    finally:
        connection.close()


def _steps(
    connection: sqlite.Connection, secret: bytes, tally: RowsRead, row_size: int
) -> Iterator[tuple[bytes, bytes]]:
    """Keys and messages of the rows that are whole, in the order of the file, each joined."""
    crc = "crc" if _has(connection, "inbox", "crc") else "NULL"
    cursor = connection.execute(f"SELECT key, sealed, {crc} FROM inbox")  # noqa: S608 - constant names
    while step := cursor.fetchmany(_STEP):
        tally.rows += len(step)
        keys, messages, checks = zip(*step, strict=True)
        if not _all_whole(keys, messages, checks):
            whole = [(key, sealed) for key, sealed, crc in step if _whole(secret, key, sealed, crc)]
            tally.damaged += len(step) - len(whole)
            if not whole:
                continue
            keys, messages = zip(*whole, strict=True)
        if set(map(len, messages)) != {row_size}:
            raise ShoalError(Kind.INTERNAL, "an inbox has a message of a wrong size")
        yield b"".join(keys), b"".join(messages)


def _all_whole(
    keys: Sequence[bytes], messages: Sequence[bytes], checks: Sequence[int | None]
) -> bool:
    """Whether every row fits its checksum. False also where one has none yet."""
    try:
        return tuple(map(crc32, messages, map(crc32, keys))) == checks and set(map(len, keys)) == {
            StorageKey.SIZE
        }
    except TypeError:  # not even bytes
        return False


def _whole(secret: bytes, key: bytes, sealed: bytes, crc: int | None) -> bool:
    try:
        return len(key) == StorageKey.SIZE and (
            crc32(sealed, crc32(key)) == crc or (crc is None and _intact(secret, (key, sealed)))
        )
    except TypeError:
        return False


def most_rows(path: Path, row_size: int) -> int:
    """No row number of this file is larger: each row takes more than its ``row_size`` bytes, here
    or in the log.
    """
    both = (path, path.with_name(path.name + "-wal"))
    return sum(file.stat().st_size for file in both if file.exists()) // row_size


def salvage(path: Path, most: int) -> bool:
    """Replace a damaged inbox by one with what can still be read of it and is what was written;
    whether anything could be.

    ``most``: row numbers to look at, 1 to ``most`` (rows are never deleted, so numbers have no
    gaps). False: without its secret nothing of it can be verified; the file is gone then, and the
    next one begins with another secret. Raises OSError, sqlite.Error when the disk fails; OSError
    also where the new file can't be made though the old one's secret is whole: it stays then.
    """
    fresh, secret = path.with_name(path.name + ".tmp"), None
    destroy(fresh)
    try:
        with closing(disk.connect(path)) as old:
            old.text_factory = bytes
            secret = _checked_secret(_stored_secret(old))
            new = Inbox(fresh, secret)
            try:
                for first in range(1, most + 1, _SALVAGE):
                    new.append(
                        [
                            row
                            for row in _rows(old, first, min(most, first + _SALVAGE - 1))
                            if _intact(secret, row)
                        ]
                    )
                new.append([], {tag for tag in _readable_tags(old) if tag})
            finally:
                new.close()
    except sqlite.Error as error:
        destroy(fresh)
        if not is_damaged(error):
            raise
        if secret is not None:  # reading on raises nothing of the kind: it was the new file
            raise OSError(errno.EIO, "a new inbox can't be made", fresh.name) from None
        destroy(path)
        return False
    for suffix in reversed(SUFFIXES[1:]):  # the log of the old file is none of the new one's
        disk.unlink(path.with_name(path.name + suffix))
    fresh.rename(path)
    fsync_folder(path.parent)
    return True


def _rows(old: sqlite.Connection, first: int, last: int) -> list[tuple[bytes, bytes]]:
    """What can be read of these row numbers: all together, or one by one where that fails."""
    try:
        return old.execute(
            "SELECT key, sealed FROM inbox WHERE rowid BETWEEN ? AND ?", (first, last)
        ).fetchall()
    except sqlite.DatabaseError as error:
        if not is_damaged(error):
            raise
        if first == last:
            return []
        middle = (first + last) // 2
        return _rows(old, first, middle) + _rows(old, middle + 1, last)


def _readable_tags(old: sqlite.Connection) -> Iterator[bytes | None]:
    for (tag,) in readable(old, "admitted", "tag", "tag"):
        try:
            yield _checked_tag(tag)
        except DamagedError:
            yield None


def _intact(secret: bytes, row: tuple[bytes, bytes]) -> bool:
    return isinstance(row[1], bytes) and key_of(secret, row[1]) == row[0]


def _stored_secret(connection: sqlite.Connection) -> tuple[bytes, bytes | None] | None:
    """The secret with its digest, which files of the versions before have not: they are read as
    they are, where they were closed before an update, or damaged before they were brought up to
    date.
    """
    digest = "digest" if _has(connection, "secret", "digest") else "NULL"
    stored: tuple[bytes, bytes | None] | None = connection.execute(
        f"SELECT secret, {digest} FROM secret"  # noqa: S608 - constant names
    ).fetchone()
    return stored


def _has(connection: sqlite.Connection, table: str, column: str) -> bool:
    """Whether the file's table has this column, whatever version it says it is of."""
    query = "SELECT 1 FROM pragma_table_info(?) WHERE name = ?"
    return connection.execute(query, (table, column)).fetchone() is not None


def _checked_secret(stored: tuple[bytes, bytes | None] | None) -> bytes:
    """``stored``: (secret, digest), or None for a file that was interrupted in its making."""
    if stored is None or not isinstance(stored[0], bytes) or len(stored[0]) != _SECRET_SIZE:
        raise DamagedError("secret")
    if stored[1] is not None and hashlib.sha256(stored[0]).digest() != stored[1]:
        raise DamagedError("secret")
    return stored[0]


def _tag_check(tag: bytes) -> bytes:
    return hashlib.sha256(tag).digest()[:_TAG_CHECK]


def _checked_tag(stored: object) -> bytes:
    """A tag without its checksum; those of the version before had none."""
    if isinstance(stored, bytes) and len(stored) == StorageKey.SIZE:
        return stored
    if not isinstance(stored, bytes) or stored[StorageKey.SIZE :] != _tag_check(
        stored[: StorageKey.SIZE]
    ):
        raise DamagedError("tag")
    return stored[: StorageKey.SIZE]


def destroy(path: Path) -> None:
    """Unlink the file with its log and its shared memory file, durably."""
    for suffix in reversed(SUFFIXES):  # the log first: without its file nobody could read it
        failpoints.hit("inbox.unlink")
        disk.unlink(path.with_name(path.name + suffix))
    failpoints.hit("inbox.unlinked")
    fsync_folder(path.parent)  # also if nothing was there: a crash may have come before this
