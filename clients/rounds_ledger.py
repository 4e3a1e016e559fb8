"""A device's durable memory of its rounds: which windows it has answered, and for which survivors it gave shares.

One SQLite file of its own, mode 0600, WAL with synchronous=FULL: an entry that was made survives a power cut. Keys of a round are
never in it. A masked vector is written down before its first byte is sent and shares before they are, so that a device that comes
back never answers a window twice, whatever it had time to send.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique
from pathlib import Path
from typing import Any

from shoal.clients.store_sqlite import SqliteFile
from shoal.errors import Kind, ShoalError
from shoal.failpoints import hit
from shoal.ids import Digest, TaskId


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
        unusable = "not a usable ledger: restore it, or this device may answer a window twice"
        self._file = SqliteFile(path, "ledger", ("rounds_001.sql",), unusable, lambda: hit("ledger.commit"))

    # --- RoundLedger --------------------------------------------------------------------------------------------------

    def masked(self, task_id: TaskId, window: int, round_id: Digest, sealed: Digest) -> None:
        """Durable on return. Raises CONFLICT if the window was answered already, in whatever round."""
        with self._file.write() as db:
            if db.execute("SELECT 1 FROM answer WHERE task_id = ? AND window = ?", (task_id.raw, window)).fetchone():
                raise _answered()
            db.execute("INSERT INTO answer VALUES (?, ?, ?, ?, NULL, 'masked', NULL)", (task_id.raw, window, round_id.raw, sealed.raw))

    def released(self, task_id: TaskId, window: int, round_id: Digest, commit: Digest) -> None:
        """Durable on return. Raises CONFLICT unless this round answered the window and no other commit was answered."""
        with self._file.write() as db:
            row = db.execute("SELECT round_id, released FROM answer WHERE task_id = ? AND window = ?", (task_id.raw, window)).fetchone()
            if row is None or row[0] != round_id.raw:
                raise _other_round()
            if row[1] is not None and row[1] != commit.raw:
                raise _other_commit()
            db.execute("UPDATE answer SET released = ? WHERE task_id = ? AND window = ?", (commit.raw, task_id.raw, window))

    # --- standing -----------------------------------------------------------------------------------------------------

    def settle(self, task_id: TaskId, window: int, standing: Standing, kind: Kind | None = None) -> None:
        """What became of a MASKED answer; anything else stays as it is."""
        with self._file.write() as db:
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
        self._file.close()

    def _read(self, where: str, values: tuple[Any, ...]) -> list[Answered]:
        rows = self._file.read(f"SELECT task_id, window, round_id, outcome, released, kind FROM answer {where}", values)  # noqa: S608 - constants
        return [
            Answered(TaskId(task), window, Digest(one), Standing(outcome), released is not None, None if kind is None else Kind(kind))
            for task, window, one, outcome, released, kind in rows
        ]


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
