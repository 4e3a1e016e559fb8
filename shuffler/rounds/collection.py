"""The shuffler's calls to the analyzer's ``shoal.v1.Collection``: one attempt each. Who retries,
and until when, is the driver's matter.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from shoal import codec, failpoints
from shoal.ids import Digest
from shoal.limits import LIMITS, call_s
from shoal.protos import pairwise_pb2
from shoal.rpc.channel import CallsPeer, call, call_stream
from shoal.shuffler.core import WindowId
from shoal.shuffler.rounds.vectors import VectorSpool

_SERVICE = "/shoal.v1.Collection"
_STREAM_BYTES = 64 << 20  # a call is bounded in time, and the rows that it brought are kept
M = TypeVar("M", bound=Message)


class Collection(Protocol):
    """What the driver asks of the analyzer; tests put one in process behind it. Every call raises
    ShoalError with the analyzer's kind.
    """

    async def open(self, request: pairwise_pb2.OpenRoundRequest) -> pairwise_pb2.OpenRoundReply:
        """Begin a round of a window; the same request meets the same offer."""
        ...

    async def start(self, request: pairwise_pb2.StartRoundRequest) -> pairwise_pb2.StartRoundReply:
        """Tell who joined, and get the round's terms."""
        ...

    async def deliver(
        self, round_id: Digest, spool: VectorSpool, rows: Sequence[bytes], row_bytes: int
    ) -> pairwise_pb2.VectorsReply:
        """All masked vectors, rows of ``row_bytes`` in this order; the reply says which are
        unusable.
        """
        ...

    async def commit(
        self, request: pairwise_pb2.CommitRoundRequest
    ) -> pairwise_pb2.CommitRoundReply:
        """Tell whose vectors are summed, and get the signed survivor set."""
        ...

    async def unmask(
        self, request: pairwise_pb2.UnmaskRoundRequest
    ) -> pairwise_pb2.UnmaskRoundReply:
        """Some devices' shares; the last one's reply says that the sum is on disk."""
        ...

    async def end(self, request: pairwise_pb2.EndRoundRequest) -> None:
        """Give a round up."""
        ...

    async def finish(self, window: WindowId, damaged: int = 0, summed: int = 0) -> bool:
        """Nothing more comes of the window; True once it is released. ``damaged``: acknowledged
        vectors that are lost; ``summed``: those in sums, 0: unknown.
        """
        ...

    async def stream(self, method: str, messages: AsyncIterator[bytes]) -> bytes:
        """One call that streams messages up; the reply's bytes."""
        ...


class GrpcCollection:
    """One connection to one analyzer."""

    def __init__(self, channel: CallsPeer) -> None:
        self._channel = channel

    async def open(self, request: pairwise_pb2.OpenRoundRequest) -> pairwise_pb2.OpenRoundReply:
        """As ``Collection.open``."""
        return await self._unary("OpenRound", request, pairwise_pb2.OpenRoundReply)

    async def start(self, request: pairwise_pb2.StartRoundRequest) -> pairwise_pb2.StartRoundReply:
        """As ``Collection.start``."""
        return await self._unary("StartRound", request, pairwise_pb2.StartRoundReply)

    async def commit(
        self, request: pairwise_pb2.CommitRoundRequest
    ) -> pairwise_pb2.CommitRoundReply:
        """As ``Collection.commit``."""
        return await self._unary("CommitRound", request, pairwise_pb2.CommitRoundReply)

    async def unmask(
        self, request: pairwise_pb2.UnmaskRoundRequest
    ) -> pairwise_pb2.UnmaskRoundReply:
        """As ``Collection.unmask``."""
        # The last one makes the analyzer compute pads of lost devices: minutes for large vectors.
        return await self._unary(
            "UnmaskRound", request, pairwise_pb2.UnmaskRoundReply, LIMITS.stream_deadline_s
        )

    async def end(self, request: pairwise_pb2.EndRoundRequest) -> None:
        """As ``Collection.end``."""
        await self._unary("EndRound", request, pairwise_pb2.EndRoundReply)

    async def finish(self, window: WindowId, damaged: int = 0, summed: int = 0) -> bool:
        """Whether the window is released. ``damaged``: acknowledged vectors that are lost;
        ``summed``: those in sums, 0: unknown.
        """
        request = pairwise_pb2.FinishWindowRequest(
            task_id=window.task_id.raw, window=window.window, damaged=damaged, summed=summed
        )
        return (
            await self._unary(
                "FinishWindow", request, pairwise_pb2.FinishWindowReply, LIMITS.stream_deadline_s
            )
        ).released

    async def stream(self, method: str, messages: AsyncIterator[bytes]) -> bytes:
        """One call that streams messages up; the reply's bytes."""
        failpoints.hit(f"rounds.{method}")
        answer = await call_stream(
            self._channel,
            f"{_SERVICE}/{method}",
            messages,
            LIMITS.singles_deadline_s,
            peer="analyzer",
        )
        failpoints.hit(f"rounds.{method}.done")
        return answer

    async def deliver(
        self, round_id: Digest, spool: VectorSpool, rows: Sequence[bytes], row_bytes: int
    ) -> pairwise_pb2.VectorsReply:
        """All rows in this order, in several calls of whole rows; the last reply says which are
        unusable.
        """
        step = max(1, _STREAM_BYTES // row_bytes)
        reply = pairwise_pb2.VectorsReply()
        for first in range(0, len(rows), step):
            chunks = self._chunks(round_id, spool, rows, (first, first + step), row_bytes)
            answer = await call_stream(
                self._channel,
                f"{_SERVICE}/DeliverVectors",
                chunks,
                call_s(LIMITS.stream_deadline_s, row_bytes * len(rows[first : first + step])),
                peer="analyzer",
            )
            reply = codec.parse(pairwise_pb2.VectorsReply, answer, "the analyzer's answer")
        return reply

    async def _chunks(
        self,
        round_id: Digest,
        spool: VectorSpool,
        rows: Sequence[bytes],
        span: tuple[int, int],
        row_bytes: int,
    ) -> AsyncIterator[bytes]:
        """At most LIMITS.chunk_bytes at a time."""
        first, last = span
        at, pieces = first * row_bytes, spool.stream(rows[first:last], LIMITS.chunk_bytes)
        while (data := await asyncio.to_thread(next, pieces, b"")) != b"":
            failpoints.hit("rounds.chunk")
            yield pairwise_pb2.VectorChunk(
                round_id=round_id.raw, offset=at, rows=len(rows), data=data
            ).SerializeToString()
            at += len(data)

    async def _unary(
        self,
        method: str,
        request: Message,
        reply: type[M],
        deadline_s: float = LIMITS.send_deadline_s,
    ) -> M:
        failpoints.hit(f"rounds.{method}")
        answer = await call(
            self._channel,
            f"{_SERVICE}/{method}",
            request.SerializeToString(),
            deadline_s,
            peer="analyzer",
        )
        failpoints.hit(f"rounds.{method}.done")
        return codec.parse(reply, answer, "the analyzer's answer")
