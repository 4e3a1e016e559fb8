"""What the file of an open window holds, read by SQLite alone: for tests below the store."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

KEY = 16  # bytes of a storage key


def stored(path: Path, row_size: int) -> list[tuple[bytes, bytes]]:
    """Storage keys and messages in the order of the file, whoever has it open."""
    with closing(sqlite3.connect(path)) as connection:
        bodies = [body for (body,) in connection.execute("SELECT body FROM block ORDER BY number")]
    width = KEY + row_size
    return [
        (body[at : at + KEY], body[at + KEY : at + width])
        for body in bodies
        for at in range(0, len(body), width)
    ]
