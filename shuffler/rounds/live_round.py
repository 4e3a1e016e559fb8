"""One round under way: its machine, its uploads, and the calls to the analyzer that its machine
asks for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from shoal.clocks.backoff import Backoff
from shoal.clocks.clock import SureClock
from shoal.crypto.secagg.records import Reason
from shoal.crypto.secagg.shuffler.coordinator import Coordinator
from shoal.crypto.secagg.shuffler.effects import (
    AskCommit,
    AskStart,
    AskUnmask,
    Deliver,
    Effect,
    End,
)
from shoal.crypto.secagg.terms import RoundTerms
from shoal.entropy import Entropy
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.log import get_log
from shoal.protos import pairwise_pb2
from shoal.shuffler.core import WindowId
from shoal.shuffler.rounds.parts import RoundParts
from shoal.shuffler.rounds.vectors import VectorSpool

log = get_log("shuffler")
TICK_S = 1.0
# between attempts at the analyzer
_ASK = Backoff(LIMITS.ask_retry_first_s, LIMITS.ask_retry_most_s, least=0.5)
_LEAST_PATIENCE_S = LIMITS.ask_patience_s
_END_S = LIMITS.farewell_s  # for the last word to the analyzer
T = TypeVar("T")


class GaveUpError(Exception):
    """The analyzer's part of a round can't be had, and why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason


async def ask(
    attempt: Callable[[], Awaitable[T]],
    window: WindowId,
    clock: SureClock,
    entropy: Entropy,
    until: float,
    what: str,
) -> T:
    """Call the analyzer until it answers, or ``until`` (steady seconds of ``clock``): an analyzer
    that is away for a moment costs nothing.

    Raises GaveUpError: UNREACHABLE at the end of patience, RESTARTED if it does not know the round
    any more, the reason that it names for an abort, WINDOW_OVER, DISAGREE for anything else that it
    says for good.
    """
    attempts = 0
    while True:
        try:
            return await attempt()
        except ShoalError as error:
            reason = _final(error)
            log.warning(
                "the analyzer did not do its part of a round",
                task=window.task_id,
                window=window.window,
                method=what,
                error=error,
            )
        if reason is not None:
            raise GaveUpError(reason)
        if clock.steady() >= until:
            raise GaveUpError(Reason.UNREACHABLE)
        attempts += 1
        await asyncio.sleep(_ASK.pause(attempts, entropy))


def _final(error: ShoalError) -> Reason | None:
    """What an answer means for the round; None: ask again."""
    match error.kind:
        case Kind.ABORTED:
            return next(
                (reason for reason in Reason if reason.value in error.message), Reason.OTHER
            )
        case Kind.NOT_FOUND:
            return Reason.RESTARTED
        case Kind.WINDOW_CLOSED:
            return Reason.WINDOW_OVER
        case Kind.UNAUTHENTICATED | Kind.FORBIDDEN:
            return Reason.UNREACHABLE
        case _:
            return None if error.retryable else Reason.DISAGREE


class LiveRound:
    """A round from its offer to its end. ``run`` drives it; ``wake`` after every step of a
    device.
    """

    def __init__(
        self,
        terms: RoundTerms,
        coordinator: Coordinator,
        parts: RoundParts,
        begins: float | None = None,
    ) -> None:
        """``begins``: Unix seconds now, None: as the clock says. Raises OVERLOADED, INTERNAL for
        a disk that takes no uploads.
        """
        self.terms, self.coordinator = terms, coordinator
        self.window = WindowId(terms.task_id, terms.window)
        self.devices: dict[bytes, bytes] = {}  # session -> device key
        self.judging = asyncio.Lock()  # complaints take long, and one may settle the next
        self._parts = parts
        self._begins, self._began = (
            parts.clock.now() if begins is None else begins,
            parts.clock.steady(),
        )
        self._woken = asyncio.Event()
        self.spool = VectorSpool(parts.folder, terms.sealed_vector_bytes, terms.plan.cohort_max)

    def now(self) -> float:
        """Unix seconds when the round began and what passed since: a clock that jumps ends no
        phase.
        """
        return self._begins + (self._parts.clock.steady() - self._began)

    def wake(self) -> None:
        """Look at the round now, not at the next tick."""
        self._woken.set()

    async def run(self) -> None:
        """To the end: DONE or ABORTED. Cancelled (the service stops): the round is aborted, and the
        analyzer told if it answers at once.
        """
        # a bug in one round must not stop the others, nor leave its devices waiting
        try:
            while not self.coordinator.ended:
                self._woken.clear()
                await self._perform(self.coordinator.tick(self.now()))
                if self.coordinator.ended:
                    break
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), self._parts.tick_s)
        except asyncio.CancelledError:
            await self._perform(self.coordinator.failed(Reason.RESTARTED))
            raise
        except Exception as error:  # noqa: BLE001
            log.error(
                "unexpected failure of a round",
                task=self.window.task_id,
                window=self.window.window,
                error=error,
            )
            await self._perform(self.coordinator.failed(Reason.OTHER))
        finally:
            self.spool.close()
        reason = self.coordinator.reason
        # How many there were is said of a cohort alone: of a few who came too early or too late it
        # would tell when.
        count = self.coordinator.counts()["joined"] if reason is None else None
        log.info(
            "round ended",
            task=self.window.task_id,
            window=self.window.window,
            n=count,
            reason=reason.value if reason else "done",
        )

    async def _perform(self, effects: Sequence[Effect]) -> None:
        todo = deque(effects)
        while todo:
            effect = todo.popleft()
            try:
                todo.extend(await self._carry_out(effect))
            except GaveUpError as error:
                todo.extend(self.coordinator.failed(error.reason))

    async def _carry_out(self, effect: Effect) -> list[Effect]:
        match effect:
            case AskStart(starting):
                start = await self._ask(
                    lambda: self._parts.collection.start(starting), "StartRound"
                )
                return self.coordinator.started(start, self.now())
            case Deliver(rows):
                round_id = self.coordinator.round_id
                assert round_id is not None  # noqa: S101 - vectors come after the start
                size = self.terms.sealed_vector_bytes
                vectors = await self._ask(
                    lambda: self._parts.collection.deliver(round_id, self.spool, rows, size),
                    "DeliverVectors",
                )
                return self.coordinator.delivered(vectors, self.now())
            case AskCommit(committing):
                commit = await self._ask(
                    lambda: self._parts.collection.commit(committing), "CommitRound"
                )
                return self.coordinator.committed(commit, self.now())
            case AskUnmask(requests):
                return self.coordinator.unmasked(await self._unmask(requests), self.now())
            case End(reason):
                await self._end(reason)
                return []

    async def _unmask(
        self, requests: Sequence[pairwise_pb2.UnmaskRoundRequest]
    ) -> pairwise_pb2.UnmaskRoundReply:
        self.spool.close()  # the vectors are at the analyzer, and the commit is made
        reply = pairwise_pb2.UnmaskRoundReply()
        for request in requests:
            reply = await self._ask(partial(self._parts.collection.unmask, request), "UnmaskRound")
            if reply.reason:
                break
        return reply

    async def _end(self, reason: Reason) -> None:
        """Best effort: an analyzer that doesn't hear it forgets the round by itself."""
        self.spool.close()
        request = pairwise_pb2.EndRoundRequest(
            offer_id=self.coordinator.offer_id.raw, reason=reason.value
        )
        with contextlib.suppress(ShoalError, TimeoutError):
            async with asyncio.timeout(_END_S):
                await self._parts.collection.end(request)

    async def _ask(self, attempt: Callable[[], Awaitable[T]], what: str) -> T:
        patience = max(_LEAST_PATIENCE_S, float(self.terms.plan.seconds))
        return await ask(
            attempt,
            self.window,
            self._parts.clock,
            self._parts.entropy,
            self._parts.clock.steady() + patience,
            what,
        )
