"""Files that hold one secret on a line, and that nobody but their owner may read."""

from __future__ import annotations

import os
from pathlib import Path

from shoal.errors import Kind, ShoalError

_MOST = 4_096  # bytes that are read


def read_private_line(path: Path) -> bytes:
    """What stands there, without the ends of lines around it. Raises KEY_FILE: it can't be read, or
    others can read it.
    """
    try:
        with path.open("rb") as file:
            mode, data = os.fstat(file.fileno()).st_mode, file.read(_MOST)
    except OSError as error:
        raise ShoalError(
            Kind.KEY_FILE, f"cannot read {path}: {error.strerror or 'unreadable'}"
        ) from None
    if mode & 0o077:
        raise ShoalError(Kind.KEY_FILE, f"{path} can be read by others: run chmod 600 {path}")
    return data.strip(b"\r\n")
