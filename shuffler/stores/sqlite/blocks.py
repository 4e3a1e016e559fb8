"""Blocks: how an inbox's file holds reports. A commit's rows, storage key and sealed message one
after the other in the order of the keys, are cut into as many blocks as they need pages; each is
one row of the table ``block``. A report of several messages is as many rows with its key, in one
block, which is larger than a page where it has to be.

A block fits into one page of the file, so a damaged page costs the reports that lie on it and no
others, whatever came in the same commit; and for a commit of 1,000 rows SQLite has 20 rows to write
by one statement. (One blob for all of them is written no faster: SQLite cuts it into as many pages,
of which each points at the next, so that a damaged one takes all that follow.)

Every block has a number without gaps and a CRC-32 of number, length and bytes. Where that does not
fit, each report is looked at by itself: its key is a MAC of its messages, under the window's
secret.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple
from zlib import crc32

from shoal.arrays import NDArray, np
from shoal.ids import StorageKey
from shoal.shuffler.stores.joined import row_keys, row_places
from shoal.shuffler.stores.storage_keys import key_of

_PAGE = 4_040  # bytes of a block that lies on one page of 4,096 with what SQLite adds
_HEAD = struct.Struct(">QI")
Block = tuple[int, bytes, int]  # number, body, CRC-32


class Rows(NamedTuple):
    """Storage keys, joined, and their messages in the same order, joined. ``damaged``: how many
    rows beside them are not what was written.

    Of reports with several messages all rows are here or none is.
    """

    keys: bytes
    sealed: bytes
    damaged: int = 0


def per_block(row_size: int) -> int:
    """Rows of a full block."""
    return max(1, _PAGE // (StorageKey.SIZE + row_size))


def packed(
    first: int,
    keys: bytes,
    sealed: bytes,
    order: NDArray[np.intp],
    row_size: int,
    sizes: Sequence[int] = (),
) -> list[Block]:
    """Blocks numbered from ``first`` on, of the reports that ``order`` names, in that order.
    ``sizes``: rows of each report; empty: one.
    """
    step = per_block(row_size)
    if sizes:
        cuts = _cuts([sizes[place] for place in order.tolist()], step)
        keys, order = row_keys(keys, sizes), row_places(order, sizes)
    else:
        cuts = [*range(0, len(order), step), len(order)]
    table = np.empty((len(order), StorageKey.SIZE + row_size), dtype=np.uint8)
    table[:, : StorageKey.SIZE] = _table(keys, StorageKey.SIZE)[order]
    table[:, StorageKey.SIZE :] = _table(sealed, row_size)[order]
    bodies = [table[at:end].tobytes() for at, end in pairwise(cuts)]
    return [(number, body, _check(number, body)) for number, body in enumerate(bodies, start=first)]


def _cuts(sizes: Sequence[int], step: int) -> list[int]:
    """Where blocks of up to ``step`` rows begin and end, none of them within a report."""
    cuts, end = [0], 0
    for size in sizes:
        if end > cuts[-1] and end + size - cuts[-1] > step:
            cuts.append(end)
        end += size
    return [*cuts, end]


def unpacked(
    secret: bytes, blocks: Iterable[Sequence[object]], row_size: int, *, closely: bool = False
) -> Rows:
    """What is whole of blocks as they were stored. ``closely``: every report by itself, whatever
    its block's checksum says.
    """
    whole, damaged, width = list[bytes](), 0, StorageKey.SIZE + row_size
    for number, body, crc in blocks:
        if not isinstance(body, bytes) or not isinstance(number, int):
            damaged += 1
        elif not closely and crc == _check(number, body) and not len(body) % width:
            whole.append(body)
        else:
            good = [rows for rows in _reports(body, width) if _intact(secret, rows, width)]
            whole += good
            damaged += -(-(len(body) - sum(map(len, good))) // width)
    table = _table(b"".join(whole), width)
    return Rows(
        table[:, : StorageKey.SIZE].tobytes(), table[:, StorageKey.SIZE :].tobytes(), damaged
    )


def made_by(secret: bytes, block: Sequence[object], row_size: int) -> bool:
    """Whether this is the secret that made the key of the block's first report."""
    body, width = block[1], StorageKey.SIZE + row_size
    return isinstance(body, bytes) and any(
        _intact(secret, rows, width) for rows in _reports(body, width)[:1]
    )


def _check(number: int, body: bytes) -> int:
    return crc32(body, crc32(_HEAD.pack(number, len(body))))


def _reports(body: bytes, width: int) -> list[bytes]:
    """Of each report its rows: those next to each other with one key."""
    rows = [body[at : at + width] for at in range(0, len(body), width)]
    return [b"".join(some) for _, some in groupby(rows, key=lambda row: row[: StorageKey.SIZE])]


def _intact(secret: bytes, rows: bytes, width: int) -> bool:
    if not rows or len(rows) % width:
        return False
    table = _table(rows, width)
    return key_of(secret, table[:, StorageKey.SIZE :].tobytes()) == rows[: StorageKey.SIZE]


def _table(joined: bytes, width: int) -> NDArray[np.uint8]:
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, width)
