"""Opening a batch: sealed rows in, one tally out, and no report ever leaves a worker.

Rows go to workers, some thousand at a time; what a worker does with them is ``row_opening``. Where
rows come from, where they are opened and how the key gets there are three seams: ``ChunkSource``,
``Executor`` and ``KeyDelivery``. The result is the same bit for bit, whichever members they have.

Each (window, nonce) counts once. Equal nonces are found by their eight-byte prefixes (``repeats``:
in memory, or over parts on disk); rows with equal prefixes alone are opened again to compare whole
nonces. The first row of a nonce, in delivered order, counts; the tally of the others is subtracted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from shoal.analyzer.batches.checking import check_opened, nonce_check
from shoal.analyzer.batches.chunk_source import Chunk, ChunkSource
from shoal.analyzer.batches.executor import Check, Executor
from shoal.analyzer.batches.key_delivery import KeyDelivery, LentKey
from shoal.analyzer.batches.repeats import Beginnings, beginnings
from shoal.analyzer.batches.row_opening import (
    BAD_VALUE,
    GOOD,
    NOT_OPENABLE,
    OTHER_LENGTH,
    ChunkResult,
    RowContext,
    empty_tally,
    open_chunk,
    open_nonces,
)
from shoal.analyzer.core import DUPLICATE, INVALID_VALUE, UNOPENABLE, WRONG_LENGTH
from shoal.arrays import NDArray, np
from shoal.crypto.envelope import NONCE_SIZE
from shoal.crypto.hpke import HpkePrivateKey
from shoal.limits import LIMITS
from shoal.mechanisms import Tally

_REASON = {NOT_OPENABLE: UNOPENABLE, OTHER_LENGTH: WRONG_LENGTH, BAD_VALUE: INVALID_VALUE}
# A small batch goes in smaller chunks, so many of them that all workers end at about the same time;
# a chunk of fewer rows would cost more than it opens.
_PARTS, _PARTS_PER_WORKER, _LEAST_ROWS = 32, 16, 256
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Opened:
    """``tally`` of the rows that counted; ``rejected``: rows that did not, by reason; reasons that
    did not occur are left out.
    """

    tally: Tally
    rejected: dict[str, int]


async def open_batch(
    source: ChunkSource,
    context: RowContext,
    key: HpkePrivateKey,
    executor: Executor,
    delivery: KeyDelivery,
    folder: Path | None = None,
) -> Opened:
    """Open every row of a source. Memory: 18 bytes a row up to ``LIMITS.repeat_rows``, no more for
    rows beyond, and 40 bytes for each repeated row; and what the executor has under way.

    ``folder``: for what a batch beyond that limit needs on disk, 16 bytes a row; None: this
    system's for temporary files.

    Raises UNAVAILABLE if workers died (try again), OSError if the rows can't be read, OVERLOADED if
    that disk has no room, MISMATCH if a worker's answer can't be true.
    """
    nonces = await asyncio.to_thread(beginnings, source.rows, LIMITS.repeat_rows, folder)
    try:
        async with delivery.lend(key) as lent:
            return await _Batch(source, context, lent, executor, nonces).run()
    finally:
        nonces.close()


class _Batch:
    def __init__(
        self,
        source: ChunkSource,
        context: RowContext,
        lent: LentKey,
        executor: Executor,
        nonces: Beginnings,
    ) -> None:
        self._source, self._context, self._lent = source, context, lent
        self._executor, self._rows, self._nonces = executor, source.rows, nonces

    async def run(self) -> Opened:
        """Everything: judge and tally all rows, then take back what counted twice."""
        tally, counts = empty_tally(self._context), np.zeros(len(_REASON) + 1, dtype=np.int64)
        done = 0
        check = partial(check_opened, tally)
        async with self._over(open_chunk, self._blocks(), check) as results:
            async for result in results:
                tally += Tally.from_bytes(result.tally)
                marks = np.frombuffer(result.marks, dtype=np.uint8)
                prefixes = np.frombuffer(result.prefixes, dtype=np.uint64)
                counts += np.bincount(marks, minlength=counts.size)
                good = np.flatnonzero(marks == GOOD) + done
                if self._nonces.blocks:
                    await asyncio.to_thread(self._nonces.add, good, prefixes)
                else:
                    self._nonces.add(good, prefixes)
                done += marks.size
        rejected = {_REASON[mark]: int(counts[mark]) for mark in _REASON if counts[mark]}
        repeats = await self._repeats()
        if repeats.size:
            rejected[DUPLICATE] = int(repeats.size)
            tally = await self._without(tally, repeats)
        return Opened(tally, rejected)

    # --- each nonce once --------------------------------------------------------------------------

    async def _repeats(self) -> NDArray[np.int64]:
        """The rows whose whole nonce an earlier row has, ascending: they don't count."""
        found, groups = [np.empty(0, dtype=np.int64)], self._nonces.tied()
        while (tied := await asyncio.to_thread(next, groups, None)) is not None:
            found.append(await self._repeats_of(*tied))
        return np.sort(np.concatenate(found))

    async def _repeats_of(
        self, tied: NDArray[np.int64], begin: NDArray[np.uint64]
    ) -> NDArray[np.int64]:
        """Of rows whose nonces begin alike, with all that begin as they do."""
        check = nonce_check(tied, begin)
        async with self._over(open_nonces, _scattered(tied), check) as results:
            nonces = b"".join([result async for result in results])
        words = np.frombuffer(nonces, dtype=np.uint64).reshape(-1, NONCE_SIZE // 8)
        # stable: within one nonce the rows stay in order
        order = np.lexsort((words[:, 1], words[:, 0]))
        ordered = words[order]
        same = np.zeros(tied.size, dtype=np.bool_)
        same[1:] = (ordered[1:] == ordered[:-1]).all(axis=1)
        return tied[order[same]]

    async def _without(self, tally: Tally, rows: NDArray[np.int64]) -> Tally:
        check: Check[ChunkResult] = partial(check_opened, tally, all_good=True)
        async with self._over(open_chunk, _scattered(rows), check) as results:
            async for result in results:
                tally -= Tally.from_bytes(result.tally)
        return tally

    # --- rows to workers --------------------------------------------------------------------------

    def _over(
        self, work: Callable[..., R], chunks: Iterable[Chunk], check: Check[R]
    ) -> AbstractAsyncContextManager[AsyncGenerator[R]]:
        """``work`` over chunks of rows in the workers; what is left of it ends with the context."""
        arguments = (self._context, *self._lent.arguments())
        return aclosing(self._executor.over_chunks(work, arguments, self._source, chunks, check))

    def _blocks(self) -> Iterator[tuple[range]]:
        """All rows, in chunks that lie together."""
        most = self._executor.chunk_rows or LIMITS.open_chunk_rows
        parts = max(_PARTS, _PARTS_PER_WORKER * self._executor.workers)
        step = min(most, max(_LEAST_ROWS, -(-self._rows // parts)))
        for first in range(0, self._rows, step):
            yield (range(first, min(first + step, self._rows)),)


def _scattered(rows: NDArray[np.int64]) -> Iterator[list[range]]:
    """Chunks of single rows."""
    step = LIMITS.open_chunk_rows
    for first in range(0, rows.size, step):
        yield [range(row, row + 1) for row in rows[first : first + step].tolist()]
