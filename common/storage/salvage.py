"""A damaged SQLite file: what can be read of it is kept, the file is set aside for its operator,
and a new one takes over what was kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from shoal.storage import sqlite
from shoal.storage.checksums import Value, fits

Rows = list[tuple[Value, ...]]


@dataclass(frozen=True, slots=True)
class SavedTable:
    """A table that is taken over. ``columns``: all of them, the digest last. ``key``: those of the
    primary key. Both as SQL has them.
    """

    columns: str
    key: str

    @property
    def places(self) -> str:
        """A question mark for each column."""
        return ", ".join("?" * (self.columns.count(",") + 1))


def readable(connection: sqlite.Connection, table: str, columns: str, order: str) -> Rows:
    """The rows of a table that a damaged file still gives: from its beginning, and from its end, up
    to what can't be read.

    ``order``: the columns of the primary key, as names without direction.
    """
    kept: dict[tuple[Value, ...], None] = {}
    for direction in ("ASC", "DESC"):
        by = ", ".join(f"{name.strip()} {direction}" for name in order.split(","))
        try:
            with sqlite.legible():
                cursor = connection.execute(f"SELECT {columns} FROM {table} ORDER BY {by}")  # noqa: S608 - constant names
                while (row := cursor.fetchone()) is not None:
                    kept[row] = None
        except sqlite.Error:
            continue
    return list(kept)


def rescue(
    path: Path,
    tables: Mapping[str, SavedTable],
    keep: Callable[[str, tuple[Value, ...]], bool] = lambda _, row: fits(row),
) -> dict[str, Rows]:
    """By table, the rows of a damaged file that can be read and that ``keep`` wants: those that are
    what was written, where nothing else is said.

    None of a file that an older version wrote, before its rows had digests: nothing tells which of
    them are what was written, and a seed or a state that the disk changed would be believed. (An
    inbox is not saved here: its keys tell.)
    """
    try:
        connection = sqlite.connect(path, ())
    except sqlite.Error:
        return {}
    try:
        return {
            table: [
                row
                for row in readable(connection, table, saved.columns, saved.key)
                if keep(table, row)
            ]
            for table, saved in tables.items()
        }
    finally:
        connection.close()


def take_over(
    connection: sqlite.Connection,
    tables: Mapping[str, SavedTable],
    rescued: Mapping[str, Rows],
) -> None:
    """Put rescued rows into a new file, parents before children, in one transaction. A row that the
    schema refuses (of a type that was never written) is left out.
    """
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("BEGIN IMMEDIATE")
    for table, rows in rescued.items():
        saved = tables[table]
        for row in rows:
            try:
                connection.execute(
                    f"INSERT OR IGNORE INTO {table} ({saved.columns}) VALUES ({saved.places})",  # noqa: S608 - constant names
                    row,
                )
            except sqlite.DatabaseError as error:
                if not sqlite.is_damaged(error):
                    raise
    connection.execute("COMMIT")
    connection.execute("PRAGMA foreign_keys = ON")


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
