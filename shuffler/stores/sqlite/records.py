"""state.db: what the shuffler remembers of every window, one row each, and of every task ever
served.

Every row has a checksum. A row that is not what was written is taken out, and what the folder still
holds of its window decides how the window goes on: its sealed batch, or its inbox; without either
the window is closed. A file that SQLite can't read is set aside, and what can be read of it is
taken over. Either is told, never passed over.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from shoal import failpoints
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.log import get_log
from shoal.shuffler.core import WindowId, WindowState
from shoal.shuffler.stores.sqlite import disk
from shoal.shuffler.stores.store import WindowRecord
from shoal.storage import salvage, sqlite
from shoal.storage.checksums import Value, fits, row_digest
from shoal.storage.salvage import SavedTable

log = get_log("shuffler")
FILE_NAME = "state.db"
_COLUMNS = (
    "task_id, window, state, outcome, reports, rows, row_size, rows_hash, manifest, acked, "
    "damaged, digest"
)
_TABLES = {
    "task": SavedTable("task_id, schedule_hash, digest", "task_id"),
    "window": SavedTable(_COLUMNS, "task_id, window"),
}
_SELECT = f"SELECT {_COLUMNS} FROM window"  # noqa: S608 - constant text
_INTO = f"INTO window ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class Records:
    """The open file. Not for several threads at once: ``SqliteStore`` holds a lock. Raises OSError
    and sqlite.Error.

    ``lost``: the file was missing, or not all of it could be read. ``aside``: where a damaged one
    is now.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / FILE_NAME
        self.lost = not path.exists()
        self.aside: Path | None = None
        try:
            self._db = disk.open_whole(path, "state")
        except (ShoalError, sqlite.Error) as error:
            if isinstance(error, sqlite.Error) and not sqlite.is_damaged(error):
                raise
            if isinstance(error, ShoalError) and path.exists() and _whole(path):
                raise  # really of a newer version
            rescued = salvage.rescue(path, _TABLES)
            self.lost, self.aside = True, salvage.set_aside(path)
            log.error(
                "state.db is damaged: it was set aside, what can be read of it is taken over",
                windows=len(rescued.get("window", ())),
            )
            self._db = disk.open_whole(path, "state")
            salvage.take_over(self._db, _TABLES, rescued)

    def load(self) -> tuple[dict[WindowId, WindowRecord], set[WindowId]]:
        """All records, and the windows whose row was damaged: it is taken out."""
        records: dict[WindowId, WindowRecord] = {}
        damaged: list[tuple[Value, Value]] = []
        for row in self._db.execute(_SELECT).fetchall():
            record = _record(row)
            if record is None:
                damaged.append((row[0], row[1]))
            else:
                records[WindowId(TaskId(row[0]), row[1])] = record
        named = set[WindowId]()
        for task_id, window in damaged:
            self._db.execute(
                "DELETE FROM window WHERE task_id IS ? AND window IS ?", (task_id, window)
            )
            if isinstance(task_id, bytes) and isinstance(window, int):
                try:
                    named.add(WindowId(TaskId(task_id), window))
                except (ShoalError, ValueError):
                    continue
        return records, named

    def write(self, window: WindowId, record: WindowRecord) -> None:
        """Insert or replace. Durable on return, unless a transaction is open. ``acked`` of an open
        window is kept elsewhere (``acknowledged``) and grows there, so here it would only be an
        older figure: 0 is written.
        """
        row = (
            window.task_id.raw,
            window.window,
            int(record.state),
            int(record.outcome or 0),
            record.reports,
            record.rows,
            record.row_size,
            record.rows_hash.raw if record.rows_hash else None,
            record.manifest,
            0 if record.state is WindowState.OPEN else record.acked,
            record.damaged,
        )
        self._db.execute(
            f"INSERT OR REPLACE {_INTO}",
            (*row, row_digest(*row)),
        )

    def write_all(self, records: dict[WindowId, WindowRecord], point: str) -> None:
        """Several in one transaction."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for window, record in records.items():
                self.write(window, record)
            failpoints.hit(point)
            self._db.execute("COMMIT")
        except (OSError, sqlite.Error):
            sqlite.rollback(self._db)
            raise

    def schedule(self, task_id: TaskId, schedule_hash: Digest) -> bool:
        """Remember the task's one schedule; False if a row that is not what was written had to be
        replaced. Raises CONFLICT.
        """
        stored = self._db.execute(
            "SELECT task_id, schedule_hash, digest FROM task WHERE task_id = ?", (task_id.raw,)
        ).fetchone()
        if stored is not None and fits(stored):
            if stored[1] != schedule_hash.raw:
                raise ShoalError(
                    Kind.CONFLICT,
                    f"task {task_id.short} was served with another key schedule: restore that one, "
                    "or make a new task",
                )
            return True
        failpoints.hit("state.adopt")
        self._db.execute(
            "INSERT OR REPLACE INTO task VALUES (?, ?, ?)",
            (task_id.raw, schedule_hash.raw, row_digest(task_id.raw, schedule_hash.raw)),
        )
        return stored is None

    def close(self) -> None:
        """Release the file. Nothing is lost without it."""
        self._db.close()


def stored(folder: Path) -> dict[WindowId, WindowRecord]:
    """What the file of a folder says, read beside a running service; nothing of damaged rows.
    Raises CONFIG if it can't be read.
    """
    path = folder / FILE_NAME
    if not path.exists():
        return {}
    try:
        with closing(sqlite.connect_read_only(path)) as db:
            rows = db.execute(_SELECT).fetchall()
    except (OSError, sqlite.Error):
        raise ShoalError(
            Kind.CONFIG,
            f"{path} can't be read: run this as the service's user, or see shoal doctor",
        ) from None
    records = ((row, _record(row)) for row in rows)
    return {WindowId(TaskId(row[0]), row[1]): found for row, found in records if found is not None}


def _whole(path: Path) -> bool:
    db = disk.connect(path)
    try:
        return sqlite.is_whole(db)
    finally:
        db.close()


def _record(row: tuple[Any, ...]) -> WindowRecord | None:
    """None: not what was written."""
    if not fits(row):
        return None
    _, _, state, outcome, reports, rows, size, rows_hash, manifest, acked, damaged, _ = row
    return WindowRecord(
        WindowState(state),
        WindowState(outcome) if outcome else None,
        int(reports),
        int(rows),
        int(size),
        manifest or b"",
        int(acked),
        int(damaged),
        Digest(rows_hash) if rows_hash else None,
    )
