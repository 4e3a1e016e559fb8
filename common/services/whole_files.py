"""Small files that are there whole or not at all, and are on the disk when the call returns."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from shoal import failpoints
from shoal.services.process import fsync_folder

_COUNT = re.compile(rb"(\d{1,18}) ([0-9a-f]{64})\n")


def replace_whole(path: Path, data: bytes, point: str = "") -> None:
    """Write the file anew, with mode 0600. Its owner is the folder's, also where root writes it.
    ``point``: the name of the failpoints of its steps. Raises OSError.
    """
    with whole_file(path, point) as file:
        file.write(data)
        if os.geteuid() == 0:
            owner = path.parent.stat()
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)


@contextmanager
def whole_file(path: Path, point: str = "") -> Iterator[BinaryIO]:
    """A file to write to, with mode 0600: beside it first, then synced, renamed, and the folder
    synced. Where the block raises nothing is there. Raises OSError.
    """
    staged = path.with_name(f".{path.name}.new")
    try:
        with open(open_staged(staged), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _pass(point, "rename")
        staged.replace(path)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
    _pass(point, "renamed")
    fsync_folder(path.parent)


def _pass(point: str, step: str) -> None:
    if point:
        failpoints.hit(f"{point}.{step}")


def open_staged(path: Path) -> int:
    """To be written, with mode 0600: a file that was not there before, whatever lay at its name.
    Raises OSError.
    """
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, 0o600)


def write_count(path: Path, count: int) -> None:
    """How many there are of what another file holds, under a checksum. Raises OSError."""
    digits = str(count).encode()
    replace_whole(path, b"%s %s\n" % (digits, hashlib.sha256(digits).hexdigest().encode()))


def read_count(path: Path) -> int | None:
    """What ``write_count`` wrote; None if nobody did, or not legibly. Raises OSError."""
    try:
        match = _COUNT.fullmatch(path.read_bytes())
    except FileNotFoundError:
        return None
    fits = match and hashlib.sha256(match[1]).hexdigest().encode() == match[2]
    return int(match[1]) if match and fits else None
