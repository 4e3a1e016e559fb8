"""Commitments that are forgotten with their process: for tests, and for simulated devices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from shoal.clients.memory.commitments import (
    SECRET_SIZE,
    ConsentAnswer,
    Loss,
    SeenTask,
    TaskCharges,
    WindowCharge,
    another_choice,
    another_report,
    check_accepted,
    check_answer,
    check_charge,
    check_loss,
    rounding_of,
    tag,
)
from shoal.clients.memory.ledger import EMPTY, Head, LedgerEntry, Stored, chained, check
from shoal.entropy import SYSTEM, Entropy
from shoal.ids import Digest, TaskId
from shoal.limits import LIMITS

K = TypeVar("K")
V = TypeVar("V")


class MemoryCommitments:
    """A book that forgets with its process. The same rules, transactions included."""

    def __init__(self, entropy: Entropy = SYSTEM) -> None:
        self.unentered = 0
        self._entropy, self._lock = entropy, threading.RLock()
        self._undo: list[Callable[[], object]] | None = None
        self._charges: dict[tuple[bytes, int], WindowCharge] = {}
        self._tallies: dict[bytes, TaskCharges] = {}
        self._spent: dict[str, int] = {"": 0}
        self._losses: dict[str, Loss] = {}
        self._secrets: dict[bytes, bytes] = {}
        self._memo: dict[tuple[bytes, bytes], bytes] = {}
        self._latest: dict[bytes, bytes] = {}
        self._choices: dict[bytes, bytes] = {}
        self._seen: dict[bytes, SeenTask] = {}
        self._consents: dict[str, str] = {}
        self._accepted: dict[bytes, float] = {}
        self._problems: dict[bytes, None] = {}
        self._ledger: list[Stored] = []

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """As ``Commitments.transaction``."""
        with self._lock:
            outer, mine = self._undo, []  # type: tuple[list[Callable[[], object]] | None, list[Callable[[], object]]]
            self._undo = mine
            try:
                yield
            except BaseException:
                while mine:
                    mine.pop()()
                raise
            finally:
                self._undo = outer
            if outer is not None:
                outer.extend(mine)

    def _put(self, table: dict[K, V], key: K, value: V | None) -> None:
        """Set, or with None delete, so that it can be undone."""
        before = table.get(key)
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
        if self._undo is not None:
            self._undo.append(
                lambda: table.pop(key, None) if before is None else table.__setitem__(key, before)
            )

    def spent(self) -> int:
        """As ``Commitments.spent``."""
        return self._spent[""]

    def charge(
        self, task_id: TaskId, window: int, nano: int, limit: int | None, *, permanent: bool = False
    ) -> int:
        """As ``Commitments.charge``."""
        with self._lock:
            known = self.charged(task_id, window)
            if known is not None:
                return known
            check_charge(self.spent(), nano, limit)
            tally = self.tally(task_id)
            self._put(
                self._charges, (task_id.raw, window), WindowCharge(task_id, window, nano, permanent)
            )
            self._put(self._tallies, task_id.raw, TaskCharges(tally.windows + 1, tally.nano + nano))
            self._put(self._spent, "", self.spent() + nano)
            return nano

    def charged(self, task_id: TaskId, window: int) -> int | None:
        """As ``Commitments.charged``."""
        charge = self._charges.get((task_id.raw, window))
        return None if charge is None else charge.nano

    def charges(self) -> list[WindowCharge]:
        """As ``Commitments.charges``."""
        return list(self._charges.values())

    def tally(self, task_id: TaskId) -> TaskCharges:
        """As ``Commitments.tally``."""
        return self._tallies.get(task_id.raw, TaskCharges(0, 0))

    def lose(self, before_s: float, nano: int) -> None:
        """As ``Commitments.lose``."""
        check_loss(before_s, nano)
        with self._lock:
            known = self._losses.get("") or Loss(before_s, 0)
            self._put(self._losses, "", Loss(max(known.before_s, before_s), known.nano + nano))
            self._put(self._spent, "", self.spent() + nano)

    def lost(self) -> Loss | None:
        """As ``Commitments.lost``."""
        return self._losses.get("")

    def _secret(self, task_id: TaskId) -> bytes:
        if task_id.raw not in self._secrets:
            self._put(self._secrets, task_id.raw, self._entropy.bytes(SECRET_SIZE))
        return self._secrets[task_id.raw]

    def rounding(self, task_id: TaskId) -> bytes:
        """As ``Commitments.rounding``."""
        with self._lock:
            return rounding_of(self._secret(task_id))

    def permanent(self, task_id: TaskId, cell: int) -> bytes | None:
        """As ``Commitments.permanent``."""
        with self._lock:
            secret = self._secrets.get(task_id.raw)
            return None if secret is None else self._memo.get((task_id.raw, tag(secret, cell)))

    def remember(self, task_id: TaskId, cell: int, report: bytes) -> None:
        """As ``Commitments.remember``."""
        with self._lock:
            known = self.permanent(task_id, cell)
            if known not in (None, report):
                raise another_report()
            self._put(self._memo, (task_id.raw, tag(self._secret(task_id), cell)), report)
            self._put(self._latest, task_id.raw, report)

    def latest(self, task_id: TaskId) -> bytes | None:
        """As ``Commitments.latest``."""
        return self._latest.get(task_id.raw)

    def choice(self, task_id: TaskId) -> bytes | None:
        """As ``Commitments.choice``."""
        return self._choices.get(task_id.raw)

    def choose(self, task_id: TaskId, choice: bytes) -> None:
        """As ``Commitments.choose``."""
        with self._lock:
            if self.choice(task_id) not in (None, choice):
                raise another_choice()
            self._put(self._choices, task_id.raw, choice)

    def forget(self, task_id: TaskId) -> int:
        """As ``Commitments.forget``."""
        with self._lock:
            gone = [key for key in self._memo if key[0] == task_id.raw]
            for key in gone:
                self._put(self._memo, key, None)
            self._put(self._latest, task_id.raw, None)
            self._put(self._choices, task_id.raw, None)
            self._put(self._secrets, task_id.raw, None)
            return len(gone)

    def seen(self, task_id: TaskId) -> SeenTask | None:
        """As ``Commitments.seen``."""
        return self._seen.get(task_id.raw)

    def see(self, task: SeenTask) -> None:
        """As ``Commitments.see``."""
        with self._lock:
            self._put(self._seen, task.task_id.raw, task)

    def tasks_of(self, purpose: str) -> list[TaskId]:
        """As ``Commitments.tasks_of``."""
        with self._lock:
            return sorted(task.task_id for task in self._seen.values() if task.purpose == purpose)

    def consents(self) -> dict[str, str]:
        """As ``Commitments.consents``."""
        with self._lock:
            return dict(self._consents)

    def set_consent(self, purpose: str, answer: ConsentAnswer | None) -> None:
        """As ``Commitments.set_consent``."""
        check_answer(answer)
        with self._lock:
            self._put(self._consents, purpose, answer)

    def accepted(self, task_id: TaskId) -> float | None:
        """As ``Commitments.accepted``."""
        return self._accepted.get(task_id.raw)

    def accept(self, task_id: TaskId, epsilon0: float | None) -> None:
        """As ``Commitments.accept``."""
        check_accepted(epsilon0)
        with self._lock:
            self._put(self._accepted, task_id.raw, epsilon0)

    def append(self, entry: LedgerEntry) -> int:
        """As ``Commitments.append``."""
        with self._lock:
            body, number = entry.body(), len(self._ledger) + 1
            self._ledger.append(
                Stored(
                    number,
                    body,
                    chained(self._ledger[-1].digest if self._ledger else EMPTY.digest, body),
                )
            )
            if self._undo is not None:
                self._undo.append(self._ledger.pop)
            return number

    def problem(self, digest: Digest, entry: LedgerEntry) -> int | None:
        """As ``Commitments.problem``."""
        with self._lock:
            if digest.raw in self._problems:
                return None
            if len(self._problems) >= LIMITS.refusals:
                self.unentered += 1
                return None
            number = self.append(entry)
            if self._undo is not None:
                self._undo.append(lambda: self._problems.pop(digest.raw))
            self._problems[digest.raw] = None
            return number

    def entries(self, after: int = 0, most: int | None = None) -> list[Stored]:
        """As ``Commitments.entries``."""
        with self._lock:
            return self._ledger[max(after, 0) :][: None if most is None else max(most, 0)]

    def verify(self) -> Head:
        """As ``Commitments.verify``."""
        with self._lock:
            return check(self._ledger)
