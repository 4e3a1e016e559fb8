"""How many of a window were acknowledged, kept in another file than what was: a file that lost rows
does not fit its count.

For files that are written rarely (vectors of helper mode, who answered rounds): one more sync per
commit. Reports are counted by ``acknowledged``, which every commit writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shoal import failpoints
from shoal.shuffler.stores.sqlite.mended import open_mended
from shoal.storage import sqlite
from shoal.storage.checksums import row_digest
from shoal.storage.salvage import SavedTable

_TABLES = {"acknowledged": SavedTable("task_id, window, count, row_check", "task_id, window")}
WindowKey = tuple[bytes, int]  # task id and window


class AcknowledgedCounts:
    """One SQLite file. Not for several threads at once. Raises OSError and sqlite.Error."""

    def __init__(self, path: Path) -> None:
        self._db = open_mended(path, "counts", _TABLES).db
        rows = self._db.execute("SELECT task_id, window, count FROM acknowledged").fetchall()
        self._counts: dict[WindowKey, int] = {
            (task_id, window): count for task_id, window, count in rows
        }

    def all(self) -> dict[WindowKey, int]:
        """Acknowledged rows by window, as they are on disk."""
        return dict(self._counts)

    def put(self, counts: Mapping[WindowKey, int]) -> None:
        """Durable on return."""
        fresh = {key: count for key, count in counts.items() if self._counts.get(key) != count}
        if not fresh:
            return
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for (task_id, window), count in fresh.items():
                row = (task_id, window, count)
                self._db.execute(
                    "INSERT OR REPLACE INTO acknowledged VALUES (?, ?, ?, ?)",
                    (*row, row_digest(*row)),
                )
            failpoints.hit("counts.commit")
            self._db.execute("COMMIT")
        except (OSError, sqlite.Error):
            sqlite.rollback(self._db)
            raise
        self._counts.update(fresh)

    def forget(self, key: WindowKey) -> None:
        """The window is over."""
        self._db.execute("DELETE FROM acknowledged WHERE task_id = ? AND window = ?", key)
        self._counts.pop(key, None)

    def close(self) -> None:
        """Release the file. Nothing is lost without it."""
        self._db.close()
