"""Small files that are there whole or not at all, and are on the disk when the call returns."""

from __future__ import annotations

import os
from pathlib import Path

from shoal import failpoints
from shoal.services.process import fsync_folder


def replace_whole(path: Path, data: bytes, point: str = "") -> None:
    """Write beside it, sync, rename, sync the folder; mode 0600. Its owner is the folder's, also
    where root writes it. ``point``: the name of the failpoints of its steps. Raises OSError.
    """
    staged = path.with_name(f".{path.name}.new")
    with open(open_staged(staged), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        if os.geteuid() == 0:
            owner = path.parent.stat()
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
    failpoints.hit(f"{point}.rename")
    staged.replace(path)
    failpoints.hit(f"{point}.renamed")
    fsync_folder(path.parent)


def open_staged(path: Path) -> int:
    """To be written, with mode 0600: a file that was not there before, whatever lay at its name.
    Raises OSError.
    """
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, 0o600)
