"""The SQLite files of a device: mode 0600, WAL with synchronous=FULL, deleted bytes overwritten,
one writer at a time.

Several processes may share a file (a command beside a running agent), and several threads one
object. A transaction is exclusive from its first statement on, and whatever is written inside it on
the same thread joins it: what belongs together commits together.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from shoal.clients.memory.marks import MarkedTable, MarkedTables, row_mark
from shoal.errors import Kind, ShoalError
from shoal.storage import sqlite
from shoal.storage.disks import disk_error, names_its_cause

_BUSY_S = 10.0
# Of these the disk, the machine or another process is the cause: later it may work.
_DISK = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN")
_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_NOMEM")
_MIGRATIONS = Path(__file__).parent / "migrations"
_PRAGMAS = (
    *sqlite.DURABLE,
    "secure_delete = ON",
    "trusted_schema = OFF",
    "wal_autocheckpoint = 256",  # pages of 4 KiB: a device's disk may be small
    "journal_size_limit = 262144",  # bytes
)
_ROW = tuple[Any, ...]


class OpenPart:
    """A transaction under way, or a part of it. ``changes``: rows that the connection had written
    when it began. ``point``: the level whose savepoint undoes this one; None: the transaction
    itself, and a part of one statement.
    """

    __slots__ = ("changes", "name", "point")

    def __init__(self, changes: int) -> None:
        self.changes, self.name = changes, ""
        self.point: OpenPart | None = None


class SqliteFile:
    """Opens or makes the file. Raises CONFIG (no such folder, no database, written by a newer
    version, readable by others), OVERLOADED.

    ``what``: its name in messages. ``migrations``: the NAME of this package's
    ``migrations/NAME_001.sql`` and so on. ``unusable``: what to do with a file that is none.
    ``point``: passes the failpoint of a commit. ``tables``: those whose rows have marks.
    """

    def __init__(
        self,
        path: Path,
        what: str,
        migrations: str,
        unusable: str,
        point: Callable[[], None],
        tables: Mapping[str, MarkedTable],
    ) -> None:
        self.path, self._what, self._unusable, self._point = path, what, unusable, point
        self.marked = MarkedTables(self, tables)
        # held through a transaction: other threads of this object wait, and see all of it or
        # nothing
        self.lock = threading.RLock()
        self._levels: list[OpenPart] = []  # the transaction under way, and the parts of it
        self._broken = False
        private_file(path, what)
        try:
            self._db = sqlite.connect(
                path, _PRAGMAS, functions={"row_mark": row_mark}, text_factory=_text, busy_s=_BUSY_S
            )
        except sqlite.Error as error:
            raise self._failure(error) from None
        try:
            sqlite.migrate(self._db, self._name, _MIGRATIONS, migrations)
        except BaseException as error:
            self._db.close()
            if isinstance(error, sqlite.Error):
                raise self._failure(error) from None
            if isinstance(error, OSError):
                raise disk_error(self._name, error, path.parent) from None
            raise

    @property
    def _name(self) -> str:
        return f"{self._what} {self.path.name}"

    def write(self, *, one_statement: bool = False) -> AbstractContextManager[sqlite.Connection]:
        """One exclusive transaction: committed whole, or nothing of it if an exception leaves it.

        Inside another one of this thread: a part of that, undone alone if an exception leaves it;
        the outer one commits. Raises OVERLOADED when the disk is full, failing or busy: nothing was
        written then.

        ``one_statement``: the caller writes by one statement at most, which is all or nothing by
        itself: as a part it needs no savepoint. Should something be raised after that statement,
        the whole transaction is undone.
        """
        return _Write(self, one_statement)

    def begin(self, one_statement: bool) -> OpenPart:
        """Of ``_Write``, under the lock: a transaction, or a part of the one under way."""
        if not self._levels:
            self._db.execute("BEGIN IMMEDIATE")
            self._broken = False
            level = OpenPart(self._db.total_changes)
        else:
            self._check_whole()
            level = OpenPart(self._db.total_changes)
            if not one_statement:
                level.point = self._point_here(level)
        self._levels.append(level)
        return level

    def _point_here(self, level: OpenPart) -> OpenPart:
        """The level whose savepoint stands before everything that is written from now on: one
        around this where nothing was written since, or a new one.
        """
        last = next((each.point for each in reversed(self._levels) if each.point), None)
        if last is not None and last.changes == level.changes:
            return last
        level.name = f"part_{len(self._levels)}"
        self._db.execute(f"SAVEPOINT {level.name}")
        return level

    def end(self, level: OpenPart) -> None:
        """Of ``_Write``: the level's body came to its end. The last level commits."""
        self._check_whole()
        if len(self._levels) == 1:
            self._point()
            self._db.execute("COMMIT")
            self.marked.forget_rows()
        elif level.point is level:
            self._db.execute(f"RELEASE {level.name}")
        self._levels.pop()

    def undo(self, level: OpenPart) -> None:
        """Of ``_Write``: an exception leaves the level. Where SQLite itself gave the whole
        transaction up (a full disk), nothing after it may be written.
        """
        self.marked.forget_rows()
        if len(self._levels) == 1:
            self._roll_back()
        elif level.point is not None:
            with contextlib.suppress(sqlite.Error):
                self._db.execute(f"ROLLBACK TO {level.point.name}")
                if level.point is level:
                    self._db.execute(f"RELEASE {level.name}")
        elif self._db.total_changes != level.changes:
            self._broken = True
        self._broken = self._broken or not self._db.in_transaction
        self._levels.pop()

    def committed(self) -> None:
        """Called under the lock, after each commit. Must not raise."""

    def _check_whole(self) -> None:
        """Outside a transaction every statement would commit by itself."""
        if self._broken or not self._db.in_transaction:
            self._broken = True
            raise ShoalError(
                Kind.OVERLOADED, f"{self._name}: the disk is full or failing: make room, then again"
            )

    def _roll_back(self) -> None:
        with contextlib.suppress(sqlite.Error):  # SQLite may have done it already
            self._db.execute("ROLLBACK")

    @property
    def connection(self) -> sqlite.Connection:
        """What a transaction's statements are given to. Under the lock of the file."""
        return self._db

    @property
    def writing(self) -> bool:
        """Whether a transaction is under way that may be undone yet. Under the lock of the file."""
        return bool(self._levels)

    @property
    def written(self) -> int | None:
        """As ``ReadableFile.written``: while it stays the same, and no part is undone, every row
        does.
        """
        return self._db.total_changes if self._levels else None

    def read(self, query: str, values: _ROW = ()) -> list[_ROW]:
        """Committed rows, and those of this thread's own transaction."""
        with self.lock:
            try:
                return self._db.execute(query, values).fetchall()
            except sqlite.Error as error:
                raise self._failure(error) from None

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Several reads of the same state, whatever other processes write meanwhile."""
        with self.lock:
            if self._db.in_transaction:
                yield
                return
            try:
                self._db.execute("BEGIN")
            except sqlite.Error as error:
                raise self._failure(error) from None
            try:
                yield
            finally:
                self._roll_back()

    def each(self, query: str) -> Iterator[_ROW]:
        """The same, one row after the other: for tables that need not fit into memory. Others wait
        until it ends.
        """
        with self.lock:
            try:
                yield from self._db.execute(query)
            except sqlite.Error as error:
                raise self._failure(error) from None

    def close(self) -> None:
        """Close the connection: nothing may be read or written any more. Idempotent."""
        with self.lock:
            self._db.close()

    def failure(self, error: sqlite.Error | OSError) -> ShoalError:
        """What to tell of an error that SQLite or the disk raised."""
        if isinstance(error, OSError):
            return disk_error(self._name, error, self.path.parent)
        return self._failure(error)

    def _failure(self, error: sqlite.Error) -> ShoalError:
        name = getattr(error, "sqlite_errorname", "") or ""
        if name.startswith(_DISK):
            return disk_error(self._name, error, self.path.parent)
        if name.startswith(_BUSY):
            return ShoalError(
                Kind.OVERLOADED,
                f"{self._name}: another program keeps it busy, or memory is short: end what does, "
                "then again",
            )
        if isinstance(error, sqlite.ProgrammingError):
            return ShoalError(Kind.UNAVAILABLE, f"{self._name}: it is closed: open it again")
        return ShoalError(Kind.CONFIG, f"{self._name}: {self._unusable}")


class _Write:
    """See ``SqliteFile.write``. A class: a report goes through a dozen, and a generator takes five
    times as long.
    """

    __slots__ = ("_file", "_level", "_one_statement")

    def __init__(self, file: SqliteFile, one_statement: bool) -> None:
        self._file, self._one_statement = file, one_statement

    def __enter__(self) -> sqlite.Connection:
        file = self._file
        file.lock.acquire()
        try:
            self._level = file.begin(self._one_statement)
        except BaseException as error:
            file.lock.release()
            if isinstance(error, sqlite.Error | OSError):
                raise file.failure(error) from None
            raise
        return file.connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        file = self._file
        try:
            if error is None:
                try:
                    file.end(self._level)
                except BaseException as failed:
                    file.undo(self._level)
                    error = failed
                    if not isinstance(failed, sqlite.Error | OSError):
                        raise
            else:
                file.undo(self._level)
            if isinstance(error, sqlite.Error | OSError):
                raise file.failure(error) from None
            if error is None and not file.writing:
                file.committed()
        finally:
            file.lock.release()


def _text(raw: bytes) -> str:
    """A text that a disk changed is read all the same: its mark tells."""
    return raw.decode("utf-8", "replace")


def private_file(path: Path, what: str) -> None:
    """Make the file with mode 0600 before SQLite does (its -wal and -shm take over the mode), or
    check it.

    An existing file is never opened here: closing any descriptor of it would drop the locks that
    SQLite holds (POSIX).
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        try:
            mode = path.stat().st_mode
        except OSError as error:
            raise ShoalError(
                Kind.CONFIG,
                f"{what} {path}: {error.strerror or 'a link'}: name a file in a folder of this "
                "user",
            ) from None
        if not stat.S_ISREG(mode):
            raise ShoalError(Kind.CONFIG, f"{what} {path}: not a file: name another") from None
        if mode & 0o077:
            raise ShoalError(
                Kind.CONFIG, f"{what} {path}: others may read it: chmod 600 {path}"
            ) from None
    except OSError as error:
        if names_its_cause(error):
            raise disk_error(f"{what} {path}", error, path.parent) from None
        raise ShoalError(
            Kind.CONFIG,
            f"{what} {path}: {error.strerror or 'cannot be made'}: name a file in a folder of this "
            "user",
        ) from None
