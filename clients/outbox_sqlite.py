"""The device's durable outbox: one SQLite file, mode 0600, WAL with synchronous=FULL, deleted bytes overwritten.

Several processes may share it (a command beside a running agent): ``claim`` runs in an exclusive transaction, and two
senders of one entry send the same bytes and get the same receipt.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from shoal.clients.core import Prepared, State
from shoal.clients.outbox import Entry, Record, outbox_full, two_schedules
from shoal.errors import Kind, ShoalError
from shoal.failpoints import hit
from shoal.ids import Digest, TaskId
from shoal.limits import LIMITS

_MIGRATIONS = ("outbox_001.sql",)  # PRAGMA user_version counts the ones applied
_BUSY_S = 10.0
_RECORD = "task_id, window, state, kind, attempts, doubtful, expires_s"


class SqliteOutbox:
    """Opens or makes the file. Raises CONFIG (no such folder, no outbox, written by a newer version, readable by others)."""

    blocking = True

    def __init__(self, path: Path, most: int = LIMITS.outbox_rows) -> None:
        self._path, self._most = path, most
        self._lock = threading.Lock()
        private_file(path, "outbox")
        try:
            self._db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON", "trusted_schema = OFF"):
                self._db.execute(f"PRAGMA {pragma}")
            self._migrate()
        except sqlite3.DatabaseError as error:
            raise self._failure(error) from None

    def _migrate(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version > len(_MIGRATIONS):
                raise ShoalError(Kind.CONFIG, f"outbox {self._path.name}: written by a newer version of shoal: upgrade this one")
            for number, name in enumerate(_MIGRATIONS[version:], version + 1):
                for statement in filter(str.strip, files("shoal.clients").joinpath(name).read_text().split(";\n")):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {number}")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """One exclusive transaction: committed whole, or nothing of it."""
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    yield self._db
                    hit("outbox.commit")
                    self._db.execute("COMMIT")
                except BaseException:
                    if self._db.in_transaction:
                        self._db.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise self._failure(error) from None
            except OSError as error:
                raise ShoalError(
                    Kind.OVERLOADED, f"outbox {self._path.name}: {error.strerror or 'write failed'}: make room, then again"
                ) from None

    def _read(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._db.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise self._failure(error) from None

    def claim(self, task_id: TaskId, window: int, make: Callable[[], Prepared]) -> tuple[Record, bool]:
        with self._write() as db:
            row = db.execute(f"SELECT {_RECORD} FROM report WHERE task_id = ? AND window = ?", (task_id.raw, window)).fetchone()  # noqa: S608 - a constant
            if row is not None:
                return _record(row), False
            (waiting,) = db.execute("SELECT count(*) FROM report WHERE state = 'queued'").fetchone()
            if waiting >= self._most:
                raise outbox_full(self._most)
            prepared = make()
            db.execute(
                "INSERT INTO report VALUES (?, ?, 'queued', NULL, 0, 0, ?, ?, ?)",
                (task_id.raw, window, prepared.expires_s, prepared.frame, prepared.ack_key),
            )
        return Record(task_id, window, State.QUEUED, None, 0, False, prepared.expires_s), True

    def find(self, task_id: TaskId, window: int) -> Record | None:
        rows = self._read(f"SELECT {_RECORD} FROM report WHERE task_id = ? AND window = ?", (task_id.raw, window))  # noqa: S608 - a constant
        return _record(rows[0]) if rows else None

    def load(self, task_id: TaskId, window: int) -> Entry | None:
        query = f"SELECT {_RECORD}, frame, ack_key FROM report WHERE task_id = ? AND window = ? AND state = 'queued'"  # noqa: S608 - a constant
        rows = self._read(query, (task_id.raw, window))
        return Entry(_record(rows[0][:-2]), rows[0][-2], rows[0][-1]) if rows else None

    def records(self, *, queued: bool = False) -> list[Record]:
        chosen = " WHERE state = 'queued'" if queued else ""
        return [_record(row) for row in self._read(f"SELECT {_RECORD} FROM report{chosen} ORDER BY expires_s, task_id, window")]  # noqa: S608 - constants

    def sending(self, task_id: TaskId, window: int) -> None:
        self._update("attempts = attempts + 1, doubtful = 1", (), task_id, window)

    def failed(self, task_id: TaskId, window: int, kind: Kind, doubtful: bool) -> None:
        self._update("kind = ?, doubtful = ?", (kind.value, int(doubtful)), task_id, window)

    def finish(self, task_id: TaskId, window: int, state: State, kind: Kind | None = None) -> None:
        values = (state.value, None if kind is None else kind.value)
        self._update("state = ?, kind = ?, frame = NULL, ack_key = NULL", values, task_id, window)

    def _update(self, change: str, values: tuple[Any, ...], task_id: TaskId, window: int) -> None:
        with self._write() as db:
            statement = f"UPDATE report SET {change} WHERE task_id = ? AND window = ? AND state = 'queued'"  # noqa: S608 - constants
            db.execute(statement, (*values, task_id.raw, window))

    def pin(self, task_id: TaskId, schedule: Digest) -> None:
        known = self._read("SELECT digest FROM schedule WHERE task_id = ?", (task_id.raw,))
        if not known:
            with self._write() as db:
                db.execute("INSERT OR IGNORE INTO schedule VALUES (?, ?)", (task_id.raw, schedule.raw))
            known = self._read("SELECT digest FROM schedule WHERE task_id = ?", (task_id.raw,))
        if known[0][0] != schedule.raw:
            raise two_schedules()

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _failure(self, error: sqlite3.Error) -> ShoalError:
        name = getattr(error, "sqlite_errorname", "") or ""
        if name.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_BUSY")):
            return ShoalError(Kind.OVERLOADED, f"outbox {self._path.name}: the disk is full, failing or busy: make room, then again")
        return ShoalError(Kind.CONFIG, f"outbox {self._path.name}: not a usable outbox file: move it away, and a new one is made")


def _record(row: tuple[Any, ...]) -> Record:
    task_id, window, state, kind, attempts, doubtful, expires_s = row
    return Record(TaskId(task_id), window, State(state), None if kind is None else Kind(kind), attempts, bool(doubtful), expires_s)


def private_file(path: Path, what: str) -> None:
    """Make the file with mode 0600 before SQLite does (its -wal and -shm take over the mode), or check it.

    An existing file is never opened here: closing any descriptor of it would drop the locks that SQLite holds (POSIX).
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise ShoalError(Kind.CONFIG, f"{what} {path}: not a file: name another") from None
        if mode & 0o077:
            raise ShoalError(Kind.CONFIG, f"{what} {path}: others may read it: chmod 600 {path}") from None
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"{what} {path}: {error.strerror or 'cannot be made'}: name a file in a folder of this user"
        ) from None
