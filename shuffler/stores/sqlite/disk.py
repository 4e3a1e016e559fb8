"""How this package speaks to SQLite and the disk: settings, migrations, and what a failure
means.
"""

from __future__ import annotations

import os
import sqlite3
from importlib import resources
from pathlib import Path

from shoal import failpoints
from shoal.errors import Kind, ShoalError
from shoal.storage.checksums import DamagedError, legible, teach
from shoal.storage.disks import Trouble, trouble_of

_FAR = 127  # versions: a file that says it is further ahead was damaged


def connect(path: Path) -> sqlite3.Connection:
    """A connection in write-ahead-log mode that syncs at every commit. Transactions are begun and
    ended by name.

    synchronous=FULL: a commit returns after fsync of the log (NORMAL would lose commits at a power
    cut).
    """
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        with legible():
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA busy_timeout = 5000")
        teach(connection)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def migrate(connection: sqlite3.Connection, name: str) -> None:
    """Bring a file up to date by the package's ``migrations/name_001.sql``, ``name_002.sql``, ...
    (PRAGMA user_version counts them).

    Each runs in one transaction with its number. Raises CONFIG for a file that a newer version
    wrote.
    """
    folder = resources.files("shoal.shuffler.stores.sqlite") / "migrations"
    scripts = sorted(
        entry.name
        for entry in folder.iterdir()
        if entry.name.startswith(f"{name}_") and entry.name.endswith(".sql")
    )
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version - len(scripts) > _FAR:
        raise DamagedError("user_version")
    if version > len(scripts):
        raise ShoalError(
            Kind.CONFIG,
            f"{name} file of version {version} was written by a newer shoal: install that version "
            "again",
        )
    for number in range(version + 1, len(scripts) + 1):
        script = folder.joinpath(scripts[number - 1]).read_text("utf-8")
        failpoints.hit(f"{name}.migrate")
        connection.executescript(
            f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;"
        )


def rollback(connection: sqlite3.Connection) -> None:
    """End a failed transaction, if the failure hasn't."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def kind_of(error: OSError | sqlite3.Error, folder: Path) -> Kind:
    """OVERLOADED when the disk is full or read-only (it goes on once that is mended), INTERNAL for
    anything else.
    """
    return Kind.INTERNAL if trouble_of(error, folder) is Trouble.FAILING else Kind.OVERLOADED


def reason_of(error: OSError | sqlite3.Error, folder: Path) -> str:
    """For the operator's log: a full disk, a read-only one, or what failed, without its text."""
    trouble = trouble_of(error, folder)
    return (
        f"{trouble.value} ({type(error).__name__})" if trouble is Trouble.FAILING else trouble.value
    )


def is_full(error: OSError | sqlite3.Error) -> bool:
    """SQLite's own word that there was no space: the transaction is undone."""
    return (
        isinstance(error, sqlite3.Error)
        and (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF == sqlite3.SQLITE_FULL
    )


def empty_log(connection: sqlite3.Connection, path: Path) -> None:
    """Move the log into the file and empty it, durably: what was deleted is in neither. SQLite
    itself does not sync the emptying.

    Raises OSError and sqlite3.Error; sqlite3.OperationalError while a reader keeps the log.
    """
    (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise sqlite3.OperationalError("a reader keeps the log")
    log = path.with_name(path.name + "-wal")
    if log.exists():
        descriptor = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def unlink(path: Path) -> bool:
    """Remove a file that may be gone already; whether it was there."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True
