"""A device's durable memory of its rounds: which windows it has answered, and for which survivors
it gave shares.

One SQLite file of its own, mode 0600, WAL with synchronous=FULL: an entry that was made survives a
power cut. Keys of a round are never in it. A masked vector is written down before its first byte is
sent and shares before they are, so that a device that comes back never answers a window twice,
whatever it had time to send.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique
from pathlib import Path
from typing import Any

from shoal.clients.memory.marks import ROUNDS
from shoal.clients.memory.sqlite_file import SqliteFile
from shoal.errors import Kind, ShoalError
from shoal.failpoints import hit
from shoal.ids import Digest, TaskId

_KEY = ("task_id", "window")


@unique
class RoundStanding(Enum):
    """Where the answer of a window stands. MASKED is the only one that changes."""

    MASKED = "masked"  # the vector was made; the round goes on, or this device lost sight of it
    COUNTED = "counted"  # the shuffler said that the sum is made
    ABORTED = "aborted"  # the round ended without a sum, or without this device
    LOST = "lost"  # this device gave the round up: in the sum, or not


@dataclass(frozen=True, slots=True)
class Answered:
    """One window's entry. ``released``: whether shares were given. ``kind``: why it is not counted,
    if that is known.
    """

    task_id: TaskId
    window: int
    round_id: Digest
    standing: RoundStanding
    released: bool
    kind: Kind | None = None


class SqliteLedger:
    """Opens or makes the file; several processes may share it. Raises CONFIG (no folder, no ledger,
    newer version, readable by others).

    Implements ``shoal.crypto.secagg.device.ledger.RoundLedger``. Methods block, may be called by
    any thread, and raise OVERLOADED when the disk is full or busy: nothing was written then, and
    nothing may be sent.
    """

    def __init__(self, path: Path) -> None:
        unusable = "not a usable ledger: restore it, or this device may answer a window twice"
        self._file = SqliteFile(
            path,
            "ledger",
            "rounds",
            unusable,
            lambda: hit("ledger.commit"),
            ROUNDS,
        )
        self._marked = self._file.marked

    # --- RoundLedger ------------------------------------------------------------------------------

    def masked(self, task_id: TaskId, window: int, round_id: Digest, sealed: Digest) -> None:
        """Durable on return. Raises CONFLICT if the window was answered already, in whatever
        round.
        """
        with self._file.write() as db:
            if self._row(task_id, window) is not None:
                raise _answered()
            self._marked.add(
                db,
                "answer",
                task_id.raw,
                window,
                round_id.raw,
                sealed.raw,
                None,
                RoundStanding.MASKED.value,
                None,
            )

    def released(self, task_id: TaskId, window: int, round_id: Digest, commit: Digest) -> None:
        """Durable on return. Raises CONFLICT unless this round answered the window and no other
        commit was answered.
        """
        with self._file.write() as db:
            row = self._row(task_id, window)
            if row is None or row[2] != round_id.raw:
                raise _other_round()
            if row[4] is not None and row[4] != commit.raw:
                raise _other_commit()
            self._marked.change(db, "answer", _KEY, row, released=commit.raw)

    # --- standing ---------------------------------------------------------------------------------

    def settle(
        self, task_id: TaskId, window: int, standing: RoundStanding, kind: Kind | None = None
    ) -> None:
        """What became of a MASKED answer; anything else stays as it is."""
        with self._file.write() as db:
            row = self._row(task_id, window)
            if row is not None and row[5] == RoundStanding.MASKED.value:
                kind_value = None if kind is None else kind.value
                self._marked.change(
                    db, "answer", _KEY, row, outcome=standing.value, kind=kind_value
                )

    def find(self, task_id: TaskId, window: int) -> Answered | None:
        """Raises MISMATCH for a damaged entry: the window is answered, and nothing more is known of
        it.
        """
        row = self._row(task_id, window)
        return None if row is None else _told(row)

    def _row(self, task_id: TaskId, window: int) -> tuple[Any, ...] | None:
        rows = self._marked.read(
            "answer", "WHERE task_id = ? AND window = ?", (task_id.raw, window)
        )
        return rows[0] if rows else None

    def answers(self) -> list[Answered]:
        """All that are whole, by task and window."""
        return [_told(row) for row in self._marked.sift("answer", "ORDER BY task_id, window")[0]]

    def drop_damaged(self) -> None:
        """The owner's word: that a window was answered is then what its charge says. Raises
        MISMATCH, CONFIG: nothing changed then.
        """
        with self._file.write() as db:
            self._marked.rebuild(db, "answer")
            if self._marked.damages() or self._marked.shared_pages():
                name = self._file.path.name
                raise ShoalError(
                    Kind.MISMATCH,
                    f"{name} can't be mended: move it away; windows that were charged stay "
                    "answered, and a new one is made",
                )
        self._marked.forget_looks()

    @property
    def file(self) -> SqliteFile:
        """The file that it reads and writes: for the owner's commands, which mend it."""
        return self._file

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()


def _told(row: tuple[Any, ...]) -> Answered:
    task, window, round_id, _, released, outcome, kind = row
    return Answered(
        TaskId(task),
        window,
        Digest(round_id),
        RoundStanding(outcome),
        released is not None,
        None if kind is None else Kind(kind),
    )


class MemoryLedger:
    """A ledger that forgets with its process: for simulated devices and tests. The same rules."""

    def __init__(self) -> None:
        self._answers: dict[
            tuple[bytes, int], tuple[Digest, Digest, Digest | None, RoundStanding, Kind | None]
        ] = {}

    def masked(self, task_id: TaskId, window: int, round_id: Digest, sealed: Digest) -> None:
        """As ``RoundLedger.masked``, but it forgets with its process."""
        if (task_id.raw, window) in self._answers:
            raise _answered()
        self._answers[task_id.raw, window] = (round_id, sealed, None, RoundStanding.MASKED, None)

    def released(self, task_id: TaskId, window: int, round_id: Digest, commit: Digest) -> None:
        """As ``RoundLedger.released``, but it forgets with its process."""
        known = self._answers.get((task_id.raw, window))
        if known is None or known[0] != round_id:
            raise _other_round()
        if known[2] not in (None, commit):
            raise _other_commit()
        self._answers[task_id.raw, window] = (*known[:2], commit, *known[3:])

    def settle(
        self, task_id: TaskId, window: int, standing: RoundStanding, kind: Kind | None = None
    ) -> None:
        """As ``SqliteLedger.settle``."""
        known = self._answers.get((task_id.raw, window))
        if known is not None and known[3] is RoundStanding.MASKED:
            self._answers[task_id.raw, window] = (*known[:3], standing, kind)

    def find(self, task_id: TaskId, window: int) -> Answered | None:
        """As ``SqliteLedger.find``."""
        known = self._answers.get((task_id.raw, window))
        return (
            None
            if known is None
            else Answered(task_id, window, known[0], known[3], known[2] is not None, known[4])
        )

    def answers(self) -> list[Answered]:
        """As ``SqliteLedger.answers``."""
        answers = [self.find(TaskId(task), window) for task, window in sorted(self._answers)]
        return [answer for answer in answers if answer is not None]

    def close(self) -> None:
        """Nothing to close."""


def _answered() -> ShoalError:
    return ShoalError(
        Kind.CONFLICT, "this device has answered the window before: a window is answered once"
    )


def _other_round() -> ShoalError:
    return ShoalError(
        Kind.CONFLICT, "shares are wanted for a round that this device did not answer the window in"
    )


def _other_commit() -> ShoalError:
    return ShoalError(
        Kind.CONFLICT,
        "shares of this round were given for another set of survivors: they are given once",
    )
