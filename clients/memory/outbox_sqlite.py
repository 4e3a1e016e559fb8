"""The device's durable outbox, in the agent's SQLite file.

Several processes may share it (a command beside a running agent): a window is claimed in an
exclusive transaction, and two senders of one entry send the same bytes and get the same receipt.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from shoal.clients.core import ReportState, SealedReport
from shoal.clients.memory.database import AgentStore
from shoal.clients.memory.database_thread import StoreThread
from shoal.clients.memory.marks import Damage, damaged
from shoal.clients.memory.outbox import Entry, Record, has_report, outbox_full, two_schedules
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.limits import LIMITS
from shoal.storage import sqlite

_KEY = ("task_id", "window")
_OF_WINDOW = "WHERE task_id = ? AND window = ?"
_QUEUED = "WHERE state = 'queued'"
_ROW = tuple[Any, ...]
_LATER = ("kind", "attempts", "doubtful")


class SqliteOutbox:
    """On a store, which stays its owner's to close, or on a file that it opens and closes itself.
    Raises as ``AgentStore`` does.
    """

    def __init__(self, store: AgentStore | Path, most: int = LIMITS.outbox_rows) -> None:
        self._own = not isinstance(store, AgentStore)
        self._store = store if isinstance(store, AgentStore) else AgentStore(store)
        self._most, self._marked = most, self._store.marked
        self.thread: StoreThread | None = self._store.thread

    def transaction(self) -> AbstractContextManager[object]:
        """As ``Outbox.transaction``."""
        return self._store.write()

    def claim(self, task_id: TaskId, window: int) -> Record | None:
        """As ``Outbox.claim``."""
        if not self._store.writing:
            raise ShoalError(Kind.INTERNAL, "a window is claimed inside a transaction")
        if self.struck(task_id):
            raise two_schedules()
        rows = self._marked.read("report", _OF_WINDOW, (task_id.raw, window))
        if rows:
            return _record(rows[0])
        self._marked.absent("report", task_id)
        ((waiting,),) = self._store.read(f"SELECT count(*) FROM report {_QUEUED}")  # noqa: S608 - a constant
        if waiting >= self._most:
            raise outbox_full(self._most)
        return None

    def add(self, prepared: SealedReport, *, sending: bool = False) -> Record:
        """As ``Outbox.add``."""
        task_id, window = prepared.task_id, prepared.window
        with self._store.write(one_statement=True) as db:
            try:
                self._marked.add(
                    db,
                    "report",
                    task_id.raw,
                    window,
                    ReportState.QUEUED.value,
                    None,
                    int(sending),
                    int(sending),
                    prepared.expires_s,
                    prepared.frame,
                    prepared.ack_key,
                )
            except sqlite.IntegrityError:
                raise has_report(window) from None
        return Record(task_id, window, ReportState.QUEUED, None, 0, False, prepared.expires_s)

    def find(self, task_id: TaskId, window: int) -> Record | None:
        """As ``Outbox.find``."""
        rows = self._marked.read("report", _OF_WINDOW, (task_id.raw, window))
        return _record(rows[0]) if rows else None

    def load(self, task_id: TaskId, window: int) -> Entry | None:
        """As ``Outbox.load``."""
        rows = self._waiting(task_id, window)
        return Entry(_record(rows[0]), *rows[0][-2:]) if rows else None

    def _waiting(self, task_id: TaskId, window: int) -> list[_ROW]:
        """The window's report, if it waits. Raises MISMATCH if it is damaged."""
        whole, bad = self._sifted(task_id, window)
        if bad:
            raise damaged(self._marked.damage("report", bad[0]))
        return whole

    def _sifted(self, task_id: TaskId, window: int) -> tuple[list[_ROW], list[_ROW]]:
        """The same by the statement that ``find`` and ``claim`` have too, so that a transaction
        reads the row once.
        """
        rows = self._marked.sift("report", _OF_WINDOW, (task_id.raw, window))
        whole, bad = ([row for row in some if row[2] == "queued"] for some in rows)
        return whole, bad

    def records(self, *, queued: bool = False) -> list[Record]:
        """Damaged rows are left out, but for reports that wait: who wants to send one finds out,
        and ends it.
        """
        whole, bad = self._marked.sift(
            "report", f"{_QUEUED if queued else ''} ORDER BY expires_s, task_id, window"
        )
        waiting = [
            record
            for record in map(_readable, bad)
            if record is not None and record.state is ReportState.QUEUED
        ]
        return [*map(_record, whole), *waiting]

    def sending(self, task_id: TaskId, window: int) -> None:
        """As ``Outbox.sending``."""
        with self._store.write(one_statement=True) as db:
            for row in self._waiting(task_id, window):
                self._marked.change(db, "report", _KEY, row, attempts=row[4] + 1, doubtful=1)

    def failed(self, task_id: TaskId, window: int, kind: Kind, doubtful: bool) -> None:
        """As ``Outbox.failed``."""
        with self._store.write(one_statement=True) as db:
            for row in self._sifted(task_id, window)[0]:
                self._marked.change(
                    db, "report", _KEY, row, kind=kind.value, doubtful=int(doubtful)
                )

    def finish(
        self, task_id: TaskId, window: int, state: ReportState, kind: Kind | None = None
    ) -> Record | None:
        """As ``Outbox.finish``."""
        with self._store.write(one_statement=True) as db:
            whole, bad = self._sifted(task_id, window)
            for row in (*whole, *map(_tombstone, bad)):
                return self._end(db, row, state, kind)
        return None

    def spoil(self, task_id: TaskId, window: int) -> bool:
        """As ``Outbox.spoil``."""
        with self._store.write() as db:
            _, bad = self._sifted(task_id, window)
            for row in bad:
                self._end(db, _tombstone(row), ReportState.UNKNOWN, Kind.MISMATCH)
        return bool(bad)

    def _end(
        self, db: sqlite.Connection, row: _ROW, state: ReportState, kind: Kind | None
    ) -> Record:
        """Returns what it is then."""
        # a tombstone's are not those on disk
        change: dict[str, Any] = dict(zip(_LATER, row[3:6], strict=True))
        change |= {
            "state": state.value,
            "kind": None if kind is None else kind.value,
            "frame": None,
            "ack_key": None,
        }
        return _record(self._marked.change(db, "report", _KEY, row, **change))

    def withdraw(self, task_id: TaskId) -> list[Record]:
        """Damaged reports too."""
        with self._store.write() as db:
            return [
                self._end(db, row, ReportState.WITHDRAWN, _record(row).kind)
                for row in self._all_waiting(task_id)
            ]

    def _all_waiting(self, task_id: TaskId) -> list[_ROW]:
        whole, bad = self._marked.sift(
            "report", "WHERE task_id = ? AND state = 'queued' ORDER BY window", (task_id.raw,)
        )
        return [*whole, *map(_tombstone, bad)]

    def strike(self, task_id: TaskId) -> None:
        """As ``Outbox.strike``."""
        with self._store.write() as db:
            self._marked.put(db, "struck", task_id.raw)
            for row in self._all_waiting(task_id):
                self._end(
                    db, row, ReportState.UNKNOWN if row[5] else ReportState.REFUSED, Kind.CONFLICT
                )

    def struck(self, task_id: TaskId) -> bool:
        """As ``Outbox.struck``."""
        if self._marked.read("struck", "WHERE task_id = ?", (task_id.raw,)):
            return True
        self._marked.absent("struck", task_id)
        return False

    def pin(self, task_id: TaskId, schedule: Digest) -> None:
        """As ``Outbox.pin``."""
        if self._pinned(task_id) != [(task_id.raw, schedule.raw)]:
            with self._store.write() as db:
                if not self._pinned(task_id):
                    self._marked.absent("schedule", task_id)
                    self._marked.add(db, "schedule", task_id.raw, schedule.raw)
                if self._pinned(task_id) != [(task_id.raw, schedule.raw)]:
                    self.strike(task_id)
        if self.struck(task_id):  # raised here, where the strike is on disk
            raise two_schedules()

    def _pinned(self, task_id: TaskId) -> list[_ROW]:
        return self._marked.read("schedule", "WHERE task_id = ?", (task_id.raw,))

    def close(self) -> None:
        """As ``Outbox.close``."""
        if self._own:
            self._store.close()


def _record(row: _ROW) -> Record:
    """Raises MISMATCH for what no outbox wrote."""
    task_id, window, state, kind, attempts, doubtful, expires_s, *_ = row
    try:
        return Record(
            TaskId(task_id),
            window,
            ReportState(state),
            None if kind is None else Kind(kind),
            attempts,
            bool(doubtful),
            expires_s,
        )
    except (ValueError, TypeError, ShoalError):
        raise damaged(Damage("outbox", "report", row=row)) from None


def _readable(row: _ROW) -> Record | None:
    try:
        return _record(row)
    except ShoalError:
        return None


def _tombstone(row: _ROW) -> _ROW:
    """What may be believed of a damaged report: that there was one, and that it may have
    arrived.
    """
    return (*row[:3], None, 0, 1, row[6] if isinstance(row[6], int) else 0, None, None)
