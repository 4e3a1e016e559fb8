"""A device's durable memory of its rounds: which windows it has answered, and for which survivors it gave shares.

One SQLite file of its own, mode 0600, WAL with synchronous=FULL: an entry that was made survives a power cut. Keys of a round are
never in it. A masked vector is written down before its first byte is sent and shares before they are, so that a device that comes
back never answers a window twice, whatever it had time to send.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, unique
from importlib.resources import files
from pathlib import Path
from typing import Any

from shoal.clients.outbox_sqlite import private_file
from shoal.errors import Kind, ShoalError
from shoal.failpoints import hit
from shoal.ids import Digest, TaskId

_MIGRATIONS = ("rounds_001.sql",)  # PRAGMA user_version counts the ones applied
_BUSY_S = 10.0


@unique
class Standing(Enum):
    """Where the answer of a window stands. MASKED is the only one that changes."""

    MASKED = "masked"  # the vector was made; the round goes on, or this device lost sight of it
    COUNTED = "counted"  # the shuffler said that the sum is made
    ABORTED = "aborted"  # the round ended without a sum, or without this device
    LOST = "lost"  # this device gave the round up: in the sum, or not


@dataclass(frozen=True, slots=True)
class Answered:
    """One window's entry. ``released``: whether shares were given. ``kind``: why it is not counted, if that is known."""

    task_id: TaskId
    window: int
    round_id: Digest
    standing: Standing
    released: bool
    kind: Kind | None = None


class SqliteLedger:
    """Opens or makes the file; several processes may share it. Raises CONFIG (no folder, no ledger, newer version, readable by others).

    Implements ``shoal.crypto.secagg.device.RoundLedger``. Methods block, may be called by any thread, and raise OVERLOADED when the
    disk is full or busy: nothing was written then, and nothing may be sent.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        private_file(path, "ledger")
        try:
            self._db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "trusted_schema = OFF"):
                self._db.execute(f"PRAGMA {pragma}")
            self._migrate()
        except sqlite3.DatabaseError as error:
            raise self._failure(error) from None

    def _migrate(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version > len(_MIGRATIONS):
                raise ShoalError(Kind.CONFIG, f"ledger {self._path.name}: written by a newer version of shoal: upgrade this one")
            for number, name in enumerate(_MIGRATIONS[version:], version + 1):
                for statement in filter(str.strip, files("shoal.clients").joinpath(name).read_text().split(";\n")):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {number}")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    # --- RoundLedger --------------------------------------------------------------------------------------------------

    def masked(self, task_id: TaskId, window: int, round_id: Digest, sealed: Digest) -> None:
        """Durable on return. Raises CONFLICT if the window was answered already, in whatever round."""
        with self._write() as db:
            if db.execute("SELECT 1 FROM answer WHERE task_id = ? AND window = ?", (task_id.raw, window)).fetchone():
                raise _answered()
            db.execute("INSERT INTO answer VALUES (?, ?, ?, ?, NULL, 'masked', NULL)", (task_id.raw, window, round_id.raw, sealed.raw))

    def released(self, task_id: TaskId, window: int, round_id: Digest, commit: Digest) -> None:
        """Durable on return. Raises CONFLICT unless this round answered the window and no other commit was answered."""
        with self._write() as db:
            row = db.execute("SELECT round_id, released FROM answer WHERE task_id = ? AND window = ?", (task_id.raw, window)).fetchone()
            if row is None or row[0] != round_id.raw:
                raise _other_round()
            if row[1] is not None and row[1] != commit.raw:
                raise _other_commit()
            db.execute("UPDATE answer SET released = ? WHERE task_id = ? AND window = ?", (commit.raw, task_id.raw, window))

    # --- standing -----------------------------------------------------------------------------------------------------

    def settle(self, task_id: TaskId, window: int, standing: Standing, kind: Kind | None = None) -> None:
        """What became of a MASKED answer; anything else stays as it is."""
        with self._write() as db:
            db.execute(
                "UPDATE answer SET outcome = ?, kind = ? WHERE task_id = ? AND window = ? AND outcome = 'masked'",
                (standing.value, None if kind is None else kind.value, task_id.raw, window),
            )

    def find(self, task_id: TaskId, window: int) -> Answered | None:
        found = self._read("WHERE task_id = ? AND window = ?", (task_id.raw, window))
        return found[0] if found else None

    def answers(self) -> list[Answered]:
        """All of them, by task and window."""
        return self._read("ORDER BY task_id, window", ())

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _read(self, where: str, values: tuple[Any, ...]) -> list[Answered]:
        with self._lock:
            try:
                query = f"SELECT task_id, window, round_id, outcome, released, kind FROM answer {where}"  # noqa: S608 - constants
                rows = self._db.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise self._failure(error) from None
        return [
            Answered(TaskId(task), window, Digest(one), Standing(outcome), released is not None, None if kind is None else Kind(kind))
            for task, window, one, outcome, released, kind in rows
        ]

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """One exclusive transaction: committed whole, or nothing of it."""
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    yield self._db
                    hit("ledger.commit")
                    self._db.execute("COMMIT")
                except BaseException:
                    if self._db.in_transaction:
                        self._db.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise self._failure(error) from None
            except OSError as error:
                raise ShoalError(
                    Kind.OVERLOADED, f"ledger {self._path.name}: {error.strerror or 'write failed'}: make room, then again"
                ) from None

    def _failure(self, error: sqlite3.Error) -> ShoalError:
        name = getattr(error, "sqlite_errorname", "") or ""
        if name.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_BUSY")):
            return ShoalError(Kind.OVERLOADED, f"ledger {self._path.name}: the disk is full, failing or busy: make room, then again")
        return ShoalError(
            Kind.CONFIG, f"ledger {self._path.name}: not a usable ledger: restore it, or this device may answer a window twice"
        )


class MemoryLedger:
    """A ledger that forgets with its process: for simulated devices and tests. The same rules."""

    def __init__(self) -> None:
        self._answers: dict[tuple[bytes, int], tuple[Digest, Digest, Digest | None, Standing, Kind | None]] = {}

    def masked(self, task_id: TaskId, window: int, round_id: Digest, sealed: Digest) -> None:
        if (task_id.raw, window) in self._answers:
            raise _answered()
        self._answers[task_id.raw, window] = (round_id, sealed, None, Standing.MASKED, None)

    def released(self, task_id: TaskId, window: int, round_id: Digest, commit: Digest) -> None:
        known = self._answers.get((task_id.raw, window))
        if known is None or known[0] != round_id:
            raise _other_round()
        if known[2] not in (None, commit):
            raise _other_commit()
        self._answers[task_id.raw, window] = (*known[:2], commit, *known[3:])

    def settle(self, task_id: TaskId, window: int, standing: Standing, kind: Kind | None = None) -> None:
        known = self._answers.get((task_id.raw, window))
        if known is not None and known[3] is Standing.MASKED:
            self._answers[task_id.raw, window] = (*known[:3], standing, kind)

    def find(self, task_id: TaskId, window: int) -> Answered | None:
        known = self._answers.get((task_id.raw, window))
        return None if known is None else Answered(task_id, window, known[0], known[3], known[2] is not None, known[4])

    def answers(self) -> list[Answered]:
        found = [self.find(TaskId(task), window) for task, window in sorted(self._answers)]
        return [one for one in found if one is not None]

    def close(self) -> None:
        """Nothing to close."""


def _answered() -> ShoalError:
    return ShoalError(Kind.CONFLICT, "this device has answered the window before: a window is answered once")


def _other_round() -> ShoalError:
    return ShoalError(Kind.CONFLICT, "shares are wanted for a round that this device did not answer the window in")


def _other_commit() -> ShoalError:
    return ShoalError(Kind.CONFLICT, "shares of this round were given for another set of survivors: they are given once")
