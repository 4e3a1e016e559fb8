"""A ``Store`` of one process, on this machine's disk: the steps of a ``BlockingStore``, run in
threads.

Reports are committed in groups by the thread of ``GroupCommit``, which also closes windows, so that
no report comes between. Everything else runs in a thread of the event loop's pool, one step per
window at a time: a window is not taken over while a step of it runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterable, Sequence
from itertools import islice
from typing import Any

from shoal import failpoints
from shoal.errors import Kind
from shoal.ids import Digest, TaskId
from shoal.limits import LIMITS
from shoal.services.conditions import Condition
from shoal.shuffler.core import Capacity, WindowId, WindowState
from shoal.shuffler.stores.blocking import BlockingStore
from shoal.shuffler.stores.claims import Claim, OwnerId
from shoal.shuffler.stores.group_commit import GroupCommit
from shoal.shuffler.stores.joined import Admitted
from shoal.shuffler.stores.store import (
    AdmittedReport,
    AdmittedRows,
    HopKeys,
    SealedRows,
    WindowRecord,
    no_hop_key,
)
from shoal.shuffler.stores.threaded_claims import ThreadedClaims, to_its_end


class ThreadedStore:
    """See ``Store``. Belongs to the event loop that makes it.

    ``commit_ms``: how long the first report of a group waits for others. ``claims``: where other
    stores of the process have theirs; None: its own.
    """

    def __init__(
        self,
        blocking: BlockingStore,
        *,
        commit_ms: float = LIMITS.commit_ms,
        claims: ThreadedClaims | None = None,
    ) -> None:
        self._blocking = blocking
        self._commits: GroupCommit[Admitted] = GroupCommit(
            self._append, blocking.confirm, what="report", wait_s=commit_ms / 1000
        )
        self._claims = claims or ThreadedClaims()

    # --- what this process knows

    def adopt(
        self,
        task_id: TaskId,
        schedule_hash: Digest,
        capacity: Capacity,
        row_size: int,
        hop_key: HopKeys = no_hop_key,
    ) -> None:
        """As ``Store.adopt``."""
        self._blocking.adopt(task_id, schedule_hash, capacity, row_size)

    def records(self) -> dict[WindowId, WindowRecord]:
        """As ``Store.records``."""
        return self._blocking.records()

    def record(self, window: WindowId) -> WindowRecord | None:
        """As ``Store.record``."""
        return self._blocking.record(window)

    def distinct(self, window: WindowId) -> int:
        """As ``Store.distinct``."""
        return self._blocking.distinct(window)

    def damage(self) -> Iterable[Condition]:
        """As ``Store.damage``."""
        return self._blocking.damage()

    # --- reports come in

    def append(
        self, submissions: Sequence[AdmittedReport]
    ) -> Coroutine[Any, Any, list[Kind | None]]:
        """As ``Store.append``."""
        return self._commits.submit(submissions)  # no coroutine of its own around each report's

    async def append_rows(self, groups: Sequence[AdmittedRows]) -> list[list[Kind | None]]:
        """As ``Store.append_rows``."""
        outcomes = await self._commits.submit(groups, sum(group.count for group in groups))
        left = iter(outcomes)
        return [list(islice(left, group.count)) for group in groups]

    def _append(self, submissions: list[Admitted]) -> list[Kind | None]:
        failpoints.hit("writer.append")
        outcomes = self._blocking.append(submissions)
        failpoints.hit("writer.answer")
        return outcomes

    # --- who works on a window

    async def claim(self, window: WindowId, owner: OwnerId, seconds: float) -> Claim | None:
        """As ``Store.claim``."""
        return await self._claims.claim(window, owner, seconds)

    async def renew(self, claim: Claim, seconds: float) -> None:
        """As ``Store.renew``."""
        await self._claims.renew(claim, seconds)

    async def release(self, claim: Claim) -> None:
        """As ``Store.release``."""
        await self._claims.release(claim)

    # --- a window's end

    async def lapse(self, claims: Collection[Claim]) -> None:
        """As ``Store.lapse``."""
        async with self._claims.steps(claims) as windows:
            await to_its_end(self._commits.run(lambda: self._blocking.lapse(windows)))

    async def close_intake(self, claim: Claim) -> None:
        """As ``Store.close_intake``."""
        async with self._claims.step(claim) as window:
            await to_its_end(self._commits.run(lambda: self._blocking.close_intake(window)))

    async def seal(self, claim: Claim, added: Sequence[bytes] = ()) -> SealedRows:
        """As ``Store.seal``."""
        return await self._claims.run(claim, self._blocking.seal, added)

    async def advance(
        self,
        claim: Claim,
        before: WindowState,
        after: WindowState,
        sealed: SealedRows | None = None,
        reports: int = 0,
        manifest: bytes = b"",
    ) -> None:
        """As ``Store.advance``."""
        await self._claims.run(
            claim, self._blocking.advance, before, after, sealed, reports, manifest
        )

    async def destroy_inbox(self, claim: Claim) -> None:
        """As ``Store.destroy_inbox``."""
        await self._claims.run(claim, self._blocking.destroy_inbox)

    async def mend(self, claim: Claim) -> SealedRows | None:
        """As ``Store.mend``."""
        return await self._claims.run(claim, self._blocking.mend)

    async def shred(self, claim: Claim) -> None:
        """As ``Store.shred``."""
        async with self._claims.step(claim) as window:
            record = self._blocking.record(window)
            if record is not None and record.state is WindowState.OPEN:
                step = self._commits.run(lambda: self._blocking.shred(window))
            else:
                step = asyncio.to_thread(self._blocking.shred, window)
            await to_its_end(step)

    # --- reading

    async def held(self, window: WindowId) -> int:
        """As ``Store.held``."""
        return await asyncio.to_thread(self._blocking.held, window)

    async def read_rows(self, window: WindowId, first: int, count: int) -> bytes:
        """As ``Store.read_rows``."""
        return await asyncio.to_thread(self._blocking.read_rows, window, first, count)

    async def close(self) -> None:
        """As ``Store.close``."""
        await self._commits.stop()
        self._blocking.close()
