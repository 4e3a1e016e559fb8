"""What the analyzer keeps, in one SQLite file: batches, tallies of what was released, releases and
acknowledgements (and sums of rounds: ``shoal.analyzer.rounds.sums``).

WAL with synchronous=FULL: a commit that returned survives a power cut. A release, once written,
never changes: triggers in the schema refuse every update and every deletion of it. Methods block;
the service calls them from threads.

Nothing stored is trusted when it is read: rows carry digests, releases are verified against the
signature, a file that SQLite can't read in full is set aside and what can be read of it taken over
(``mending``). What is damaged is told by ``damage``, concerns its window alone, and is never
counted for less than it may have cost.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shoal.analyzer import store_mending as mending
from shoal.analyzer.core import Batch, BatchState
from shoal.analyzer.records import Spending, StoredAck, StoredRelease, WindowOutcome
from shoal.analyzer.release_signatures import ReleaseSignatures, signed_spending
from shoal.codec import decode_manifest
from shoal.errors import Kind, ShoalError
from shoal.failpoints import hit
from shoal.ids import Digest, TaskId
from shoal.log import get_log
from shoal.services.conditions import Condition
from shoal.storage import salvage, sqlite
from shoal.storage.checksums import FUNCTIONS, Value, fits, row_digest
from shoal.storage.disks import why_not

log = get_log("analyzer")

FILE_NAME = "analyzer.db"
_MIGRATIONS = Path(__file__).parent / "migrations"
_PRAGMAS = (*sqlite.DURABLE, "foreign_keys = ON", "secure_delete = ON")
_BUSY_S = 10.0  # a reader may hold the file for a moment
_BATCH = "task_id, window, manifest, manifest_hash, state, digest"
_INTO_BATCHES = (
    f"INSERT INTO batches ({_BATCH}) "  # noqa: S608 - constant text
    "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)
_MOVE = (
    "UPDATE batches SET state = ?, digest = row_digest(task_id, window, manifest, manifest_hash, ?)"
)
_RELEASE = "task_id, window, release, signature, epsilon, delta, loss_law, lifetime, digest"
_INTO_RELEASES = (
    f"INSERT INTO releases ({_RELEASE}) "  # noqa: S608 - constant text
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class AnalyzerStore:
    """``read_only``: for programs that look on beside a running service. Raises CONFIG if the file
    can't be used.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._lock = threading.RLock()
        self._path, self._read_only = path, read_only
        self._damage: dict[str, Condition] = {}
        try:
            if read_only:
                self._db = _open_beside(path)
                self._check_version()
            else:
                self._open()
            self._signatures = ReleaseSignatures(
                key
                for key, digest in self._db.execute("SELECT key, digest FROM signer")
                if digest == row_digest(key)
            )
            self._count_releases()
        except (sqlite.Error, OSError) as error:
            raise ShoalError(
                Kind.CONFIG, f"{path}: cannot be used as the analyzer's store ({_reason(error)})"
            ) from None

    def _open(self) -> None:
        try:
            self._prepare()
            return
        except sqlite.Error as error:
            if not sqlite.is_damaged(error):
                raise
        rescued = salvage.rescue(self._path, mending.TABLES, mending.worth_keeping)
        aside = salvage.set_aside(self._path)
        log.error("analyzer.db is damaged: it was set aside, what can be read of it is taken over")
        self._tell(
            "",
            f"it was damaged and is now {aside.name}: what could be read of it was taken over; "
            "restore it from a copy if you can",
        )
        self._prepare()
        salvage.take_over(self._db, mending.TABLES, rescued)

    def _count_releases(self) -> None:
        """``_lost``: releases that were made and are gone, each of which may have cost anything."""
        (count,) = self._db.execute("SELECT count(*) FROM releases").fetchone()
        head = mending.read_head(self._path.parent) or 0
        self._lost: int = max(0, head - count)
        if self._lost:
            log.error("releases are missing", count=self._lost)
            self._tell(
                "releases",
                f"{self._lost} releases are missing: restore it from a copy; until then nothing is "
                "promised of all together",
            )
        elif head != count and not self._read_only:
            mending.write_head(self._path.parent, count)

    @property
    def folder(self) -> Path:
        """Where the file is, and what belongs beside it."""
        return self._path.parent

    @property
    def lost(self) -> int:
        """Releases that were made and are gone."""
        return self._lost

    def sign_with(self, public_key: bytes) -> None:
        """Remember the key that releases are signed with, so that readers can verify them."""
        with self.transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO signer VALUES (?, ?)", (public_key, row_digest(public_key))
            )
        self._signatures.trust(public_key)

    def damage(self) -> list[Condition]:
        """What was found damaged so far, for ``Conditions.watch``: the service goes on with
        everything else.
        """
        return list(self._damage.values())

    def _tell(self, subject: str, text: str) -> None:
        self._damage[subject] = Condition(
            "damage",
            f"{self._path.name} {subject}".strip(),
            f"{self._path.name}: {text}",
            stops=False,
        )

    def _tell_window(self, task_id: Value, window: Value, what: str) -> str:
        short = task_id[:4].hex() if isinstance(task_id, bytes) else "unknown"
        number = window if isinstance(window, int) else "unknown"
        subject = f"{short}:{number}"
        self._tell(
            subject,
            f"the {what} of window {number} of task {short} is damaged: restore the file from a "
            "copy",
        )
        return f"{self._path}: {self._damage[subject].message.partition(': ')[2]}"

    def _prepare(self) -> None:
        self._db = sqlite.open_whole(
            self._path, _MIGRATIONS, "analyzer", _PRAGMAS, functions=FUNCTIONS, busy_s=_BUSY_S
        )

    def _check_version(self) -> None:
        if sqlite.version_of(self._db) != len(sqlite.scripts(_MIGRATIONS, "analyzer")):
            raise ShoalError(
                Kind.CONFIG,
                f"{self._path}: of another version of this program: start the analyzer once to "
                "bring it up to date",
            )

    @contextmanager
    def reading(self) -> Iterator[sqlite.Connection]:
        """The connection, for this thread alone."""
        with self._lock:
            yield self._db

    @contextmanager
    def transaction(self) -> Iterator[sqlite.Connection]:
        """All or nothing. Disk trouble is OVERLOADED: the peer comes again, the operator reads the
        log.
        """
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                hit("analyzer.store.commit")
                self._db.execute("COMMIT")
            except BaseException as error:
                sqlite.rollback(self._db)
                if isinstance(error, (sqlite.OperationalError, OSError)):
                    why = why_not(error, self._path.parent)
                    raise ShoalError(
                        Kind.OVERLOADED,
                        f"the analyzer's store can't be written just now{why}: try again later",
                    ) from error
                raise

    # --- batches ----------------------------------------------------------------------------------

    def batch(self, manifest_hash: Digest) -> Batch | None:
        """The batch with this manifest; None: never taken on. Raises UNAVAILABLE: damaged."""
        return self._batch_where("WHERE manifest_hash = ?", (manifest_hash.raw,))

    def batch_of(self, task_id: TaskId, window: int) -> Batch | None:
        """The batch of this window; None: never taken on. Raises UNAVAILABLE: damaged."""
        return self._batch_where("WHERE task_id = ? AND window = ?", (task_id.raw, window))

    def batches(self) -> list[Batch]:
        """All of them, ordered by task and window: the order of arrival is not kept."""
        with self._lock:
            rows = self._db.execute(
                f"SELECT {_BATCH} FROM batches ORDER BY task_id, window"  # noqa: S608
            ).fetchall()
        for row in rows:
            if not fits(row):
                self._tell_window(row[0], row[1], "batch")
        return [_batch(row) for row in rows if fits(row)]

    def _batch_where(self, where: str, parameters: tuple[object, ...]) -> Batch | None:
        with self._lock:
            select = f"SELECT {_BATCH} FROM batches {where}"  # noqa: S608 - constant text
            row = self._db.execute(select, parameters).fetchone()
        if row is not None and not fits(row):
            self._tell_window(row[0], row[1], "batch")
            raise ShoalError(
                Kind.UNAVAILABLE,
                "what the analyzer stored of this batch is damaged: its operator finds the reason "
                "at /status",
            )
        return None if row is None else _batch(row)

    def accept(self, manifest_bytes: bytes) -> Batch:
        """Take a checked manifest on, RECEIVING. Raises CONFLICT if its (task, window) has another;
        the same one is fine.
        """
        manifest, manifest_hash = decode_manifest(manifest_bytes), Digest.of(manifest_bytes)
        with self.transaction() as db:
            db.execute(
                _INTO_BATCHES,
                _digested(
                    manifest.task_id.raw,
                    manifest.window,
                    manifest_bytes,
                    manifest_hash.raw,
                    int(BatchState.RECEIVING),
                ),
            )
            batch = self._batch_where(
                "WHERE task_id = ? AND window = ?", (manifest.task_id.raw, manifest.window)
            )
        if batch is None or batch.manifest_hash != manifest_hash:
            raise ShoalError(
                Kind.CONFLICT,
                "another batch was already accepted for this window of the task: it stands, this "
                "one is refused",
            )
        return batch

    def supersede(self, before: Digest, manifest_bytes: bytes) -> None:
        """Take another, checked manifest for a batch that is RECEIVING. Nothing happens if it isn't
        any more.
        """
        manifest, after = decode_manifest(manifest_bytes), Digest.of(manifest_bytes)
        row = _digested(
            manifest.task_id.raw,
            manifest.window,
            manifest_bytes,
            after.raw,
            int(BatchState.RECEIVING),
        )
        with self.transaction() as db:
            db.execute(
                "UPDATE batches SET manifest = ?, manifest_hash = ?, digest = ? WHERE "
                "manifest_hash = ? AND state = ?",
                (row[2], row[3], row[5], before.raw, BatchState.RECEIVING),
            )

    def move(self, manifest_hash: Digest, before: BatchState, after: BatchState) -> bool:
        """Between RECEIVING and PROCESSING; False if the batch was not in ``before``. DONE is
        reached by ``finish`` alone.
        """
        if BatchState.DONE in (before, after):
            raise ValueError("DONE is for ever, and reached by finish alone")
        with self.transaction() as db:
            cursor = db.execute(
                f"{_MOVE} WHERE manifest_hash = ? AND state = ?",
                (after, after, manifest_hash.raw, before),
            )
            return cursor.rowcount == 1

    # --- releases ---------------------------------------------------------------------------------

    def finish(self, batch: Batch, make: Callable[[list[Spending]], WindowOutcome]) -> bool:
        """PROCESSING -> DONE with everything that belongs to it, in one transaction.

        ``make`` gets what all batches before this one cost and returns this one's outcome. False,
        and nothing changes, if the batch is not PROCESSING (it may be DONE already).
        """
        key = (batch.manifest.task_id.raw, batch.manifest.window)
        with self.transaction() as db:
            current = self._batch_where("WHERE manifest_hash = ?", (batch.manifest_hash.raw,))
            if current is None or current.state is not BatchState.PROCESSING:
                return False
            outcome = make(self.spendings())
            self.write_release(batch.manifest.task_id, batch.manifest.window, outcome)
            db.execute(
                "INSERT INTO acks VALUES (?, ?, ?, ?, ?)",
                _digested(*key, outcome.ack, outcome.ack_signature),
            )
            hit("analyzer.store.ack")
            if outcome.tally is not None:
                db.execute(
                    "INSERT INTO tallies VALUES (?, ?, ?, ?)", _digested(*key, outcome.tally)
                )
            hit("analyzer.store.tally")
            db.execute(
                f"{_MOVE} WHERE task_id = ? AND window = ?",
                (BatchState.DONE, BatchState.DONE, *key),
            )
        self.write_release_count()
        return True

    def write_release_count(self) -> None:
        """After a release: how many there are, beside the file. A failure is made up for later."""
        try:
            with self._lock:
                mending.write_head(self._path.parent, self._made())
        except (OSError, sqlite.Error) as error:
            log.error("the count of releases could not be written", error=error)

    def _made(self) -> int:
        """Releases that there were ever."""
        return int(self._db.execute("SELECT count(*) FROM releases").fetchone()[0]) + self._lost

    def write_release(self, task_id: TaskId, window: int, outcome: WindowOutcome) -> None:
        """Inside a ``transaction``: the release of a window and what it cost. A window has one
        release, for ever.
        """
        cost = outcome.spending
        law_hash = None if cost.law is None else hashlib.sha256(cost.law).digest()
        if law_hash is not None:
            self._db.execute(
                "INSERT OR IGNORE INTO loss_laws (hash, law) VALUES (?, ?)", (law_hash, cost.law)
            )
        lifetime = None if cost.lifetime is None else float(cost.lifetime)
        charged = (float(cost.epsilon_upper), float(cost.delta), law_hash, lifetime)
        row = (task_id.raw, window, outcome.release, outcome.release_signature, *charged)
        self._db.execute(_INTO_RELEASES, _digested(*row))
        if self._lost:  # before the commit: who dies after it would find as many as there were
            mending.write_head(self._path.parent, self._made())
        hit("analyzer.store.release")

    def released(self, task_id: TaskId, window: int) -> bool:
        """Whether the window is published or withheld, for ever."""
        with self._lock:
            row = self._db.execute(
                "SELECT 1 FROM releases WHERE task_id = ? AND window = ?", (task_id.raw, window)
            ).fetchone()
        return row is not None

    def over(self) -> set[tuple[TaskId, int]]:
        """Every (task, window) that is released."""
        with self._lock:
            rows = self._db.execute("SELECT task_id, window FROM releases").fetchall()
        return {(TaskId(task_id), window) for task_id, window in rows}

    def spendings(self) -> list[Spending]:
        """What everything released so far cost, by task and window. Windows of a task share a law:
        each is read once.
        """
        with self._lock:
            return self._spendings()

    def _spendings(self) -> list[Spending]:
        laws = {
            key: law
            for key, law in self._db.execute("SELECT hash, law FROM loss_laws").fetchall()
            if hashlib.sha256(law).digest() == key
        }
        spendings = [self._spending(row, laws) for row in self._release_rows()]
        return spendings + [Spending(TaskId(bytes(32)), math.inf, 0.0)] * self._lost

    def _spending(self, row: tuple[Any, ...], laws: dict[bytes, bytes]) -> Spending:
        """Of a damaged row what its signed bytes say, and never less than it may have been:
        infinity if they are damaged too.
        """
        task_id, window, release, _, epsilon, delta, law, lifetime, _ = row
        if fits(row):
            if law is not None and law not in laws:  # epsilon and delta hold without it
                self._tell_window(task_id, window, "law of privacy losses")
            return Spending(TaskId(task_id), epsilon, delta, laws.get(law), lifetime)
        self._tell_window(task_id, window, "release")
        if not self._signatures.hold(*row[:4]):
            return Spending(TaskId(bytes(32)), math.inf, 0.0)
        return signed_spending(release)

    def ack(self, manifest_hash: Digest) -> StoredAck | None:
        """The signed acknowledgement of a batch; None: not yet. Raises UNAVAILABLE: damaged."""
        with self._lock:
            row = self._db.execute(
                "SELECT a.task_id, a.window, a.ack, a.signature, a.digest FROM acks a JOIN batches "
                "USING (task_id, window)"
                " WHERE manifest_hash = ?",
                (manifest_hash.raw,),
            ).fetchone()
        if row is not None and not fits(row):
            self._tell_window(row[0], row[1], "acknowledgement")
            raise ShoalError(
                Kind.UNAVAILABLE,
                "what the analyzer stored of this batch is damaged: its operator finds the reason "
                "at /status",
            )
        return None if row is None else StoredAck(row[2], row[3])

    def releases(self) -> list[StoredRelease]:
        """All of them that are what was signed, ordered by task and window."""
        rows = [(row, self._sound(row)) for row in self._release_rows()]
        for row, sound in rows:
            if not sound:
                self._tell_window(row[0], row[1], "release")
        return [
            StoredRelease(TaskId(row[0]), row[1], row[2], row[3]) for row, sound in rows if sound
        ]

    def damaged_releases(self) -> list[tuple[str, str]]:
        """(task id and window as far as they can be read, one line that names them and the file) of
        those that are not what was signed.
        """
        rows = [row for row in self._release_rows() if not self._sound(row)]
        return [
            (f"{_hex(row[0])}:{row[1]}", self._tell_window(row[0], row[1], "release"))
            for row in rows
        ]

    def _release_rows(self) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._db.execute(
                    f"SELECT {_RELEASE} FROM releases ORDER BY task_id, window"  # noqa: S608
                ).fetchall()
            except sqlite.Error as error:
                if not sqlite.is_damaged(error):
                    raise
                self._tell(
                    "",
                    "it is damaged: restore it from a copy, or start the analyzer, which takes "
                    "over what can be read",
                )
                return sorted(
                    salvage.readable(self._db, "releases", _RELEASE, "task_id, window"),
                    key=lambda row: (str(row[0]), str(row[1])),
                )

    def _sound(self, row: tuple[Any, ...]) -> bool:
        """Whether a release is what was written, and what was signed if a signer is known."""
        return fits(row) and (not self._signatures.known or self._signatures.hold(*row[:4]))

    def tally(self, task_id: TaskId, window: int) -> bytes | None:
        """Raises UNAVAILABLE if it is not what was written."""
        with self._lock:
            row = self._db.execute(
                "SELECT * FROM tallies WHERE task_id = ? AND window = ?", (task_id.raw, window)
            ).fetchone()
        if row is not None and not fits(row):
            raise ShoalError(Kind.UNAVAILABLE, self._tell_window(row[0], row[1], "tally"))
        return None if row is None else bytes(row[2])

    def close(self) -> None:
        """Release the file. Nothing is lost without it."""
        with self._lock:
            self._db.close()


def _batch(row: tuple[Any, ...]) -> Batch:
    _, _, manifest, manifest_hash, state, _ = row
    return Batch(decode_manifest(manifest), Digest(manifest_hash), BatchState(state))


def _digested(*values: Value) -> tuple[Value, ...]:
    return (*values, row_digest(*values))


def _hex(value: Value) -> str:
    return value.hex() if isinstance(value, bytes) else "unknown"


def _open_beside(path: Path) -> sqlite.Connection:
    """Read-only, beside a running service or after it ended."""
    if not path.is_file():
        raise ShoalError(
            Kind.NOT_FOUND, f"{path} does not exist: has the analyzer run with this data_dir?"
        )
    return sqlite.connect_read_only(path, _BUSY_S)


def _reason(error: Exception) -> str:
    return (error.strerror or "unreadable") if isinstance(error, OSError) else str(error)
