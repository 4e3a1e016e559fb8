"""Sealing, and what is sealed: blocks of the inbox in, opened, sorted by storage key and freed of
repeats in this process, blocks of the batch out, under another key.

Whoever seals writes the same rows in the same order. The batch's table bears the fence of the claim
that wrote it, so two that believe to be the owner never write to one table; a window's row says
which is the batch. With an object store the parts lie there, and the table says in which objects.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from shoal import failpoints
from shoal.entropy import Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.limits import LIMITS
from shoal.shuffler.stores import sorting
from shoal.shuffler.stores.claims import Claim, StaleClaimError
from shoal.shuffler.stores.distinct import KeySet
from shoal.shuffler.stores.joined import DIGEST, digests_of, rows_of
from shoal.shuffler.stores.objects.sealed_objects import (
    MENDS,
    TABLE,
    ObjectWriter,
    in_objects,
    object_parts,
)
from shoal.shuffler.stores.postgresql.blocks import BlockCipher, Part, batch_place, parted
from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.inbox import block_place, ciphers
from shoal.shuffler.stores.postgresql.rows import WindowRow
from shoal.shuffler.stores.postgresql.window_keys import WindowKey
from shoal.shuffler.stores.storage_keys import WindowHashes
from shoal.shuffler.stores.store import SealedRows

if TYPE_CHECKING:
    from shoal.shuffler.stores.objects.bucket import Bucket
    from shoal.shuffler.stores.postgresql.database import Connection

T = TypeVar("T")
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
class WriterTally:
    """Of one writer: reports that were ``opened``; reports that there were by the word of its block
    number ``teller`` (those acknowledged before, and its own); and its blocks that do not open, as
    (number, reports). Blocks are added in the order of their numbers.
    """

    opened: int = 0
    told: int = 0
    teller: float = 0
    closed: list[tuple[int, int]] = field(default_factory=list)

    def add(self, number: int, acked: int, count: int) -> None:
        """A block that opens. Number 0: the last word, which is later than all."""
        self.opened += count
        self.told, self.teller = max(
            (self.told, self.teller), (acked + count, number or float("inf"))
        )

    @property
    def damaged(self) -> int:
        """Reports that are gone, at least. A block that does not open is among those that the
        teller knew of only if it has a smaller number: the others come on top.
        """
        later = sum(count for number, count in self.closed if number > self.teller)
        before = sum(count for _, count in self.closed) - later
        return max(self.told - self.opened, before) + later


@dataclass(slots=True)
class _Tally:
    acked: int = 0  # reports that there were when the window closed
    writers: dict[bytes, WriterTally] = field(default_factory=dict)

    def of(self, writer: bytes) -> WriterTally:
        return self.writers.setdefault(writer, WriterTally())

    @property
    def damaged(self) -> int:
        """Reports that are not there any more, as far as the blocks that are left tell."""
        opened = sum(one.opened for one in self.writers.values())
        return max(sum(one.damaged for one in self.writers.values()), self.acked - opened)


@dataclass(frozen=True, slots=True)
class Written:
    """A batch that this process wrote, under which fence. ``opened``: by writer, reports that were
    sealed; None: it was mended. ``inbox``: whether there was one.
    """

    fence: int
    sealed: SealedRows
    opened: dict[bytes, int] | None = None
    inbox: bool = False


class Sealing:
    """One sealing of one window. ``spill``: a folder of this machine for a sort that does not fit
    memory; what is written there has no name and is encrypted messages.
    """

    def __init__(
        self,
        database: Database,
        claim: Claim,
        row: WindowRow,
        size: int,
        bucket: Bucket | None = None,
        *,
        several: bool = False,
    ) -> None:
        """``size``: bytes of every row. ``fence``: of the batch's table: see ``fence_of``.
        ``bucket``: where the batch goes instead of the database. ``several``: whether a report may
        have several messages.
        """
        self._reports = KeySet() if several else None
        self._db, self._claim, self._row, self._size = database, claim, row, size
        self._tally, self.fence = _Tally(acked=row.record.acked), fence_of(claim, row)
        self._bucket = bucket
        self._objects: ObjectWriter | None = None
        if bucket is not None:
            self._objects = ObjectWriter(bucket, row.window, self.fence, self._insert, self._held)

    @property
    def opened(self) -> dict[bytes, int]:
        """By writer, the reports that were sealed."""
        return {writer: one.opened for writer, one in self._tally.writers.items()}

    async def run(
        self,
        inbox: WindowKey,
        batch: WindowKey,
        spill: Path,
        entropy: Entropy,
        added: Sequence[bytes] = (),
    ) -> SealedRows:
        """Everything from the inbox to the batch's table, which exists and is empty; ``added``: see
        ``Store.seal``.
        """
        hashes, opening = ciphers(self._row.window, self._row.emptied, inbox, entropy)
        closing = BlockCipher(batch.of("rows"), self._row.window, entropy)
        loop = asyncio.get_running_loop()
        sealed = await asyncio.to_thread(self._sort, hashes, opening, closing, spill, loop, added)
        if self._reports is not None:
            sealed = replace(sealed, reports=len(self._reports))
        else:
            sealed = replace(sealed, reports=sealed.rows - len(added))
        await self.finish(closing, sealed)
        return sealed

    async def finish(self, closing: BlockCipher, sealed: SealedRows) -> None:
        """After the last part: objects are read back before anybody stands on them. Raises as
        ``write``, and UNAVAILABLE for a store that gives back something else.
        """
        if self._objects is None:
            return
        await self._objects.flush()
        digest, whole = hashlib.sha256(), -(-sealed.rows // rows_of_part(self._size))
        async for _, _, rows in parts(
            *(self._db, self._row, closing, 0, whole, self._bucket),
            written=(self.fence, self._size),
        ):
            digest.update(rows or b"")
        if digest.digest() != sealed.rows_hash.raw:
            raise ShoalError(
                Kind.UNAVAILABLE,
                "the object store does not give back the batch that was put there: its inbox "
                "stays, and it will be sealed again",
            )

    async def rewrite(self, closing: BlockCipher, whole: int) -> SealedRows:
        """What is left of the ``whole`` parts of the window's batch, into this one's table, which
        exists and is empty. Raises as ``finish``.
        """
        size, step = self._size, rows_of_part(self._size) * self._size
        digest, waiting, number, rows = hashlib.sha256(), bytearray(), 0, 0
        async for _, _, some in parts(self._db, self._row, closing, 0, whole, self._bucket):
            waiting += some or b""
            digest.update(some or b"")
            rows += len(some or b"") // size
            while len(waiting) >= step:
                await self.write(closing, number, step // size, bytes(waiting[:step]))
                del waiting[:step]
                number += 1
        if waiting:
            await self.write(closing, number, len(waiting) // size, bytes(waiting))
        after = SealedRows(rows, size, Digest(digest.digest()), reports=rows)
        await self.finish(closing, after)
        return after

    def _sort(
        self,
        hashes: WindowHashes,
        opening: BlockCipher,
        closing: BlockCipher,
        spill: Path,
        loop: asyncio.AbstractEventLoop,
        added: Sequence[bytes],
    ) -> SealedRows:
        """In a thread: the database is asked on the event loop."""
        steps = chain(self._steps(hashes, opening, loop), hashes.steps_of(added))
        messages = sorting.distinct_sorted(steps, spill, sorting.RUN_BYTES)
        return _written(
            messages,
            self._size,
            lambda part, count, rows: _on(loop, self.write(closing, part, count, rows)),
            self._tally,
        )

    def _steps(
        self, hashes: WindowHashes, opening: BlockCipher, loop: asyncio.AbstractEventLoop
    ) -> Iterator[tuple[bytes, bytes]]:
        """Keys and messages of blocks. A report's messages get keys of their own here."""
        after = b"", 0
        while page := _on(loop, self._page(*after)):
            for writer, number, acked, count, keys, body in page:
                of_writer = self._tally.of(bytes(writer))
                where = block_place(bytes(writer), number, acked)
                opened = opening.open(Part.KEYS, where, count, bytes(keys))
                rows = opening.open(Part.ROWS, where, count, bytes(body))
                if opened is None or rows is None:
                    of_writer.closed.append((number, count))
                    continue
                if self._reports is not None:
                    self._reports.load_joined(opened)
                    _, rows = parted(rows, count, self._size)
                    digests = rows_of(digests_of(rows_of(rows, self._size)), DIGEST)
                    opened = hashes.joined_keys_of(digests)
                elif len(rows) != count * self._size:
                    raise ShoalError(Kind.INTERNAL, "an inbox has a message of a wrong size")
                of_writer.add(number, acked, count)
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
        body = closing.seal(Part.BATCH, batch_place(self.fence, part), count, rows)
        if self._objects is not None:
            await self._objects.add(body, count)
        else:
            await self._insert(part, count, body)

    async def _insert(self, number: int, count: int, what: bytes | str) -> None:
        done = await self._db.execute(
            f"WITH c AS ({_HELD}) INSERT INTO {self._row.batch(self.fence)}"  # noqa: S608 - names of ours
            " SELECT $5, $6, $7 FROM c",
            *(*_named(self._claim), number, count, what),
        )
        if done != "INSERT 0 1":
            raise StaleClaimError

    async def _held(self) -> None:
        if await self._db.fetchval(_HELD, *_named(self._claim)) is None:
            raise StaleClaimError


def _named(claim: Claim) -> tuple[bytes, int, bytes, int]:
    return claim.window.task_id.raw, claim.window.window, claim.owner.raw, claim.fence


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
    return SealedRows(rows, size, Digest(digest.digest()), rows, tally.damaged)


def fence_of(claim: Claim, row: WindowRow) -> int:
    """What the next batch under this claim bears: the claim's fence, and where the batch that is
    there bears that (one claim seals and mends), in higher bits how often it was mended.
    """
    mended = row.batch_fence and row.batch_fence % MENDS == claim.fence
    return row.batch_fence + MENDS if mended else claim.fence


def rows_of_part(size: int) -> int:
    """How many rows of so many bytes a part of a batch holds; the last one may hold fewer."""
    return max(1, LIMITS.chunk_bytes // size)


async def tables_of(connection: Connection, row: WindowRow, *others: str) -> list[str]:
    """The tables of all batches that anybody wrote of this window, and the ``others`` that are
    there, in the order in which everybody locks them.
    """
    found = await connection.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
        " AND relkind = 'r' AND (starts_with(relname::text, $1) OR relname = ANY($2::text[]))",
        *(f"batch_{row.id}_", others),
    )
    return sorted(str(name) for (name,) in found)


async def check_written(
    connection: Connection, row: WindowRow, fence: int, rows: int, *, inbox: bool
) -> None:
    """Whether the batch of this fence holds so many rows, before the window's row says so, and the
    ``inbox`` that it was made of is there: the database may have stepped back since, or the window
    was shredded. Raises MISMATCH.
    """
    found, there = -1, await tables_of(connection, row, row.inbox)
    if inbox and row.inbox not in there:
        raise ShoalError(
            Kind.MISMATCH, "the reports of a window went while it was sealed: it is sealed again"
        )
    if row.batch(fence) in there:
        found = await connection.fetchval(
            f"SELECT coalesce(sum(count), 0)::bigint FROM {row.batch(fence)}"  # noqa: S608 - a name of ours
        )
    if found != rows:
        raise ShoalError(
            Kind.MISMATCH, "the database lost a batch that was just written: it is sealed again"
        )


async def make_table(
    connection: Connection, row: WindowRow, fence: int, keep: str = "", *, objects: bool = False
) -> None:
    """An empty table for a batch of this claim, or for the names of its ``objects``; those of
    others, but ``keep``, are dropped.
    """
    for name in await tables_of(connection, row):
        if name != keep:
            await connection.execute(f"DROP TABLE {name}")
    for statement in (TABLE,) if objects else _MAKE:
        await connection.execute(statement.format(batch=row.batch(fence)))


async def exists(database: Database, name: str) -> bool:
    """Whether there is a table of this name."""
    found = await database.fetchrow("SELECT to_regclass($1) IS NOT NULL AS here", name)
    return found is not None and bool(found["here"])


async def parts(
    database: Database,
    row: WindowRow,
    closing: BlockCipher,
    first: int,
    last: int,
    bucket: Bucket | None = None,
    written: tuple[int, int] | None = None,
) -> AsyncIterator[tuple[int, int, bytes | None]]:
    """Parts [first, last) that are there: number, rows, and the rows unless they are damaged.
    ``written``: fence and bytes of a row, of a batch that is not the window's yet. Raises as
    ``object_parts``.
    """
    fence, size = written or (row.batch_fence, row.record.row_size)
    if await in_objects(database, row.batch(fence)):
        widths = size, rows_of_part(size)
        found = object_parts(database, bucket, row, fence, closing, widths, (first, last))
        async for one in found:
            yield one
        return
    for at in range(first, last, _PAGE):
        for part, count, body in await database.fetch(
            f"SELECT part, count, body FROM {row.batch(fence)} WHERE part >= $1 AND part < $2"  # noqa: S608 - a name of ours
            " ORDER BY part",
            *(at, min(last, at + _PAGE)),
        ):
            place = batch_place(fence, part)
            yield part, count, closing.open(Part.BATCH, place, count, bytes(body))


async def enter_writers(
    connection: Connection, row: WindowRow, opened: dict[bytes, int] | None
) -> None:
    """What was sealed of each writer's rows, for those who promised more. Nothing can be missing
    from a window that holds nothing else than what was read just now.
    """
    if opened is not None:
        await connection.execute("DELETE FROM sealed_of WHERE id = $1", row.id)
        await connection.executemany(
            "INSERT INTO sealed_of VALUES ($1, $2, $3)",
            [(row.id, writer, rows) for writer, rows in opened.items()],
        )
