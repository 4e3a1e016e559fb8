"""Small files that are there as a whole or not at all, for this user alone."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Atomic, and durable after ``sync_folder``. A file that was left half-written has the same
    name the next time, so that they don't gather. Raises OSError.
    """
    staged = path.with_name(f".{path.name}.new")
    handle = os.open(
        staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    with open(handle, "wb") as file:
        os.fchmod(file.fileno(), 0o600)  # whatever it was left with
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    staged.replace(path)


def sync_folder(folder: Path) -> None:
    """Make the names in it durable. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_durable(path: Path, data: bytes) -> None:
    """One file, and its name. Raises OSError."""
    replace_file(path, data)
    sync_folder(path.parent)
