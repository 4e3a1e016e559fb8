"""A sealed batch on disk: the distinct sealed messages in storage key order, and nothing else.

A flat file of fixed-width rows rather than a second SQLite table keyed by the storage key: no key survives sealing (so nothing
joins a delivered row to an inbox row that a disk image might hold), the file is written once, front to back, at the
size of its payload, delivery resumes at any row by multiplication, and its SHA-256 is the manifest's.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from shoal import failpoints
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.service import fsync_folder
from shoal.shuffler import disk
from shoal.shuffler.store import SealedRows

_TEMPORARY = ".tmp"
_BUFFER = 1 << 20  # bytes


def write(path: Path, messages: Iterable[bytes], row_size: int) -> SealedRows:
    """Write the rows under a temporary name, make them durable, then give them their name. May be repeated after a crash.

    Raises OSError, and INTERNAL for a row of another size (the inbox is damaged). A failure leaves no unfinished file: on a
    full disk it would keep the space that the next attempt wants.
    """
    temporary = path.with_name(path.name + _TEMPORARY)
    try:
        sealed = _write(temporary, messages, row_size)
        failpoints.hit("seal.rename")
        temporary.rename(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    failpoints.hit("seal.folder")
    fsync_folder(path.parent)
    return sealed


def _write(temporary: Path, messages: Iterable[bytes], row_size: int) -> SealedRows:
    rows, digest = 0, hashlib.sha256()
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(handle, "wb", buffering=_BUFFER) as file:
        failpoints.hit("seal.write")
        for message in messages:
            if len(message) != row_size:
                raise ShoalError(Kind.INTERNAL, "an inbox holds a row of a wrong size: the disk is damaged")
            file.write(message)
            digest.update(message)
            rows += 1
        failpoints.hit("seal.flush")
        file.flush()
        os.fsync(file.fileno())
    return SealedRows(rows, row_size, Digest(digest.digest()))


def read(path: Path, row_size: int, first: int, count: int) -> bytes:
    """Rows [first, first + count). Raises OSError."""
    with path.open("rb") as file:
        return os.pread(file.fileno(), count * row_size, first * row_size)


def destroy(path: Path) -> None:
    """Unlink the file and an unfinished one, durably. What the disk's blocks still hold is the file system's matter."""
    removed = False
    for one in (path.with_name(path.name + _TEMPORARY), path):
        failpoints.hit("batch.unlink")
        removed |= disk.unlink(one)
    if removed:
        failpoints.hit("batch.unlinked")
        fsync_folder(path.parent)
