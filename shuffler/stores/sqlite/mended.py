"""Opening a small SQLite file of the shuffler that may be damaged: what can be read of it is taken
over into a new one.

Every table's last column is the ``row_digest`` of the others, so a row that changed is found
wherever it is read; here rows that do not fit are counted and taken out, once, at the start.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

from shoal.log import get_log
from shoal.shuffler.stores.sqlite import disk
from shoal.storage.checksums import (
    DamagedError,
    Value,
    fits,
    is_damaged,
    is_whole,
    readable,
    set_aside,
)

log = get_log("shuffler")


@dataclass(frozen=True, slots=True)
class Table:
    """``columns``: all of them, the digest last. ``key``: those of the primary key."""

    columns: str
    key: str


@dataclass(slots=True)
class Mended:
    """``lost``: rows that were damaged, by table, with what they said. ``aside``: where a file is
    that could not be read in full.
    """

    db: sqlite3.Connection
    lost: list[tuple[str, tuple[Value, ...]]] = field(default_factory=list)
    aside: Path | None = None


def open_mended(path: Path, name: str, tables: dict[str, Table]) -> Mended:
    """``name``: of its migrations; ``tables``: parents before children. Mode 0600. Raises OSError
    and sqlite3.Error; CONFIG for a newer version.
    """
    try:
        found = Mended(_open(path, name))
    except sqlite3.Error as error:
        if not is_damaged(error):
            raise
        rescued = _rescue(path, tables)
        aside = set_aside(path)
        found = Mended(_open(path, name), aside=aside)
        log.error(
            "a file is damaged: it was set aside, what can be read of it is taken over",
            name=path.name,
        )
        _take_over(found.db, tables, rescued)
    for table in reversed(list(tables)):
        shape = tables[table]
        marks = " AND ".join(f"{one.strip()} IS ?" for one in shape.key.split(","))
        at = [
            shape.columns.replace(" ", "").split(",").index(one.strip())
            for one in shape.key.split(",")
        ]
        for row in found.db.execute(f"SELECT {shape.columns} FROM {table}").fetchall():  # noqa: S608 - constant names
            if not fits(row):
                found.lost.append((table, row))
                found.db.execute("PRAGMA foreign_keys = OFF")
                found.db.execute(f"DELETE FROM {table} WHERE {marks}", [row[i] for i in at])  # noqa: S608 - constant names
                found.db.execute("PRAGMA foreign_keys = ON")
    return found


def _open(path: Path, name: str) -> sqlite3.Connection:
    db = disk.connect(path)
    try:
        path.chmod(0o600)
        db.execute("PRAGMA secure_delete = ON")
        db.execute("PRAGMA foreign_keys = ON")
        disk.migrate(db, name)
        if not is_whole(db):
            raise DamagedError(name)
    except BaseException:
        db.close()
        raise
    return db


def _rescue(path: Path, tables: dict[str, Table]) -> dict[str, list[tuple[Value, ...]]]:
    try:
        db = disk.connect(path)
    except sqlite3.Error:
        return {}
    try:
        return {
            table: readable(db, table, shape.columns, shape.key) for table, shape in tables.items()
        }
    finally:
        db.close()


def _take_over(
    db: sqlite3.Connection, tables: dict[str, Table], rescued: dict[str, list[tuple[Value, ...]]]
) -> None:
    db.execute("PRAGMA foreign_keys = OFF")
    db.execute("BEGIN IMMEDIATE")
    for table, rows in rescued.items():
        columns = tables[table].columns
        marks = ", ".join("?" * (columns.count(",") + 1))
        for row in rows:
            if fits(row):
                db.execute(f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({marks})", row)  # noqa: S608 - constant names
    db.execute("COMMIT")
    db.execute("PRAGMA foreign_keys = ON")
