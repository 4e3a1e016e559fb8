"""How the embedded store speaks to SQLite and the disk, and what a failure of either means."""

from __future__ import annotations

from pathlib import Path

from shoal.errors import Kind
from shoal.storage import sqlite
from shoal.storage.checksums import FUNCTIONS
from shoal.storage.disks import DiskTrouble, trouble_of

_MIGRATIONS = Path(__file__).parent / "migrations"


def connect(path: Path) -> sqlite.Connection:
    """A connection that syncs at every commit, and knows ``row_digest``. Raises sqlite.Error."""
    return sqlite.connect(path, functions=FUNCTIONS)


def migrate(connection: sqlite.Connection, path: Path, name: str) -> None:
    """Bring a file up to date by this package's ``migrations/name_001.sql``, ``name_002.sql``, ...

    Raises as ``shoal.storage.sqlite.migrate`` does.
    """
    sqlite.migrate(connection, path.name, _MIGRATIONS, name, far_is_damage=True)


def open_whole(path: Path, name: str, *pragmas: str) -> sqlite.Connection:
    """Open, bring up to date and read in full. ``pragmas``: beyond those of ``connect``. Raises as
    ``shoal.storage.sqlite.open_whole`` does.
    """
    return sqlite.open_whole(
        path,
        _MIGRATIONS,
        name,
        (*sqlite.DURABLE, *pragmas),
        functions=FUNCTIONS,
        far_is_damage=True,
    )


def kind_of(error: OSError | sqlite.Error, folder: Path) -> Kind:
    """OVERLOADED when the disk is full or read-only (it goes on once that is mended), INTERNAL for
    anything else.
    """
    return Kind.INTERNAL if trouble_of(error, folder) is DiskTrouble.FAILING else Kind.OVERLOADED


def reason_of(error: OSError | sqlite.Error, folder: Path) -> str:
    """For the operator's log: a full disk, a read-only one, or what failed, without its text."""
    trouble = trouble_of(error, folder)
    return (
        f"{trouble.value} ({type(error).__name__})"
        if trouble is DiskTrouble.FAILING
        else trouble.value
    )


def unlink(path: Path) -> bool:
    """Remove a file that may be gone already; whether it was there."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True
