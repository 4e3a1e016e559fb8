"""Worker processes for HPKE, which holds the GIL: spawned, warm before they are needed, and never
outliving their parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from typing import Any, TypeVar

from shoal.errors import Kind, ShoalError
from shoal.services.parent import die_with_parent

T = TypeVar("T")


@contextlib.contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Spawn children inside: they inherit the mask. Ctrl-C reaches the whole group, and one that
    still imports must not print a trace; the parent hears of it at the end.
    """
    # The first child brings multiprocessing's tracker, whose start ends with SIGINT let through,
    # whatever it was before.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(
    parent: int, initializer: Callable[..., None] | None, arguments: tuple[Any, ...]
) -> None:
    die_with_parent(parent)
    if initializer is not None:
        initializer(*arguments)


def _nothing(_: int) -> int:
    return os.getpid()


class WorkerPool:
    """``processes`` spawned workers, each prepared by ``initializer(*arguments)``. Arguments must
    not be secrets that print.
    """

    def __init__(
        self,
        processes: int,
        initializer: Callable[..., None] | None = None,
        arguments: tuple[Any, ...] = (),
    ) -> None:
        if not 1 <= processes <= 256:
            raise ShoalError(Kind.CONFIG, "worker processes: 1 to 256")
        self.processes = processes
        self._recipe = (os.getpid(), initializer, arguments)
        self._pool = self._make()

    def _make(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        # PR_SET_PDEATHSIG fires when the *thread* that spawned a worker ends: spawn them all now,
        # in the caller's thread.
        pool = ProcessPoolExecutor(
            self.processes, mp_context=context, initializer=_start, initargs=self._recipe
        )
        with deaf_to_interrupts():
            for _ in range(self.processes):
                pool.submit(_nothing, 0)
        return pool

    def warm(self) -> None:
        """Wait until the workers run. Raises UNAVAILABLE if they can't be started."""
        try:
            list(self._pool.map(_nothing, range(self.processes)))
        except BrokenProcessPool:
            raise ShoalError(
                Kind.UNAVAILABLE, "the worker processes can't be started: is there memory left?"
            ) from None

    def submit(self, work: Callable[..., T], *arguments: object) -> Future[T]:
        """Raises UNAVAILABLE if the workers died; they are started anew for the next call."""
        pool = self._pool
        try:
            return pool.submit(work, *arguments)
        except BrokenProcessPool:
            self._replace(pool)
            raise ShoalError(
                Kind.UNAVAILABLE, "the worker processes died and were started again: try again"
            ) from None

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        """Like submit, awaited. A worker that dies while working is UNAVAILABLE too."""
        pool = self._pool
        try:
            return await asyncio.wrap_future(self.submit(work, *arguments))
        except BrokenProcessPool:
            self._replace(pool)
            raise ShoalError(Kind.UNAVAILABLE, "a worker process died: try again") from None

    def _replace(self, broken: ProcessPoolExecutor) -> None:
        """New workers for a pool that broke; once, though every call that waited for it comes
        here. Blocks until the pool has ended what is left of it: a call that is
        cancelled meanwhile makes its thread fail, and its other workers stay (Python 3.11).
        """
        if self._pool is broken:
            broken.shutdown(wait=True, cancel_futures=True)
            self._pool = self._make()

    def close(self) -> None:
        """End the processes once what they do is done; what only waits is dropped. Blocks."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def kill(self) -> None:
        """End the processes at once, whatever they do. Their calls fail."""
        for process in list((self._pool._processes or {}).values()):
            process.kill()
        self._pool.shutdown(wait=True)
