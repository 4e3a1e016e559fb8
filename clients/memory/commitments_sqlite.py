"""The book on disk: in the agent's SQLite file, beside the reports that wait, so that a charge and
its report commit together.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

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
    check_loss,
    rounding_of,
    tag,
)
from shoal.clients.memory.database import AgentStore
from shoal.clients.memory.ledger import (
    EMPTY,
    Head,
    LedgerEntry,
    Stored,
    chained,
    check,
    missing_head,
    unbroken,
)
from shoal.clients.memory.marks import Damage, damaged, task_of
from shoal.clients.owner.consent import Answers
from shoal.entropy import SYSTEM, Entropy
from shoal.ids import Digest, TaskId
from shoal.limits import LIMITS

_PAGE = 500  # entries of the ledger that are read at a time


class SqliteCommitments:
    """``Commitments`` (shoal.clients.memory.commitments) on a store, which stays its owner's to
    close. ``entropy``: keys of memoized tasks.
    """

    def __init__(self, store: AgentStore, entropy: Entropy = SYSTEM) -> None:
        self._store, self._entropy = store, entropy
        self._unentered, self._marked = 0, store.marked

    def transaction(self) -> AbstractContextManager[object]:
        """As ``Commitments.transaction``."""
        return self._store.write()

    def damages(self) -> list[Damage]:
        """Everything of this device's file that is not as it was written."""
        return self._marked.damages()

    # --- budget -----------------------------------------------------------------------------------

    def spent(self) -> int:
        """As ``Commitments.spent``."""
        return self._store.spent()

    def charge(
        self, task_id: TaskId, window: int, nano: int, limit: int | None, *, permanent: bool = False
    ) -> int:
        """As ``Commitments.charge``."""
        with self._store.write() as db:
            known = self.charged(task_id, window)
            if known is not None:
                return known
            total = self._store.reserve(nano, limit)
            (number,) = db.execute("SELECT coalesce(max(number), 0) + 1 FROM charge").fetchone()
            tally = self.tally(task_id)
            self._marked.add(db, "charge", number, task_id.raw, window, nano, int(permanent))
            self._marked.put(db, "tally", task_id.raw, tally.windows + 1, tally.nano + nano)
            if total is not None:
                self._store.sums.charged(total)
            return nano

    def charged(self, task_id: TaskId, window: int) -> int | None:
        """As ``Commitments.charged``."""
        rows = self._marked.read(
            "charge", "WHERE task_id = ? AND window = ?", (task_id.raw, window)
        )
        if not rows:
            self._marked.absent("charge", task_id)
        return rows[0][3] if rows else None

    def charges(self) -> list[WindowCharge]:
        """As ``Commitments.charges``."""
        rows = self._marked.read("charge", "ORDER BY number")
        return [
            WindowCharge(TaskId(task), window, nano, bool(permanent))
            for _, task, window, nano, permanent in rows
        ]

    def tally(self, task_id: TaskId) -> TaskCharges:
        """As ``Commitments.tally``."""
        rows = self._marked.read("tally", "WHERE task_id = ?", (task_id.raw,))
        if not rows:
            self._marked.absent("tally", task_id)
            if self._store.read("SELECT 1 FROM charge WHERE task_id = ? LIMIT 1", (task_id.raw,)):
                raise damaged(Damage(self._store.path.name, "tally", task_id))
        return TaskCharges(*rows[0][1:]) if rows else TaskCharges(0, 0)

    def lose(self, before_s: float, nano: int) -> None:
        """As ``Commitments.lose``."""
        check_loss(before_s, nano)
        with self._store.write() as db:
            (number,) = db.execute("SELECT coalesce(max(number), 0) + 1 FROM lost").fetchone()
            self._marked.add(db, "lost", number, float(before_s), nano)

    def lost(self) -> Loss | None:
        """As ``Commitments.lost``."""
        rows = self._marked.read("lost")
        return Loss(max(row[1] for row in rows), sum(row[2] for row in rows)) if rows else None

    # --- memo -------------------------------------------------------------------------------------

    def _secret(self, task_id: TaskId) -> bytes | None:
        rows = self._marked.read("memo_key", "WHERE task_id = ?", (task_id.raw,))
        if not rows:  # another key would find no answer that is kept, and round at another point
            self._marked.absent("memo_key", task_id)
        return rows[0][1] if rows else None

    def _made_secret(self, task_id: TaskId) -> bytes:
        with self._store.write() as db:
            secret = self._secret(task_id)
            if secret is None:
                secret = self._entropy.bytes(SECRET_SIZE)
                self._marked.add(db, "memo_key", task_id.raw, secret)
        return secret

    def rounding(self, task_id: TaskId) -> bytes:
        """As ``Commitments.rounding``."""
        return rounding_of(self._secret(task_id) or self._made_secret(task_id))

    def permanent(self, task_id: TaskId, cell: int) -> bytes | None:
        """As ``Commitments.permanent``. Raises MISMATCH where any kept answer of the task is
        damaged, whichever is asked for: on which days a device answers must not say what it kept.
        """
        rows = self._marked.read("memo", "WHERE task_id = ?", (task_id.raw,))  # looks at each
        self._marked.absent("memo", task_id)
        secret = self._secret(task_id)
        wanted = None if secret is None else tag(secret, cell)
        return next((report for _, one, report, _ in rows if one == wanted), None)

    def remember(self, task_id: TaskId, cell: int, report: bytes) -> None:
        """As ``Commitments.remember``."""
        with self._store.write() as db:
            known = self.permanent(task_id, cell)
            if known not in (None, report):
                raise another_report()
            (used,) = db.execute(
                "SELECT coalesce(max(used), 0) + 1 FROM memo WHERE task_id = ?", (task_id.raw,)
            ).fetchone()
            self._marked.put(
                db, "memo", task_id.raw, tag(self._made_secret(task_id), cell), report, used
            )

    def latest(self, task_id: TaskId) -> bytes | None:
        """As ``Commitments.latest``."""
        last = "WHERE task_id = ? ORDER BY used DESC LIMIT 1"
        rows = self._marked.read("memo", last, (task_id.raw,))
        if not rows:
            self._marked.absent("memo", task_id)
        return rows[0][2] if rows else None

    def choice(self, task_id: TaskId) -> bytes | None:
        """As ``Commitments.choice``."""
        rows = self._marked.read("choice", "WHERE task_id = ?", (task_id.raw,))
        if not rows:
            self._marked.absent("choice", task_id)
        return rows[0][1] if rows else None

    def choose(self, task_id: TaskId, choice: bytes) -> None:
        """As ``Commitments.choose``."""
        with self._store.write() as db:
            known = self.choice(task_id)
            if known not in (None, choice):
                raise another_choice()
            if known is None:
                self._marked.add(db, "choice", task_id.raw, choice)

    def forget(self, task_id: TaskId) -> int:
        """As ``Commitments.forget``."""
        with self._store.write() as db:
            db.execute("DELETE FROM choice WHERE task_id = ?", (task_id.raw,))
            gone = db.execute("DELETE FROM memo WHERE task_id = ?", (task_id.raw,)).rowcount
            db.execute("DELETE FROM memo_key WHERE task_id = ?", (task_id.raw,))
        return gone

    # --- tasks and consent ------------------------------------------------------------------------

    def seen(self, task_id: TaskId) -> SeenTask | None:
        """None also for what is damaged: it follows from the task's own file, and is entered
        anew.
        """
        rows, _ = self._marked.sift("seen", "WHERE task_id = ?", (task_id.raw,))
        return SeenTask(TaskId(rows[0][0]), *rows[0][1:]) if rows else None

    def see(self, task: SeenTask) -> None:
        """As ``Commitments.see``."""
        row = (
            task.task_id.raw,
            task.name,
            task.purpose,
            task.authority,
            task.epsilon0_nano,
            task.verdict,
        )
        with self._store.write() as db:
            self._marked.put(db, "seen", *row)

    def tasks_of(self, purpose: str) -> list[TaskId]:
        """And those whose purpose is damaged: what waits of them goes with a consent that is taken
        back.
        """
        whole, bad = self._marked.sift("seen", "ORDER BY task_id")
        doubtful = [row[0] for row in bad if task_of(row[0]) is not None]
        return sorted(
            TaskId(raw) for raw in {*(row[0] for row in whole if row[2] == purpose), *doubtful}
        )

    def consents(self) -> Answers:
        """As ``Commitments.consents``."""
        whole, bad = self._marked.sift("consent", "ORDER BY purpose")
        return Answers(whole, damaged=bool(bad))

    def set_consent(self, purpose: str, answer: ConsentAnswer | None) -> None:
        """As ``Commitments.set_consent``."""
        check_answer(answer)
        with self._store.write() as db:
            if answer is None:
                db.execute("DELETE FROM consent WHERE purpose = ?", (purpose,))
            else:
                self._marked.put(db, "consent", purpose, answer)

    def accepted(self, task_id: TaskId) -> float | None:
        """None also for what is damaged: then the owner never said yes."""
        rows, _ = self._marked.sift("acceptance", "WHERE task_id = ?", (task_id.raw,))
        return rows[0][1] if rows else None

    def accept(self, task_id: TaskId, epsilon0: float | None) -> None:
        """As ``Commitments.accept``."""
        check_accepted(epsilon0)
        with self._store.write() as db:
            if epsilon0 is None:
                db.execute("DELETE FROM acceptance WHERE task_id = ?", (task_id.raw,))
            else:
                self._marked.put(db, "acceptance", task_id.raw, float(epsilon0))

    # --- ledger -----------------------------------------------------------------------------------

    def append(self, entry: LedgerEntry) -> int:
        """As ``Commitments.append``."""
        body = entry.body()
        with self._store.write(one_statement=True) as db:
            number, before = db.execute(
                "SELECT number, hash FROM ledger ORDER BY number DESC LIMIT 1"
            ).fetchone() or (0, EMPTY.digest)
            db.execute(
                "INSERT INTO ledger VALUES (?, ?, ?)", (number + 1, body, chained(before, body))
            )
            self._store.longer()
        return int(number) + 1

    def problem(self, digest: Digest, entry: LedgerEntry) -> int | None:
        """As ``Commitments.problem``."""
        if self._entered(digest):  # nothing is written for what strangers send again and again
            return None
        with self._store.write() as db:
            if self._entered(digest):
                return None
            if self._problems() >= LIMITS.refusals:
                self._unentered += 1
                return None
            self._marked.add(db, "problem", digest.raw)
            return self.append(entry)

    def _entered(self, digest: Digest) -> bool:
        return bool(self._store.read("SELECT 1 FROM problem WHERE digest = ?", (digest.raw,)))

    def _problems(self) -> int:
        count: int = self._store.read("SELECT count(*) FROM problem")[0][0]
        return count

    @property
    def unentered(self) -> int:
        """As ``Commitments.unentered``."""
        return self._unentered

    def entries(self, after: int = 0, most: int | None = None) -> list[Stored]:
        """As ``Commitments.entries``."""
        limit = -1 if most is None else max(most, 0)
        rows = self._store.read(
            "SELECT number, body, hash FROM ledger WHERE number > ? ORDER BY number LIMIT ?",
            (max(after, 0), limit),
        )
        return [Stored(*row) for row in rows]

    def verify(self) -> Head:
        """As ``Commitments.verify``."""
        # before the rows: other processes may append meanwhile, and a head may lag but not lead
        noted = self._store.noted_head()
        if noted is None:
            raise missing_head(self._store.head_path.name)
        return check(self.all_entries(), noted)

    def unbroken(self) -> int:
        """How many entries lead from one to the next; see ``ledger.unbroken``."""
        return unbroken(self.all_entries())

    def all_entries(self) -> Iterator[Stored]:
        """Oldest first, a page of them in memory at a time."""
        after = 0
        while page := self.entries(after, _PAGE):
            yield from page
            after = page[-1].number
