"""Sealing, and what is sealed: blocks of the inbox in, opened, sorted by storage key and freed of
repeats in this process, blocks of the batch out, under another key.

Whoever seals writes the same rows in the same order. The batch's table bears the fence of the claim
that wrote it, so two that believe to be the owner never write to one table; a window's row says
which is the batch.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from shoal import failpoints
from shoal.entropy import Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.limits import LIMITS
from shoal.shuffler.stores import sorting
from shoal.shuffler.stores.claims import Claim, StaleClaimError
from shoal.shuffler.stores.postgresql.blocks import BlockCipher, Part, batch_place
from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.inbox import block_place, ciphers
from shoal.shuffler.stores.postgresql.rows import WindowRow
from shoal.shuffler.stores.postgresql.window_keys import WindowKey
from shoal.shuffler.stores.store import SealedRows

if TYPE_CHECKING:
    from shoal.shuffler.stores.postgresql.database import Connection

T = TypeVar("T")
_MENDS = 1 << 32
_PAGE = 64  # blocks that are read together
_MAKE = (
    "CREATE TABLE {batch} (part bigint PRIMARY KEY, count int NOT NULL, body bytea NOT NULL)"
    " WITH (autovacuum_enabled = off)",
    "ALTER TABLE {batch} ALTER body SET STORAGE EXTERNAL",
)
_HELD = (  # in the same statement as what is written: nothing is by a claim that is stale
    "SELECT 1 FROM claim WHERE task_id = $1 AND win = $2 AND owner = $3 AND fence = $4 FOR SHARE"
)


@dataclass(slots=True)
class _Tally:
    """By writer: rows that were ``opened``; rows that there were by the word of its own blocks
    (``told``: those acknowledged before a block, and the block's); and those of blocks that do not
    open (``closed``).
    """

    opened: dict[bytes, int] = field(default_factory=dict)
    told: dict[bytes, int] = field(default_factory=dict)
    closed: dict[bytes, int] = field(default_factory=dict)
    acked: int = 0  # rows that there were when the window closed

    @property
    def damaged(self) -> int:
        """Rows that are not there any more, as far as the blocks that are left tell."""
        missing = sum(
            max(self.told.get(one, 0) - self.opened.get(one, 0), self.closed.get(one, 0))
            for one in self.told.keys() | self.closed.keys()
        )
        return max(missing, self.acked - sum(self.opened.values()))


class Sealing:
    """One sealing of one window. ``spill``: a folder of this machine for a sort that does not fit
    memory; what is written there has no name and is encrypted messages.
    """

    def __init__(self, database: Database, claim: Claim, row: WindowRow, size: int) -> None:
        """``size``: bytes of every row. ``fence``: of the batch's table: see ``fence_of``."""
        self._db, self._claim, self._row, self._size = database, claim, row, size
        self._tally, self.fence = _Tally(acked=row.record.acked), fence_of(claim, row)

    async def run(
        self, inbox: WindowKey, batch: WindowKey, spill: Path, entropy: Entropy
    ) -> SealedRows:
        """Everything from the inbox to the batch's table, which exists and is empty."""
        _, opening = ciphers(self._row.window, inbox, entropy)
        closing = BlockCipher(batch.of("rows"), self._row.window, entropy)
        loop = asyncio.get_running_loop()
        return await asyncio.to_thread(self._sort, opening, closing, spill, loop)

    def _sort(
        self,
        opening: BlockCipher,
        closing: BlockCipher,
        spill: Path,
        loop: asyncio.AbstractEventLoop,
    ) -> SealedRows:
        """In a thread: the database is asked on the event loop."""
        messages = sorting.distinct_sorted(self._steps(opening, loop), spill, sorting.RUN_BYTES)
        return _written(
            messages,
            self._size,
            lambda part, count, rows: _on(loop, self.write(closing, part, count, rows)),
            self._tally,
        )

    def _steps(
        self, opening: BlockCipher, loop: asyncio.AbstractEventLoop
    ) -> Iterator[tuple[bytes, bytes]]:
        after = b"", 0
        while page := _on(loop, self._page(*after)):
            for writer, number, acked, count, keys, body in page:
                where = block_place(bytes(writer), number, acked)
                opened = opening.open(Part.KEYS, where, count, bytes(keys))
                rows = opening.open(Part.ROWS, where, count, bytes(body))
                if opened is None or rows is None:
                    self._tally.closed[writer] = self._tally.closed.get(writer, 0) + count
                    continue
                if len(rows) != count * self._size:
                    raise ShoalError(Kind.INTERNAL, "an inbox has a message of a wrong size")
                self._tally.opened[writer] = self._tally.opened.get(writer, 0) + count
                self._tally.told[writer] = max(self._tally.told.get(writer, 0), acked + count)
                if count:  # not the last word of a writer that ended
                    yield opened, rows
            after = bytes(page[-1][0]), page[-1][1]

    async def _page(self, writer: bytes, number: int) -> list[Any]:
        failpoints.hit("postgresql.seal-read")
        return await self._db.fetch(
            f"SELECT writer, number, acked, count, keys, body FROM {self._row.inbox}"  # noqa: S608 - a name of ours
            " WHERE (writer, number) > ($1, $2) ORDER BY writer, number LIMIT $3",
            *(writer, number, _PAGE),
        )

    async def write(self, closing: BlockCipher, part: int, count: int, rows: bytes) -> None:
        """A part of the batch, under the claim. Raises StaleClaimError."""
        failpoints.hit("postgresql.seal-write")
        claim = self._claim
        body = closing.seal(Part.BATCH, batch_place(self.fence, part), count, rows)
        done = await self._db.execute(
            f"WITH c AS ({_HELD}) INSERT INTO {self._row.batch(self.fence)}"  # noqa: S608 - names of ours
            " SELECT $5, $6, $7 FROM c",
            *(claim.window.task_id.raw, claim.window.window, claim.owner.raw, claim.fence),
            *(part, count, body),
        )
        if done != "INSERT 0 1":
            raise StaleClaimError


def _on(loop: asyncio.AbstractEventLoop, step: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(step, loop).result()


def _written(messages: Iterator[memoryview], size: int, write: Any, tally: _Tally) -> SealedRows:
    """Parts of as many rows as a chunk of a delivery holds, and what they are together."""
    step, digest, rows, part = rows_of_part(size) * size, hashlib.sha256(), 0, 0
    waiting = bytearray()
    for block in messages:
        digest.update(block)
        rows += len(block) // size
        waiting += block
        while len(waiting) >= step:
            write(part, step // size, bytes(waiting[:step]))
            del waiting[:step]
            part += 1
    if waiting:
        write(part, len(waiting) // size, bytes(waiting))
    return SealedRows(rows, size, Digest(digest.digest()), tally.damaged)


def fence_of(claim: Claim, row: WindowRow) -> int:
    """What the next batch under this claim bears: the claim's fence, and where the batch that is
    there bears that (one claim seals and mends), in higher bits how often it was mended.
    """
    mended = row.batch_fence and row.batch_fence % _MENDS == claim.fence
    return row.batch_fence + _MENDS if mended else claim.fence


def rows_of_part(size: int) -> int:
    """How many rows of so many bytes a part of a batch holds; the last one may hold fewer."""
    return max(1, LIMITS.chunk_bytes // size)


async def tables_of(connection: Connection, row: WindowRow) -> list[str]:
    """The tables of all batches that anybody wrote of this window."""
    found = await connection.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
        " AND relkind = 'r' AND starts_with(relname::text, $1)",
        f"batch_{row.id}_",
    )
    return [str(name) for (name,) in found]


async def make_table(connection: Connection, row: WindowRow, fence: int, keep: str = "") -> None:
    """An empty table for a batch of this claim; those of others, but ``keep``, are dropped."""
    for name in await tables_of(connection, row):
        if name != keep:
            await connection.execute(f"DROP TABLE {name}")
    for statement in _MAKE:
        await connection.execute(statement.format(batch=row.batch(fence)))


async def exists(database: Database, name: str) -> bool:
    """Whether there is a table of this name."""
    found = await database.fetchrow("SELECT to_regclass($1) IS NOT NULL AS here", name)
    return found is not None and bool(found["here"])


async def parts(
    database: Database, row: WindowRow, closing: BlockCipher, first: int, last: int
) -> AsyncIterator[tuple[int, int, bytes | None]]:
    """Parts [first, last) that are there: number, rows, and the rows unless they are damaged."""
    for at in range(first, last, _PAGE):
        for part, count, body in await database.fetch(
            f"SELECT part, count, body FROM {row.batch()} WHERE part >= $1 AND part < $2"  # noqa: S608 - a name of ours
            " ORDER BY part",
            *(at, min(last, at + _PAGE)),
        ):
            place = batch_place(row.batch_fence, part)
            yield part, count, closing.open(Part.BATCH, place, count, bytes(body))
