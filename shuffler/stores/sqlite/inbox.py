"""The inbox: what a window receives while it is open, one SQLite file per window.

Reports come in commits: what a commit brings is sorted by storage key and written as packed blocks
(``blocks``), at the end of the file. There is no index (a table kept in the order of random keys
falls to 20,000 rows a second and writes 50 bytes per byte), so sorting all of it waits until
sealing. The file shows arrival order between commits, never within one; that is why it, its log and
its shared memory file are unlinked before anything is delivered. The secret that keys the storage
keys lives in this file and dies with it.

Of enrolled devices the file holds tags: keyed hashes of their public keys, in a table of its own
that is kept in the order of the tags. That order costs a page of log per tag, which is little
beside the two signatures that were verified for it, and the table doesn't repeat in which commit a
device came. (The log does, until SQLite writes over it.)

Nothing in it is believed: every block has a CRC-32, and behind it each row its key, which is a MAC
of the message; the secret and every tag carry a checksum; how many rows were acknowledged is
counted in another file (``acknowledged``).

Inboxes of versions before had a row of a table for each report (``older_rows``). A window that was
open when the program was replaced goes on: those rows stay where they are, what comes is blocks.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from shoal import failpoints
from shoal.arrays import NDArray, np
from shoal.errors import Kind, ShoalError
from shoal.ids import StorageKey
from shoal.services.process import fsync_folder
from shoal.shuffler.stores import sorting
from shoal.shuffler.stores.distinct import KeySet
from shoal.shuffler.stores.joined import DIGEST, digests_of, reports_in, rows_of
from shoal.shuffler.stores.sqlite import blocks, disk, older_rows
from shoal.shuffler.stores.storage_keys import WindowHashes
from shoal.storage import sqlite
from shoal.storage.sqlite import DamagedError

SUFFIXES = ("", "-wal", "-shm", "-journal")
_SECRET_SIZE = 32  # bytes
_BLOCKS = "SELECT number, body, crc FROM block"
_CHUNK = 16_384  # tags per step of a scan
_STEP = 64  # blocks that are read together
_AT_ONCE = 64  # blocks that one statement writes
_TAG_CHECK = 4  # bytes after a tag: found before a device is admitted a second time


class Inbox:
    """An open window's file, used by one thread. Raises OSError and sqlite.Error; ``disk.kind_of``
    says what they mean, and ``is_damaged`` whether the file's content is wrong. INTERNAL where
    the program's own migrations have a gap.
    """

    def __init__(self, path: Path, row_size: int, secret: bytes | None = None) -> None:
        """Open or create. A file without a secret was interrupted in its making and holds nothing.
        ``row_size``: bytes of a sealed message. ``secret``: for a new file that goes on where a
        damaged one ended.
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
                known = checked_secret(stored)
                older_rows.check_secret(self._connection, known)
                for block in self._connection.execute(f"{_BLOCKS} LIMIT 1"):
                    if not blocks.made_by(known, block, row_size):
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
            self._secret: bytes = checked_secret(stored)
            self._hashes = WindowHashes(self._secret)
            self._row_size = row_size
            self.rows = rows_in(self._connection, row_size)
            (last,) = self._connection.execute(
                "SELECT coalesce(max(number), 0) FROM block"
            ).fetchone()
            self._next = int(last) + 1
        except BaseException:
            self._connection.close()
            raise

    def __repr__(self) -> str:
        return f"<Inbox of {self.rows} rows>"

    def key(self, sealed: bytes) -> bytes:
        """See ``WindowHashes.key``."""
        return self._hashes.key(sealed)

    def joined_keys_of(self, digests: Iterable[bytes]) -> bytes:
        """See ``WindowHashes.joined_keys_of``."""
        return self._hashes.joined_keys_of(digests)

    def tag(self, device: bytes) -> bytes:
        """See ``WindowHashes.tag``."""
        return self._hashes.tag(device)

    def append(
        self,
        keys: bytes,
        sealed: bytes,
        places: NDArray[np.intp],
        tags: Collection[bytes] = (),
        sizes: Sequence[int] = (),
    ) -> bytes:
        """One transaction: on return the reports and the tags would survive a power cut. On an
        exception none was acknowledged.

        ``keys``, ``sealed``: of many reports, joined; ``places``: those of the reports that are
        written, in the order of their keys; ``sizes``: rows of each, empty: one. Returns the keys
        of what is written, joined.
        """
        written = blocks.packed(self._next, keys, sealed, places, self._row_size, sizes)
        parts = [written[at : at + _AT_ONCE] for at in range(0, len(written), _AT_ONCE)]
        # SQLite gives up the interpreter at every statement, and may have to wait for it: of the
        # usual commit there is one, which is a transaction by itself.
        alone = len(parts) == 1 and not tags
        try:
            if not alone:
                self._connection.execute("BEGIN IMMEDIATE")
            failpoints.hit("inbox.insert")
            for part in parts[: len(parts) - alone]:
                self._insert(part)
            if tags:
                entering = [(tag + _tag_check(tag),) for tag in sorted(tags)]
                self._connection.executemany("INSERT INTO admitted (tag) VALUES (?)", entering)
            failpoints.hit("inbox.commit")
            if alone:
                self._insert(parts[0])
            else:
                self._connection.execute("COMMIT")
        except (OSError, sqlite.Error):
            sqlite.rollback(self._connection)
            raise
        self._next += len(written)
        self.rows += len(places)
        failpoints.hit("inbox.committed")
        return np.frombuffer(keys, dtype=np.uint8).reshape(-1, StorageKey.SIZE)[places].tobytes()

    def _insert(self, part: list[blocks.Block]) -> None:
        marks = ",".join(["(?,?,?)"] * len(part))
        self._connection.execute(
            f"INSERT INTO block (number, body, crc) VALUES {marks}",  # noqa: S608 - marks alone
            list(chain.from_iterable(part)),
        )

    def keys(self) -> KeySet:
        """The storage keys of all reports that are whole: after a start. Reads the file once, in
        steps. Sets ``rows`` to how many they are: what a damaged disk shows twice counts once.
        """
        keys = KeySet()
        for step in older_rows.keys(self._connection):
            keys.load_joined(step)
        for rows in block_rows(self._connection, self._secret, self._row_size):
            keys.load_joined(rows.keys)
        self.rows = len(keys)
        return keys

    def tags(self) -> KeySet:
        """The tags of all admitted devices: after a start. Raises DamagedError if one is not what
        was written.
        """
        tags = KeySet()
        cursor = self._connection.execute("SELECT tag FROM admitted")
        while chunk := cursor.fetchmany(_CHUNK):
            tags.load([checked_tag(tag) for (tag,) in chunk])
        return tags

    def close(self) -> None:
        """Close the file; SQLite moves the log into it."""
        self._connection.close()


def rows_in(connection: sqlite.Connection, row_size: int) -> int:
    """Rows of a file, damaged or not, by the lengths of its blocks."""
    if not older_rows.has(connection, "block", "body"):
        return older_rows.count(connection)
    (size,) = connection.execute("SELECT coalesce(sum(length(body)), 0) FROM block").fetchone()
    return older_rows.count(connection) + int(size) // (StorageKey.SIZE + row_size)


def count_rows(path: Path, row_size: int) -> int:
    """Rows of a closed inbox."""
    with closing(disk.connect(path)) as connection:
        return rows_in(connection, row_size)


def count_reports(path: Path, row_size: int) -> int:
    """Whole reports of a closed inbox, each of which may have several rows."""
    with closing(disk.connect(path)) as connection:
        connection.text_factory = bytes
        stored, keys = stored_secret(connection), KeySet()
        if stored is not None:
            for rows in block_rows(connection, checked_secret(stored), row_size):
                keys.load_joined(reports_in(rows.keys)[0])
        return len(keys)


@dataclass(slots=True)
class RowsRead:
    """What reading an inbox found: rows, and how many of them are not what was written; the keys of
    reports, where they may have several rows; and rows of noise that were put beside them.
    """

    rows: int = 0
    damaged: int = 0
    reports: KeySet | None = None
    added: int = 0


def distinct_sorted(
    path: Path,
    spill: Path,
    row_size: int,
    tally: RowsRead | None = None,
    added: Sequence[bytes] = (),
) -> Iterator[memoryview]:
    """The distinct sealed messages of a closed inbox, in storage key order, in blocks of many.

    Equal keys are equal bytes (a collision of 128-bit keyed hashes aside), so one row of each key
    is taken. A row that does not fit its checksum is damaged: counted, and never yielded. Memory
    stays flat, with temporary files in ``spill`` (a small /tmp would fail large windows, and
    ciphertexts stay on one volume): see ``sorting``. Raises INTERNAL for a message that is not of
    ``row_size`` bytes. ``tally``: with ``reports``, where a report may have several messages:
    rows bear the key of their report then, and are sorted by one of their own. ``added``: further
    messages, which get keys of the same kind; none where nothing came at all.
    """
    tally = RowsRead() if tally is None else tally
    connection = disk.connect(path)
    try:
        connection.text_factory = bytes
        stored = stored_secret(connection)
        if stored is None and not rows_in(connection, row_size):
            return  # interrupted in its making
        here, secret = RowsRead(reports=tally.reports), checked_secret(stored)
        noise = WindowHashes(secret).steps_of(added)
        steps = chain(_steps(connection, secret, here, row_size), noise)
        tally.added = len(added)
        yield from sorting.distinct_sorted(steps, spill, sorting.RUN_BYTES)
        tally.rows, tally.damaged = tally.rows + here.rows, tally.damaged + here.damaged
    finally:
        connection.close()


def _steps(
    connection: sqlite.Connection, secret: bytes, tally: RowsRead, row_size: int
) -> Iterator[tuple[bytes, bytes]]:
    """Keys and messages of the rows that are whole, in the order of the file, each joined."""
    for rows in chain(
        older_rows.rows(connection, secret, row_size), block_rows(connection, secret, row_size)
    ):
        tally.rows += len(rows.keys) // StorageKey.SIZE + rows.damaged
        tally.damaged += rows.damaged
        if rows.keys and tally.reports is not None:
            tally.reports.load_joined(reports_in(rows.keys)[0])
            hashes = WindowHashes(secret)
            digests = rows_of(digests_of(rows_of(rows.sealed, row_size)), DIGEST)
            yield hashes.joined_keys_of(digests), rows.sealed
        elif rows.keys:
            yield rows.keys, rows.sealed


def block_rows(
    connection: sqlite.Connection, secret: bytes, row_size: int
) -> Iterator[blocks.Rows]:
    """What is whole of all blocks, in steps."""
    if not older_rows.has(connection, "block", "body"):
        return
    cursor = connection.execute(_BLOCKS)
    while step := cursor.fetchmany(_STEP):
        yield blocks.unpacked(secret, step, row_size)


def stored_secret(connection: sqlite.Connection) -> tuple[bytes, bytes | None] | None:
    """The secret with its digest, which files of the first versions have not: they are read as they
    are, where they were closed before an update, or damaged before they were brought up to date.
    """
    digest = "digest" if older_rows.has(connection, "secret", "digest") else "NULL"
    stored: tuple[bytes, bytes | None] | None = connection.execute(
        f"SELECT secret, {digest} FROM secret"  # noqa: S608 - constant names
    ).fetchone()
    return stored


def checked_secret(stored: tuple[bytes, bytes | None] | None) -> bytes:
    """``stored``: (secret, digest), or None for a file that was interrupted in its making. Raises
    DamagedError.
    """
    if stored is None or not isinstance(stored[0], bytes) or len(stored[0]) != _SECRET_SIZE:
        raise DamagedError("secret")
    if stored[1] is not None and hashlib.sha256(stored[0]).digest() != stored[1]:
        raise DamagedError("secret")
    return stored[0]


def _tag_check(tag: bytes) -> bytes:
    return hashlib.sha256(tag).digest()[:_TAG_CHECK]


def checked_tag(stored: object) -> bytes:
    """A tag without its checksum; those of the second version had none. Raises DamagedError."""
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
