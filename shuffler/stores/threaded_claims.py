"""The claims of the stores of one process: the table of them, and the steps that they stand for.

Reports and rounds of a process share one of these, so that a window has one owner in all that is
kept of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.claims import Claim, ClaimTable, OwnerId

T = TypeVar("T")


class ThreadedClaims:
    """See ``WindowClaims``. One step per window at a time: it is not taken over while a step of it
    runs. For one event loop.

    ``steady``: see ``ClaimTable``.
    """

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self._table = ClaimTable(steady)
        self._steps: WeakValueDictionary[WindowId, asyncio.Lock] = WeakValueDictionary()

    async def claim(self, window: WindowId, owner: OwnerId, seconds: float) -> Claim | None:
        """As ``WindowClaims.claim``."""
        async with self._step_of(window):
            return self._table.claim(window, owner, seconds)

    async def renew(self, claim: Claim, seconds: float) -> None:
        """As ``WindowClaims.renew``."""
        self._table.renew(claim, seconds)

    async def release(self, claim: Claim) -> None:
        """As ``WindowClaims.release``."""
        self._table.release(claim)

    @contextlib.asynccontextmanager
    async def step(self, claim: Claim) -> AsyncIterator[WindowId]:
        """Around a step: the claim holds from its beginning to its end. Raises StaleClaimError."""
        async with self._step_of(claim.window):
            self._table.check(claim)
            yield claim.window

    @contextlib.asynccontextmanager
    async def steps(self, claims: Collection[Claim]) -> AsyncIterator[list[WindowId]]:
        """``step`` of several windows together."""
        windows = sorted({claim.window for claim in claims}, key=_order)
        async with contextlib.AsyncExitStack() as held:
            for window in windows:  # always in this order: no two wait for each other
                await held.enter_async_context(self._step_of(window))
            for claim in claims:
                self._table.check(claim)
            yield windows

    async def run(self, claim: Claim, work: Callable[..., T], *arguments: Any) -> T:
        """A step in a thread: ``work`` of the claim's window and what else is given."""
        async with self.step(claim) as window:
            return await to_its_end(asyncio.to_thread(work, window, *arguments))

    def _step_of(self, window: WindowId) -> asyncio.Lock:
        return self._steps.setdefault(window, asyncio.Lock())


def _order(window: WindowId) -> tuple[bytes, int]:
    return window.task_id.raw, window.window


async def to_its_end(step: Coroutine[Any, Any, T]) -> T:
    """Wait for a thread also when this task is cancelled, however often: nobody takes a window over
    before what was begun has ended.
    """
    running = asyncio.ensure_future(step)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():  # whoever cancels again waits, too
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # nobody waits for it any more
        raise
