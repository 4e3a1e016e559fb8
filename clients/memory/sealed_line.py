"""A small file beside the outbox: one line, and under it its SHA-256. Whole or not at all, and what
is damaged counts as none.
"""

from __future__ import annotations

import os
from pathlib import Path

from shoal.digests import sha256


def read_line(path: Path, most: int) -> bytes | None:
    """None: there is none, it is damaged, can't be read, or has more than ``most`` bytes."""
    try:
        with path.open("rb") as file:
            line, _, seal = file.read(most).partition(b"\n")
    except OSError:
        return None
    return line if sha256(line).hex().encode() == seal.strip() else None


def write_line(path: Path, line: bytes, *, sync: bool) -> None:
    """Readable by its owner alone; ``sync``: its bytes are on disk before it has its name. Raises
    OSError: what was there stays.
    """
    staged = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with open(staged, "wb", opener=_private) as file:
            file.write(line + b"\n" + sha256(line).hex().encode() + b"\n")
            if sync:
                file.flush()
                os.fsync(file.fileno())
        staged.replace(path)
    finally:
        staged.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
