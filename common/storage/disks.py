"""Why a file can't be written: full and read-only disks are told apart, because different things
mend them.

SQLite hides the system's own word behind SQLITE_IOERR and SQLITE_CANTOPEN (a quota that is used up,
a disk that became read-only under an open file), so the folder is asked then, and tried.
"""

from __future__ import annotations

import contextlib
import errno
import os
from enum import Enum, unique
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    from shoal.storage import sqlite

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# bytes; with less free space than this (of small disks: a sixteenth) a disk is called full
_LITTLE = 1 << 20
_SMALL_PART = 16
_TRIED = 1 << 16  # bytes that are written to find out
_UNCLEAR = ("SQLITE_IOERR", "SQLITE_CANTOPEN")


@unique
class DiskTrouble(Enum):
    """What stands in the way, with what to do about it."""

    FULL = "the disk is full: make room"
    READ_ONLY = "the disk is read-only: make it writable"
    FAILING = "the disk fails: look at what the system says of it"


def trouble_of(error: OSError | sqlite.Error, folder: Path) -> DiskTrouble:
    """What ``error``, from a file in ``folder``, comes from. Writes and removes a small file there
    where nothing else says it.
    """
    name = getattr(error, "sqlite_errorname", None) or ""
    number = error.errno if isinstance(error, OSError) else None
    if name.startswith("SQLITE_FULL") or number in _FULL:
        return DiskTrouble.FULL
    if name.startswith("SQLITE_READONLY") or number == errno.EROFS:
        return DiskTrouble.READ_ONLY
    return _asked(folder) if name.startswith(_UNCLEAR) else DiskTrouble.FAILING


def names_its_cause(error: OSError) -> bool:
    """Whether a failed call says by itself that the disk is full or read-only."""
    return error.errno in _FULL or error.errno == errno.EROFS


def disk_error(name: str, error: OSError | sqlite.Error, folder: Path) -> ShoalError:
    """OVERLOADED: it works once the disk does. One line, which says whether that is full, read-only
    or failing.
    """
    return ShoalError(
        Kind.OVERLOADED, f"{name} can't be written: {trouble_of(error, folder).value}, then again"
    )


def why_not(error: OSError | sqlite.Error, folder: Path) -> str:
    """For the middle of a line, where waiting may help without anybody doing anything: empty where
    the disk says nothing of its own.
    """
    trouble = trouble_of(error, folder)
    return "" if trouble is DiskTrouble.FAILING else f" ({trouble.value})"


def looked(folder: Path) -> DiskTrouble | None:
    """What can be seen of the disk of ``folder`` without trying it; None: nothing is wrong. A quota
    can't be seen. Raises OSError.
    """
    space = os.statvfs(folder)
    if space.f_flag & os.ST_RDONLY:
        return DiskTrouble.READ_ONLY
    little = min(_LITTLE, space.f_blocks * space.f_frsize // _SMALL_PART)
    if space.f_bavail * space.f_frsize < little or (space.f_files and not space.f_favail):
        return DiskTrouble.FULL
    return None


def _asked(folder: Path) -> DiskTrouble:
    try:
        trouble = looked(folder)
        if trouble is not None:
            return trouble
        _try(folder)
    except OSError as error:
        return (
            DiskTrouble.FULL
            if error.errno in _FULL
            else DiskTrouble.READ_ONLY
            if error.errno == errno.EROFS
            else DiskTrouble.FAILING
        )
    return DiskTrouble.FAILING


def _try(folder: Path) -> None:
    """Raises OSError as the system says it."""
    path = folder / f".shoal-try-{os.getpid()}"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(handle, bytes(_TRIED))
        os.fsync(handle)
    finally:
        os.close(handle)
        with contextlib.suppress(OSError):
            path.unlink()
