"""Opening a small SQLite file of the shuffler that may be damaged: what can be read of it is taken
over into a new one.

Every table's last column is the ``row_digest`` of the others, so a row that changed is found
wherever it is read; here rows that do not fit are counted and taken out, once, at the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shoal.log import get_log
from shoal.shuffler.stores.sqlite import disk
from shoal.storage import salvage, sqlite
from shoal.storage.checksums import Value, fits
from shoal.storage.salvage import SavedTable

log = get_log("shuffler")


@dataclass(slots=True)
class Mended:
    """``lost``: rows that were damaged, by table, with what they said. ``aside``: where a file is
    that could not be read in full.
    """

    db: sqlite.Connection
    lost: list[tuple[str, tuple[Value, ...]]] = field(default_factory=list)
    aside: Path | None = None


def open_mended(path: Path, name: str, tables: Mapping[str, SavedTable]) -> Mended:
    """``name``: of its migrations; ``tables``: parents before children. Mode 0600. Raises OSError
    and sqlite.Error; CONFIG for a newer version.
    """
    try:
        mended = Mended(_open(path, name))
    except sqlite.Error as error:
        if not sqlite.is_damaged(error):
            raise
        rescued = salvage.rescue(path, tables)
        aside = salvage.set_aside(path)
        mended = Mended(_open(path, name), aside=aside)
        log.error(
            "a file is damaged: it was set aside, what can be read of it is taken over",
            name=path.name,
        )
        salvage.take_over(mended.db, tables, rescued)
    for table in reversed(list(tables)):
        _take_out_damaged(mended, table, tables[table])
    return mended


def _open(path: Path, name: str) -> sqlite.Connection:
    return disk.open_whole(path, name, "secure_delete = ON", "foreign_keys = ON")


def _take_out_damaged(mended: Mended, table: str, saved: SavedTable) -> None:
    key = [name.strip() for name in saved.key.split(",")]
    columns = [name.strip() for name in saved.columns.split(",")]
    marks = " AND ".join(f"{name} IS ?" for name in key)
    at = [columns.index(name) for name in key]
    for row in mended.db.execute(f"SELECT {saved.columns} FROM {table}").fetchall():  # noqa: S608 - constant names
        if not fits(row):
            mended.lost.append((table, row))
            mended.db.execute("PRAGMA foreign_keys = OFF")
            mended.db.execute(f"DELETE FROM {table} WHERE {marks}", [row[i] for i in at])  # noqa: S608 - constant names
            mended.db.execute("PRAGMA foreign_keys = ON")
