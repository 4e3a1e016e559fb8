"""The thread of a device's file: steps that wait for the disk run there, one after the other, and
never in an event loop.

One thread is enough, because the file takes one transaction at a time. It is cheaper than a pool's
next free thread, of which each would also keep its own arena of memory and its own caches warm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from shoal.errors import Kind, ShoalError

T = TypeVar("T")


class StoreThread:
    """Started with its first step."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "shoal-store")

    async def run(self, step: Callable[[], T]) -> T:
        """Run a step and return, or raise, what it does. A caller that is cancelled leaves the step
        to its end. UNAVAILABLE: closed.

        A step must not wait for another one.
        """
        try:
            running = asyncio.get_running_loop().run_in_executor(self._pool, step)
        except RuntimeError:
            raise ShoalError(
                Kind.UNAVAILABLE, "the device's memory is closed: open it again"
            ) from None
        return await running

    def close(self) -> None:
        """Take no more steps; those that were given are done. Returns at once, and may be called by
        a step.
        """
        self._pool.shutdown(wait=False)
