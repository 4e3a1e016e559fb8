"""What the shuffler keeps of a window in helper mode: sealed vectors in a flat file, seeds and
devices' hashes in SQLite.

A vector counts once file and transaction are on disk, in this order, so that a row never points at
bytes that a power cut took. Seeds open nothing here: the vectors are sealed to the analyzer.
Everything goes with the window.

What becomes of a window, each step once and durable: it takes no more vectors (``take_no_more``),
before the analyzer is shown one; damaged ones are left out; the set that was shown is decided
(``fix``), before a pad is given. So a vector joins no set after it was shown, pads are given for
one set alone, and a retry before ``fix`` shows the same one, but for what the disk damaged
meanwhile.
"""

from __future__ import annotations

import hmac
import os
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from shoal import failpoints
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.log import get_log
from shoal.services.conditions import Condition
from shoal.services.process import fsync_folder
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.rounds import StoredVector, VerifiedVector
from shoal.shuffler.stores.sqlite import disk
from shoal.shuffler.stores.sqlite.counts import AcknowledgedCounts
from shoal.shuffler.stores.sqlite.mended import open_mended
from shoal.shuffler.stores.sqlite.small_files import rolled_back, usable
from shoal.storage import sqlite
from shoal.storage.checksums import fits, row_digest
from shoal.storage.salvage import SavedTable

FILE_NAME, COUNTS_NAME = "singles.db", "counts-singles.db"
_SECRET_SIZE = 32  # bytes
_FAILED = "a vector could not be kept or read: try again later"
_TABLES = {
    "single_window": SavedTable(
        "task_id, window, secret, fixed, count, decided, closed, row_check", "task_id, window"
    ),
    "single": SavedTable(
        "task_id, window, device, place, digest, seed, left_out, row_check",
        "task_id, window, device",
    ),
}
_HOW_MANY = "SELECT count FROM single_window WHERE task_id = ? AND window = ?"
_WHERE = "WHERE task_id = ? AND window = ?"
_ONE_MORE = (
    "UPDATE single_window SET count = count + 1, "
    "row_check = row_digest(task_id, window, secret, fixed, count + 1, decided, closed) WHERE "
    "task_id = ? AND window = ?"
)
_FIX = (
    "UPDATE single_window SET fixed = 1, decided = ?3, row_check = row_digest(task_id, window, "
    "secret, 1, count, ?3, closed) "
    "WHERE task_id = ?1 AND window = ?2 AND fixed = 0 AND closed = 1"
)
_CLOSE = (
    "UPDATE single_window SET closed = 1, row_check = row_digest(task_id, window, secret, fixed, "
    "count, decided, 1) "
    "WHERE task_id = ? AND window = ?"
)
_COLUMNS = _TABLES["single_window"].columns
# constant text
_BEGIN = f"INSERT INTO single_window ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_REMEMBERED = 1_000  # windows that are over and forgotten
# constant text
_WINDOW = f"SELECT {_TABLES['single_window'].columns} FROM single_window {_WHERE}"  # noqa: S608
# constant text
_SINGLES = f"SELECT {_TABLES['single'].columns} FROM single {_WHERE} ORDER BY device"  # noqa: S608
_LEAVE_OUT = (
    "UPDATE single SET left_out = 1, row_check = row_digest(task_id, window, device, place, "
    "digest, seed, 1)"
)
_DAMAGED_WINDOW = (
    f"the row of a window is damaged on disk: restore {FILE_NAME} from a copy, or start again "
    "without what it held"
)
log = get_log("shuffler")


class SingleStore:
    """One SQLite file and one file of vectors per window in the data folder, which belongs to this
    process. Methods block.
    """

    def __init__(self, folder: Path, entropy: Entropy = SYSTEM) -> None:
        """The file is made when there is something to keep. Raises CONFIG if it is there and can't
        be used.
        """
        self._folder, self._entropy = folder, entropy
        self._lock = threading.Lock()
        self._held: sqlite.Connection | None = None
        self._counts: AcknowledgedCounts | None = None
        self._damage: dict[str, Condition] = {}
        self._named: set[WindowId] = set()  # windows whose file's name is on disk for certain
        # forgotten, the last ones: a vector that is still on its way is late
        self._over: dict[WindowId, None] = {}
        if (
            (folder / FILE_NAME).exists()
            or (folder / COUNTS_NAME).exists()
            or any(folder.glob("singles-*.vectors"))
        ):
            with usable(folder / FILE_NAME):
                self._open()

    def _open(self) -> sqlite.Connection:
        if self._held is None:
            mended = open_mended(self._folder / FILE_NAME, "singles", _TABLES)
            self._held, self._counts = mended.db, AcknowledgedCounts(self._folder / COUNTS_NAME)
            if mended.lost or mended.aside:
                self._tell(
                    "",
                    f"{FILE_NAME} was damaged: {len(mended.lost)} rows are lost"
                    + (f"; it is now {mended.aside.name}" if mended.aside else ""),
                )
            self._look_for_losses()
            # a window may have been forgotten half-way
            sqlite.empty_log(self._held, self._folder / FILE_NAME)
        return self._held

    def _look_for_losses(self) -> None:
        """Vectors that were acknowledged and have no row any more, and files of windows that have
        none.
        """
        known, acknowledged = set(), self._acknowledged_counts().all()
        for task_id, window, count in self._db.execute(
            "SELECT task_id, window, count FROM single_window"
        ).fetchall():
            known.add(self._path(WindowId(TaskId(task_id), window)).name)
            acknowledged[task_id, window] = max(count, acknowledged.get((task_id, window), 0))
        for (task_id, window), count in acknowledged.items():
            (held,) = self._db.execute(
                "SELECT count(*) FROM single WHERE task_id = ? AND window = ?", (task_id, window)
            ).fetchone()
            if held < count:
                self._tell_window(WindowId(TaskId(task_id), window), count - held)
        for path in self._folder.glob("singles-*.vectors"):
            if path.name not in known:  # of a commit that never was, or a window that is over
                disk.unlink(path)
        fsync_folder(self._folder)

    def _acknowledged_counts(self) -> AcknowledgedCounts:
        assert self._counts is not None  # noqa: S101 - opened with the file
        return self._counts

    def _tell_window(self, window: WindowId, lost: int) -> None:
        log.error(
            "acknowledged vectors are lost", task=window.task_id, window=window.window, count=lost
        )
        self._tell(
            f"{window.task_id.short}:{window.window}",
            f"window {window.window} of task {window.task_id.short}: {lost} acknowledged vectors "
            "are lost",
        )

    def _tell(self, subject: str, text: str) -> None:
        self._damage[subject] = Condition(
            "damage", f"{FILE_NAME} {subject}".strip(), f"{text}; check the disk", stops=False
        )

    def damage(self) -> list[Condition]:
        """For ``Conditions.watch``."""
        return list(self._damage.values())

    def missing(self, window: WindowId) -> int:
        """Acknowledged vectors of a window that the disk lost or changed: after
        ``leave_out_damaged``, those that are in no sum.
        """
        with self._lock, self._typed():
            if self._held is None:
                return 0
            known = self._db.execute(_WINDOW, _key(window)).fetchone()
            acknowledged = max(
                self._acknowledged_counts().all().get(_key(window), 0),
                known[4] if known is not None and fits(known) else 0,
            )
            return max(acknowledged - sum(map(fits, self._db.execute(_SINGLES, _key(window)))), 0)

    @property
    def _db(self) -> sqlite.Connection:
        """Of a method that has something to keep, or knows that something is kept."""
        return self._open()

    def add(self, vectors: Sequence[VerifiedVector]) -> list[Kind | None]:
        """Store them in one commit; per vector None = on disk, now or before, or why not.

        CONFLICT: the device has another vector in this window. WINDOW_CLOSED: it takes no more.
        WINDOW_FULL: it has as many as its words are made for. Raises OVERLOADED or INTERNAL for all
        of them; nothing was stored then.
        """
        with self._lock, self._typed():
            self._db.execute("BEGIN IMMEDIATE")
            outcomes = [self._add(vector) for vector in vectors]
            for window in {vector.window for vector in vectors}:
                self._sync(window)
            failpoints.hit("singles.commit")
            self._db.execute("COMMIT")
            keys = [_key(window) for window in {vector.window for vector in vectors}]
            counts = {
                key: row[0]
                for key in keys
                if (row := self._db.execute(_HOW_MANY, key).fetchone()) is not None
            }
            self._acknowledged_counts().put(counts)
            failpoints.hit("singles.commit.done")
            return outcomes

    def _add(self, vector: VerifiedVector) -> Kind | None:
        if vector.window in self._over:
            return Kind.WINDOW_CLOSED
        key = _key(vector.window)
        known = self._db.execute(_WINDOW, key).fetchone()
        if known is None:
            known = self._begin(key)
        elif not fits(
            known
        ):  # under another secret every device would be another one, and come in twice
            log.error(_DAMAGED_WINDOW, task=vector.window.task_id, window=vector.window.window)
            return Kind.INTERNAL
        secret, closed = known[2], known[6]
        device, digest = (
            hmac.digest(secret, vector.device_key, "sha256"),
            Digest.of(vector.sealed).raw,
        )
        held = self._db.execute(
            "SELECT digest FROM single WHERE task_id = ? AND window = ? AND device = ?",
            (*key, device),
        ).fetchone()
        if held is not None:
            return None if held[0] == digest else Kind.CONFLICT
        if closed:
            return Kind.WINDOW_CLOSED
        (place,) = self._db.execute(
            "SELECT coalesce(max(place) + 1, 0) FROM single WHERE task_id = ? AND window = ?", key
        ).fetchone()
        if place >= vector.most:
            return Kind.WINDOW_FULL
        with open(self._path(vector.window), "ab", opener=_private) as file:
            # what a crash left behind the last committed row
            file.truncate(place * len(vector.sealed))
            file.seek(place * len(vector.sealed))
            file.write(vector.sealed)
        entry = (*key, device, place, digest, vector.seed, 0)
        self._db.execute(
            "INSERT INTO single VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*entry, row_digest(*entry))
        )
        self._db.execute(_ONE_MORE, key)
        return None

    def _begin(self, key: tuple[bytes, int]) -> tuple[bytes | int, ...]:
        row = (*key, self._entropy.bytes(_SECRET_SIZE), 0, 0, 0, 0)
        known = (*row, row_digest(*row))
        self._db.execute(_BEGIN, known)
        return known

    def take_no_more(self, window: WindowId) -> None:
        """From now on no new vector of this window is stored, also after a restart, whatever the
        clock says; one that is stored is still acknowledged again. Durable on return; may be
        repeated. Raises MISMATCH if that is damaged.
        """
        with self._lock, self._typed():
            self._db.execute("BEGIN IMMEDIATE")
            known = self._db.execute(_WINDOW, _key(window)).fetchone() or self._begin(_key(window))
            if not fits(known):
                raise ShoalError(Kind.MISMATCH, _DAMAGED_WINDOW)
            if not known[6]:
                self._db.execute(_CLOSE, _key(window))
            failpoints.hit("singles.close")
            self._db.execute("COMMIT")
            failpoints.hit("singles.close.done")

    def _sync(self, window: WindowId) -> None:
        path = self._path(window)
        if path.exists():
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                failpoints.hit("singles.sync")
                os.fsync(file)
                if window not in self._named:
                    fsync_folder(self._folder)
                    self._named.add(window)
            finally:
                os.close(file)

    def count(self, window: WindowId) -> int:
        """Vectors of a window that are on disk."""
        with self._lock, self._typed():
            if self._held is None:
                return 0
            (count,) = self._db.execute(
                "SELECT count(*) FROM single WHERE task_id = ? AND window = ?", _key(window)
            ).fetchone()
            return int(count)

    def rows(self, window: WindowId) -> list[StoredVector]:
        """Those that are (to be) in the sum, in order of the devices' hashes.

        Raises MISMATCH if the set is decided and one of its rows is lost or damaged: no other set
        is ever summed.
        """
        with self._lock, self._typed():
            if self._held is None:
                return []
            known, rows = self._db.execute(_WINDOW, _key(window)).fetchone(), self._whole(window)
            if known is not None and (not fits(known) or (known[3] and known[5] != len(rows))):
                raise ShoalError(
                    Kind.MISMATCH,
                    f"the rows of a decided sum are damaged on disk: restore {FILE_NAME} from a "
                    "copy",
                )
            return rows

    def _whole(self, window: WindowId) -> list[StoredVector]:
        held = self._db.execute(_SINGLES, _key(window)).fetchall()
        return [StoredVector(row[3], row[5], row[4]) for row in held if fits(row) and not row[6]]

    def leave_out_damaged(self, window: WindowId, size: int) -> None:
        """Before the set of rows is decided: delete those that are not what came, and count them.
        Reads all vectors.
        """
        before = self.missing(window)
        whole = {row.place for row in self.rows(window) if self._intact(window, row, size)}
        with self._lock, self._typed():
            if self._held is None:
                return
            held = self._db.execute(_SINGLES, _key(window)).fetchall()
            gone = [(*_key(window), row[2]) for row in held if not fits(row) or row[3] not in whole]
            # constant text
            self._db.executemany(f"DELETE FROM single {_WHERE} AND device = ?", gone)  # noqa: S608
        if gone:
            self._tell_window(window, max(self.missing(window), before))

    def _intact(self, window: WindowId, row: StoredVector, size: int) -> bool:
        try:
            return Digest.of(self.read(window, row.place, size)).raw == row.digest
        except ShoalError:  # cut short, or gone
            return False

    def is_fixed(self, window: WindowId) -> bool:
        """Raises MISMATCH if that is damaged."""
        with self._lock, self._typed():
            if self._held is None:
                return False
            row = self._db.execute(_WINDOW, _key(window)).fetchone()
            if row is not None and not fits(row):
                raise ShoalError(
                    Kind.MISMATCH,
                    f"whether a sum is decided is damaged on disk: restore {FILE_NAME} from a copy",
                )
            return row is not None and row[3] == 1

    def fix(self, window: WindowId, shown: Sequence[StoredVector], left_out: Sequence[int]) -> None:
        """Decide the set of rows, once: those that the analyzer was shown but for these places.
        Durable on return.

        Raises CONFLICT if it was decided before or the window takes vectors still; MISMATCH if what
        is stored is not what was shown: nothing is decided then, and the rows may be shown again.
        """
        with self._lock, self._typed():
            self._db.execute("BEGIN IMMEDIATE")
            known = self._db.execute(_WINDOW, _key(window)).fetchone()
            if known is not None and not fits(known):
                raise ShoalError(Kind.MISMATCH, _DAMAGED_WINDOW)
            done = self._db.execute(_FIX, (*_key(window), len(shown) - len(set(left_out))))
            if done.rowcount != 1:
                raise ShoalError(
                    Kind.CONFLICT,
                    "the rows of this window's sum were decided before: no other set is ever "
                    "summed",
                )
            if set(self._whole(window)) != set(shown):
                raise ShoalError(
                    Kind.MISMATCH,
                    "what is stored of a window is not what was delivered: it is delivered again",
                )
            self._db.executemany(
                f"{_LEAVE_OUT} {_WHERE} AND place = ?",
                [(*_key(window), place) for place in left_out],
            )
            failpoints.hit("singles.fix")
            self._db.execute("COMMIT")
            failpoints.hit("singles.fix.done")

    def read(self, window: WindowId, place: int, size: int) -> bytes:
        """The sealed vector at a place. Raises INTERNAL if it is not all there."""
        with self._typed(), open(self._path(window), "rb") as file:
            file.seek(place * size)
            data = file.read(size)
            if len(data) != size:
                raise ShoalError(Kind.INTERNAL, "the disk failed: a vector was cut short")
            return data

    def forget(self, window: WindowId) -> None:
        """The window is over: destroy vectors, seeds and hashes, and take none any more. May be
        repeated.
        """
        with self._lock, self._typed():
            self._over[window] = None
            if len(self._over) > _REMEMBERED:
                del self._over[next(iter(self._over))]
            if self._held is None:
                return
            self._acknowledged_counts().forget(
                _key(window)
            )  # first: what is deleted on purpose is not missed
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("DELETE FROM single WHERE task_id = ? AND window = ?", _key(window))
            self._db.execute(
                "DELETE FROM single_window WHERE task_id = ? AND window = ?", _key(window)
            )
            failpoints.hit("singles.forget")
            self._db.execute("COMMIT")
            failpoints.hit("singles.forget.done")
            disk.unlink(self._path(window))
            self._named.discard(window)
            failpoints.hit("singles.unlinked")
            fsync_folder(self._folder)  # also if it was gone: a crash may have come before this
            # the log would keep seeds and secret
            sqlite.empty_log(self._db, self._folder / FILE_NAME)

    def windows(self) -> set[WindowId]:
        """Windows of which something is kept."""
        with self._lock, self._typed():
            if self._held is None:
                return set()
            rows = self._db.execute("SELECT task_id, window FROM single_window").fetchall()
            return {WindowId(TaskId(task_id), window) for task_id, window in rows}

    def close(self) -> None:
        """Release the files. Nothing is lost without it."""
        with self._lock:
            if self._held is not None:
                self._held.close()
            if self._counts is not None:
                self._counts.close()

    def _path(self, window: WindowId) -> Path:
        return self._folder / f"singles-{window.task_id.hex[:32]}-{window.window}.vectors"

    def _typed(self) -> AbstractContextManager[None]:
        return rolled_back(lambda: self._held, self._folder, _FAILED)


def _key(window: WindowId) -> tuple[bytes, int]:
    return window.task_id.raw, window.window


def _private(path: str, flags: int) -> int:
    return os.open(path, (flags & ~os.O_APPEND) | os.O_CLOEXEC, 0o600)
