"""What leaves the device at this moment, and how the owner has it broken off.

Everything that sends runs as a child of ``UnderWay``, inside the gate of its purpose
(shoal.clients.owner.gate). While something is under way the owner's answers are looked at again and
again: who takes a consent back in another program has it broken off here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from shoal.clients.core import Assignment
from shoal.clients.memory.device_memory import Memory
from shoal.clients.owner.consent import ALLOWED
from shoal.clients.owner.gate import Gates
from shoal.clients.owner.policy import Policy
from shoal.errors import Kind, ShoalError

T = TypeVar("T")
_LOOK_S = 0.25  # between two looks at the answers while something is under way


class UnderWay:
    """Of one device, for one event loop."""

    def __init__(self, gates: Gates, memory: Memory, policy: Policy) -> None:
        self._gates, self._memory, self._policy = gates, memory, policy
        self._purposes: dict[asyncio.Task[Any], str] = {}
        self._broken_off = set[asyncio.Task[Any]]()  # of these, the ones that lost their consent
        self._watcher: asyncio.Task[None] | None = None

    def gate(self, purpose: str) -> AbstractAsyncContextManager[None]:
        """To be inside while something of a purpose leaves. Raises CONFIG, OVERLOADED where it
        can't be entered.
        """
        return self._gates.attempt(purpose)

    async def run(self, assignment: Assignment, work: Coroutine[Any, Any, T]) -> T:
        """Run work, inside the gate, until it ends, its purpose is denied (REFUSED), or this
        program ends (UNAVAILABLE).
        """
        child = asyncio.create_task(work)
        self._purposes[child] = assignment.task.purpose
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._watch())
        try:
            return await child
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            if child in self._broken_off:
                raise ShoalError(
                    Kind.REFUSED,
                    f"task {assignment.task.name}: its purpose is denied: sending was broken off",
                ) from None
            raise ShoalError(
                Kind.UNAVAILABLE, "this program ends: what waits is sent at its next start"
            ) from None
        finally:
            self._purposes.pop(child, None)
            self._broken_off.discard(child)

    async def _watch(self) -> None:
        """Break off what the owner does not allow any more, whichever program he told."""
        while self._purposes:
            await asyncio.sleep(_LOOK_S)
            try:
                answers = await self._memory.run(self._memory.commitments.consents)
            except ShoalError:  # a disk that is busy: the next look
                continue
            for child, purpose in self._purposes.items():
                if self._policy.consent(purpose, answers) != ALLOWED:
                    self._break_off(child)

    def _break_off(self, child: asyncio.Task[Any]) -> None:
        self._broken_off.add(child)
        child.cancel()

    async def clear(self, purpose: str, timeout_s: float) -> bool:
        """Break off what is under way for a purpose here, and wait for other programs; False if one
        of them takes longer than ``timeout_s`` seconds.
        """
        mine = [child for child, known in self._purposes.items() if known == purpose]
        for child in mine:
            self._break_off(child)
        if mine:
            await asyncio.wait(mine)
        return await self._gates.clear(purpose, timeout_s)

    async def close(self, drain_s: float = 0.0) -> None:
        """What is under way gets ``drain_s`` seconds, and is cancelled then."""
        if self._purposes and drain_s > 0.0:
            await asyncio.wait(list(self._purposes), timeout=drain_s)
        left = [*self._purposes, *([self._watcher] if self._watcher is not None else [])]
        for child in left:
            child.cancel()
        await asyncio.gather(*left, return_exceptions=True)
