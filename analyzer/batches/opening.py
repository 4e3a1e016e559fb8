"""Opening a batch: sealed rows in, one tally out, and no report ever leaves a worker.

HPKE holds the interpreter lock, so rows go to spawned worker processes, some thousand at a time as
one bytes object. A worker opens them into one fixed-width matrix, judges every row, tallies the
good ones and returns the tally, a mark per row and, for the good rows, the first eight bytes of the
nonce. Tallies add, so nothing else has to come back.

Each (window, nonce) counts once. Equal nonces are found by sorting the eight-byte prefixes (8 bytes
a row, twice while sorting); rows with equal prefixes alone are opened again to compare whole
nonces. The first row of a nonce, in delivered order, counts; the tally of the others is subtracted.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeVar

from shoal import codec
from shoal.analyzer.core import DUPLICATE, INVALID_VALUE, UNOPENABLE, WRONG_LENGTH
from shoal.arrays import NDArray, np
from shoal.crypto.envelope import NONCE_SIZE, report_info
from shoal.crypto.hpke import HpkePrivateKey
from shoal.crypto.suites import SuiteId
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.limits import LIMITS
from shoal.mechanisms import Mechanism, Tally, create
from shoal.services.workers import WorkerPool
from shoal.task import Task

_GOOD, _UNOPENABLE, _WRONG_LENGTH, _INVALID_VALUE = range(4)
_REASON = {_UNOPENABLE: UNOPENABLE, _WRONG_LENGTH: WRONG_LENGTH, _INVALID_VALUE: INVALID_VALUE}
_PREFIX = 8  # bytes of a nonce
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Opener:
    """What a worker needs to open rows of one batch. ``secret`` is the window's raw private key: it
    crosses to the workers as an argument of its own, and this object neither prints nor pickles it.
    """

    task: bytes  # a serialized Task, the same for every chunk
    info: bytes
    row_size: int  # bytes
    secret: bytes = field(repr=False)

    @classmethod
    def of(
        cls, task: Task, task_id: TaskId, window: int, key: HpkePrivateKey, row_size: int
    ) -> Opener:
        return cls(
            codec.encode_task(task),
            report_info(task_id, window, key.config.key_id),
            row_size,
            key.to_raw_secret(),
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError("an opener holds a private key and is never pickled")


@dataclass(frozen=True, slots=True)
class Opened:
    """``tally`` of the rows that counted; ``rejected``: rows that did not, by reason; reasons that
    did not occur are left out.
    """

    tally: Tally
    rejected: dict[str, int]


class ChunkResult(NamedTuple):
    """``marks``: u8 per row, 0 = good. ``prefixes``: u64 per good row, in row order."""

    tally: bytes
    marks: bytes
    prefixes: bytes


# --- in a worker ----------------------------------------------------------------------------------


def _open_rows(
    task: bytes, info: bytes, row_size: int, secret: bytes, rows: bytes
) -> tuple[Mechanism, NDArray[np.uint8], NDArray[np.uint8]]:
    """(mechanism, marks uint8[n], plaintexts uint8[n, nonce + report]); a row that does not open is
    all zeros.
    """
    suite, mechanism = _prepare(task)
    # not cached: 0.2 ms per chunk, and nothing of it stays
    key = HpkePrivateKey.from_raw_secret(suite, secret)
    width = NONCE_SIZE + mechanism.report_size
    count = len(rows) // row_size
    marks, plaintexts = bytearray(count), bytearray(count * width)
    for i in range(count):
        try:
            # envelope.open_report; the width is checked below
            plaintext = key.open(rows[i * row_size : (i + 1) * row_size], info)
        except ShoalError:
            marks[i] = _UNOPENABLE
            continue
        if len(plaintext) != width:
            marks[i] = _WRONG_LENGTH
            continue
        plaintexts[i * width : (i + 1) * width] = plaintext
    judged = np.frombuffer(marks, dtype=np.uint8)
    matrix = np.frombuffer(plaintexts, dtype=np.uint8).reshape(count, width)
    judged[(judged == _GOOD) & ~mechanism.valid(matrix[:, NONCE_SIZE:])] = _INVALID_VALUE
    return mechanism, judged, matrix


@functools.lru_cache(maxsize=2)
def _prepare(task: bytes) -> tuple[SuiteId, Mechanism]:
    parsed = codec.decode_task(task)
    return SuiteId.of(parsed.suite), create(parsed.mechanism, parsed.domain)


def open_chunk(task: bytes, info: bytes, row_size: int, secret: bytes, rows: bytes) -> ChunkResult:
    """Open, judge and tally whole rows. Nothing about a row can make it raise."""
    mechanism, marks, matrix = _open_rows(task, info, row_size, secret, rows)
    good = matrix[marks == _GOOD]
    prefixes = np.ascontiguousarray(good[:, :_PREFIX]).tobytes()
    return ChunkResult(
        mechanism.tally(np.ascontiguousarray(good[:, NONCE_SIZE:])).to_bytes(),
        marks.tobytes(),
        prefixes,
    )


def open_nonces(task: bytes, info: bytes, row_size: int, secret: bytes, rows: bytes) -> bytes:
    """The whole nonces of rows that are known to be good, one after the other."""
    _, _, matrix = _open_rows(task, info, row_size, secret, rows)
    return np.ascontiguousarray(matrix[:, :NONCE_SIZE]).tobytes()


# --- in the parent --------------------------------------------------------------------------------


async def open_batch(pool: WorkerPool, path: Path, opener: Opener) -> Opened:
    """Open every row of a spool file. Memory: 17 bytes a row, and ``LIMITS.chunks_in_flight``
    chunks per worker.

    Raises UNAVAILABLE if workers died (try again), OSError if the file can't be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        count = os.fstat(descriptor).st_size // opener.row_size
        return await _Batch(pool, descriptor, opener, count).run()
    finally:
        os.close(descriptor)


class _Batch:
    def __init__(self, pool: WorkerPool, descriptor: int, opener: Opener, rows: int) -> None:
        self._pool, self._descriptor, self._opener, self._rows = pool, descriptor, opener, rows
        self._good = np.zeros(rows, dtype=np.bool_)
        self._prefixes = np.empty(rows, dtype=np.uint64)  # of the good rows, in row order

    async def run(self) -> Opened:
        tally, counts, done, filled = (
            self._empty(),
            np.zeros(len(_REASON) + 1, dtype=np.int64),
            0,
            0,
        )
        chunks = (
            functools.partial(self._block, first)
            for first in range(0, self._rows, LIMITS.open_chunk_rows)
        )
        async for result in self._work(open_chunk, chunks):
            tally += Tally.from_bytes(result.tally)
            marks, prefixes = (
                np.frombuffer(result.marks, dtype=np.uint8),
                np.frombuffer(result.prefixes, dtype=np.uint64),
            )
            counts += np.bincount(marks, minlength=counts.size)
            self._good[done : done + marks.size] = marks == _GOOD
            self._prefixes[filled : filled + prefixes.size] = prefixes
            done, filled = done + marks.size, filled + prefixes.size
        rejected = {_REASON[mark]: int(counts[mark]) for mark in _REASON if counts[mark]}
        tied = await asyncio.to_thread(self._tied, filled)
        repeats = await self._repeats(tied)
        if repeats.size:
            rejected[DUPLICATE] = int(repeats.size)
            tally = await self._without(tally, repeats)
        return Opened(tally, rejected)

    # --- each nonce once --------------------------------------------------------------------------

    def _tied(self, filled: int) -> NDArray[np.int64]:
        """Good rows whose nonce begins like that of another good row, in row order."""
        ordered = np.sort(self._prefixes[:filled])
        # sorted; a prefix seen k times is here k - 1 times
        shared = ordered[1:][ordered[1:] == ordered[:-1]]
        del ordered
        if not shared.size:
            return np.empty(0, dtype=np.int64)
        found, at = [], 0
        for first in range(0, self._rows, LIMITS.open_chunk_rows):
            rows = np.flatnonzero(self._good[first : first + LIMITS.open_chunk_rows]) + first
            prefixes = self._prefixes[at : at + rows.size]
            place = np.minimum(np.searchsorted(shared, prefixes), shared.size - 1)
            found.append(rows[shared[place] == prefixes])
            at += rows.size
        return np.concatenate(found)

    async def _repeats(self, tied: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of those rows the ones whose whole nonce an earlier row has: they don't count."""
        if not tied.size:
            return tied
        nonces = b"".join([result async for result in self._work(open_nonces, self._gathers(tied))])
        words = np.frombuffer(nonces, dtype=np.uint64).reshape(-1, NONCE_SIZE // 8)
        # stable: within one nonce the rows stay in order
        order = np.lexsort((words[:, 1], words[:, 0]))
        ordered = words[order]
        same = np.zeros(tied.size, dtype=np.bool_)
        same[1:] = (ordered[1:] == ordered[:-1]).all(axis=1)
        repeats: NDArray[np.int64] = np.sort(tied[order[same]])
        return repeats

    async def _without(self, tally: Tally, rows: NDArray[np.int64]) -> Tally:
        async for result in self._work(open_chunk, self._gathers(rows)):
            part = Tally.from_bytes(result.tally)
            tally = Tally(tally.counts - part.counts, tally.rows - part.rows)
        return tally

    # --- rows to workers --------------------------------------------------------------------------

    async def _work(
        self,
        function: Callable[[bytes, bytes, int, bytes, bytes], R],
        chunks: Iterable[Callable[[], bytes]],
    ) -> AsyncIterator[R]:
        """``function`` over chunks of rows in the workers; results in order, and a bounded number
        of chunks under way.
        """
        opener, most = self._opener, self._pool.processes * LIMITS.chunks_in_flight
        under_way: deque[asyncio.Future[R]] = deque()
        try:
            for read in chunks:
                rows = await asyncio.to_thread(read)
                work = self._pool.submit(
                    function, opener.task, opener.info, opener.row_size, opener.secret, rows
                )
                under_way.append(asyncio.wrap_future(work))
                if len(under_way) == most:
                    yield await under_way.popleft()
            while under_way:
                yield await under_way.popleft()
        except BrokenProcessPool:
            raise ShoalError(
                Kind.UNAVAILABLE,
                "a worker process died while it opened reports: the batch is opened again",
            ) from None
        finally:
            for work_left in under_way:
                work_left.cancel()

    def _block(self, first: int) -> bytes:
        return self._read(first, min(LIMITS.open_chunk_rows, self._rows - first))

    def _gathers(self, rows: NDArray[np.int64]) -> Iterable[Callable[[], bytes]]:
        """Chunks of scattered rows."""
        return (
            functools.partial(self._gather, rows[i : i + LIMITS.open_chunk_rows])
            for i in range(0, rows.size, LIMITS.open_chunk_rows)
        )

    def _gather(self, rows: NDArray[np.int64]) -> bytes:
        return b"".join(self._read(int(row), 1) for row in rows)

    def _read(self, first: int, count: int) -> bytes:
        size = self._opener.row_size
        data = os.pread(self._descriptor, count * size, first * size)
        if len(data) != count * size:
            raise OSError("a spool file shrank while it was read")
        return data

    def _empty(self) -> Tally:
        return Tally.from_bytes(
            open_chunk(
                self._opener.task,
                self._opener.info,
                self._opener.row_size,
                self._opener.secret,
                b"",
            ).tally
        )
