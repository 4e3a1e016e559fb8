"""A damaged analyzer.db: set aside, and what can be read of it taken over into a new one. And the
count of releases beside it.

``releases.head`` says how many releases there are, under a checksum. It is written after the
transaction of a release, so it may be one behind and is never ahead: a store that has fewer lost
some, by whatever way (an older copy, a removed file), and what everything together gives away is
then not known any more.
"""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path

from shoal.ids import Digest
from shoal.services.process import fsync_folder
from shoal.storage.checksums import Value, fits, readable

HEAD_NAME = "releases.head"
_HEAD = re.compile(r"(\d{1,18}) ([0-9a-f]{64})\n")
# Every table: its columns, its key, and whether the last column is the digest of the others. Sums
# come before releases, which close them.
_TABLES = (
    ("batches", "task_id, window, manifest, manifest_hash, state, digest", "task_id, window"),
    ("loss_laws", "hash, law", "hash"),
    ("sums", "task_id, window, round_id, survivors, vector, digest", "task_id, window, round_id"),
    ("aborted_rounds", "task_id, window, reason, count, digest", "task_id, window, reason"),
    (
        "releases",
        "task_id, window, release, signature, epsilon, delta, loss_law, lifetime, digest",
        "task_id, window",
    ),
    ("tallies", "task_id, window, tally, digest", "task_id, window"),
    ("acks", "task_id, window, ack, signature, digest", "task_id, window"),
    ("signer", "key, digest", "key"),
)


def read_head(folder: Path) -> int | None:
    """How many releases there were at least; None if nobody wrote it down, or not legibly. Raises
    OSError.
    """
    try:
        text = (folder / HEAD_NAME).read_bytes()
    except FileNotFoundError:
        return None
    found = _HEAD.fullmatch(text.decode("ascii", "replace"))
    return int(found[1]) if found and Digest.of(found[1].encode()).hex == found[2] else None


def write_head(folder: Path, count: int) -> None:
    """Durably, all or nothing. Raises OSError."""
    temporary = folder / f"{HEAD_NAME}.new"
    with open(temporary, "wb") as file:
        file.write(f"{count} {Digest.of(str(count).encode()).hex}\n".encode())
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(folder / HEAD_NAME)
    fsync_folder(folder)


Rescued = list[tuple[str, str, list[tuple[Value, ...]]]]


def rescue(path: Path) -> Rescued:
    """Per table the rows of a damaged file that can be read. Those with a digest are taken whether
    it fits or not: who reads them looks.
    """
    try:
        db = sqlite3.connect(path)
    except sqlite3.Error:
        return []
    try:
        return [
            (table, columns, _sound(table, readable(db, table, columns, key)))
            for table, columns, key in _TABLES
        ]
    finally:
        db.close()


def _sound(table: str, rows: list[tuple[Value, ...]]) -> list[tuple[Value, ...]]:
    """Releases and sums also if something of them changed: that there was one must not be
    forgotten.
    """
    return [row for row in rows if table in ("releases", "loss_laws", "sums") or fits(row)]


def take_over(db: sqlite3.Connection, rescued: Rescued) -> None:
    """Into a new file."""
    db.execute("PRAGMA foreign_keys = OFF")
    db.execute("BEGIN IMMEDIATE")
    for table, columns, rows in rescued:
        marks = ", ".join("?" * (columns.count(",") + 1))
        for row in rows:
            try:
                db.execute(f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({marks})", row)  # noqa: S608 - constant names
            except sqlite3.DatabaseError:  # of a type that was never written
                continue
    db.execute("COMMIT")
    db.execute("PRAGMA foreign_keys = ON")
