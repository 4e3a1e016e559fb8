"""What an agent remembers, with the ledger's entries about it: outbox and book on one file, and the
steps that change both at once.

Every step is one transaction: what happened and its entry are on disk together, or neither is.
Nothing here waits for a network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

from shoal.clients.core import Assignment, ReportState, SealedReport
from shoal.clients.feeds.known_tasks import Unusable
from shoal.clients.memory.commitments import Commitments, ConsentAnswer, SeenTask, nano_up
from shoal.clients.memory.commitments_sqlite import SqliteCommitments
from shoal.clients.memory.database import AgentStore
from shoal.clients.memory.ledger import INFINITE, Detail, LedgerEntry, LedgerEvent, Noted
from shoal.clients.memory.outbox import Entry, Outbox, Record
from shoal.clients.memory.outbox_sqlite import SqliteOutbox
from shoal.clients.settings.config import AgentConfig
from shoal.clocks.clock import Clock
from shoal.crypto.trust import TrustedTask
from shoal.entropy import Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.log import get_log

log = get_log("agent")
T = TypeVar("T")
ACCEPTED = "accepted"


@dataclass(frozen=True, slots=True)
class Budget:
    """In nano-epsilon. ``limit_nano``: None: there is none."""

    limit_nano: int | None
    spent_nano: int

    @property
    def left_nano(self) -> int | None:
        """Nano-epsilon that may still be spent, at least 0; None: no limit."""
        return None if self.limit_nano is None else max(self.limit_nano - self.spent_nano, 0)


class EnteredOutbox:
    """An outbox whose final answers are entered in the ledger, in the transaction that deletes the
    bytes.
    """

    def __init__(self, box: Outbox, commitments: Commitments, clock: Clock) -> None:
        self._box, self._commitments, self._clock = box, commitments, clock
        self.thread = box.thread

    def finish(
        self, task_id: TaskId, window: int, state: ReportState, kind: Kind | None = None
    ) -> Record | None:
        """As ``Outbox.finish``. Raises MISMATCH for one that is damaged."""
        with self._commitments.transaction():
            self._box.find(task_id, window)
            record = self._box.finish(task_id, window, state, kind)
            if record is None:
                return None  # only the first final answer counts
            seen = self._commitments.seen(task_id)
            details: dict[str, Detail] = {
                "state": state.value,
                "kind": None if kind is None else kind.name,
                "attempts": record.attempts,
            }
            self._commitments.append(
                LedgerEntry(
                    LedgerEvent.OUTCOME,
                    self._clock.now(),
                    task_id,
                    seen.name if seen else "",
                    window,
                    details,
                )
            )
        return record

    def transaction(self) -> AbstractContextManager[object]:
        """As ``Outbox.transaction``."""
        return self._commitments.transaction()

    def claim(self, task_id: TaskId, window: int) -> Record | None:
        """As ``Outbox.claim``."""
        try:
            return self._box.claim(task_id, window)
        except ShoalError as error:
            self._end_damaged(task_id, window, error)
        return self._box.claim(task_id, window)

    def add(self, prepared: SealedReport, *, sending: bool = False) -> Record:
        """As ``Outbox.add``."""
        return self._box.add(prepared, sending=sending)

    def find(self, task_id: TaskId, window: int) -> Record | None:
        """As ``Outbox.find``."""
        try:
            return self._box.find(task_id, window)
        except ShoalError as error:
            self._end_damaged(task_id, window, error)
        return self._box.find(task_id, window)

    def load(self, task_id: TaskId, window: int) -> Entry | None:
        """As ``Outbox.load``."""
        try:
            return self._box.load(task_id, window)
        except ShoalError as error:
            self._end_damaged(task_id, window, error)
        return self._box.load(task_id, window)

    def _end_damaged(self, task_id: TaskId, window: int, error: ShoalError) -> None:
        """A report that waits and is damaged ends here, named in the ledger, and is never sent. Its
        charge stays. Any other failure of reading it is raised again.
        """
        if error.kind is not Kind.MISMATCH or not self.spoil(task_id, window):
            raise error
        log.error(
            "a stored report is damaged: it is never sent",
            task=task_id,
            window=window,
            error=error,
        )

    def spoil(self, task_id: TaskId, window: int) -> bool:
        """As ``Outbox.spoil``."""
        with self._commitments.transaction():
            if not self._box.spoil(task_id, window):
                return False
            seen = self._commitments.seen(task_id)
            details: dict[str, Detail] = {
                "state": ReportState.UNKNOWN.value,
                "kind": Kind.MISMATCH.name,
                "attempts": None,
            }
            self._commitments.append(
                LedgerEntry(
                    LedgerEvent.OUTCOME,
                    self._clock.now(),
                    task_id,
                    seen.name if seen else "",
                    window,
                    details,
                )
            )
        return True

    def records(self, *, queued: bool = False) -> list[Record]:
        """As ``Outbox.records``."""
        return self._box.records(queued=queued)

    def sending(self, task_id: TaskId, window: int) -> None:
        """As ``Outbox.sending``."""
        self._box.sending(task_id, window)

    def failed(self, task_id: TaskId, window: int, kind: Kind, doubtful: bool) -> None:
        """As ``Outbox.failed``."""
        self._box.failed(task_id, window, kind, doubtful)

    def pin(self, task_id: TaskId, schedule: Digest) -> None:
        """As ``Outbox.pin``."""
        self._box.pin(task_id, schedule)

    def withdraw(self, task_id: TaskId) -> list[Record]:
        """As ``Outbox.withdraw``."""
        return self._box.withdraw(task_id)

    def strike(self, task_id: TaskId) -> None:
        """As ``Outbox.strike``."""
        self._box.strike(task_id)

    def struck(self, task_id: TaskId) -> bool:
        """As ``Outbox.struck``."""
        return self._box.struck(task_id)

    def close(self) -> None:
        """As ``Outbox.close``."""
        self._box.close()


class Memory:
    """An agent's file, open. Every method blocks for the disk, is safe in any thread, and raises
    OVERLOADED when the disk is full.
    """

    def __init__(self, config: AgentConfig, clock: Clock, entropy: Entropy) -> None:
        """Raises CONFIG, OVERLOADED as ``AgentStore`` does."""
        self._store, self._clock = AgentStore(config.outbox), clock
        self.commitments: Commitments = SqliteCommitments(self._store, entropy)
        self.outbox: Outbox = EnteredOutbox(
            SqliteOutbox(self._store, config.outbox_rows), self.commitments, clock
        )

    def transaction(self) -> AbstractContextManager[object]:
        """Everything inside commits together, in commitments, outbox and ledger, or nothing."""
        return self.commitments.transaction()

    async def run(self, step: Callable[[], T]) -> T:
        """Run steps of this object in its own thread, for an event loop: it waits for no disk
        then.
        """
        return await self._store.thread.run(step)

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._store.close()

    def settle(self) -> None:
        """Note the ledger's head, if it lags behind. Blocks for the disk, never raises."""
        self._store.settle()

    def forgetful(self) -> ShoalError | None:
        """What to tell the owner if the file may be an older copy: its budget, memoized answers and
        answered windows are too few then.
        """
        return self._store.why_set_back() if self._store.forgetful() else None

    def noted(self) -> Noted | None:
        """What stands beside the file; None: nothing that can be read."""
        return self._store.noted()

    @property
    def store(self) -> AgentStore:
        """The file itself."""
        return self._store

    @property
    def head_name(self) -> str:
        """Name of the file that says how long the ledger is, for messages to the owner."""
        return self._store.head_path.name

    def check(self) -> None:
        """Raises MISMATCH while the file may be an older copy, and its owner has not confirmed
        that: nothing may be answered or sent.
        """
        if (error := self.forgetful()) is not None:
            raise error

    def accept_head(self) -> None:
        """The ledger as it is stands from now on. Only after ``setback.confirm`` has entered what
        was lost.
        """
        self._store.accept_head()

    def enter(
        self,
        event: LedgerEvent,
        task_id: TaskId | None = None,
        task: str = "",
        window: int | None = None,
        details: dict[str, Detail] | None = None,
    ) -> None:
        """Append an event to the ledger, dated by this device's clock."""
        self.commitments.append(
            LedgerEntry(event, self._clock.now(), task_id, task, window, details or {})
        )

    # --- tasks ------------------------------------------------------------------------------------

    def review(self, trusted: TrustedTask, epsilon0: float | None, verdict: str) -> bool:
        """What the device thinks of a task: entered when the task is met first, and whenever it
        changes. Returns whether it did.

        ``epsilon0``: local, rounded up; None: unknown, because its keys don't verify. ``verdict``:
        ``ACCEPTED`` or why not.
        """
        task, task_id = trusted.task, trusted.task_id
        known = self.commitments.seen(task_id)
        struck = self._struck(task_id)
        if known is not None and known.verdict == verdict:
            return False
        nano = nano_up(epsilon0) if epsilon0 is not None and math.isfinite(epsilon0) else None
        if nano is None and epsilon0 is None and known is not None:
            nano = known.epsilon0_nano
        with self.commitments.transaction():
            if known is None:
                self.enter(LedgerEvent.SEEN, task_id, task.name, details=_seen(trusted, epsilon0))
            event = (
                LedgerEvent.ACCEPTED
                if verdict == ACCEPTED
                else LedgerEvent.STRUCK
                if struck
                else LedgerEvent.REFUSED
            )
            details: dict[str, Detail] = {} if verdict == ACCEPTED else {"reason": verdict}
            if struck:
                ended = [
                    record
                    for record in self.outbox.records()
                    if record.task_id == task_id and record.kind is Kind.CONFLICT
                ]
                details["reports_ended"] = len(ended)
            self.enter(event, task_id, task.name, details=details)
            self.commitments.see(
                SeenTask(task_id, task.name, task.purpose, trusted.authority, nano, verdict)
            )
        return True

    def _struck(self, task_id: TaskId) -> bool:
        """What can't be read is no event of the ledger: the verdict says it."""
        try:
            return self.outbox.struck(task_id)
        except ShoalError as error:
            if error.kind is not Kind.MISMATCH:
                raise
            return False

    def refused(self, assignment: Assignment, window: int | None, error: ShoalError) -> None:
        """One answer was refused, not the task: the budget did not pay."""
        self.enter(
            LedgerEvent.REFUSED,
            assignment.task_id,
            assignment.task.name,
            window,
            {"reason": error.message},
        )

    def problem(
        self, unusable: Unusable | None, digest: Digest, origin: str, error: ShoalError
    ) -> bool:
        """Bytes that give no task, from a folder or a feed: entered once, by their SHA-256. Nothing
        in them can be believed.
        """
        details: dict[str, Detail] = {
            "origin": origin,
            "sha256": digest.hex,
            "kind": error.kind.name,
            "reason": error.message,
        }
        if unusable is not None:
            details["file"] = unusable.file
        return (
            self.commitments.problem(
                digest, LedgerEntry(LedgerEvent.PROBLEM, self._clock.now(), details=details)
            )
            is not None
        )

    # --- consent ----------------------------------------------------------------------------------

    def answer(self, purpose: str, consent: ConsentAnswer | None, allowed: bool) -> list[Record]:
        """Keep the owner's answer for a purpose; unless it is ``allowed`` now, delete what waits of
        it. Returns what was deleted.
        """
        with self.commitments.transaction():
            self.commitments.set_consent(purpose, consent)
            self.enter(
                LedgerEvent.CONSENT, details={"purpose": purpose, "answer": consent or "not asked"}
            )
            return [] if allowed else self.retract(purpose)

    def retract(self, purpose: str, also: Iterable[TaskId] = ()) -> list[Record]:
        """Delete queued reports and memoized answers of every task of a purpose. Returns the
        reports.

        ``also``: tasks that are known to have it. Charges stay, and so does that the windows were
        answered.
        """
        withdrawn = []
        with self.commitments.transaction():
            for task_id in sorted({*self.commitments.tasks_of(purpose), *also}):
                seen = self.commitments.seen(task_id)
                name = seen.name if seen else ""
                for record in self.outbox.withdraw(task_id):
                    details: dict[str, Detail] = {
                        "attempts": record.attempts,
                        "doubtful": record.doubtful,
                    }
                    self.enter(LedgerEvent.WITHDRAWN, task_id, name, record.window, details)
                    withdrawn.append(record)
                forgotten = self.commitments.forget(task_id)
                if forgotten:
                    self.enter(LedgerEvent.FORGOTTEN, task_id, name, details={"reports": forgotten})
        return withdrawn

    def accept(self, assignment: Assignment, epsilon0: float | None) -> None:
        """The owner's explicit yes to a local epsilon, for all that this task's campaign promises,
        or that it is taken back.
        """
        promise = assignment.campaign.promise
        with self.commitments.transaction():
            self.commitments.accept(promise, epsilon0)
            shown = None if epsilon0 is None else epsilon0 if math.isfinite(epsilon0) else INFINITE
            self.enter(
                LedgerEvent.CONSENT,
                promise,
                assignment.task.name,
                details={"accepted_epsilon0": shown},
            )


def _seen(trusted: TrustedTask, epsilon0: float | None) -> dict[str, Detail]:
    """What a task says of itself, once."""
    task = trusted.task
    return {
        "purpose": task.purpose,
        "question": task.question,
        "authority": trusted.authority.hex(),
        "epsilon_local": None
        if epsilon0 is None
        else epsilon0
        if math.isfinite(epsilon0)
        else INFINITE,
        "min_batch": task.min_batch,
        "windows": task.windows.count,
        "memoized": task.memoized,
        "sums": task.pairwise is not None,
    }
