"""The stores for sums on this machine's disk: the embedded ones, their steps run in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from shoal.errors import Kind
from shoal.services.conditions import Condition
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.claims import Claim
from shoal.shuffler.stores.group_commit import GroupCommit
from shoal.shuffler.stores.rounds import StoredVector, VerifiedVector
from shoal.shuffler.stores.sqlite.admissions import Admissions
from shoal.shuffler.stores.sqlite.single_store import SingleStore
from shoal.shuffler.stores.threaded_claims import ThreadedClaims, to_its_end

COMMIT_S = 0.006  # vectors of so many seconds share a commit


class ThreadedAnswers:
    """See ``AnsweredDevices``."""

    def __init__(self, blocking: Admissions, claims: ThreadedClaims) -> None:
        self._blocking, self._claims = blocking, claims

    async def answered(self, window: WindowId, device_key: bytes) -> bool:
        """As ``AnsweredDevices.answered``."""
        return await asyncio.to_thread(self._blocking.answered, window, device_key)

    async def remember(self, claim: Claim, device_key: bytes) -> None:
        """As ``AnsweredDevices.remember``."""
        await self._claims.run(claim, self._blocking.remember, device_key)

    async def forget(self, claim: Claim) -> None:
        """As ``AnsweredDevices.forget``."""
        await self._claims.run(claim, self._blocking.forget)

    def damage(self) -> Iterable[Condition]:
        """As ``AnsweredDevices.damage``."""
        return self._blocking.damage()

    async def close(self) -> None:
        """As ``AnsweredDevices.close``."""
        self._blocking.close()


class ThreadedVectors:
    """See ``SingleVectors``. For one event loop."""

    def __init__(self, blocking: SingleStore, claims: ThreadedClaims) -> None:
        self._blocking, self._claims = blocking, claims
        self._commits = GroupCommit(self._add, what="vector", wait_s=COMMIT_S)

    async def add(self, vector: VerifiedVector) -> Kind | None:
        """As ``SingleVectors.add``."""
        (outcome,) = await self._commits.submit([vector])
        return outcome

    def _add(self, vectors: list[VerifiedVector]) -> list[Kind | None]:
        return self._blocking.add(vectors)

    async def take_no_more(self, claim: Claim) -> None:
        """As ``SingleVectors.take_no_more``."""
        async with self._claims.step(claim) as window:
            await to_its_end(self._commits.run(lambda: self._blocking.take_no_more(window)))

    async def leave_out_damaged(self, claim: Claim, size: int) -> None:
        """As ``SingleVectors.leave_out_damaged``."""
        await self._claims.run(claim, self._blocking.leave_out_damaged, size)

    async def rows(self, window: WindowId) -> list[StoredVector]:
        """As ``SingleVectors.rows``."""
        return await asyncio.to_thread(self._blocking.rows, window)

    async def is_fixed(self, window: WindowId) -> bool:
        """As ``SingleVectors.is_fixed``."""
        return await asyncio.to_thread(self._blocking.is_fixed, window)

    async def fix(
        self, claim: Claim, shown: Sequence[StoredVector], left_out: Sequence[int]
    ) -> None:
        """As ``SingleVectors.fix``."""
        await self._claims.run(claim, self._blocking.fix, shown, left_out)

    async def read(self, window: WindowId, place: int, size: int) -> bytes:
        """As ``SingleVectors.read``."""
        return await asyncio.to_thread(self._blocking.read, window, place, size)

    async def missing(self, window: WindowId) -> int:
        """As ``SingleVectors.missing``."""
        return await asyncio.to_thread(self._blocking.missing, window)

    async def forget(self, claim: Claim) -> None:
        """As ``SingleVectors.forget``."""
        await self._claims.run(claim, self._blocking.forget)

    def damage(self) -> Iterable[Condition]:
        """As ``SingleVectors.damage``."""
        return self._blocking.damage()

    async def close(self) -> None:
        """As ``SingleVectors.close``."""
        await self._commits.stop()
        self._blocking.close()
