"""What a store does step by step, in the calling thread: the part of ``Store`` that a member on
this machine's disk writes by itself. ``ThreadedStore`` makes a ``Store`` of it.

Every method that changes something returns only after the change would survive a power cut, and may
be repeated after a crash.

Threads: ``append``, ``confirm``, ``close_intake`` and ``lapse`` are called by one thread, the
others by any, one call per window at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from shoal.errors import Kind
from shoal.ids import Digest, TaskId
from shoal.services.conditions import Condition
from shoal.shuffler.core import Capacity, WindowId, WindowState
from shoal.shuffler.stores.joined import Admitted
from shoal.shuffler.stores.store import SealedRows, WindowRecord


class BlockingStore(Protocol):
    """See ``Store`` for what is not said here."""

    def adopt(
        self, task_id: TaskId, schedule_hash: Digest, capacity: Capacity, row_size: int
    ) -> None:
        """Serve this task. Raises CONFLICT if it was ever served with another key schedule."""
        ...

    def records(self) -> dict[WindowId, WindowRecord]:
        """All windows that have had a report or are over."""
        ...

    def record(self, window: WindowId) -> WindowRecord | None:
        """One of ``records``: cheap, it is asked for every report."""
        ...

    def distinct(self, window: WindowId) -> int:
        """Distinct reports of an open window."""
        ...

    def append(self, submissions: Sequence[Admitted]) -> list[Kind | None]:
        """Store one commit group. Per report, of single ones and of joined ones alike, None = on
        disk (it counts exactly once), or why it isn't.

        WINDOW_FULL (also where it was decided because of that), WINDOW_CLOSED (decided), OVERLOADED
        (no space), INTERNAL (also of what is not of the task's size); CONFLICT: its device has
        another report in this window. A submission that is refused may still be found on disk after
        a crash; one that got None is never lost. A device is remembered in the same commit as its
        report, as a hash under a secret of the window, and forgotten with it.
        """
        ...

    def confirm(self) -> None:
        """Make durable, outside of where the reports are, how many of every window are there; only
        then may what ``append`` took be acknowledged. One call counts everything that was appended
        before it. Raises OVERLOADED or INTERNAL: acknowledge nothing.
        """
        ...

    def close_intake(self, window: WindowId) -> None:
        """OPEN -> CLOSING: no later ``append`` adds to it. Its ``distinct`` reports are recorded:
        they say whether it was full.
        """
        ...

    def lapse(self, windows: Iterable[WindowId]) -> None:
        """Record windows that ended without a single report as SHREDDED."""
        ...

    def held(self, window: WindowId) -> int:
        """CLOSING: rows in the inbox, for the record of a deletion."""
        ...

    def seal(self, window: WindowId, added: Sequence[bytes] = ()) -> SealedRows:
        """CLOSING: write the distinct messages of the inbox in storage key order. The inbox stays.
        May be repeated. ``added``: sealed messages of noise among them, see ``Store.seal``.

        What is damaged is left out and counted; so is what was acknowledged and isn't there.
        """
        ...

    def advance(
        self,
        window: WindowId,
        before: WindowState,
        after: WindowState,
        sealed: SealedRows | None = None,
        reports: int = 0,
        manifest: bytes = b"",
    ) -> None:
        """Change the state, only from ``before``. Raises INTERNAL if it is another: somebody else
        decided.

        ``reports``: recorded with ``sealed``, or alone for a window that was never sealed.
        """
        ...

    def destroy_inbox(self, window: WindowId) -> None:
        """SEALED or later: unlink the inbox with the secret of its storage keys."""
        ...

    def read_rows(self, window: WindowId, first: int, count: int) -> bytes:
        """Rows [first, first + count) of a sealed batch; fewer at its end. Raises MISMATCH if they
        are damaged: see ``mend``.
        """
        ...

    def mend(self, window: WindowId) -> SealedRows | None:
        """A batch that isn't what was sealed: what is left of it, to be advanced to, or None if
        nothing is missing.

        Reads the whole batch, unless it was found intact before and no reading failed since. Raises
        MISMATCH if the batch is gone.
        """
        ...

    def damage(self) -> Iterable[Condition]:
        """What was found damaged, by window or file, until the window is over: for
        ``Conditions.watch``.
        """
        ...

    def shred(self, window: WindowId) -> None:
        """Unlink whatever is left of the window's reports. An OPEN window: in the writer's
        thread.
        """
        ...

    def close(self) -> None:
        """Release files. Nothing is lost without it."""
        ...
