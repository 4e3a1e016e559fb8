"""A damaged inbox is replaced by one with what can still be read of it and is what was written."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from shoal.services.process import fsync_folder
from shoal.shuffler.stores.distinct import KeySet
from shoal.shuffler.stores.joined import reports_in
from shoal.shuffler.stores.sqlite import blocks, disk, older_rows
from shoal.shuffler.stores.sqlite.inbox import (
    SUFFIXES,
    Inbox,
    checked_secret,
    checked_tag,
    destroy,
    stored_secret,
)
from shoal.storage import sqlite
from shoal.storage.salvage import readable
from shoal.storage.sqlite import DamagedError, is_damaged

_TOGETHER = 1_024  # rows of a table that are read together; halved where that fails
_OLDER = "SELECT key, sealed FROM inbox WHERE rowid"
_BLOCKS = "SELECT number, body, crc FROM block WHERE number"


def most_rows(path: Path, row_size: int) -> int:
    """No number of a row of this file is larger: each takes more than ``row_size`` bytes, here or
    in the log.
    """
    both = (path, path.with_name(path.name + "-wal"))
    return sum(file.stat().st_size for file in both if file.exists()) // row_size


def salvage_inbox(path: Path, most: int, row_size: int) -> bool:
    """Replace it; whether anything could be read.

    ``most``: numbers to look at, 1 to ``most`` (rows are never deleted, so numbers have no gaps).
    False: without its secret nothing of it can be verified; the file is gone then, and the next one
    begins with another secret. Raises OSError, sqlite.Error when the disk fails; OSError also where
    the new file can't be made though the old one's secret is whole: it stays then.
    """
    fresh, secret = path.with_name(path.name + ".tmp"), None
    destroy(fresh)
    try:
        with closing(disk.connect(path)) as old:
            old.text_factory = bytes
            secret = checked_secret(stored_secret(old))
            new, held = Inbox(fresh, row_size, secret), KeySet()
            try:
                for rows in _rows(old, secret, most, row_size):
                    keys, sizes = reports_in(rows.keys)
                    places = held.unknown(keys)
                    if len(places):
                        held.add_joined(new.append(keys, rows.sealed, places, (), sizes))
                tags = {tag for tag in _readable_tags(old) if tag}
                if tags:
                    new.append(b"", b"", held.unknown(b""), tags)
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


def _rows(old: sqlite.Connection, secret: bytes, most: int, row_size: int) -> Iterator[blocks.Rows]:
    """What can be read of both tables and was made by this secret."""
    for first in range(1, most + 1, _TOGETHER):
        last = min(most, first + _TOGETHER - 1)
        some = [row for row in _between(old, _OLDER, first, last) if older_rows.intact(secret, row)]
        yield older_rows.joined([row for row in some if len(row[1]) == row_size])
        yield blocks.unpacked(secret, _between(old, _BLOCKS, first, last), row_size, closely=True)


def _between(old: sqlite.Connection, query: str, first: int, last: int) -> list[Any]:
    """What can be read of these numbers: all together, or one by one where that fails."""
    try:
        if first == last:  # in a range of one SQLite would look at the next row as well
            return old.execute(f"{query} = ?", (first,)).fetchall()
        return old.execute(f"{query} BETWEEN ? AND ?", (first, last)).fetchall()
    except sqlite.DatabaseError as error:
        if not is_damaged(error):
            raise
        # a table or a column that an older version had not is missing for every number
        if first == last or str(error).startswith("no such "):
            return []
        middle = (first + last) // 2
        return _between(old, query, first, middle) + _between(old, query, middle + 1, last)


def _readable_tags(old: sqlite.Connection) -> Iterator[bytes | None]:
    for (tag,) in readable(old, "admitted", "tag", "tag"):
        try:
            yield checked_tag(tag)
        except DamagedError:
            yield None
