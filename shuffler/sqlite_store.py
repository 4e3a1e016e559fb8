"""The embedded store: SQLite files in one folder, for one shuffler process.

    state.db                         windows and their states; tiny, one row per window
    inbox-<task>-<window>.db         an open window: reports in arrival groups, its secret, tags of admitted devices (``inbox``)
    batch-<task>-<window>.rows       a sealed window's reports in storage key order (``batch``)

The order of durable steps is what makes a crash harmless: the state row OPEN before the first inbox row; CLOSING before
sealing; the batch file, complete and synced, before SEALED; SEALED before the inbox is unlinked; ACKNOWLEDGED before
the batch is unlinked; SHREDDED last. Sealing again from the same inbox writes the same bytes.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from shoal import failpoints
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.log import get_log
from shoal.shuffler import batch, core, disk, inbox
from shoal.shuffler.core import Capacity, WindowId, WindowState
from shoal.shuffler.distinct import KeySet, place
from shoal.shuffler.inbox import Inbox
from shoal.shuffler.store import SealedRows, Submission, WindowRecord

log = get_log("shuffler")
_DECIDED = frozenset({WindowState.ACKNOWLEDGED, WindowState.WITHHELD, WindowState.EXPIRED})
_HOLDING = frozenset({WindowState.SEALED, WindowState.DELIVERING})
_FILE = re.compile(r"(inbox|batch)-([0-9a-f]{64})-(\d+)\.(db|rows)(-wal|-shm|-journal|\.tmp)?")


class SqliteStore:
    """See ``Store``. The folder belongs to this process alone (``shoal.service.DataFolder`` holds the lock)."""

    def __init__(self, folder: Path) -> None:
        """Open, and finish what a crash interrupted. Raises CONFIG if the folder can't be used or doesn't hold together."""
        self._folder = folder
        self._lock = threading.Lock()  # around the state connection and the records
        self._tasks: dict[TaskId, tuple[Capacity, int]] = {}
        self._inboxes: dict[WindowId, Inbox] = {}
        self._keys: dict[WindowId, KeySet] = {}  # what open windows hold; changed by the writer's thread alone
        self._admitted: dict[WindowId, KeySet] = {}  # tags of the devices that they admitted, likewise
        try:
            self._state = disk.connect(folder / "state.db")
            disk.migrate(self._state, "state")
            self._records = self._load()
            self._recover()
        except (OSError, sqlite3.Error) as error:
            raise ShoalError(
                Kind.CONFIG,
                f"data_dir {folder}: its files can't be opened ({type(error).__name__}): check rights and space, or restore them",
            ) from None

    # --- tasks and records ----------------------------------------------------------------------------------------

    def adopt(self, task_id: TaskId, schedule_hash: Digest, capacity: Capacity, row_size: int) -> None:
        with self._lock, _typed(self._folder):
            found = self._state.execute("SELECT schedule_hash FROM task WHERE task_id = ?", (task_id.raw,)).fetchone()
            if found is None:
                failpoints.hit("state.adopt")
                self._state.execute("INSERT INTO task VALUES (?, ?)", (task_id.raw, schedule_hash.raw))
            elif found[0] != schedule_hash.raw:
                raise ShoalError(
                    Kind.CONFLICT,
                    f"task {task_id.short} was served with another key schedule: restore that one, or make a new task",
                )
        self._tasks[task_id] = (capacity, row_size)
        with _typed(self._folder):
            for window in [w for w, record in self.records().items() if w.task_id == task_id and record.state is WindowState.OPEN]:
                self._held(window)

    def records(self) -> dict[WindowId, WindowRecord]:
        with self._lock:
            return dict(self._records)

    def record(self, window: WindowId) -> WindowRecord | None:
        """One of ``records``, without copying them."""
        return self._records.get(window)

    def distinct(self, window: WindowId) -> int:
        keys = self._keys.get(window)
        return 0 if keys is None else core.distinct_reports(len(keys), self._tasks[window.task_id][0].messages)

    # --- intake: the writer's thread alone ------------------------------------------------------------------------

    def append(self, submissions: Sequence[Submission]) -> list[Kind | None]:
        outcome: list[Kind | None] = [None] * len(submissions)
        groups: dict[WindowId, list[int]] = {}
        last, group = None, list[int]()
        for index, submission in enumerate(submissions):
            if submission.window is not last:  # hashing an id costs more than the whole rest of this loop
                last = submission.window
                group = groups.setdefault(last, [])
            group.append(index)
        for window, indices in groups.items():
            try:
                kinds = self._append(window, [submissions[index] for index in indices])
            except (OSError, sqlite3.Error) as error:
                self._forget(window)  # what is on disk is uncertain: read it anew
                kinds = [self._refused(window, error, len(indices))] * len(indices)
            for index, one in zip(indices, kinds, strict=True):
                outcome[index] = one
        return outcome

    def _append(self, window: WindowId, reports: list[Submission]) -> list[Kind | None]:
        record = self._records.get(window)
        if record is None:
            self._insert(window, WindowState.OPEN)
        elif record.state is not WindowState.OPEN:
            return [Kind.WINDOW_CLOSED] * len(reports)
        box = self._inbox(window)
        capacity = self._tasks[window.task_id][0]
        keyed = [[(box.key(sealed), sealed) for sealed in report.sealed] for report in reports]
        held, admitted = self._held(window), self._admitted[window]
        tags = [box.tag(report.device) for report in reports] if reports[0].device else []
        kinds, fresh, entering = place([[key for key, _ in report] for report in keyed], held, capacity, tags, admitted)
        if fresh:
            try:
                box.append({key: sealed for report in keyed for key, sealed in report if key in fresh}.items(), entering)
            except sqlite3.Error as error:
                if not disk.is_full(error):
                    raise
                # Rolled back for certain, so what was held before is still known, and a repeat of it needs no room. But a device
                # that would have been admitted was not: another report of it in this group is no conflict.
                self._refused(window, error, len(fresh))
                return [
                    Kind.OVERLOADED
                    if any(key in fresh for key, _ in report) or (kind is Kind.CONFLICT and tags[index] in entering)
                    else kind
                    for index, (report, kind) in enumerate(zip(keyed, kinds, strict=True))
                ]
            held.add(fresh)  # only what is on disk counts
            admitted.add(entering)
        return kinds

    def _refused(self, window: WindowId, error: OSError | sqlite3.Error, count: int) -> Kind:
        kind = disk.kind_of(error, self._folder)
        log.error("reports could not be stored", task=window.task_id, window=window.window, count=count, kind=kind, error=error)
        return kind

    def close_intake(self, window: WindowId) -> None:
        self.advance(window, WindowState.OPEN, WindowState.CLOSING)
        self._forget(window)

    def _inbox(self, window: WindowId) -> Inbox:
        box = self._inboxes.get(window)
        if box is None:
            box = self._inboxes[window] = Inbox(self._inbox_path(window))
        return box

    def _held(self, window: WindowId) -> KeySet:
        keys = self._keys.get(window)
        if keys is None:
            box = self._inbox(window)
            self._admitted[window] = box.tags()
            keys = self._keys[window] = box.keys()
        return keys

    def _forget(self, window: WindowId) -> None:
        """Close the inbox and drop its keys and tags; all are made anew from the file when needed."""
        self._keys.pop(window, None)
        self._admitted.pop(window, None)
        box = self._inboxes.pop(window, None)
        if box is not None:
            try:
                box.close()
            except sqlite3.Error as error:
                log.warning("an inbox did not close cleanly", task=window.task_id, window=window.window, error=error)

    # --- states ---------------------------------------------------------------------------------------------------

    def advance(
        self,
        window: WindowId,
        before: WindowState,
        after: WindowState,
        sealed: SealedRows | None = None,
        reports: int = 0,
        manifest: bytes = b"",
    ) -> None:
        with self._lock, _typed(self._folder):
            record = self._records.get(window)
            if record is None or record.state is not before:
                raise ShoalError(Kind.INTERNAL, f"window {window.window} of task {window.task_id.short} is not {before.name}")
            record = replace(record, state=after, outcome=after if after in _DECIDED else record.outcome)
            if sealed is not None:
                record = replace(record, reports=reports, rows=sealed.rows, row_size=sealed.row_size, manifest=manifest)
            elif reports:
                record = replace(record, reports=reports)
            if after is WindowState.SHREDDED:
                record = replace(record, manifest=b"")
            failpoints.hit(f"state.{after.name.lower()}")
            self._write(window, record, sealed.rows_hash if sealed else None)
            self._records[window] = record
        failpoints.hit(f"state.{after.name.lower()}.done")

    def lapse(self, windows: Iterable[WindowId]) -> None:
        record = WindowRecord(WindowState.SHREDDED, WindowState.WITHHELD)
        with self._lock, _typed(self._folder):
            fresh = [window for window in windows if window not in self._records]
            self._state.execute("BEGIN IMMEDIATE")
            try:
                for window in fresh:
                    self._write(window, record, None)
                failpoints.hit("state.lapse")
                self._state.execute("COMMIT")
            except (OSError, sqlite3.Error):
                disk.rollback(self._state)
                raise
            self._records.update(dict.fromkeys(fresh, record))

    def _insert(self, window: WindowId, state: WindowState) -> None:
        with self._lock:
            record = WindowRecord(state)
            failpoints.hit("state.open")
            self._write(window, record, None)
            self._records[window] = record

    def _write(self, window: WindowId, record: WindowRecord, rows_hash: Digest | None) -> None:
        self._state.execute(
            "INSERT INTO window (task_id, window, state, outcome, reports, rows, row_size, rows_hash, manifest)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET state = excluded.state, outcome = excluded.outcome,"
            " reports = excluded.reports, rows = excluded.rows, row_size = excluded.row_size,"
            " rows_hash = coalesce(excluded.rows_hash, rows_hash), manifest = excluded.manifest",
            (
                window.task_id.raw,
                window.window,
                int(record.state),
                int(record.outcome or 0),
                record.reports,
                record.rows,
                record.row_size,
                rows_hash.raw if rows_hash else None,
                record.manifest,
            ),
        )

    def _load(self) -> dict[WindowId, WindowRecord]:
        rows = self._state.execute("SELECT task_id, window, state, outcome, reports, rows, row_size, manifest FROM window")
        return {
            WindowId(TaskId(task_id), window): WindowRecord(
                WindowState(state), WindowState(outcome) if outcome else None, reports, count, size, manifest or b""
            )
            for task_id, window, state, outcome, reports, count, size, manifest in rows
        }

    # --- batches --------------------------------------------------------------------------------------------------

    def held(self, window: WindowId) -> int:
        with _typed(self._folder):
            path = self._inbox_path(window)
            return inbox.count_rows(path) if path.exists() else 0

    def seal(self, window: WindowId) -> SealedRows:
        """Streams the sorted inbox into the batch file; memory flat in the number of reports."""
        with _typed(self._folder):
            path = self._inbox_path(window)
            failpoints.hit("seal.read")
            messages = inbox.distinct_sorted(path, self._folder) if path.exists() else iter(())
            return batch.write(self._batch_path(window), messages, self._tasks[window.task_id][1])

    def destroy_inbox(self, window: WindowId) -> None:
        with _typed(self._folder):
            inbox.destroy(self._inbox_path(window))

    def read_rows(self, window: WindowId, first: int, count: int) -> bytes:
        record = self._records[window]
        with _typed(self._folder):
            return batch.read(self._batch_path(window), record.row_size, first, min(count, record.rows - first))

    def shred(self, window: WindowId) -> None:
        self._forget(window)
        with _typed(self._folder):
            inbox.destroy(self._inbox_path(window))
            batch.destroy(self._batch_path(window))

    def close(self) -> None:
        for window in list(self._inboxes):
            self._forget(window)
        self._state.close()

    # --- files ----------------------------------------------------------------------------------------------------

    def _inbox_path(self, window: WindowId) -> Path:
        return self._folder / f"inbox-{window.task_id.hex}-{window.window}.db"

    def _batch_path(self, window: WindowId) -> Path:
        return self._folder / f"batch-{window.task_id.hex}-{window.window}.rows"

    def _recover(self) -> None:
        """Check that files and states fit, and unlink what a crash left of windows whose inbox or batch is no longer wanted."""
        for window, record in self._records.items():
            if record.state in _HOLDING:
                inbox.destroy(self._inbox_path(window))
                path = self._batch_path(window)
                if not path.exists() or path.stat().st_size != record.rows * record.row_size:
                    raise ShoalError(
                        Kind.CONFIG,
                        f"data_dir {self._folder}: {path.name} is missing or cut short: restore it, its reports are acknowledged",
                    )
        for path in self._folder.iterdir():
            parts = _FILE.fullmatch(path.name)
            if parts is None:
                continue
            owner = self._records.get(WindowId(TaskId.parse(parts[2]), int(parts[3])))
            if owner is None:
                raise ShoalError(
                    Kind.CONFIG,
                    f"data_dir {self._folder}: {path.name} belongs to no window of state.db: restore state.db, or move the file away",
                )
            if owner.state is WindowState.SHREDDED:
                disk.unlink(path)


@contextmanager
def _typed(folder: Path) -> Iterator[None]:
    """Turns failures of disk and SQLite into OVERLOADED or INTERNAL, without their text."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        kind = disk.kind_of(error, folder)
        reason = "the disk is full: free some space" if kind is Kind.OVERLOADED else f"the disk failed ({type(error).__name__})"
        raise ShoalError(kind, reason) from None
