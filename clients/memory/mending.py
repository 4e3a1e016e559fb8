"""A memory that the disk damaged, mended when its owner says so: the safe value in the place of
what can't be read.

The ledger is a chain of hashes, so where it verifies it says what every window was charged, and
what was lost; that is entered anew. Where it does not, as much is taken as spent as was noted
beside the file ahead of every charge, and every window that has begun as answered. Budget is never
given back. What else is safe:

* a consent that was given counts as not asked; one that was denied, or may have been, as denied; an
  accepted epsilon0 as not;
* a task whose key schedule can't be read any more gets no answer again (``struck``), if it ever had
  one;
* of kept answers, their key and choice everything of the task is forgotten: further draws are
  charged anew;
* reports end, and their windows stay answered; of rounds the charge alone says that a window is
  answered.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shoal.clients.core import ReportState
from shoal.clients.memory.commitments import NANO
from shoal.clients.memory.ledger import LedgerEvent
from shoal.clients.memory.marks import OUTBOX, Damage, MarkedTables, task_of
from shoal.clients.memory.reconcile import LedgerAccount, read_chain
from shoal.clients.owner.consent import ALLOWED, DENIED
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.storage import sqlite

if TYPE_CHECKING:
    from shoal.clients.memory.device_memory import Memory
    from shoal.clients.memory.rounds_ledger import SqliteLedger

_KEPT = ("memo_key", "memo", "choice")
_WHAT = {
    "report": "It ends, and its window stays answered.",
    "schedule": (
        "Tasks whose key schedule can't be read any more, and that were answered, get no further "
        "answer."
    ),
    "struck": "It is entered anew from the ledger.",
    "charge": (
        "What the ledger says is charged; without a ledger that verifies, as much as was ever "
        "noted."
    ),
    "tally": "It is added up anew from the charges.",
    "lost": "It is entered anew from the ledger.",
    "memo_key": "Kept answers of the task are forgotten: the next ones are drawn and charged anew.",
    "memo": "Kept answers of the task are forgotten: the next ones are drawn and charged anew.",
    "choice": "Kept answers of the task are forgotten: the next ones are drawn and charged anew.",
    "consent": (
        "A yes counts as not asked: give it again. A no stays, also where it may have been one."
    ),
    "acceptance": "It counts as not given: give it again.",
    "seen": "It is read anew from the task.",
    "problem": "It is forgotten.",
    "answer": "Its window stays answered.",
}


@dataclass(frozen=True, slots=True)
class Examination:
    """``nano``: nano-epsilon taken as spent beyond what is known, because the ledger does not
    verify either. ``account``: None then.
    """

    damages: tuple[Damage, ...]
    account: LedgerAccount | None
    nano: int

    def words(self) -> list[str]:
        """Lines for the owner."""
        tables = dict.fromkeys(damage.table for damage in self.damages)
        lines = [f"damaged: {damage}" for damage in self.damages]
        lines += [
            "Look at the disk first: what is damaged once may be damaged again. If you confirm:"
        ]
        lines += [f"  {table}: {_WHAT[table]}" for table in tables]
        if self.account is None:
            lines += [
                "The ledger does not verify either: every window that has begun is taken as "
                "answered, unless its report is here,",
                f"and epsilon {self.nano / NANO:g} more as spent.",
            ]
        return [
            *lines,
            "Nothing is given back to the budget. Until then the tasks concerned get no answer; "
            "others go on.",
        ]


def examine(memory: Memory, rounds: SqliteLedger | None) -> Examination | None:
    """What is damaged; None: nothing. Blocks for the disk. Raises MISMATCH if not even what was
    spent can be bounded.
    """
    damages = memory.store.marked.damages() + (
        [] if rounds is None else rounds.file.marked.damages()
    )
    if not damages:
        return None
    account = _account(memory)
    return Examination(tuple(damages), account, 0 if account is not None else _beyond(memory))


def _account(memory: Memory) -> LedgerAccount | None:
    try:
        memory.commitments.verify()
        return read_chain(memory.commitments.entries())
    except ShoalError as error:
        if error.kind is not Kind.MISMATCH:
            raise
        return None


def _beyond(memory: Memory) -> int:
    """What may have been spent beyond the charges that can be read."""
    noted = memory.noted()
    if noted is None or noted.spent is None:
        raise ShoalError(
            Kind.MISMATCH,
            f"rows, ledger and {memory.head_name} are damaged, so that nobody knows what was "
            "spent: move the outbox file away, and leave "
            f"{memory.head_name} where it is; `shoal agent memory --confirm-set-back` then begins "
            "anew",
        )
    marked = memory.store.marked
    known: int = sum(row[3] for row in marked.sift("charge")[0]) + sum(
        row[2] for row in marked.sift("lost")[0]
    )
    return max(noted.spent - known, 0)


def mend(memory: Memory, rounds: SqliteLedger | None, now: float) -> Examination | None:
    """Look again, and mend all that is found in one transaction; what was found. Raises MISMATCH,
    OVERLOADED: nothing changed then.
    """
    with memory.transaction(), memory.store.write() as db:
        examined = examine(memory, rounds)
        if examined is None:
            return None
        tables = {damage.table for damage in examined.damages}
        with _without_triggers(db):
            _Mending(memory, db, examined, now).all(tables)
        if memory.store.marked.damages() or memory.store.marked.shared_pages():
            raise ShoalError(
                Kind.MISMATCH,
                "this memory can't be mended: restore the outbox file from a copy, and keep its "
                ".head",
            )
    if rounds is not None and "answer" in tables:
        rounds.drop_damaged()
    memory.store.sums.forget()
    memory.settle()
    return examined


@contextmanager
def _without_triggers(db: sqlite.Connection) -> Iterator[None]:
    """They forbid what is done here alone. An exception that leaves undoes the whole transaction,
    and with it that they are gone.
    """
    triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        db.execute(f"DROP TRIGGER {name}")
    yield
    for _, statement in triggers:
        db.execute(statement)


class _Mending:
    """In one transaction, without triggers."""

    def __init__(
        self, memory: Memory, db: sqlite.Connection, examined: Examination, now: float
    ) -> None:
        self._memory, self._db, self._examined, self._now = memory, db, examined, now
        self._marked: MarkedTables = memory.store.marked
        whole = [row[0] for table in ("seen", "tally") for row in self._marked.sift(table)[0]]
        self._known = {TaskId(raw) for raw in whole}
        self._bad: dict[str, list[tuple[Any, ...]]] = {}
        # of these nobody knows which rows
        self._vanished = {damage.table for damage in examined.damages if not damage.row}

    def all(self, tables: set[str]) -> None:
        for table in tables & set(OUTBOX):
            self._bad[table] = self._marked.rebuild(self._db, table)
        if tables & {"charge", "tally", "lost"} or self._examined.account is None:
            self._budget("lost" in tables)
        if "report" in tables:
            self._reports()
        if tables & set(_KEPT):
            self._kept(tables)
        lost = (
            {}
            if self._examined.account is not None
            else {"epsilon_lost": self._examined.nano / NANO, "answered_before_s": self._now}
        )
        rows = {
            table: sum(damage.table == table for damage in self._examined.damages)
            for table in sorted(tables)
        }
        self._memory.enter(
            LedgerEvent.MENDED,
            details={
                **rows,
                **lost,
                "epsilon_spent_after": self._memory.commitments.spent() / NANO,
            },
        )
        if "schedule" in tables:
            self._schedules()
        if "struck" in tables:
            self._struck()
        if "consent" in tables:
            self._consents()
        if "acceptance" in tables:
            self._acceptances()
        self._marked.forget_looks()

    def _budget(self, losses: bool) -> None:
        account = self._examined.account
        known = {(row[1], row[2]) for row in self._marked.sift("charge")[0]}
        for (task_id, window), (nano, _) in (
            account.charges if account is not None else {}
        ).items():
            if (task_id.raw, window) not in known:
                permanent = account is not None and (task_id, window) in account.permanent
                self._add("charge", task_id.raw, window, nano, int(permanent))
        self._db.execute("DELETE FROM tally")
        for task, windows, nano in self._db.execute(
            "SELECT task_id, count(*), sum(nano) FROM charge GROUP BY task_id"
        ).fetchall():
            self._marked.add(self._db, "tally", task, windows, nano)
        if losses and account is not None:
            self._db.execute("DELETE FROM lost")
            for before_s, nano in account.losses:
                self._add("lost", before_s, nano)
        if account is None:
            self._add("lost", float(self._now), self._examined.nano)

    def _add(self, table: str, *row: Any) -> None:
        (number,) = self._db.execute(f"SELECT coalesce(max(number), 0) + 1 FROM {table}").fetchone()  # noqa: S608 - constants
        self._marked.add(self._db, table, number, *row)

    def _reports(self) -> None:
        """A row without bytes in the place of each that is damaged; of keys that changed the ledger
        knows.
        """
        bad = self._bad["report"]
        known = {(row[0], row[1]) for row in self._marked.sift("report")[0]}
        account = self._examined.account
        keys = {
            (row[0], row[1]): ""
            for row in bad
            if isinstance(row[1], int) and row[1] >= 0 and task_of(row[0]) is not None
        }
        if account is not None:
            keys = {
                (task.raw, window): account.ends.get((task, window), ("", 0))[0]
                for task, window in account.frames
            }
        for (task, window), state in keys.items():
            if (task, window) in known:
                continue
            row = (
                task,
                window,
                state or ReportState.UNKNOWN.value,
                Kind.MISMATCH.value,
                0,
                1,
                0,
                None,
                None,
            )
            self._marked.put(self._db, "report", *row)
            if not state:
                details = {
                    "state": ReportState.UNKNOWN.value,
                    "kind": Kind.MISMATCH.name,
                    "attempts": None,
                }
                self._memory.enter(
                    LedgerEvent.OUTCOME,
                    TaskId(task),
                    self._name(TaskId(task)),
                    window,
                    dict(details),
                )

    def _kept(self, tables: set[str]) -> None:
        tasks: set[TaskId] = set()
        for table in set(_KEPT) & tables:
            told = [task_of(row[0]) for row in self._bad[table]]
            named = {task for task in told if task is not None}
            everything = {TaskId(row[0]) for of in _KEPT for row in self._marked.sift(of)[0]}
            sure = table not in self._vanished and None not in told and named <= self._known
            tasks |= named if named and sure else everything
        for task_id in sorted(tasks):
            forgotten = self._memory.commitments.forget(task_id)
            self._memory.enter(
                LedgerEvent.FORGOTTEN, task_id, self._name(task_id), details={"reports": forgotten}
            )

    def _schedules(self) -> None:
        """Whose schedule it was may be what changed."""
        pinned = {row[0] for row in self._marked.sift("schedule")[0]}
        for task, *_ in self._marked.sift("tally")[0]:
            if task not in pinned:
                self._strike(TaskId(task))

    def _struck(self) -> None:
        account = self._examined.account
        whole = {row[0] for row in self._marked.sift("struck")[0]}
        # Without a ledger nobody knows which task it was: any that was answered.
        tasks = (
            account.struck
            if account is not None
            else {TaskId(row[0]) for row in self._marked.sift("tally")[0]}
        )
        for task_id in sorted(tasks):
            if task_id.raw not in whole:
                self._memory.outbox.strike(task_id)

    def _strike(self, task_id: TaskId) -> None:
        self._memory.outbox.strike(task_id)
        self._memory.enter(
            LedgerEvent.STRUCK,
            task_id,
            self._name(task_id),
            details={"reason": "its key schedule is damaged on this disk"},
        )

    def _consents(self) -> None:
        commitments, account = self._memory.commitments, self._examined.account
        answers: dict[str, str]
        if account is not None:
            answers = {
                purpose: answer
                for purpose, (answer, _) in account.consents.items()
                if answer in (ALLOWED, DENIED)
            }
        else:  # any of them may have been denied
            answers = dict.fromkeys(
                (*self._purposes(), *(row[2] for row in self._marked.sift("seen")[0])), DENIED
            )
        whole = commitments.consents()
        for purpose, answer in sorted(answers.items()):
            if purpose in whole:
                continue
            denied = answer == DENIED
            if denied:
                commitments.set_consent(purpose, DENIED)
            if account is None or not denied:
                self._memory.enter(
                    LedgerEvent.CONSENT,
                    details={"purpose": purpose, "answer": DENIED if denied else "not asked"},
                )

    def _purposes(self) -> Iterable[str]:
        """Of entries that can be read, of a chain that does not verify."""
        for row in self._memory.commitments.entries():
            with contextlib.suppress(ShoalError):
                entry = row.entry
                if entry.event is LedgerEvent.CONSENT and isinstance(
                    purpose := entry.details.get("purpose"), str
                ):
                    yield purpose

    def _acceptances(self) -> None:
        gone = {task for row in self._bad["acceptance"] if (task := task_of(row[0])) is not None}
        account = self._examined.account
        if account is not None:
            gone = {
                task
                for task, (epsilon0, _) in account.accepted.items()
                if epsilon0 is not None and self._memory.commitments.accepted(task) is None
            }
        for task_id in sorted(gone):
            self._memory.enter(
                LedgerEvent.CONSENT,
                task_id,
                self._name(task_id),
                details={"accepted_epsilon0": None},
            )

    def _name(self, task_id: TaskId) -> str:
        seen = self._memory.commitments.seen(task_id)
        return seen.name if seen is not None else ""
