"""The one way in which this program opens its SQLite files: settings, migrations, and what a
failure means.

No other module of Shoal imports ``sqlite3``, but for the source of values that reads databases of
other programs. Everybody takes connections and errors from here. Transactions are begun and ended
by name (``BEGIN IMMEDIATE``, ``COMMIT``). The module is light: an idle agent has it loaded.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import (
    Connection,
    DatabaseError,
    Error,
    IntegrityError,
    OperationalError,
    ProgrammingError,
)
from typing import Any

from shoal import failpoints
from shoal.errors import Kind, ShoalError

__all__ = [
    "DURABLE",
    "LIBRARY_VERSION",
    "Connection",
    "DamagedError",
    "DatabaseError",
    "Error",
    "IntegrityError",
    "OperationalError",
    "ProgrammingError",
    "connect",
    "connect_read_only",
    "empty_log",
    "is_damaged",
    "is_full",
    "is_whole",
    "legible",
    "migrate",
    "open_whole",
    "rollback",
    "scripts",
    "version_of",
]

# Write-ahead log, synced at every commit: a commit that returned survives a power cut. (NORMAL
# would lose the last ones.)
DURABLE = ("journal_mode = WAL", "synchronous = FULL")
LIBRARY_VERSION = sqlite3.sqlite_version
_BUSY_S = 5.0
_FAR = 127  # versions: no program is so far behind
_DAMAGE = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_ERROR,  # a table or a column that was there is gone: the schema is damaged
        sqlite3.SQLITE_CONSTRAINT,  # what is stored contradicts itself
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_FORMAT,
        sqlite3.SQLITE_TOOBIG,
    }
)
Functions = Mapping[str, Callable[..., Any]]  # what SQL may call, by name: deterministic


class DamagedError(sqlite3.DatabaseError):
    """What was read is not what was written."""


def connect(
    path: Path,
    pragmas: Sequence[str] = DURABLE,
    *,
    functions: Functions | None = None,
    text_factory: Callable[[bytes], Any] = str,
    busy_s: float = _BUSY_S,
) -> Connection:
    """Open or make the file, for any thread. ``pragmas``: carried out in this order.

    ``functions``: with any number of arguments. ``text_factory``: what a column of text becomes.
    ``busy_s``: seconds to wait for another program that writes. Raises Error.
    """
    connection = sqlite3.connect(
        path, timeout=busy_s, isolation_level=None, check_same_thread=False
    )
    try:
        connection.text_factory = text_factory
        with legible():
            for pragma in pragmas:
                connection.execute(f"PRAGMA {pragma}")
        for name, function in (functions or {}).items():
            connection.create_function(name, -1, function, deterministic=True)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_read_only(path: Path, busy_s: float = _BUSY_S) -> Connection:
    """Beside the program that writes the file, or after it ended. Raises Error."""
    uri = f"{path.absolute().as_uri()}?mode=ro"

    def opened(uri: str) -> Connection:
        return sqlite3.connect(
            uri, uri=True, timeout=busy_s, isolation_level=None, check_same_thread=False
        )

    connection = opened(uri)
    try:
        with legible():
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except OperationalError:
        # A WAL file is missing and can't be made, because the folder may only be read: then nobody
        # is writing.
        connection.close()
        return opened(f"{uri}&immutable=1")
    except BaseException:
        connection.close()
        raise
    return connection


def open_whole(
    path: Path,
    migrations: Path,
    name: str,
    pragmas: Sequence[str] = DURABLE,
    *,
    functions: Functions | None = None,
    busy_s: float = _BUSY_S,
    far_is_damage: bool = False,
) -> Connection:
    """Open or make a file, bring it up to date and read all of it, mode 0600. Raises OSError, Error
    (``is_damaged`` tells a damaged file from a failing disk), CONFIG for a newer version.

    ``far_is_damage``: see ``migrate``.
    """
    connection = connect(path, pragmas, functions=functions, busy_s=busy_s)
    try:
        path.chmod(0o600)
        migrate(connection, path.name, migrations, name, far_is_damage=far_is_damage)
        if not is_whole(connection):
            raise DamagedError(name)
    except BaseException:
        connection.close()
        raise
    return connection


def scripts(folder: Path, name: str) -> list[Path]:
    """The migrations of a kind of file: ``name_001.sql``, ``name_002.sql``, ... of the folder.

    Raises OSError where there are none (the program is being replaced: against an empty list every
    file would seem to be of a newer version), INTERNAL for a gap in the numbers.
    """
    paths = sorted(path for path in folder.glob(f"{name}_*.sql"))
    if not paths:
        raise FileNotFoundError(errno.ENOENT, f"no migrations of {name}", str(folder))
    if [path.name for path in paths] != [f"{name}_{at:03}.sql" for at in range(1, len(paths) + 1)]:
        raise ShoalError(
            Kind.INTERNAL,
            f"the migrations of {name} are not numbered 001, 002, ...: install the program again",
        )
    return paths


def version_of(connection: Connection) -> int:
    """How many migrations a file has had."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def migrate(
    connection: Connection, what: str, folder: Path, name: str, *, far_is_damage: bool = False
) -> None:
    """Bring a file up to date: all ``scripts`` that it hasn't had, with their number, in one
    transaction. ``what``: the file in a message.

    Of two processes that open an old file at once, one migrates it. Raises CONFIG for a file that a
    newer version wrote, OSError and Error. ``far_is_damage``: of one that claims to be more than
    127 versions ahead, DamagedError in place of CONFIG.
    """
    wanted = scripts(folder, name)
    with legible():
        if version_of(connection) == len(wanted):
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = version_of(connection)
            if far_is_damage and version - len(wanted) > _FAR:
                raise DamagedError("user_version")
            if version > len(wanted):
                raise ShoalError(
                    Kind.CONFIG, f"{what}: written by a newer version of shoal: upgrade this one"
                )
            for script in wanted[version:]:
                failpoints.hit(f"{name}.migrate")
                for statement in _statements(script.read_text("utf-8")):
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {len(wanted)}")
            connection.execute("COMMIT")
        except BaseException:
            rollback(connection)
            raise


def _statements(script: str) -> Iterator[str]:
    """One by one: ``executescript`` would commit what the transaction holds. A trigger is one
    statement, though it holds others.
    """
    lines: list[str] = []
    for line in script.splitlines(keepends=True):
        lines.append(line)
        if line.rstrip().endswith(";") and sqlite3.complete_statement("".join(lines)):
            yield "".join(lines)
            lines = []
    if "".join(lines).strip():
        yield "".join(lines)


def rollback(connection: Connection) -> None:
    """End a failed transaction, if the failure hasn't. Raises Error."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


@contextmanager
def legible() -> Iterator[None]:
    """Around the statements that make SQLite read a file's schema. Of a damaged one it quotes bytes
    in its message, and where they are no UTF-8 Python raises UnicodeDecodeError in place of what
    SQLite says: DamagedError here.
    """
    try:
        yield
    except UnicodeDecodeError:
        raise DamagedError("schema") from None


def is_damaged(error: Exception) -> bool:
    """Whether a failure says that the file's content is wrong, not that the disk is full, busy or
    away.
    """
    return isinstance(error, DamagedError) or (isinstance(error, Error) and _code(error) in _DAMAGE)


def is_full(error: OSError | Error) -> bool:
    """SQLite's own word that there was no space: the transaction is undone."""
    return isinstance(error, Error) and _code(error) == sqlite3.SQLITE_FULL


def _code(error: Error) -> int:
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def is_whole(connection: Connection) -> bool:
    """Whether SQLite finds the whole file in order, its indices too. Reads all of it."""
    try:
        with legible():
            return connection.execute("PRAGMA integrity_check(1)").fetchall() == [("ok",)]
    except Error as error:
        if not is_damaged(error):
            raise
        return False


def empty_log(connection: Connection, path: Path) -> None:
    """Move the log into the file and empty it, durably: what was deleted is in neither. SQLite
    itself does not sync the emptying.

    Raises OSError and Error; OperationalError while a reader keeps the log.
    """
    (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise OperationalError("a reader keeps the log")
    log = path.with_name(path.name + "-wal")
    if log.exists():
        descriptor = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
