"""What the shuffler asks of a store: one class per kind of store, one inherited test-suite
(tests/conformance/store).

A store keeps windows and their reports; it knows no rule about when a window closes or whether it
is released (``core`` does) and nothing about keys that open a report, senders or time. Every method
that changes something returns only after the change would survive a power cut, and may be repeated
after a crash.

What may wait for a disk or a network is awaited. What is asked for every report (``record``,
``distinct``) is answered from memory: what this process knows by now.

A window is changed by whoever claimed it (``shoal.shuffler.stores.claims``): every method that
takes a claim raises StaleClaimError, and changes nothing, if it is not the window's last one.
Reports are taken from everybody: they need no claim.

Nothing stored is trusted when it is read: what a disk lost or changed is found, counted
(``damaged``) and told (``damage``), and concerns its window alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from shoal.crypto.hpke import HpkePrivateKey
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.services.conditions import Condition
from shoal.shuffler.core import Capacity, WindowId, WindowState
from shoal.shuffler.stores.claims import Claim, WindowClaims

HopKeys = Callable[[int], HpkePrivateKey | None]  # None: it is not on this machine (any more)


def no_hop_key(_window: int) -> HpkePrivateKey | None:
    """For whoever stores nothing that needs one."""
    return None


class AdmittedReport(NamedTuple):
    """A report that may be stored: its window, its sealed messages, and whose it is.

    ``device``: the public key that was proven, for tasks that admit enrolled devices alone; empty
    for all others. Of one window all submissions have one or none has. ``asked``: the name of the
    question that it answers, where its window has one: see ``stores.steps``.
    """

    window: WindowId
    sealed: tuple[bytes, ...]
    device: bytes = b""
    asked: bytes = b""

    def __repr__(self) -> str:
        """Without what was sealed, and without whose it is: neither prints."""
        return f"<AdmittedReport of {len(self.sealed)} messages to {self.window}>"


@dataclass(frozen=True, slots=True, repr=False)
class AdmittedRows:
    """Many reports of one window as one bytes object: what workers hand over, without an object for
    each report.

    ``sealed``: the messages of ``count`` reports, back to back, all of the task's row size.
    ``devices``: as in ``AdmittedReport``, one for each report, or none at all. ``digests``: SHA-256
    of each report (all of its messages), 32 bytes each, where the caller has them already; else
    empty. ``sizes``: messages of each report; empty: one. ``asked``: as in ``AdmittedReport``.
    """

    window: WindowId
    sealed: bytes
    count: int
    devices: tuple[bytes, ...] = ()
    digests: bytes = b""
    sizes: tuple[int, ...] = ()
    asked: bytes = b""

    def __repr__(self) -> str:
        """Without what was sealed, and without whose it is: neither prints."""
        return f"<AdmittedRows of {self.count} reports to {self.window}>"


@dataclass(frozen=True, slots=True)
class SealedRows:
    """What sealing found: distinct sealed messages in storage key order, their size in bytes,
    SHA-256 over all of them.

    ``damaged``: acknowledged reports of the window that are not among them, because the disk lost
    or changed them; and rows that were lost later. ``reports``: how many distinct reports the rows
    are messages of, all of them whole; one less for each row that was lost later. Where a report
    has one message, there are as many as rows.
    """

    rows: int
    row_size: int
    rows_hash: Digest
    reports: int
    damaged: int = 0

    def within_rows(self) -> SealedRows:
        """With no more reports than rows. Who seals a few messages once can send them in many
        orders, each of which is a report; one of a device that keeps to the protocol has a row that
        no other has. So the honest are among those that are left.
        """
        return replace(self, reports=min(self.reports, self.rows))


@dataclass(frozen=True, slots=True)
class WindowRecord:
    """The durable memory of a window. Counts are 0 until it is sealed.

    ``outcome``: ACKNOWLEDGED, WITHHELD or EXPIRED once it is known; stays when the state has become
    SHREDDED. ``manifest``: the bytes that are signed and offered; empty before SEALED and after
    SHREDDED. ``acked``: reports that were acknowledged, while the window is open or being sealed;
    of these ``damaged`` were lost by the disk. ``asked``: the name of the question that its reports
    answer; b"": they have none; None: it is not kept with the window.
    """

    state: WindowState
    outcome: WindowState | None = None
    reports: int = 0
    rows: int = 0
    row_size: int = 0
    manifest: bytes = b""
    acked: int = 0
    damaged: int = 0
    rows_hash: Digest | None = None
    asked: bytes | None = None

    @property
    def sealed(self) -> SealedRows:
        """What the batch is, of a window that was sealed."""
        assert self.rows_hash is not None  # noqa: S101 - only of SEALED and later
        return SealedRows(self.rows, self.row_size, self.rows_hash, self.reports, self.damaged)


class Store(WindowClaims, Protocol):
    """Windows and reports of all tasks that are served here, and who works on which window."""

    # --- what this process knows

    def adopt(
        self,
        task_id: TaskId,
        schedule_hash: Digest,
        capacity: Capacity,
        row_size: int,
        hop_key: HopKeys = no_hop_key,
    ) -> None:
        """Serve this task. Raises CONFLICT if it was ever served with another key schedule.
        ``hop_key``: of a window of it, for a member that several shufflers share: they derive its
        keys from that, and agree without a word. Asked for while the window is open, or first seen.

        Not awaited, because tasks are taken up between two steps of everything else: a member
        behind a network knows the schedules of all tasks from its opening on.
        """
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

    def damage(self) -> Iterable[Condition]:
        """What was found damaged, by window or file, until the window is over: for
        ``Conditions.watch``.
        """
        ...

    # --- reports come in

    async def append(self, submissions: Sequence[AdmittedReport]) -> list[Kind | None]:
        """Store reports, with those of other calls in one commit. Per submission None = on disk (it
        counts exactly once), or why it isn't.

        WINDOW_FULL (also where it was decided because of that), WINDOW_CLOSED (decided), OVERLOADED
        (no space), INTERNAL (also of what is not of the task's number of messages and row size);
        CONFLICT: its device has another report in this window; UNKNOWN_TASK: the window takes
        answers to another question, of a member that several shufflers share. A submission that is
        refused may still be found on disk after a crash; one that got None is never lost. A device
        is remembered in the same commit as its report, as a hash under a secret of the window, and
        forgotten with it. A caller that goes away undoes nothing. Raises OVERLOADED (too many
        wait), UNAVAILABLE (closing).
        """
        ...

    async def append_rows(self, groups: Sequence[AdmittedRows]) -> list[list[Kind | None]]:
        """As ``append``, and in the same commits with it. For each group what became of each of its
        reports, in order; of a group that does not fit its own count, all are INTERNAL.
        """
        ...

    # --- a window's end: each step shows the claim

    async def lapse(self, claims: Collection[Claim]) -> None:
        """Record windows that ended without a single report as SHREDDED, all of them or none; one
        that got a report in the meantime stays as it is. Raises StaleClaimError for any of them.
        """
        ...

    async def close_intake(self, claim: Claim) -> None:
        """OPEN -> CLOSING: no later ``append`` adds to it. Its ``distinct`` reports are recorded:
        they say whether it was full.
        """
        ...

    async def seal(self, claim: Claim, added: Sequence[bytes] = ()) -> SealedRows:
        """CLOSING: write the distinct messages of the inbox in storage key order. The inbox stays.
        May be repeated.

        ``added``: distinct sealed messages of noise, of the task's row size, no more than its
        capacity says. They get storage keys like any other and stand among them in that order;
        they are rows, and no reports. What a sealing before this one added is gone.

        What is damaged is left out and counted; so is what was acknowledged and isn't there. No
        more reports than rows: see ``SealedRows.within_rows``.
        """
        ...

    async def advance(
        self,
        claim: Claim,
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

    async def destroy_inbox(self, claim: Claim) -> None:
        """SEALED or later: unlink the inbox with the secret of its storage keys."""
        ...

    async def mend(self, claim: Claim) -> SealedRows | None:
        """A batch that isn't what was sealed: what is left of it, to be advanced to, or None if
        nothing is missing.

        Reads the whole batch, unless it was found intact before and no reading failed since. Raises
        MISMATCH if the batch is gone.
        """
        ...

    async def shred(self, claim: Claim) -> None:
        """Unlink whatever is left of the window's reports."""
        ...

    # --- reading

    async def held(self, window: WindowId) -> int:
        """CLOSING: reports in the inbox, for the record of a deletion."""
        ...

    async def read_rows(self, window: WindowId, first: int, count: int) -> bytes:
        """Rows [first, first + count) of a sealed batch; fewer at its end. Raises MISMATCH if they
        are damaged: see ``mend``.
        """
        ...

    async def close(self) -> None:
        """Commit what waits, refuse what comes, release files. Nothing that was acknowledged is
        lost without it.
        """
        ...


def record_of(store: Store, window: WindowId) -> WindowRecord:
    """Of a window that has one. Raises UNAVAILABLE: a database that was put back may not have it
    any more.
    """
    record = store.record(window)
    if record is None:
        raise ShoalError(Kind.UNAVAILABLE, "the window is not in the store any more")
    return record
