"""Where the rows of a batch are opened: in this machine's warm worker processes today."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures.process import BrokenProcessPool
from typing import Protocol, TypeVar

from shoal.analyzer.batches.chunk_source import Chunk, ChunkSource, read_chunk
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.services.workers import WorkerPool

R = TypeVar("R")
# What a result for a chunk must be; raises MISMATCH. Whoever knows the worker that gave it adds who
# it was.
Check = Callable[[R, Chunk], None]


class Executor(Protocol):
    """Runs one function over chunks of rows, on several workers at once. Members inherit
    tests/conformance/opening/suite.py.

    Where the rows are read is the member's to decide: here, to be sent along, or by the worker.
    """

    @property
    def chunk_rows(self) -> int | None:
        """Rows that one chunk best has; None: whatever the caller thinks."""
        ...

    @property
    def workers(self) -> int:
        """How many work at once, as far as that is known; fewer chunks leave some idle."""
        ...

    def over_chunks(
        self,
        work: Callable[..., R],
        arguments: tuple[object, ...],
        source: ChunkSource,
        chunks: Iterable[Chunk],
        check: Check[R] | None = None,
    ) -> AsyncGenerator[R]:
        """``work(*arguments, rows)`` per chunk; results in the order of the chunks, each after
        ``check``.

        ``work`` is a pure function of a module: a member may run it twice for a chunk. A bounded
        number of chunks is under way, however slowly results are taken. Closing the generator, or
        cancelling who waits for it, ends the work; the executor can be used again.

        Raises UNAVAILABLE if workers died (try again from the first chunk), OSError if the source
        can't be read, and what ``work`` and ``check`` raise.
        """
        ...


class ProcessExecutor:
    """A warm pool of processes of this machine. Rows are read here and sent along."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool

    @property
    def chunk_rows(self) -> int | None:
        """See ``Executor.chunk_rows``."""
        return None

    @property
    def workers(self) -> int:
        """See ``Executor.workers``."""
        return self._pool.processes

    async def over_chunks(
        self,
        work: Callable[..., R],
        arguments: tuple[object, ...],
        source: ChunkSource,
        chunks: Iterable[Chunk],
        check: Check[R] | None = None,
    ) -> AsyncGenerator[R]:
        """See ``Executor.over_chunks``. ``LIMITS.chunks_in_flight`` chunks per worker."""
        most = self._pool.processes * LIMITS.chunks_in_flight
        under_way: deque[tuple[Chunk, asyncio.Future[R]]] = deque()

        async def next_result() -> R:
            chunk, future = under_way[0]
            result = await future
            under_way.popleft()
            if check is not None:
                check(result, chunk)
            return result

        try:
            for chunk in chunks:
                rows = await asyncio.to_thread(read_chunk, source, chunk)
                future = asyncio.wrap_future(self._pool.submit(work, *arguments, rows))
                under_way.append((chunk, future))
                if len(under_way) == most:
                    yield await next_result()
            while under_way:
                yield await next_result()
        except BrokenProcessPool:
            # the pool ends them, and must not find them cancelled: see ``WorkerPool``
            await asyncio.gather(*(future for _, future in under_way), return_exceptions=True)
            raise ShoalError(
                Kind.UNAVAILABLE,
                "a worker process died while it opened reports: the batch is opened again",
            ) from None
        finally:
            for _, work_left in under_way:
                work_left.cancel()
