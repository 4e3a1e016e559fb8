"""A ``Store`` of one process, on this machine's disk: the steps of a ``BlockingStore``, run in
threads.

Reports are committed in groups by the thread of ``GroupCommit``, which also closes windows, so that
no report comes between. Everything else runs in a thread of the event loop's pool, one step per
window at a time: a window is not taken over while a step of it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from shoal import failpoints
from shoal.errors import Kind
from shoal.ids import Digest, TaskId
from shoal.limits import LIMITS
from shoal.services.conditions import Condition
from shoal.shuffler.core import Capacity, WindowId, WindowState
from shoal.shuffler.stores.blocking import BlockingStore
from shoal.shuffler.stores.claims import Claim, ClaimTable, OwnerId
from shoal.shuffler.stores.group_commit import GroupCommit
from shoal.shuffler.stores.store import AdmittedReport, SealedRows, WindowRecord

T = TypeVar("T")


class ThreadedStore:
    """See ``Store``. Belongs to the event loop that makes it.

    ``commit_ms``: how long the first report of a group waits for others. ``steady``: see
    ``ClaimTable``.
    """

    def __init__(
        self,
        blocking: BlockingStore,
        *,
        commit_ms: float = LIMITS.commit_ms,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._blocking = blocking
        self._commits = GroupCommit(
            self._append, blocking.confirm, what="report", wait_s=commit_ms / 1000
        )
        self._claims = ClaimTable(steady)
        self._steps: WeakValueDictionary[WindowId, asyncio.Lock] = WeakValueDictionary()

    # --- what this process knows

    def adopt(
        self, task_id: TaskId, schedule_hash: Digest, capacity: Capacity, row_size: int
    ) -> None:
        self._blocking.adopt(task_id, schedule_hash, capacity, row_size)

    def records(self) -> dict[WindowId, WindowRecord]:
        return self._blocking.records()

    def record(self, window: WindowId) -> WindowRecord | None:
        return self._blocking.record(window)

    def distinct(self, window: WindowId) -> int:
        return self._blocking.distinct(window)

    def damage(self) -> Iterable[Condition]:
        return self._blocking.damage()

    # --- reports come in

    async def append(self, submissions: Sequence[AdmittedReport]) -> list[Kind | None]:
        return await self._commits.submit(submissions)

    def _append(self, submissions: list[AdmittedReport]) -> list[Kind | None]:
        failpoints.hit("writer.append")
        outcomes = self._blocking.append(submissions)
        failpoints.hit("writer.answer")
        return outcomes

    async def lapse(self, windows: Iterable[WindowId]) -> None:
        await self._commits.run(lambda: self._blocking.lapse(windows))

    # --- who works on a window

    async def claim(self, window: WindowId, owner: OwnerId, seconds: float) -> Claim | None:
        async with self._step_of(window):
            return self._claims.claim(window, owner, seconds)

    async def renew(self, claim: Claim, seconds: float) -> None:
        self._claims.renew(claim, seconds)

    async def release(self, claim: Claim) -> None:
        self._claims.release(claim)

    def _step_of(self, window: WindowId) -> asyncio.Lock:
        return self._steps.setdefault(window, asyncio.Lock())

    @contextlib.asynccontextmanager
    async def _claimed(self, claim: Claim) -> AsyncIterator[WindowId]:
        """Around a step: the claim holds from its beginning to its end."""
        async with self._step_of(claim.window):
            self._claims.check(claim)
            yield claim.window

    # --- a window's end

    async def close_intake(self, claim: Claim) -> None:
        async with self._claimed(claim) as window:
            await _to_its_end(self._commits.run(lambda: self._blocking.close_intake(window)))

    async def seal(self, claim: Claim) -> SealedRows:
        async with self._claimed(claim) as window:
            return await _to_its_end(asyncio.to_thread(self._blocking.seal, window))

    async def advance(
        self,
        claim: Claim,
        before: WindowState,
        after: WindowState,
        sealed: SealedRows | None = None,
        reports: int = 0,
        manifest: bytes = b"",
    ) -> None:
        async with self._claimed(claim) as window:
            await _to_its_end(
                asyncio.to_thread(
                    self._blocking.advance, window, before, after, sealed, reports, manifest
                )
            )

    async def destroy_inbox(self, claim: Claim) -> None:
        async with self._claimed(claim) as window:
            await _to_its_end(asyncio.to_thread(self._blocking.destroy_inbox, window))

    async def mend(self, claim: Claim) -> SealedRows | None:
        async with self._claimed(claim) as window:
            return await _to_its_end(asyncio.to_thread(self._blocking.mend, window))

    async def shred(self, claim: Claim) -> None:
        async with self._claimed(claim) as window:
            record = self._blocking.record(window)
            if record is not None and record.state is WindowState.OPEN:
                step = self._commits.run(lambda: self._blocking.shred(window))
            else:
                step = asyncio.to_thread(self._blocking.shred, window)
            await _to_its_end(step)

    # --- reading

    async def held(self, window: WindowId) -> int:
        return await asyncio.to_thread(self._blocking.held, window)

    async def read_rows(self, window: WindowId, first: int, count: int) -> bytes:
        return await asyncio.to_thread(self._blocking.read_rows, window, first, count)

    async def close(self) -> None:
        await self._commits.stop()
        self._blocking.close()


async def _to_its_end(step: Coroutine[Any, Any, T]) -> T:
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
