"""The one file of an agent: reports that wait, charges, memoized reports, consents, the ledger.

Beside it stands FILE.head, the ledger's last head, written anew after a commit that
made the ledger longer, once a second at most: it shows that entries were cut off, which no chain
shows by itself. Two synced writes for each report would cost a device more than the report. What
was not noted is noted at the next commit, ``settle``, closing or start: until then the head lags
behind, as after a process that died. A head that does not lie on the chain is left as it is, for
``verify`` to find; until the owner confirms (``shoal.clients.memory.setback``) nothing is charged.
What was spent is noted there too, and that ahead: a charge beyond the noted sum writes a larger one
first. Only the owner's word makes it smaller again, but for what the same process had noted beyond
the charge it was about to make.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from functools import lru_cache
from pathlib import Path

from shoal.clients.memory.charge_sums import Sums
from shoal.clients.memory.commitments import check_charge
from shoal.clients.memory.database_thread import StoreThread
from shoal.clients.memory.ledger import EMPTY, Head, Noted
from shoal.clients.memory.marks import OUTBOX, Damage, damaged
from shoal.clients.memory.sqlite_file import OpenPart, SqliteFile
from shoal.errors import Kind, ShoalError
from shoal.failpoints import hit
from shoal.storage import sqlite
from shoal.storage.disks import disk_error

HEAD_SUFFIX = ".head"
_HEAD_BYTES = 200  # more than any head has
_AHEAD = 8  # charges that are noted before they are made, where a new sum has to be noted at all
HEAD_PAUSE_S = 1.0  # between two notes of a head


class AgentStore(SqliteFile):
    """An agent's file: ``SqliteOutbox`` and ``SqliteCommitments`` stand on it, and their writes
    join one transaction.

    ``thread``: where an event loop has its steps run.
    """

    def __init__(self, path: Path, head_pause_s: float = HEAD_PAUSE_S) -> None:
        self._head_pause_s, self.thread = head_pause_s, StoreThread()
        # the ledger, by the transaction under way or by one whose head was not noted yet
        self._longer = False
        # nano-epsilon of the last charge: noted beyond what was spent, so that the next one needn't
        self._ahead = 0
        # what ``reserve`` noted last, and how much of it is of charges that are made
        self._padded = -1, 0
        self.sums = Sums(self)
        # of the transaction under way: what is noted, if it lies on the chain
        self._intact: Noted | None = None
        # from when on, by the monotonic clock, a head is noted after a commit
        self._again = -math.inf
        self.head_path = path.with_name(path.name + HEAD_SUFFIX)
        unusable = (
            "not a usable outbox file: restore it, or move it away and leave "
            f"{self.head_path.name} where it is: a new one is made, and "
            "`shoal agent memory` says what the old one knew"
        )
        super().__init__(
            path,
            "outbox",
            "outbox",
            unusable,
            lambda: hit("outbox.commit"),
            OUTBOX,
        )
        try:
            self._begin_head()
        except (sqlite.Error, OSError) as error:
            self._db.close()
            if isinstance(error, sqlite.Error):
                raise self._failure(error) from None
            raise disk_error(f"{self._name}: {self.head_path.name}", error, path.parent) from None

    def committed(self) -> None:
        """The head beside the file follows."""
        self.sums.ended()
        self._intact = None
        if self._longer and time.monotonic() >= self._again:
            self.note_head()

    def undo(self, level: OpenPart) -> None:
        """As ``SqliteFile.undo``; a charge may be among what is undone."""
        self.sums.ended()
        self._intact = None
        super().undo(level)

    def longer(self) -> None:
        """The ledger grows by the transaction under way: its head is noted after the commit."""
        self._longer = True

    def note_head(self) -> None:
        """Write the ledger's head beside the file. Never raises: what was committed stands, and a
        head may lag behind.

        Under the lock of the file, so that of two processes none writes an older head over a newer
        one. What is noted as spent is never made smaller: it may be the only thing left that knows.
        """
        with self.lock, contextlib.suppress(sqlite.Error, OSError, ShoalError):
            self._again = time.monotonic() + self._head_pause_s
            hit("outbox.head")  # committed, and not noted yet
            self._db.execute("BEGIN IMMEDIATE")
            try:
                noted, head = self.noted(), self._head()
                if (
                    noted is not None
                    and head is not None
                    and noted.head != head
                    and self._on_chain(noted.head)
                ):
                    self._note(Noted(head, max(self.spent() + self._ahead, self._surely(noted))))
                self._longer = False
            finally:
                self._roll_back()

    def _surely(self, noted: Noted) -> int:
        """What was noted, without what this process itself added for charges that it has not made
        yet.
        """
        return self._padded[1] if noted.spent == self._padded[0] else noted.spent or 0

    def _note(self, noted: Noted) -> None:
        self._intact = None
        _replace(self.head_path, f"{noted}\n".encode())

    def settle(self) -> None:
        """Note the head now, if it lags behind. Never raises."""
        with self.lock:
            if self._longer and not self.writing:
                self.note_head()

    def noted(self) -> Noted | None:
        """What stands in FILE.head; None if it is missing or unreadable."""
        try:
            descriptor = os.open(self.head_path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return _parsed(os.read(descriptor, _HEAD_BYTES))
            finally:
                os.close(descriptor)
        except (OSError, ValueError, ShoalError):
            return None

    def noted_head(self) -> Head | None:
        """The ledger's length and last hash as the file beside it says; None: there is none."""
        noted = self.noted()
        return None if noted is None else noted.head

    def forgetful(self) -> bool:
        """Whether the noted head is missing, or does not lie on the chain: this file may be an
        older copy, which knows too little.
        """
        with self.lock:
            try:
                return self._noted_intact() is None
            except sqlite.Error as error:
                raise self._failure(error) from None

    def _noted_intact(self) -> Noted | None:
        """What is noted, if it lies on the chain: looked at once in a transaction, whose lock
        whoever notes anything else needs. Under the lock.
        """
        noted = self._intact
        if noted is None:
            noted = self.noted()
            if noted is not None and not self._on_chain(noted.head):
                noted = None
            if self.writing:
                self._intact = noted
        return noted

    def why_set_back(self) -> ShoalError:
        """MISMATCH, with what an owner can do: the file is older than its head, or another's."""
        return ShoalError(
            Kind.MISMATCH,
            f"{self._name} is older than {self.head_path.name} beside it, or not the file that "
            "belongs to it: nothing is answered or sent "
            "until `shoal agent memory --confirm-set-back`, which says what is lost",
        )

    def reserve(self, nano: int, limit: int | None) -> int | None:
        """Before a charge of ``nano``, in its transaction: what is spent after it is noted beside
        the file, durably. Returns it, None: a sum is damaged, so that it may be more.

        Raises REFUSED, INVALID as ``check_charge`` does; MISMATCH if this file may be an older
        copy: then nothing is charged, because too little would be.
        """
        spent, damage = self._spent()
        check_charge(spent, nano, limit)
        noted, after = self._noted_intact(), spent + nano
        if noted is None:
            raise self.why_set_back()
        if nano:
            self._ahead = 0 if damage is not None else nano
        if noted.spent is None or noted.spent < after:
            self._padded = (after + (_AHEAD - 1) * self._ahead, after)
            self._note(Noted(noted.head, self._padded[0]))
        return after if damage is None else None

    def spent(self) -> int:
        """Nano-epsilon over everything that was ever charged, and what the owner confirmed as lost.
        Where a sum is damaged, or less than its charges, at least what was noted beside the file,
        which is written ahead; MISMATCH if that is not there either. Too little only where a sum is
        gone together with its charges, or a loss: the noted sum still has it then.
        """
        with self.lock:
            return self._spent()[0]

    def _spent(self) -> tuple[int, Damage | None]:
        """And a sum that is damaged or too small."""
        spent, damage = self.sums.look()
        if damage is not None:
            noted = self.noted()
            if noted is None or noted.spent is None:
                raise damaged(damage)
            spent = max(spent, noted.spent)
        return spent, damage

    def accept_head(self) -> None:
        """The chain as it is stands from now on, whatever was noted. After ``commitments.lose``.
        Raises OVERLOADED: then it does not.
        """
        with self.lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    hit("outbox.accept")
                    head = self._head()
                    if head is not None:
                        self._note(Noted(head, self.spent()))
                finally:
                    self._roll_back()
            except sqlite.Error as error:
                raise self._failure(error) from None
            except OSError as error:
                raise disk_error(self._name, error, self.path.parent) from None

    def _head(self) -> Head | None:
        """None: the last entry is no entry, which is for ``verify`` to say."""
        row = self._db.execute(
            "SELECT number, hash FROM ledger ORDER BY number DESC LIMIT 1"
        ).fetchone()
        try:
            return EMPTY if row is None else Head(*row)
        except (ShoalError, TypeError):
            return None

    def _on_chain(self, noted: Head) -> bool:
        if noted == EMPTY:
            return True
        row = self._db.execute(
            "SELECT hash FROM ledger WHERE number = ?", (noted.count,)
        ).fetchone()
        return row is not None and bool(row[0] == noted.digest)

    def _begin_head(self) -> None:
        """A new file gets its first head before its first entry: from then on a missing one means
        that somebody took it.
        """
        if self.head_path.exists():
            if self.noted_head() != self._head():
                self.note_head()
            return
        self._db.execute("BEGIN IMMEDIATE")
        try:
            used = self._db.execute(
                "SELECT 1 FROM ledger UNION ALL SELECT 1 FROM charge LIMIT 1"
            ).fetchone()
            if used is None and not self.head_path.exists():
                self._note(Noted(EMPTY, 0))
        finally:
            self._roll_back()

    def close(self) -> None:
        """The last head is noted, if the disk lets it. Its thread takes no more steps."""
        with self.lock:
            self.settle()
            super().close()
        self.thread.close()


@lru_cache(maxsize=1)  # read before every charge, and written once in several
def _parsed(data: bytes) -> Noted:
    return Noted.parse(data.decode("ascii"))


def _replace(path: Path, data: bytes) -> None:
    """The new bytes or the old ones, whatever happens: written beside, made durable, renamed. Mode
    0600.
    """
    beside = path.with_name(path.name + ".new")
    with contextlib.suppress(FileNotFoundError):
        beside.unlink()  # of a process that died here
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    hit("outbox.head.rename")
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
