"""Blocks: how an inbox's file holds reports. A commit's rows, storage key and sealed message one
after the other in the order of the keys, are cut into as many blocks as they need pages; each is
one row of the table ``block``.

A block fits into one page of the file, so a damaged page costs the reports that lie on it and no
others, whatever came in the same commit; and for a commit of 1,000 rows SQLite has 20 rows to write
by one statement. (One blob for all of them is written no faster: SQLite cuts it into as many pages,
of which each points at the next, so that a damaged one takes all that follow.)

Every block has a number without gaps and a CRC-32 of number, length and bytes. Where that does not
fit, each row is looked at by itself: its key is a MAC of its message, under the window's secret.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from zlib import crc32

from shoal.arrays import NDArray, np
from shoal.ids import StorageKey
from shoal.shuffler.stores.storage_keys import key_of

_PAGE = 4_040  # bytes of a block that lies on one page of 4,096 with what SQLite adds
_HEAD = struct.Struct(">QI")
Block = tuple[int, bytes, int]  # number, body, CRC-32


class Rows(NamedTuple):
    """Storage keys, joined, and their messages in the same order, joined. ``damaged``: how many
    rows beside them are not what was written.
    """

    keys: bytes
    sealed: bytes
    damaged: int = 0


def per_block(row_size: int) -> int:
    """Rows of a full block."""
    return max(1, _PAGE // (StorageKey.SIZE + row_size))


def packed(
    first: int, keys: bytes, sealed: bytes, order: NDArray[np.intp], row_size: int
) -> list[Block]:
    """Blocks numbered from ``first`` on, of the rows that ``order`` names, in that order."""
    table = np.empty((len(order), StorageKey.SIZE + row_size), dtype=np.uint8)
    table[:, : StorageKey.SIZE] = _table(keys, StorageKey.SIZE)[order]
    table[:, StorageKey.SIZE :] = _table(sealed, row_size)[order]
    step = per_block(row_size)
    bodies = [table[at : at + step].tobytes() for at in range(0, len(table), step)]
    return [(number, body, _check(number, body)) for number, body in enumerate(bodies, start=first)]


def unpacked(
    secret: bytes, blocks: Iterable[Sequence[object]], row_size: int, *, closely: bool = False
) -> Rows:
    """What is whole of blocks as they were stored. ``closely``: every row by itself, whatever its
    block's checksum says.
    """
    whole, damaged, width = list[bytes](), 0, StorageKey.SIZE + row_size
    for number, body, crc in blocks:
        if not isinstance(body, bytes) or not isinstance(number, int):
            damaged += 1
        elif not closely and crc == _check(number, body) and not len(body) % width:
            whole.append(body)
        else:
            rows = [body[at : at + width] for at in range(0, len(body), width)]
            good = [row for row in rows if len(row) == width and _intact(secret, row)]
            whole += good
            damaged += len(rows) - len(good)
    table = _table(b"".join(whole), width)
    return Rows(
        table[:, : StorageKey.SIZE].tobytes(), table[:, StorageKey.SIZE :].tobytes(), damaged
    )


def made_by(secret: bytes, block: Sequence[object], row_size: int) -> bool:
    """Whether this is the secret that made the key of the block's first row."""
    body = block[1]
    return isinstance(body, bytes) and _intact(secret, body[: StorageKey.SIZE + row_size])


def _check(number: int, body: bytes) -> int:
    return crc32(body, crc32(_HEAD.pack(number, len(body))))


def _intact(secret: bytes, row: bytes) -> bool:
    return key_of(secret, row[StorageKey.SIZE :]) == row[: StorageKey.SIZE]


def _table(joined: bytes, width: int) -> NDArray[np.uint8]:
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, width)
