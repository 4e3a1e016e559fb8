"""Helper mode at the analyzer: adds the vectors of a window up as they come, says which it can't
use, then takes the sum of pads away.

What is added up lives in memory: after a restart the shuffler delivers the same rows again. The sum
is on disk before it is said to be done, once per window.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from shoal import codec
from shoal.analyzer.keys import KeyFolder
from shoal.analyzer.rounds.sums import StoredSum, SumStore
from shoal.crypto.secagg.records import Reason
from shoal.crypto.secagg.single import SingleSum, window_label
from shoal.crypto.secagg.terms import RoundTerms
from shoal.crypto.trust import ServedTask
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.limits import LIMITS
from shoal.log import get_log
from shoal.protos import pairwise_pb2
from shoal.rpc.call import Call
from shoal.secagg import Mode

log = get_log("analyzer")
# The task and window that bytes name, checked: the service's own.
CheckedWindow = Callable[[bytes, int], Awaitable[tuple[ServedTask, int]]]


@dataclass(slots=True)
class _Delivery:
    """``rows``: of the whole delivery. ``total`` is that of the last complete one."""

    terms: RoundTerms
    total: SingleSum
    rows: int
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class SingleCollection:
    """Handlers of DeliverSingles and SumSingles, for the event loop that calls them."""

    def __init__(self, sums: SumStore, keys: KeyFolder, window: CheckedWindow) -> None:
        self._sums, self._keys, self._window = sums, keys, window
        self._delivered: dict[tuple[TaskId, int], _Delivery] = {}

    async def deliver(self, messages: AsyncIterator[bytes], call: Call) -> bytes:
        """A stream of SinglesChunk, a whole delivery from its beginning on -> VectorsReply. A new
        delivery replaces the one before.

        Raises INVALID, UNKNOWN_TASK, WINDOW_CLOSED, UNAVAILABLE (the key can't be read); nothing is
        kept of a delivery that breaks off.
        """
        delivery: _Delivery | None = None
        announced, at, buffer, size = pairwise_pb2.SinglesChunk(), 0, bytearray(), 1
        async for message in messages:
            chunk = codec.parse(pairwise_pb2.SinglesChunk, message, "chunk")
            if delivery is None:
                delivery, announced = await self._begin(chunk), chunk
                size = delivery.terms.sealed_vector_bytes
            same = (chunk.task_id, chunk.window, chunk.rows) == (
                announced.task_id,
                announced.window,
                announced.rows,
            )
            if (
                not same
                or chunk.offset != at
                or not chunk.data
                or len(chunk.data) > LIMITS.chunk_bytes
            ):
                raise ShoalError(
                    Kind.INVALID,
                    f"chunk: 1 to {LIMITS.chunk_bytes} bytes of one delivery, in order and without "
                    "a gap",
                )
            buffer += chunk.data
            at += len(chunk.data)
            if at > delivery.rows * size:
                raise ShoalError(Kind.INVALID, "delivery: more rows than it announced")
            if len(buffer) >= LIMITS.vectors_bytes:
                await self._take(delivery, buffer, size)
        if delivery is None:
            raise ShoalError(Kind.INVALID, "delivery: no chunk came")
        await self._take(delivery, buffer, size)
        if buffer or at != delivery.rows * size:
            raise ShoalError(Kind.INVALID, "delivery: it ends before its last row")
        self._delivered[delivery.terms.task_id, delivery.terms.window] = delivery
        return pairwise_pb2.VectorsReply(unusable=delivery.total.unusable).SerializeToString()

    async def _begin(self, chunk: pairwise_pb2.SinglesChunk) -> _Delivery:
        served, window = await self._window(chunk.task_id, chunk.window)
        plan = served.task.pairwise
        if plan is None or plan.mode is not Mode.HELPER:
            raise ShoalError(Kind.INVALID, "this task is not summed in helper mode")
        # more could wrap, fewer would hide nobody
        if not plan.survivors_min <= chunk.rows <= plan.cohort_max:
            raise ShoalError(
                Kind.TOO_FEW,
                f"delivery: a sum of this task is of {plan.survivors_min} to {plan.cohort_max} "
                "vectors",
            )
        # its key is gone, and the shuffler has only not heard
        if await asyncio.to_thread(self._sums.released, served.task_id, window):
            raise ShoalError(
                Kind.WINDOW_CLOSED, "the window is released: nothing is added to it any more"
            )
        terms = RoundTerms.served(served, window)
        key = await asyncio.to_thread(
            self._keys.load_for, terms.analyzer_config.key_id, served.task_id, window
        )
        return _Delivery(terms, SingleSum(terms, key), chunk.rows)

    async def _take(self, delivery: _Delivery, buffer: bytearray, size: int) -> None:
        """Open and add the whole rows at the buffer's beginning."""
        count = len(buffer) // size
        rows = [bytes(buffer[i * size : (i + 1) * size]) for i in range(count)]
        del buffer[: count * size]
        await asyncio.to_thread(delivery.total.add, rows)

    async def sum(self, messages: AsyncIterator[bytes], call: Call) -> bytes:
        """A stream of PadsChunk -> UnmaskRoundReply: done once the sum is on disk, or why there is
        none.

        Raises INVALID, UNKNOWN_TASK, OVERLOADED (disk); NOT_FOUND if nothing was delivered since
        the last start: deliver again.
        """
        served: ServedTask | None = None
        window, devices, pads = 0, 0, bytearray()
        async for message in messages:
            chunk = codec.parse(pairwise_pb2.PadsChunk, message, "pads")
            if served is None:
                served, window = await self._window(chunk.task_id, chunk.window)
                devices = chunk.devices
            if (
                chunk.task_id != served.task_id.raw
                or (chunk.window, chunk.devices) != (window, devices)
                or chunk.offset != len(pads)
            ):
                raise ShoalError(Kind.INVALID, "pads: of another window, or with a gap")
            pads += chunk.data
            if len(pads) > LIMITS.vector_bytes:
                raise ShoalError(Kind.OVERSIZE, f"pads: at most {LIMITS.vector_bytes} bytes")
        if served is None:
            raise ShoalError(Kind.INVALID, "pads: no chunk came")
        label = window_label(served.task_id, window)
        if await asyncio.to_thread(self._sums.holds, label):
            return pairwise_pb2.UnmaskRoundReply(done=True).SerializeToString()
        delivery = self._delivered.get((served.task_id, window))
        if delivery is None:
            raise ShoalError(
                Kind.NOT_FOUND,
                "nothing was delivered of this window since the analyzer started: deliver it again",
            )
        async with delivery.lock:
            reply = await asyncio.to_thread(self._finish, delivery, bytes(pads), devices)
        self._delivered.pop((served.task_id, window), None)
        return reply.SerializeToString()

    def _finish(
        self, delivery: _Delivery, pads: bytes, devices: int
    ) -> pairwise_pb2.UnmaskRoundReply:
        """In a thread: the arithmetic, then the disk, and only then the answer."""
        terms = delivery.terms
        try:
            vector = delivery.total.finish(pads, devices)
        except ShoalError as error:
            if error.kind is not Kind.ABORTED:
                raise
            reason = Reason.behind(error).value
            self._sums.aborted(terms.task_id, terms.window, reason)
            log.info("round aborted", task=terms.task_id, window=terms.window, reason=reason)
            return pairwise_pb2.UnmaskRoundReply(reason=reason)
        self._sums.add(
            terms.task_id,
            terms.window,
            StoredSum(window_label(terms.task_id, terms.window), devices, vector),
        )
        log.info(
            "round summed",
            task=terms.task_id,
            window=terms.window,
            n=devices,
            rejected=len(delivery.total.unusable),
        )
        return pairwise_pb2.UnmaskRoundReply(done=True)
