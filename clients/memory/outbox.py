"""Where a device keeps its reports until the shuffler has them: the seam, and the one in memory.

One report per task and window, ever. Who answers a window opens a ``transaction``, claims the
window, makes the report and adds it: the transaction is exclusive, so that a value can't be
randomized twice for a window, not even by two processes at once. An entry keeps the exact bytes; it
goes when a receipt was verified or the answer was final, and leaves an outcome behind. The true
value never comes here.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from shoal.clients.core import ReportState, SealedReport
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.limits import LIMITS

if TYPE_CHECKING:
    from shoal.clients.memory.database_thread import StoreThread


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of one report. ``kind``: the last failure, or None. ``doubtful``: some attempt
    may have been stored.
    """

    task_id: TaskId
    window: int
    state: ReportState
    kind: Kind | None
    attempts: int
    doubtful: bool
    expires_s: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A queued report: its record and the bytes that every attempt sends."""

    record: Record
    frame: bytes = field(repr=False)
    ack_key: bytes = field(repr=False)


class Outbox(Protocol):
    """Every method is durable when it returns (where the implementation is durable at all) and safe
    to call from any thread.
    """

    # where its steps run, because they wait for a disk; None: they wait for nothing
    thread: StoreThread | None

    def transaction(self) -> AbstractContextManager[object]:
        """Exclusive: everything inside commits together, or nothing if an exception leaves it. May
        be nested, and joins what else is written to the same store.
        """
        ...

    def claim(self, task_id: TaskId, window: int) -> Record | None:
        """The report that this task and window have, or None: then the rest of the surrounding
        transaction may make one and ``add`` it, and nobody else can.

        Raises OVERLOADED when the outbox is full, CONFLICT if the task is struck, INTERNAL outside
        of a transaction of a store that several may use at once.
        """
        ...

    def add(self, prepared: SealedReport, *, sending: bool = False) -> Record:
        """Queue the report of a window that was claimed in this transaction. Raises CONFLICT if the
        window has one.

        ``sending``: with its first attempt begun, as by ``sending``. Returns what it was before
        that.
        """
        ...

    def find(self, task_id: TaskId, window: int) -> Record | None:
        """Where the window's report stands; None if it has none."""
        ...

    def load(self, task_id: TaskId, window: int) -> Entry | None:
        """The queued report, or None if there is none, it is finished, or its task is struck."""
        ...

    def records(self, *, queued: bool = False) -> list[Record]:
        """All of them, or those still queued; by expiry, then task and window."""
        ...

    def sending(self, task_id: TaskId, window: int) -> None:
        """An attempt begins: counted, and doubtful until ``failed`` or ``finish`` says
        otherwise.
        """
        ...

    def failed(self, task_id: TaskId, window: int, kind: Kind, doubtful: bool) -> None:
        """The attempt ended without a final answer."""
        ...

    def finish(
        self, task_id: TaskId, window: int, state: ReportState, kind: Kind | None = None
    ) -> Record | None:
        """A final answer: the bytes go, the outcome stays. Only the first one counts: its report is
        returned as it stands then; None: this was none.
        """
        ...

    def spoil(self, task_id: TaskId, window: int) -> bool:
        """End a queued report that ``load`` finds damaged: UNKNOWN, its bytes go. Whether there was
        one.
        """
        ...

    def pin(self, task_id: TaskId, schedule: Digest) -> None:
        """Remember the task's key schedule. Raises CONFLICT if another one was remembered: the task
        is struck before.

        Not inside a transaction: it would be undone with it.
        """
        ...

    def withdraw(self, task_id: TaskId) -> list[Record]:
        """Delete the bytes of the task's queued reports: they are WITHDRAWN now, and returned, by
        window.

        A window that was answered stays answered. ``doubtful`` ones may have been sent before.
        """
        ...

    def strike(self, task_id: TaskId) -> None:
        """Two schedules were seen: from now on nothing of the task is claimed, loaded or pinned.
        Its queued reports end, their bytes go.
        """
        ...

    def struck(self, task_id: TaskId) -> bool:
        """Whether two schedules of this task were seen, so that nothing of it is sent any more."""
        ...

    def close(self) -> None:
        """Give back what it holds open. Idempotent."""
        ...


def outbox_full(most: int) -> ShoalError:
    """OVERLOADED: ``most`` reports wait."""
    return ShoalError(
        Kind.OVERLOADED,
        f"outbox full: {most} reports wait to be sent: connect this device, then report again",
    )


def two_schedules() -> ShoalError:
    """CONFLICT: a second schedule may be made for this device alone, to tell it by its keys."""
    return ShoalError(
        Kind.CONFLICT,
        "this device has seen another key schedule for the same task, and a task has exactly one: "
        "send nothing, and tell its authority",
    )


def has_report(window: int) -> ShoalError:
    """CONFLICT: a second report for one window would show more of the value than was charged."""
    return ShoalError(
        Kind.CONFLICT, f"window {window} has its report: a window is answered once, claim it first"
    )


def _changed(
    record: Record, state: ReportState, kind: Kind | None, attempts: int, doubtful: bool
) -> Record:
    """Like dataclasses.replace, at a fifth of its cost: simulated devices do this several times per
    report.
    """
    return Record(record.task_id, record.window, state, kind, attempts, doubtful, record.expires_s)


class MemoryOutbox:
    """An outbox that forgets with its process: for simulated devices and tests."""

    __slots__ = ("_bytes", "_most", "_pins", "_records", "_struck", "thread")

    def __init__(self, most: int = LIMITS.outbox_rows) -> None:
        self.thread: StoreThread | None = None
        self._most = most
        self._records: dict[tuple[bytes, int], Record] = {}
        self._bytes: dict[tuple[bytes, int], tuple[bytes, bytes]] = {}
        self._pins: dict[bytes, bytes] = {}
        self._struck: set[bytes] = set()

    def transaction(self) -> AbstractContextManager[object]:
        """As ``Outbox.transaction``."""
        return nullcontext()  # one event loop's own, and ``add`` is one step

    def claim(self, task_id: TaskId, window: int) -> Record | None:
        """As ``Outbox.claim``."""
        if task_id.raw in self._struck:
            raise two_schedules()
        known = self._records.get((task_id.raw, window))
        if known is None and len(self._bytes) >= self._most:
            raise outbox_full(self._most)
        return known

    def add(self, prepared: SealedReport, *, sending: bool = False) -> Record:
        """As ``Outbox.add``."""
        task_id, window = prepared.task_id, prepared.window
        key = (task_id.raw, window)
        if key in self._records:
            raise has_report(window)
        record = Record(task_id, window, ReportState.QUEUED, None, 0, False, prepared.expires_s)
        self._bytes[key] = (prepared.frame, prepared.ack_key)
        self._records[key] = record
        if sending:
            self.sending(task_id, window)
        return record

    def find(self, task_id: TaskId, window: int) -> Record | None:
        """As ``Outbox.find``."""
        return self._records.get((task_id.raw, window))

    def load(self, task_id: TaskId, window: int) -> Entry | None:
        """As ``Outbox.load``."""
        held = self._bytes.get((task_id.raw, window))
        return None if held is None else Entry(self._records[task_id.raw, window], *held)

    def records(self, *, queued: bool = False) -> list[Record]:
        """As ``Outbox.records``."""
        chosen = [
            record
            for record in self._records.values()
            if not queued or record.state is ReportState.QUEUED
        ]
        return sorted(chosen, key=lambda r: (r.expires_s, r.task_id.raw, r.window))

    def sending(self, task_id: TaskId, window: int) -> None:
        """As ``Outbox.sending``."""
        record = self._queued(task_id, window)
        if record is not None:
            self._records[task_id.raw, window] = _changed(
                record, record.state, record.kind, record.attempts + 1, True
            )

    def failed(self, task_id: TaskId, window: int, kind: Kind, doubtful: bool) -> None:
        """As ``Outbox.failed``."""
        record = self._queued(task_id, window)
        if record is not None:
            self._records[task_id.raw, window] = _changed(
                record, record.state, kind, record.attempts, doubtful
            )

    def finish(
        self, task_id: TaskId, window: int, state: ReportState, kind: Kind | None = None
    ) -> Record | None:
        """As ``Outbox.finish``."""
        record = self._queued(task_id, window)
        if record is None:
            return None
        ended = _changed(record, state, kind, record.attempts, record.doubtful)
        self._records[task_id.raw, window] = ended
        del self._bytes[task_id.raw, window]
        return ended

    def spoil(self, task_id: TaskId, window: int) -> bool:
        """As ``Outbox.spoil``."""
        return False  # nothing here is on a disk

    def pin(self, task_id: TaskId, schedule: Digest) -> None:
        """As ``Outbox.pin``."""
        if self._pins.setdefault(task_id.raw, schedule.raw) != schedule.raw:
            self.strike(task_id)
        if task_id.raw in self._struck:
            raise two_schedules()

    def withdraw(self, task_id: TaskId) -> list[Record]:
        """As ``Outbox.withdraw``."""
        waiting = self._waiting(task_id)
        for record in waiting:
            self.finish(task_id, record.window, ReportState.WITHDRAWN, record.kind)
        return [self._records[task_id.raw, record.window] for record in waiting]

    def strike(self, task_id: TaskId) -> None:
        """As ``Outbox.strike``."""
        self._struck.add(task_id.raw)
        for record in self._waiting(task_id):
            self.finish(
                task_id,
                record.window,
                ReportState.UNKNOWN if record.doubtful else ReportState.REFUSED,
                Kind.CONFLICT,
            )

    def struck(self, task_id: TaskId) -> bool:
        """As ``Outbox.struck``."""
        return task_id.raw in self._struck

    def _waiting(self, task_id: TaskId) -> list[Record]:
        chosen = [
            record
            for record in self._records.values()
            if record.task_id == task_id and record.state is ReportState.QUEUED
        ]
        return sorted(chosen, key=lambda record: record.window)

    def close(self) -> None:
        """Nothing to close."""

    def _queued(self, task_id: TaskId, window: int) -> Record | None:
        record = self._records.get((task_id.raw, window))
        return record if record is not None and record.state is ReportState.QUEUED else None
