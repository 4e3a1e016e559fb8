"""The members of opening's seams for workers on other machines: where chunks are opened, and how a
window's key gets there.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar, cast

from shoal.analyzer.batches.chunk_source import Chunk, ChunkSource, FileSource, read_chunk
from shoal.analyzer.batches.executor import Check
from shoal.analyzer.batches.key_delivery import LentKey
from shoal.analyzer.batches.row_opening import open_chunk
from shoal.analyzer.machines import messages
from shoal.analyzer.machines.cluster import IN_FLIGHT, Cluster
from shoal.analyzer.machines.connection import WorkerConnection
from shoal.analyzer.machines.messages import Ask, ChunkPart, SharedRows
from shoal.analyzer.machines.partials import split
from shoal.analyzer.machines.redeeming import redeem_loan
from shoal.crypto.hpke import HpkePrivateKey

R = TypeVar("R")
# Of a chunk: more would spare an analyzer little (9 bytes a row are its part anyway), and cost more
# that a lost worker did in vain.
_PARTS = 8


class MachinesExecutor:
    """Rows are read here and sent along; or, if ``shared``, read by workers in the folder of the
    batch's file, which they have mounted. ``part_rows``: rows of a request; a worker answers for
    several of them at once, with one tally.
    """

    def __init__(self, cluster: Cluster, part_rows: int | None = None, *, shared: bool = False):
        self._cluster, self._part_rows, self._shared = cluster, part_rows, shared
        self._numbers = itertools.count()

    @property
    def chunk_rows(self) -> int | None:
        """See ``Executor.chunk_rows``."""
        return None if self._part_rows is None else _PARTS * self._part_rows

    @property
    def workers(self) -> int:
        """See ``Executor.workers``; a loan has looked at who is there."""
        return self._cluster.size

    async def over_chunks(
        self,
        work: Callable[..., R],
        arguments: tuple[object, ...],
        source: ChunkSource,
        chunks: Iterable[Chunk],
        check: Check[R] | None = None,
    ) -> AsyncGenerator[R]:
        """See ``Executor.over_chunks``. A chunk whose worker is lost goes to another one."""
        order = messages.order(work, arguments)
        # results of nothing else can be joined there
        most = self._part_rows if work is open_chunk else None
        under_way: deque[asyncio.Task[R]] = deque()

        async def one(chunk: Chunk) -> R:
            parts = [chunk] if most is None else split(chunk, most)
            return await self._one(order, source, chunk, parts, check)

        async def first() -> R:
            # the task is not awaited itself: a cancellation here is ours, whatever it makes of it
            await asyncio.wait([under_way[0]])
            return under_way.popleft().result()

        async with self._cluster.used():
            try:
                for chunk in chunks:
                    under_way.append(asyncio.create_task(one(chunk)))
                    # one more than they have: results are given in order, chunks end in any
                    while len(under_way) >= (IN_FLIGHT + 1) * max(self._cluster.size, 1):
                        yield await first()
                while under_way:
                    yield await first()
            finally:
                for left in under_way:
                    left.cancel()
                await asyncio.gather(*under_way, return_exceptions=True)

    async def _one(
        self,
        order: bytes,
        source: ChunkSource,
        chunk: Chunk,
        parts: list[Chunk],
        check: Check[R] | None,
    ) -> R:
        async def ask(worker: WorkerConnection) -> R:
            return cast(R, await self._asked(worker, order, source, parts))

        def checked(result: R) -> R:
            if check is not None:
                check(result, chunk)
            return result

        return await self._cluster.ask_one(ask, checked)

    async def _asked(
        self, worker: WorkerConnection, order: bytes, source: ChunkSource, parts: list[Chunk]
    ) -> object:
        """All parts of a chunk at one worker; its last answer is for all of them."""
        number, result = next(self._numbers), None
        for at, chunk in enumerate(parts):
            if result is not None:
                raise worker.refuted(ValueError("it answered for a chunk before its last part"))
            what, rows = await asyncio.to_thread(self._rows, source, chunk)
            part = ChunkPart(number, at, len(parts)).to_bytes()
            result = await worker.ask(what, part, order, rows)
        return result

    def _rows(self, source: ChunkSource, chunk: Chunk) -> tuple[Ask, bytes]:
        if self._shared and isinstance(source, FileSource):
            return Ask.OPEN_SHARED, SharedRows(source.name, source.row_size, chunk).to_bytes()
        return Ask.OPEN, read_chunk(source, chunk)


class MachinesDelivery:
    """Each worker gets a window's key sealed to a key of its memory; the ticket is the number of
    the loan. A worker unseals it for each chunk, and forgets it when the loan ends or the
    connection does.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @asynccontextmanager
    async def lend(self, key: HpkePrivateKey) -> AsyncIterator[LentKey]:
        """See ``KeyDelivery.lend``."""
        async with self._cluster.lent(key) as loan:
            lent = LentKey(redeem_loan, loan)
            try:
                yield lent
            finally:
                lent.take_back()
