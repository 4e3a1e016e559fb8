"""The device's durable outbox, in the agent's SQLite file.

Several processes may share it (a command beside a running agent): ``claim`` runs in an exclusive transaction, and two
senders of one entry send the same bytes and get the same receipt.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal.clients.core import Prepared, State
from shoal.clients.outbox import Entry, Record, outbox_full, two_schedules
from shoal.clients.store_sqlite import AgentStore, damaged, row_mark
from shoal.clients.store_thread import StoreThread
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.limits import LIMITS

_RECORD = "task_id, window, state, kind, attempts, doubtful, expires_s"


class SqliteOutbox:
    """On a store, which stays its owner's to close, or on a file that it opens and closes itself. Raises as ``AgentStore`` does."""

    def __init__(self, store: AgentStore | Path, most: int = LIMITS.outbox_rows) -> None:
        self._own = not isinstance(store, AgentStore)
        self._store = store if isinstance(store, AgentStore) else AgentStore(store)
        self._most = most
        self.thread: StoreThread | None = self._store.thread

    def claim(self, task_id: TaskId, window: int, make: Callable[[], Prepared]) -> tuple[Record, bool]:
        with self._store.write() as db:
            if self.struck(task_id):
                raise two_schedules()
            row = db.execute(f"SELECT {_RECORD} FROM report WHERE task_id = ? AND window = ?", (task_id.raw, window)).fetchone()  # noqa: S608 - a constant
            if row is not None:
                return _record(row), False
            (waiting,) = db.execute("SELECT count(*) FROM report WHERE state = 'queued'").fetchone()
            if waiting >= self._most:
                raise outbox_full(self._most)
            prepared = make()
            db.execute(
                "INSERT INTO report VALUES (?, ?, 'queued', NULL, 0, 0, ?, ?, ?, ?)",
                (task_id.raw, window, prepared.expires_s, prepared.frame, prepared.ack_key, _mark(prepared)),
            )
        return Record(task_id, window, State.QUEUED, None, 0, False, prepared.expires_s), True

    def find(self, task_id: TaskId, window: int) -> Record | None:
        rows = self._store.read(f"SELECT {_RECORD} FROM report WHERE task_id = ? AND window = ?", (task_id.raw, window))  # noqa: S608 - a constant
        return _record(rows[0]) if rows else None

    def load(self, task_id: TaskId, window: int) -> Entry | None:
        query = f"SELECT {_RECORD}, frame, ack_key, mark FROM report WHERE task_id = ? AND window = ? AND state = 'queued'"  # noqa: S608 - a constant
        rows = self._store.read(query, (task_id.raw, window))
        if not rows:
            return None
        *record, frame, ack_key, mark = rows[0]
        if mark != row_mark("report", task_id.raw, window, record[-1], frame, ack_key):
            raise damaged(f"the report of window {window} of task {task_id.short}")
        return Entry(_record(tuple(record)), frame, ack_key)

    def records(self, *, queued: bool = False) -> list[Record]:
        chosen = " WHERE state = 'queued'" if queued else ""
        return [_record(row) for row in self._store.read(f"SELECT {_RECORD} FROM report{chosen} ORDER BY expires_s, task_id, window")]  # noqa: S608 - constants

    def sending(self, task_id: TaskId, window: int) -> None:
        self._update("attempts = attempts + 1, doubtful = 1", (), task_id, window)

    def failed(self, task_id: TaskId, window: int, kind: Kind, doubtful: bool) -> None:
        self._update("kind = ?, doubtful = ?", (kind.value, int(doubtful)), task_id, window)

    def finish(self, task_id: TaskId, window: int, state: State, kind: Kind | None = None) -> None:
        values = (state.value, None if kind is None else kind.value)
        self._update("state = ?, kind = ?, frame = NULL, ack_key = NULL", values, task_id, window)

    def _update(self, change: str, values: tuple[Any, ...], task_id: TaskId, window: int) -> None:
        with self._store.write() as db:
            statement = f"UPDATE report SET {change} WHERE task_id = ? AND window = ? AND state = 'queued'"  # noqa: S608 - constants
            db.execute(statement, (*values, task_id.raw, window))

    def withdraw(self, task_id: TaskId) -> list[Record]:
        with self._store.write() as db:
            query = f"SELECT {_RECORD} FROM report WHERE task_id = ? AND state = 'queued' ORDER BY window"  # noqa: S608 - a constant
            waiting = [_record(row) for row in db.execute(query, (task_id.raw,))]
            change = "UPDATE report SET state = 'withdrawn', frame = NULL, ack_key = NULL WHERE task_id = ? AND state = 'queued'"
            db.execute(change, (task_id.raw,))
        return [Record(r.task_id, r.window, State.WITHDRAWN, r.kind, r.attempts, r.doubtful, r.expires_s) for r in waiting]

    def strike(self, task_id: TaskId) -> None:
        with self._store.write() as db:
            db.execute("INSERT OR IGNORE INTO struck VALUES (?)", (task_id.raw,))
            db.execute(
                "UPDATE report SET state = CASE doubtful WHEN 1 THEN 'unknown' ELSE 'refused' END, kind = ?, frame = NULL, ack_key = NULL "
                "WHERE task_id = ? AND state = 'queued'",
                (Kind.CONFLICT.value, task_id.raw),
            )

    def struck(self, task_id: TaskId) -> bool:
        return bool(self._store.read("SELECT 1 FROM struck WHERE task_id = ?", (task_id.raw,)))

    def pin(self, task_id: TaskId, schedule: Digest) -> None:
        if self._pinned(task_id) != [(schedule.raw,)]:
            with self._store.write() as db:
                db.execute("INSERT OR IGNORE INTO schedule VALUES (?, ?)", (task_id.raw, schedule.raw))
                if self._pinned(task_id) != [(schedule.raw,)]:
                    self.strike(task_id)
        if self.struck(task_id):  # raised here, where the strike is on disk
            raise two_schedules()

    def _pinned(self, task_id: TaskId) -> list[tuple[Any, ...]]:
        return self._store.read("SELECT digest FROM schedule WHERE task_id = ?", (task_id.raw,))

    def close(self) -> None:
        if self._own:
            self._store.close()


def _mark(prepared: Prepared) -> bytes:
    return row_mark("report", prepared.task_id.raw, prepared.window, prepared.expires_s, prepared.frame, prepared.ack_key)


def _record(row: tuple[Any, ...]) -> Record:
    """Raises MISMATCH for what no outbox wrote."""
    task_id, window, state, kind, attempts, doubtful, expires_s = row
    try:
        return Record(TaskId(task_id), window, State(state), None if kind is None else Kind(kind), attempts, bool(doubtful), expires_s)
    except (ValueError, TypeError, ShoalError):
        raise damaged("a row of the outbox") from None
