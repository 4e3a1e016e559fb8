"""The inbox: what a window receives while it is open, one SQLite file per window.

A rowid table without any index takes 250,000 rows a second whatever it holds (a table kept in the order of random keys falls
to 20,000 and writes 50 bytes per byte), so sorting waits until sealing. Rows of one commit are sorted by key, so the file
shows arrival order between commits, never within one; that is why it, its log and its shared memory file are
unlinked before anything is delivered. The secret that keys the storage keys lives in this file and dies with it.

Of enrolled devices the file holds tags: keyed hashes of their public keys, in a table of its own that is kept in the order of
the tags. That order costs a page of log per tag, which is little beside the two signatures that were verified for it, and
the table doesn't repeat in which commit a device came. (The log does, until SQLite writes over it.)
"""

from __future__ import annotations

import hashlib
import hmac
import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

from shoal import failpoints
from shoal.ids import StorageKey
from shoal.service import fsync_folder
from shoal.shuffler import disk
from shoal.shuffler.distinct import KeySet

SUFFIXES = ("", "-wal", "-shm", "-journal")
_SECRET_SIZE = 32  # bytes
_ADMITTED = b"shoal/v1/admitted\x00"
_CHUNK = 16_384  # rows per step of a scan
_CACHE_KIB = 8_192  # of a sealing connection: SQLite sorts in runs of this size and merges them in its temporary file


class Inbox:
    """An open window's file, used by one thread. Raises OSError and sqlite3.Error; ``disk.kind_of`` says what they mean."""

    def __init__(self, path: Path) -> None:
        """Open or create. A file without a secret was interrupted in its making and holds nothing."""
        new = not path.exists()
        failpoints.hit("inbox.create")
        self._connection = disk.connect(path)
        try:
            disk.migrate(self._connection, "inbox")
            found = self._connection.execute("SELECT secret FROM secret").fetchone()
            if found is None:
                failpoints.hit("inbox.secret")
                found = (os.urandom(_SECRET_SIZE),)
                self._connection.execute("INSERT INTO secret VALUES (?)", found)
            if new:
                failpoints.hit("inbox.folder")
                fsync_folder(path.parent)
            self._secret: bytes = found[0]
            (self.rows,) = self._connection.execute("SELECT coalesce(max(rowid), 0) FROM inbox").fetchone()
        except BaseException:
            self._connection.close()
            raise

    def __repr__(self) -> str:
        return f"<Inbox of {self.rows} rows>"

    def key(self, sealed: bytes) -> bytes:
        """HMAC-SHA256(secret of this window, SHA-256(sealed))[:16]: the same bytes get the same key, nobody can choose one."""
        return hmac.digest(self._secret, hashlib.sha256(sealed).digest(), "sha256")[: StorageKey.SIZE]

    def tag(self, device: bytes) -> bytes:
        """HMAC-SHA256(secret of this window, "shoal/v1/admitted" 0x00 device's public key)[:16]. Without the secret nobody can tell
        whose it is; with it, everybody who has a list of devices can.
        """
        return hmac.digest(self._secret, _ADMITTED + device, "sha256")[: StorageKey.SIZE]

    def append(self, rows: Iterable[tuple[bytes, bytes]], tags: Iterable[bytes] = ()) -> None:
        """One transaction: on return the (key, sealed) rows and the tags would survive a power cut. On an exception none was
        acknowledged.
        """
        ordered = sorted(rows)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            failpoints.hit("inbox.insert")
            self._connection.executemany("INSERT INTO inbox (key, sealed) VALUES (?, ?)", ordered)
            self._connection.executemany("INSERT INTO admitted (tag) VALUES (?)", [(tag,) for tag in sorted(tags)])
            failpoints.hit("inbox.commit")
            self._connection.execute("COMMIT")
        except (OSError, sqlite3.Error):
            disk.rollback(self._connection)
            raise
        self.rows += len(ordered)
        failpoints.hit("inbox.committed")

    def keys(self) -> KeySet:
        """The storage keys of all rows: after a start. Reads the file once, in steps."""
        return self._set_of("SELECT key FROM inbox")

    def tags(self) -> KeySet:
        """The tags of all admitted devices: after a start."""
        return self._set_of("SELECT tag FROM admitted")

    def _set_of(self, query: str) -> KeySet:
        keys = KeySet()
        cursor = self._connection.execute(query)
        while chunk := cursor.fetchmany(_CHUNK):
            keys.load([key for (key,) in chunk])
        return keys

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


def distinct_sorted(path: Path, spill: Path) -> Iterator[bytes]:
    """The distinct sealed messages of a closed inbox, in storage key order: sorted and without repeats in one pass.

    Equal keys are equal bytes (a collision of 128-bit keyed hashes aside), so a row is dropped if the row before it has
    its key. Memory stays flat: SQLite sorts runs of a few MiB and merges them from temporary files in ``spill``, which
    it unlinks the moment it opens them, so a crash leaves none.
    """
    connection = disk.connect(path)
    try:
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        # Deprecated by SQLite but without a successor that works once the library is initialized; where it is compiled out,
        # TMPDIR decides. The folder matters: a small /tmp would fail large sorts, and ciphertexts stay on one volume.
        connection.execute("PRAGMA temp_store_directory = '{}'".format(str(spill).replace("'", "''")))
        connection.execute("PRAGMA temp_store = FILE")
        last = None
        for key, sealed in connection.execute("SELECT key, sealed FROM inbox ORDER BY key"):
            if key != last:
                yield sealed
                last = key
    finally:
        connection.close()


def destroy(path: Path) -> None:
    """Unlink the file with its log and its shared memory file, durably."""
    removed = False
    for suffix in reversed(SUFFIXES):  # the log first: without its file nobody could read it
        failpoints.hit("inbox.unlink")
        removed |= disk.unlink(path.with_name(path.name + suffix))
    if removed:
        failpoints.hit("inbox.unlinked")
        fsync_folder(path.parent)
