"""Ways in which a stored file stops being what was written. Each is seeded; what they did is told
by their name.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

PAGE = 4096  # bytes: SQLite's, and a disk's

Corruption = Callable[[Path, random.Random], None]


def flip(path: Path, rng: random.Random) -> None:
    """One bit."""
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def truncate(path: Path, rng: random.Random) -> None:
    """Cut off anywhere."""
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data))])


def zero_page(path: Path, rng: random.Random) -> None:
    """4 KiB that a disk gave back empty."""
    data = bytearray(path.read_bytes())
    at = rng.randrange(-(-len(data) // PAGE)) * PAGE
    data[at : at + PAGE] = bytes(len(data[at : at + PAGE]))
    path.write_bytes(data)


def swap_pages(path: Path, rng: random.Random) -> None:
    """Two blocks in each other's place."""
    data = path.read_bytes()
    size = PAGE if len(data) >= 2 * PAGE else max(1, len(data) // 2)
    blocks = [data[at : at + size] for at in range(0, len(data), size)]
    one, other = rng.sample(range(len(data) // size), 2)
    blocks[one], blocks[other] = blocks[other], blocks[one]
    path.write_bytes(b"".join(blocks))


def garbage(path: Path, rng: random.Random) -> None:
    """Another file altogether."""
    path.write_bytes(rng.randbytes(path.stat().st_size))


def schema(path: Path, _: random.Random) -> None:
    """A table's statement that is no text any more: SQLite quotes it."""
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE", b"CREATE\xdfTABLE", 1))


def remove(path: Path, _: random.Random) -> None:
    path.unlink()


ONCE = frozenset({"schema", "remove"})  # they leave nothing to a seed
ALL: dict[str, Corruption] = {
    "flip": flip,
    "truncate": truncate,
    "zero page": zero_page,
    "swap": swap_pages,
    "garbage": garbage,
    "schema": schema,
    "remove": remove,
}
