"""Rounds of secure aggregation that are going on at the analyzer, in memory.

A round is known by what opened it, by its offer and, once it has started, by its id. It ends when
its sum is on disk, or aborted, which is counted on disk. A restart forgets all of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from shoal.analyzer.rounds.sums import StoredSum, SumStore, sum_form
from shoal.clocks.clock import SureClock
from shoal.crypto.secagg.analyzer.collector import Collector
from shoal.crypto.secagg.records import Reason
from shoal.crypto.trust import ServedTask
from shoal.errors import Kind, ShoalError
from shoal.failpoints import hit
from shoal.ids import Digest, TaskId
from shoal.log import get_log
from shoal.protos import pairwise_pb2

log = get_log("analyzer")
MOST_OPEN = 64  # rounds at once: each holds a running sum, and the shares of its devices
# of silence, and two rounds: then a round is forgotten that its shuffler did not end
_FORGET_S = 600.0
# ended rounds whose answers are remembered, and their seats together: some 0.5 kB each
_MOST_KEPT, _MOST_SEATS = 1_024, 1 << 20
_UNKNOWN = "this analyzer knows no such round: it restarted, or the round is long over"
# What opens a round: the task, the window and the shuffler's commitment to its randomness.
Opening = tuple[TaskId, int, bytes]
T = TypeVar("T")


@dataclass(slots=True)
class OpenRound:
    """One round: its machine, and what the service remembers about it.

    ``touched``: steady seconds of the last call. ``lock``: calls of one round don't overlap.
    ``stored``: its sum is on disk. ``abort_counted``: that it was aborted is on disk.
    """

    collector: Collector
    served: ServedTask
    window: int
    touched: float
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    stored: bool = False
    abort_counted: bool = False

    @property
    def goes_on(self) -> bool:
        """Whether it can still end with a sum."""
        return not self.stored and self.collector.reason is None

    @property
    def patience(self) -> float:
        """Seconds without a call after which the shuffler has given the round up, and its word was
        lost.
        """
        plan = self.served.task.pairwise
        return _FORGET_S + 2 * (plan.seconds if plan else 0)


class OpenRounds:
    """Finds rounds, runs their steps one after the other, and lets go of those that ended."""

    def __init__(self, sums: SumStore, clock: SureClock) -> None:
        self._sums, self._clock = sums, clock
        self._by_opening: dict[Opening, OpenRound] = {}
        self._by_offer: dict[bytes, OpenRound] = {}
        self._by_round: dict[bytes, OpenRound] = {}
        self.ended: Counter[str] = Counter()  # rounds by how they ended: "done", or the reason

    @property
    def going_on(self) -> int:
        """Rounds that go on, or whose end nobody has told us."""
        return sum(open_round.goes_on for open_round in self._by_offer.values())

    def opened_by(self, opening: Opening) -> OpenRound | None:
        """The round that these opened before, if it is still remembered."""
        return self._by_opening.get(opening)

    def add(self, opening: Opening, open_round: OpenRound) -> None:
        """Remember a new round, by what opened it and by its offer."""
        self._by_opening[opening] = open_round
        self._by_offer[open_round.collector.offer_id.raw] = open_round

    async def make_room(self) -> None:
        """Raises OVERLOADED while MOST_OPEN rounds go on, forgotten ones not among them."""
        await self.drop_forgotten()
        if self.going_on >= MOST_OPEN:
            raise ShoalError(
                Kind.OVERLOADED, f"{MOST_OPEN} rounds are open: try again when one has ended"
            )

    def by_offer(self, offer_id: bytes) -> OpenRound:
        """The round of this offer; its patience begins anew. Raises NOT_FOUND."""
        return self._touched(self._by_offer, offer_id)

    def by_round(self, round_id: bytes) -> OpenRound:
        """The started round of this id; its patience begins anew. Raises NOT_FOUND."""
        return self._touched(self._by_round, round_id)

    def started(self, round_id: Digest) -> bool:
        """Whether a round of this id is remembered."""
        return round_id.raw in self._by_round

    def name_started(self, open_round: OpenRound) -> None:
        """Let ``by_round`` find it from now on, if its machine has started."""
        if open_round.collector.round_id is not None:
            self._by_round[open_round.collector.round_id.raw] = open_round

    def of(self, task_id: TaskId, window: int) -> Iterator[OpenRound]:
        """Rounds of one window, also those that ended; they may be dropped meanwhile."""
        for open_round in list(self._by_offer.values()):
            if (open_round.served.task_id, open_round.window) == (task_id, window):
                yield open_round

    def _touched(self, rounds: Mapping[bytes, OpenRound], name: bytes) -> OpenRound:
        open_round = rounds.get(name)
        if open_round is None:
            raise ShoalError(Kind.NOT_FOUND, _UNKNOWN)
        open_round.touched = self._clock.steady()
        return open_round

    # --- steps ------------------------------------------------------------------------------------

    async def step(self, open_round: OpenRound, work: Callable[[], T]) -> T:
        """Run a step of a round in a thread, after the one before; the caller going away doesn't
        stop it half way.
        """

        async def whole_step() -> T:
            async with open_round.lock:
                try:
                    return await asyncio.to_thread(work)
                finally:
                    # a long vector comes in many steps of one call
                    open_round.touched = self._clock.steady()
                    await self._count_abort(open_round)

        task = asyncio.create_task(whole_step())
        task.add_done_callback(_fetch_failure)
        return await asyncio.shield(task)

    def unmask(
        self, open_round: OpenRound, message: pairwise_pb2.UnmaskRoundRequest
    ) -> pairwise_pb2.UnmaskRoundReply:
        """To be run as a step: the arithmetic, then the disk, and only then the answer. Raises
        INVALID, OVERLOADED (disk), and what ``Collector.unmask`` does.
        """
        collector = open_round.collector
        reply = collector.unmask(message)
        result, round_id = collector.result, collector.round_id
        if result is not None and round_id is not None and not open_round.stored:
            hit("analyzer.rounds.unmasked")
            task_id, window = open_round.served.task_id, open_round.window
            stored = StoredSum(round_id, result.survivors, result.vector)
            self._sums.add(task_id, window, stored, sum_form(open_round.served.task))
            open_round.stored = True
            self.ended["done"] += 1
            collector.forget()
            log.info(
                "round summed",
                task=task_id,
                window=window,
                n=result.survivors,
                rejected=len(reply.blamed),
            )
        return reply

    # --- ends -------------------------------------------------------------------------------------

    async def end(self, offer_id: bytes, reason: Reason) -> None:
        """Abort the round of this offer; an unknown or ended one is fine."""
        open_round = self._by_offer.get(offer_id)
        if open_round is not None:
            await self._abort(open_round, reason)

    async def end_window(self, task_id: TaskId, window: int) -> None:
        """Abort what goes on of a window, and forget all its rounds."""
        for open_round in self.of(task_id, window):
            await self._abort(open_round, Reason.WINDOW_OVER)
            self._drop(open_round)

    async def stop(self) -> None:
        """Abort what is open: its keys are gone with this process."""
        for open_round in list(self._by_offer.values()):
            await self._abort(open_round, Reason.RESTARTED)

    async def drop_forgotten(self) -> None:
        """Abort rounds without a call for longer than their patience, and forget the oldest of
        those that ended.
        """
        now = self._clock.steady()
        for open_round in list(self._by_offer.values()):
            if open_round.goes_on and now >= open_round.touched + open_round.patience:
                await self._abort(open_round, Reason.OTHER)
                # unmasked, but its sum could not be stored: it can't be aborted, and must not keep
                # its place for ever
                if open_round.goes_on:
                    self._drop(open_round)
        ended = [open_round for open_round in self._by_offer.values() if not open_round.goes_on]
        seats = sum(open_round.collector.seats for open_round in ended)
        for at, open_round in enumerate(ended):
            if len(ended) - at <= _MOST_KEPT and seats <= _MOST_SEATS:
                break
            seats -= open_round.collector.seats
            self._drop(open_round)

    async def _abort(self, open_round: OpenRound, reason: Reason) -> None:
        async with open_round.lock:
            if not open_round.stored:
                open_round.collector.abort(reason)
            await self._count_abort(open_round)

    async def _count_abort(self, open_round: OpenRound) -> None:
        """Once per round that ended without a sum."""
        reason = open_round.collector.reason
        if open_round.abort_counted or open_round.stored or reason is None:
            return
        open_round.abort_counted = True
        self.ended[reason.value] += 1
        task_id, window = open_round.served.task_id, open_round.window
        log.info("round aborted", task=task_id, window=window, reason=reason.value)
        try:
            await asyncio.to_thread(self._sums.aborted, task_id, window, reason.value)
        except ShoalError as error:
            log.error(
                "an aborted round could not be counted", task=task_id, window=window, error=error
            )

    def _drop(self, open_round: OpenRound) -> None:
        self._by_offer.pop(open_round.collector.offer_id.raw, None)
        if open_round.collector.round_id is not None:
            self._by_round.pop(open_round.collector.round_id.raw, None)
        for opening in [key for key, held in self._by_opening.items() if held is open_round]:
            del self._by_opening[opening]


def _fetch_failure(task: asyncio.Task[T]) -> None:
    """A failure whose caller has gone is in nobody's way."""
    if not task.cancelled():
        task.exception()
