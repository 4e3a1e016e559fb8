"""Which devices have answered a window of rounds: one vector per device and window, however often
the shuffler starts anew.

A device counts as having answered once its vector is complete, not when it joins: a device whose
round was aborted before, or that lost its seat before, may try another round of the window. A
device is remembered as HMAC-SHA256(secret of the window, device key): without the secret, which is
destroyed with the window, the hashes say nothing.
"""

from __future__ import annotations

import hmac
import threading
from contextlib import AbstractContextManager
from pathlib import Path

from shoal import failpoints
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.services.conditions import Condition
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.sqlite.counts import AcknowledgedCounts
from shoal.shuffler.stores.sqlite.mended import open_mended
from shoal.shuffler.stores.sqlite.small_files import rolled_back, usable
from shoal.storage import sqlite
from shoal.storage.checksums import row_digest
from shoal.storage.salvage import SavedTable

FILE_NAME, COUNTS_NAME = "rounds.db", "counts-rounds.db"
_SECRET_SIZE = 32  # bytes
_FAILED = "the answer could not be written down: send the same bytes again later"
_TABLES = {
    "secret": SavedTable("task_id, window, secret, count, row_check", "task_id, window"),
    "admitted": SavedTable("task_id, window, device, row_check", "task_id, window, device"),
}
_HOW_MANY = "SELECT count FROM secret WHERE task_id = ? AND window = ?"
_COUNT = (
    "UPDATE secret SET count = count + 1, row_check = row_digest(task_id, window, secret, count + "
    "1) WHERE task_id = ? AND window = ?"
)


class Admissions:
    """One SQLite file in the data folder, which belongs to this process. Methods block and may be
    called by any thread.
    """

    def __init__(self, folder: Path, entropy: Entropy = SYSTEM) -> None:
        """The file is made when there is something to remember. Raises CONFIG if it is there and
        can't be used.
        """
        self._folder, self._entropy = folder, entropy
        self._lock = threading.Lock()
        self._secrets: dict[tuple[bytes, int], bytes] = {}
        # windows of which it is not known any more who answered
        self._unsure: set[tuple[bytes, int]] = set()
        self._damaged = False
        self._counts: AcknowledgedCounts | None = None
        self._db: sqlite.Connection | None = None
        if (folder / FILE_NAME).exists() or (folder / COUNTS_NAME).exists():
            with usable(folder / FILE_NAME):
                self._open()

    def _open(self) -> sqlite.Connection:
        if self._db is None:
            mended = open_mended(self._folder / FILE_NAME, "rounds", _TABLES)
            self._db, self._counts = mended.db, AcknowledgedCounts(self._folder / COUNTS_NAME)
            acknowledged = self._counts.all()
            rows = self._db.execute("SELECT task_id, window, secret, count FROM secret").fetchall()
            self._secrets = {(task_id, window): secret for task_id, window, secret, _ in rows}
            for task_id, window, _, count in rows:
                acknowledged[task_id, window] = max(count, acknowledged.get((task_id, window), 0))
            for (task_id, window), count in acknowledged.items():
                (held,) = self._db.execute(
                    "SELECT count(*) FROM admitted WHERE task_id = ? AND window = ?",
                    (task_id, window),
                ).fetchone()
                if held < count or (task_id, window) not in self._secrets:
                    self._unsure.add((task_id, window))
            self._unsure |= {
                (row[0], row[1])
                for _, row in mended.lost
                if isinstance(row[0], bytes) and isinstance(row[1], int)
            }
            # a window may have been forgotten half-way
            sqlite.empty_log(self._db, self._folder / FILE_NAME)
            self._damaged = bool(mended.lost or mended.aside or self._unsure)
        return self._db

    def damage(self) -> list[Condition]:
        """For ``Conditions.watch``."""
        if not self._damaged:
            return []
        text = (
            f"{FILE_NAME} was damaged: {len(self._unsure)} windows take no vector any more, since "
            "it is not known who answered"
        )
        return [Condition("damage", FILE_NAME, f"{text}; check the disk", stops=False)]

    def answered(self, window: WindowId, device_key: bytes) -> bool:
        """Whether a complete vector of this device is, or was, here."""
        with self._lock, self._typed():
            if _key(window) in self._unsure:
                raise ShoalError(
                    Kind.OVERLOADED,
                    "who answered this window is not known any more: it takes no vector, try the "
                    "next one",
                )
            secret = self._secrets.get(_key(window))
            if secret is None:
                return False
            known = (
                self._open()
                .execute(
                    "SELECT 1 FROM admitted WHERE task_id = ? AND window = ? AND device = ?",
                    (*_key(window), _hash(secret, device_key)),
                )
                .fetchone()
            )
            return known is not None

    def remember(self, window: WindowId, device_key: bytes) -> None:
        """This device's vector is complete. Durable on return; may be repeated. Raises OVERLOADED
        or INTERNAL: say nothing to it then.
        """
        with self._lock, self._typed():
            db = self._open()
            known = self._secrets.get(_key(window))
            secret = known or self._entropy.bytes(_SECRET_SIZE)
            db.execute("BEGIN IMMEDIATE")
            if known is None:
                row = (*_key(window), secret, 0)
                db.execute(
                    "INSERT OR REPLACE INTO secret VALUES (?, ?, ?, ?, ?)", (*row, row_digest(*row))
                )
            tag = (*_key(window), _hash(secret, device_key))
            if db.execute(
                "INSERT OR IGNORE INTO admitted VALUES (?, ?, ?, ?)", (*tag, row_digest(*tag))
            ).rowcount:
                db.execute(_COUNT, _key(window))
            failpoints.hit("rounds.admitted")
            db.execute("COMMIT")
            self._secrets[_key(window)] = secret
            assert self._counts is not None  # noqa: S101 - opened with the file
            self._counts.put({_key(window): db.execute(_HOW_MANY, _key(window)).fetchone()[0]})
            failpoints.hit("rounds.admitted.done")

    def forget(self, window: WindowId) -> None:
        """The window is over: destroy its secret and hashes. May be repeated. Raises OVERLOADED or
        INTERNAL.
        """
        with self._lock, self._typed():
            if self._db is None:
                return
            if self._counts is not None:  # first: what is deleted on purpose is not missed
                self._counts.forget(_key(window))
            if _key(window) in self._secrets:
                self._db.execute("BEGIN IMMEDIATE")
                self._db.execute(
                    "DELETE FROM admitted WHERE task_id = ? AND window = ?", _key(window)
                )
                self._db.execute(
                    "DELETE FROM secret WHERE task_id = ? AND window = ?", _key(window)
                )
                failpoints.hit("rounds.forgotten")
                self._db.execute("COMMIT")
                del self._secrets[_key(window)]
                self._unsure.discard(_key(window))
                failpoints.hit("rounds.forgotten.done")
            # The log would keep the secret. Also when nothing is left to delete: emptying it may
            # have failed before.
            sqlite.empty_log(self._db, self._folder / FILE_NAME)

    def windows(self) -> set[WindowId]:
        """Windows of which something is remembered."""
        with self._lock:
            return {WindowId(TaskId(task_id), window) for task_id, window in self._secrets}

    def close(self) -> None:
        """Release the files. Nothing is lost without it."""
        with self._lock:
            if self._db is not None:
                self._db.close()
            if self._counts is not None:
                self._counts.close()

    def _typed(self) -> AbstractContextManager[None]:
        return rolled_back(lambda: self._db, self._folder, _FAILED)


def _key(window: WindowId) -> tuple[bytes, int]:
    return window.task_id.raw, window.window


def _hash(secret: bytes, device_key: bytes) -> bytes:
    return hmac.digest(secret, device_key, "sha256")
