"""What the analyzer keeps, in one SQLite file: batches, tallies of what was released, releases and acknowledgements (and sums of rounds:
``shoal.analyzer.sums``).

WAL with synchronous=FULL: a commit that returned survives a power cut. A release, once written, never changes: triggers
in the schema refuse every update and every deletion of it. Methods block; the service calls them from threads.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shoal.analyzer.core import Batch, BatchState
from shoal.codec import decode_manifest
from shoal.errors import Kind, ShoalError
from shoal.failpoints import hit
from shoal.ids import Digest, TaskId

FILE_NAME = "analyzer.db"
_BUSY_S = 10.0  # a reader may hold the file for a moment


@dataclass(frozen=True, slots=True)
class Spending:
    """What one opened batch cost, for composition: the upper epsilon that was charged for it, and its delta.

    ``law``: the bytes of its law of privacy losses, which composes more tightly; None if only epsilon and delta are known.
    ``lifetime``: of a memoized task, epsilon0 of its permanent reports; None if every window drew anew.
    """

    task_id: TaskId
    epsilon_upper: float
    delta: float
    law: bytes | None = None
    lifetime: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a batch, written as one transaction. ``tally`` is None when the release is withheld: it is not kept then."""

    release: bytes
    release_signature: bytes
    ack: bytes
    ack_signature: bytes
    tally: bytes | None
    spending: Spending


@dataclass(frozen=True, slots=True)
class StoredRelease:
    """The bytes of a release as they were signed, with the signature."""

    task_id: TaskId
    window: int
    release: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class StoredAck:
    ack: bytes
    signature: bytes


class Store:
    """``read_only``: for programs that look on beside a running service. Raises CONFIG if the file can't be used."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._lock = threading.RLock()
        self._path = path
        try:
            self._db = (
                _open_beside(path) if read_only else sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            )
            if not read_only:
                path.chmod(0o600)
                self._prepare()
            else:
                self._check_version()
        except (sqlite3.Error, OSError) as error:
            raise ShoalError(Kind.CONFIG, f"{path}: cannot be used as the analyzer's store ({_reason(error)})") from None

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA foreign_keys = ON")
        self._db.execute("PRAGMA secure_delete = ON")
        migrations = _migrations()
        version = self._version()
        if version > len(migrations):
            raise ShoalError(Kind.CONFIG, f"{self._path}: written by a newer version of this program: use that one")
        for number, script in enumerate(migrations[version:], start=version + 1):
            self._db.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;")

    def _check_version(self) -> None:
        if self._version() != len(_migrations()):
            raise ShoalError(
                Kind.CONFIG, f"{self._path}: of another version of this program: start the analyzer once to bring it up to date"
            )

    def _version(self) -> int:
        version: int = self._db.execute("PRAGMA user_version").fetchone()[0]
        return version

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, for this thread alone."""
        with self._lock:
            yield self._db

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing. Disk trouble is OVERLOADED: the peer comes again, the operator reads the log."""
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                hit("analyzer.store.commit")
                self._db.execute("COMMIT")
            except BaseException as error:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                if isinstance(error, (sqlite3.OperationalError, OSError)):
                    raise ShoalError(Kind.OVERLOADED, "the analyzer's store can't be written just now: try again later") from error
                raise

    # --- batches ------------------------------------------------------------------------------------------------------

    def batch(self, manifest_hash: Digest) -> Batch | None:
        return self._one("WHERE manifest_hash = ?", (manifest_hash.raw,))

    def batch_of(self, task_id: TaskId, window: int) -> Batch | None:
        return self._one("WHERE task_id = ? AND window = ?", (task_id.raw, window))

    def batches(self) -> list[Batch]:
        """All of them, ordered by task and window: the order of arrival is not kept."""
        with self._lock:
            rows = self._db.execute("SELECT manifest, manifest_hash, state FROM batches ORDER BY task_id, window").fetchall()
        return [_batch(row) for row in rows]

    def _one(self, where: str, parameters: tuple[object, ...]) -> Batch | None:
        with self._lock:
            row = self._db.execute(f"SELECT manifest, manifest_hash, state FROM batches {where}", parameters).fetchone()  # noqa: S608 - constant text
        return None if row is None else _batch(row)

    def accept(self, manifest_bytes: bytes) -> Batch:
        """Take a checked manifest on, RECEIVING. Raises CONFLICT if its (task, window) has another; the same one is fine."""
        manifest, manifest_hash = decode_manifest(manifest_bytes), Digest.of(manifest_bytes)
        with self.transaction() as db:
            db.execute(
                "INSERT INTO batches (task_id, window, manifest, manifest_hash, state) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (manifest.task_id.raw, manifest.window, manifest_bytes, manifest_hash.raw, BatchState.RECEIVING),
            )
            batch = self._one("WHERE task_id = ? AND window = ?", (manifest.task_id.raw, manifest.window))
        if batch is None or batch.manifest_hash != manifest_hash:
            raise ShoalError(
                Kind.CONFLICT, "another batch was already accepted for this window of the task: it stands, this one is refused"
            )
        return batch

    def move(self, manifest_hash: Digest, before: BatchState, after: BatchState) -> bool:
        """Between RECEIVING and PROCESSING; False if the batch was not in ``before``. DONE is reached by ``finish`` alone."""
        if BatchState.DONE in (before, after):
            raise ValueError("DONE is for ever, and reached by finish alone")
        with self.transaction() as db:
            cursor = db.execute("UPDATE batches SET state = ? WHERE manifest_hash = ? AND state = ?", (after, manifest_hash.raw, before))
            return cursor.rowcount == 1

    # --- releases -----------------------------------------------------------------------------------------------------

    def finish(self, batch: Batch, make: Callable[[list[Spending]], Outcome]) -> bool:
        """PROCESSING -> DONE with everything that belongs to it, in one transaction.

        ``make`` gets what all batches before this one cost and returns this one's outcome. False, and nothing changes, if
        the batch is not PROCESSING (it may be DONE already).
        """
        key = (batch.manifest.task_id.raw, batch.manifest.window)
        with self.transaction() as db:
            current = self._one("WHERE manifest_hash = ?", (batch.manifest_hash.raw,))
            if current is None or current.state is not BatchState.PROCESSING:
                return False
            outcome = make(self.spendings())
            self.write_release(batch.manifest.task_id, batch.manifest.window, outcome)
            db.execute("INSERT INTO acks (task_id, window, ack, signature) VALUES (?, ?, ?, ?)", (*key, outcome.ack, outcome.ack_signature))
            hit("analyzer.store.ack")
            if outcome.tally is not None:
                db.execute("INSERT INTO tallies (task_id, window, tally) VALUES (?, ?, ?)", (*key, outcome.tally))
            hit("analyzer.store.tally")
            db.execute("UPDATE batches SET state = ? WHERE task_id = ? AND window = ?", (BatchState.DONE, *key))
        return True

    def write_release(self, task_id: TaskId, window: int, outcome: Outcome) -> None:
        """Inside a ``transaction``: the release of a window and what it cost. A window has one release, for ever."""
        cost = outcome.spending
        law_hash = None if cost.law is None else hashlib.sha256(cost.law).digest()
        if law_hash is not None:
            self._db.execute("INSERT OR IGNORE INTO loss_laws (hash, law) VALUES (?, ?)", (law_hash, cost.law))
        self._db.execute(
            "INSERT INTO releases (task_id, window, release, signature, epsilon, delta, loss_law, lifetime)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (task_id.raw, window, outcome.release, outcome.release_signature, cost.epsilon_upper, cost.delta, law_hash, cost.lifetime),
        )
        hit("analyzer.store.release")

    def released(self, task_id: TaskId, window: int) -> bool:
        """Whether the window is published or withheld, for ever."""
        with self._lock:
            row = self._db.execute("SELECT 1 FROM releases WHERE task_id = ? AND window = ?", (task_id.raw, window)).fetchone()
        return row is not None

    def over(self) -> set[tuple[TaskId, int]]:
        """Every (task, window) that is released."""
        with self._lock:
            rows = self._db.execute("SELECT task_id, window FROM releases").fetchall()
        return {(TaskId(task_id), window) for task_id, window in rows}

    def spendings(self) -> list[Spending]:
        """What everything released so far cost, by task and window. Windows of a task share a law: each is read once."""
        with self._lock:
            return self._spendings()

    def _spendings(self) -> list[Spending]:
        laws: dict[bytes, bytes] = dict(self._db.execute("SELECT hash, law FROM loss_laws").fetchall())
        rows = self._db.execute("SELECT task_id, epsilon, delta, loss_law, lifetime FROM releases ORDER BY task_id, window").fetchall()
        return [Spending(TaskId(task_id), epsilon, delta, laws.get(law), lifetime) for task_id, epsilon, delta, law, lifetime in rows]

    def ack(self, manifest_hash: Digest) -> StoredAck | None:
        with self._lock:
            row = self._db.execute(
                "SELECT ack, signature FROM acks JOIN batches USING (task_id, window) WHERE manifest_hash = ?", (manifest_hash.raw,)
            ).fetchone()
        return None if row is None else StoredAck(*row)

    def releases(self) -> list[StoredRelease]:
        """All of them, ordered by task and window."""
        with self._lock:
            rows = self._db.execute("SELECT task_id, window, release, signature FROM releases ORDER BY task_id, window").fetchall()
        return [StoredRelease(TaskId(task_id), window, release, signature) for task_id, window, release, signature in rows]

    def tally(self, task_id: TaskId, window: int) -> bytes | None:
        with self._lock:
            row = self._db.execute("SELECT tally FROM tallies WHERE task_id = ? AND window = ?", (task_id.raw, window)).fetchone()
        return None if row is None else bytes(row[0])

    def close(self) -> None:
        with self._lock:
            self._db.close()


def _batch(row: tuple[bytes, bytes, int]) -> Batch:
    manifest, manifest_hash, state = row
    return Batch(decode_manifest(manifest), Digest(manifest_hash), BatchState(state))


def _open_beside(path: Path) -> sqlite3.Connection:
    """Read-only, beside a running service or after it ended."""
    if not path.is_file():
        raise ShoalError(Kind.NOT_FOUND, f"{path} does not exist: has the analyzer run with this data_dir?")
    uri = f"{path.absolute().as_uri()}?mode=ro"
    db = sqlite3.connect(uri, uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        db.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        # A WAL file is missing and can't be made, because the folder may only be read: then nobody is writing.
        db.close()
        db = sqlite3.connect(uri + "&immutable=1", uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    return db


def _migrations() -> list[str]:
    """The numbered scripts beside this module, 001 first."""
    folder = importlib.resources.files("shoal.analyzer")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    if [name[:3] for name in names] != [f"{i:03d}" for i in range(1, len(names) + 1)]:
        raise ShoalError(Kind.INTERNAL, "the analyzer's migrations are not numbered 001, 002, ...: install the program again")
    return [folder.joinpath(name).read_text() for name in names]


def _reason(error: Exception) -> str:
    return (error.strerror or "unreadable") if isinstance(error, OSError) else str(error)
