"""The book on disk: in the agent's SQLite file, beside the reports that wait, so that a charge and its report commit together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shoal.clients.book import (
    SECRET_SIZE,
    Answer,
    Charge,
    Loss,
    SeenTask,
    Tally,
    another_choice,
    another_report,
    check_accepted,
    check_answer,
    check_charge,
    check_loss,
    rounding_of,
    tag,
)
from shoal.clients.ledger import EMPTY, Head, LedgerEntry, Stored, chained, check, missing_head
from shoal.clients.store_sqlite import AgentStore, damaged, row_mark
from shoal.entropy import SYSTEM, Entropy
from shoal.ids import Digest, TaskId
from shoal.limits import LIMITS

_PAGE = 500  # entries of the ledger that are read at a time


class SqliteBook:
    """``shoal.clients.book.Book`` on a store, which stays its owner's to close. ``entropy``: keys of memoized tasks."""

    def __init__(self, store: AgentStore, entropy: Entropy = SYSTEM) -> None:
        self._store, self._entropy = store, entropy
        self._unentered = 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._store.write():
            yield

    # --- budget -------------------------------------------------------------------------------------------------------

    def spent(self) -> int:
        return self._store.spent()

    def charge(self, task_id: TaskId, window: int, nano: int, limit: int | None, *, permanent: bool = False) -> None:
        with self._store.write() as db:
            if self.charged(task_id, window) is not None:
                return
            check_charge(self.spent(), nano, limit)
            self._store.reserve(nano)
            row = (task_id.raw, window, nano, int(permanent))
            db.execute(
                "INSERT INTO charge (task_id, window, nano, permanent, mark) VALUES (?, ?, ?, ?, ?)", (*row, row_mark("charge", *row))
            )

    def charged(self, task_id: TaskId, window: int) -> int | None:
        rows = self._store.read("SELECT nano, permanent, mark FROM charge WHERE task_id = ? AND window = ?", (task_id.raw, window))
        if rows and rows[0][2] != row_mark("charge", task_id.raw, window, *rows[0][:2]):
            raise damaged(f"the charge of window {window} of task {task_id.short}")
        return rows[0][0] if rows else None

    def charges(self) -> list[Charge]:
        rows = self._store.read("SELECT task_id, window, nano, permanent FROM charge ORDER BY number")
        return [Charge(TaskId(task), window, nano, bool(permanent)) for task, window, nano, permanent in rows]

    def tally(self, task_id: TaskId) -> Tally:
        rows = self._store.read("SELECT windows, nano FROM tally WHERE task_id = ?", (task_id.raw,))
        return Tally(*rows[0]) if rows else Tally(0, 0)

    def lose(self, before_s: float, nano: int) -> None:
        check_loss(before_s, nano)
        with self._store.write() as db:
            db.execute("INSERT INTO lost (before_s, nano) VALUES (?, ?)", (before_s, nano))

    def lost(self) -> Loss | None:
        rows = self._store.read("SELECT max(before_s), sum(nano) FROM lost")
        return None if rows[0][0] is None else Loss(*rows[0])

    # --- memo -----------------------------------------------------------------------------------------------------------

    def _secret(self, task_id: TaskId) -> bytes | None:
        rows = self._store.read("SELECT secret FROM memo_key WHERE task_id = ?", (task_id.raw,))
        return rows[0][0] if rows else None

    def _made_secret(self, task_id: TaskId) -> bytes:
        with self._store.write() as db:
            secret = self._secret(task_id)
            if secret is None:
                secret = self._entropy.bytes(SECRET_SIZE)
                db.execute("INSERT INTO memo_key VALUES (?, ?)", (task_id.raw, secret))
        return secret

    def rounding(self, task_id: TaskId) -> bytes:
        return rounding_of(self._secret(task_id) or self._made_secret(task_id))

    def permanent(self, task_id: TaskId, cell: int) -> bytes | None:
        secret = self._secret(task_id)
        if secret is None:
            return None
        return self._kept(task_id, "AND tag = ?", (tag(secret, cell),))

    def _kept(self, task_id: TaskId, where: str, values: tuple[bytes, ...] = ()) -> bytes | None:
        query = f"SELECT tag, report, mark FROM memo WHERE task_id = ? {where}"  # noqa: S608 - constants
        rows = self._store.read(query, (task_id.raw, *values))
        if rows and rows[0][2] != row_mark("memo", task_id.raw, *rows[0][:2]):
            raise damaged(f"an answer that is kept for task {task_id.short}")
        return rows[0][1] if rows else None

    def remember(self, task_id: TaskId, cell: int, report: bytes) -> None:
        with self._store.write() as db:
            known = self.permanent(task_id, cell)
            if known not in (None, report):
                raise another_report()
            named = tag(self._made_secret(task_id), cell)
            db.execute(
                "INSERT INTO memo VALUES (?1, ?2, ?3, (SELECT coalesce(max(used), 0) + 1 FROM memo WHERE task_id = ?1), ?4) "
                "ON CONFLICT (task_id, tag) DO UPDATE SET used = excluded.used",
                (task_id.raw, named, report, row_mark("memo", task_id.raw, named, report)),
            )

    def latest(self, task_id: TaskId) -> bytes | None:
        return self._kept(task_id, "ORDER BY used DESC LIMIT 1")

    def choice(self, task_id: TaskId) -> bytes | None:
        rows = self._store.read("SELECT chosen FROM choice WHERE task_id = ?", (task_id.raw,))
        return rows[0][0] if rows else None

    def choose(self, task_id: TaskId, choice: bytes) -> None:
        with self._store.write() as db:
            if self.choice(task_id) not in (None, choice):
                raise another_choice()
            db.execute("INSERT INTO choice VALUES (?, ?) ON CONFLICT (task_id) DO NOTHING", (task_id.raw, choice))

    def forget(self, task_id: TaskId) -> int:
        with self._store.write() as db:
            db.execute("DELETE FROM choice WHERE task_id = ?", (task_id.raw,))
            gone = db.execute("DELETE FROM memo WHERE task_id = ?", (task_id.raw,)).rowcount
            db.execute("DELETE FROM memo_key WHERE task_id = ?", (task_id.raw,))
        return gone

    # --- tasks and consent ----------------------------------------------------------------------------------------------

    def seen(self, task_id: TaskId) -> SeenTask | None:
        rows = self._store.read("SELECT * FROM seen WHERE task_id = ?", (task_id.raw,))
        return SeenTask(TaskId(rows[0][0]), *rows[0][1:]) if rows else None

    def see(self, task: SeenTask) -> None:
        row = (task.task_id.raw, task.name, task.purpose, task.authority, task.epsilon0_nano, task.verdict)
        with self._store.write() as db:
            db.execute("INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?, ?, ?)", row)

    def tasks_of(self, purpose: str) -> list[TaskId]:
        return [TaskId(raw) for (raw,) in self._store.read("SELECT task_id FROM seen WHERE purpose = ? ORDER BY task_id", (purpose,))]

    def consents(self) -> dict[str, str]:
        return dict(self._store.read("SELECT purpose, answer FROM consent ORDER BY purpose"))

    def set_consent(self, purpose: str, answer: Answer | None) -> None:
        check_answer(answer)
        with self._store.write() as db:
            if answer is None:
                db.execute("DELETE FROM consent WHERE purpose = ?", (purpose,))
            else:
                db.execute("INSERT OR REPLACE INTO consent VALUES (?, ?)", (purpose, answer))

    def accepted(self, task_id: TaskId) -> float | None:
        rows = self._store.read("SELECT epsilon0 FROM acceptance WHERE task_id = ?", (task_id.raw,))
        return rows[0][0] if rows else None

    def accept(self, task_id: TaskId, epsilon0: float | None) -> None:
        check_accepted(epsilon0)
        with self._store.write() as db:
            if epsilon0 is None:
                db.execute("DELETE FROM acceptance WHERE task_id = ?", (task_id.raw,))
            else:
                db.execute("INSERT OR REPLACE INTO acceptance VALUES (?, ?)", (task_id.raw, epsilon0))

    # --- ledger ---------------------------------------------------------------------------------------------------------

    def append(self, entry: LedgerEntry) -> int:
        body = entry.body()
        with self._store.write() as db:
            number, before = db.execute("SELECT number, hash FROM ledger ORDER BY number DESC LIMIT 1").fetchone() or (0, EMPTY.digest)
            db.execute("INSERT INTO ledger VALUES (?, ?, ?)", (number + 1, body, chained(before, body)))
            self._store.longer()
        return int(number) + 1

    def problem(self, digest: Digest, entry: LedgerEntry) -> int | None:
        if self._entered(digest):  # nothing is written for what strangers send again and again
            return None
        with self._store.write() as db:
            if self._entered(digest):
                return None
            if self._problems() >= LIMITS.refusals:
                self._unentered += 1
                return None
            db.execute("INSERT INTO problem VALUES (?)", (digest.raw,))
            return self.append(entry)

    def _entered(self, digest: Digest) -> bool:
        return bool(self._store.read("SELECT 1 FROM problem WHERE digest = ?", (digest.raw,)))

    def _problems(self) -> int:
        count: int = self._store.read("SELECT count(*) FROM problem")[0][0]
        return count

    @property
    def unentered(self) -> int:
        return self._unentered

    def entries(self, after: int = 0, most: int | None = None) -> list[Stored]:
        limit = -1 if most is None else max(most, 0)
        rows = self._store.read("SELECT number, body, hash FROM ledger WHERE number > ? ORDER BY number LIMIT ?", (max(after, 0), limit))
        return [Stored(*row) for row in rows]

    def verify(self) -> Head:
        noted = self._store.noted_head()  # before the rows: other processes may append meanwhile, and a head may lag but not lead
        if noted is None:
            raise missing_head(self._store.head_path.name)
        return check(self._all(), noted)

    def _all(self) -> Iterator[Stored]:
        after = 0
        while page := self.entries(after, _PAGE):
            yield from page
            after = page[-1].number
