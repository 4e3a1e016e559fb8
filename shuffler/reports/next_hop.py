"""Whom the shuffler hands a sealed batch to: the next hop on a report's way, today the analyzer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from shoal import codec
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.limits import LIMITS
from shoal.protos import delivery_pb2
from shoal.rpc.channel import CallsPeer, call, call_stream
from shoal.task import Task

SERVICE = "shoal.v1.Delivery"
Chunks = AsyncIterator[tuple[int, bytes]]  # (number of the first row, bytes of whole rows)


class HopProgress(Enum):
    """How far the next hop is with a batch that it was offered."""

    RECEIVING = "it wants rows"
    WORKING = "it has every row, and is not done with them"
    ACKNOWLEDGED = "it is done"


@dataclass(frozen=True, slots=True)
class OfferAnswer:
    """``received_rows``: how many are durable there; deliver from that row. ``ack``, an Ack, and
    ``signature`` over it are there when ``progress`` is ACKNOWLEDGED, and not verified.
    """

    progress: HopProgress
    received_rows: int
    ack: bytes = b""
    signature: bytes = b""


class NextHop(Protocol):
    """A way to one next hop, that is to one service at one address. Members inherit
    tests/conformance/next_hop/suite.py.

    Every call is one attempt, and may be repeated. It raises ShoalError with the hop's kind,
    UNAVAILABLE or DEADLINE if the hop can't be reached, INVALID for an answer that makes no sense.
    """

    def key(self, task: Task) -> bytes:
        """The Ed25519 public key that must sign this hop's acknowledgements of the task."""
        ...

    async def offer(self, manifest: bytes, signature: bytes) -> OfferAnswer:
        """Offer a batch by its signed manifest. To wait for the acknowledgement is to offer it
        again.
        """
        ...

    async def deliver(
        self, manifest_hash: Digest, chunks: AsyncIterator[tuple[int, bytes]]
    ) -> None:
        """Rows of an offered batch, in order, at most ``LIMITS.chunk_bytes`` in a chunk. Raises
        what ``chunks`` raises too; what came before it may stay.
        """
        ...


class AnalyzerHop:
    """The analyzer, over one connection to it (``shoal.v1.Delivery``)."""

    def __init__(self, channel: CallsPeer) -> None:
        self._channel = channel

    def key(self, task: Task) -> bytes:
        """See ``NextHop.key``."""
        return task.analyzer_key

    async def offer(self, manifest: bytes, signature: bytes) -> OfferAnswer:
        """See ``NextHop.offer``."""
        offer = delivery_pb2.SignedManifest(manifest=manifest, signature=signature)
        data = await call(
            self._channel,
            f"/{SERVICE}/Offer",
            offer.SerializeToString(),
            LIMITS.send_deadline_s,
            peer="analyzer",
        )
        reply = codec.parse(delivery_pb2.OfferReply, data, "the analyzer's answer")
        progress = _PROGRESS.get(reply.state)
        if progress is None:
            raise ShoalError(Kind.INVALID, SENSELESS)
        return OfferAnswer(progress, reply.received_rows, reply.ack.ack, reply.ack.signature)

    async def deliver(
        self, manifest_hash: Digest, chunks: AsyncIterator[tuple[int, bytes]]
    ) -> None:
        """See ``NextHop.deliver``."""

        async def messages() -> AsyncIterator[bytes]:
            async for first, rows in chunks:
                yield delivery_pb2.Chunk(
                    manifest_hash=manifest_hash.raw, first_row=first, rows=rows
                ).SerializeToString()

        data = await call_stream(
            self._channel,
            f"/{SERVICE}/Deliver",
            messages(),
            LIMITS.stream_deadline_s,
            peer="analyzer",
        )
        codec.parse(delivery_pb2.DeliverReply, data, "the analyzer's answer")


SENSELESS = "the analyzer's answer makes no sense: check that both sides run the same version"
_PROGRESS: dict[int, HopProgress] = {
    delivery_pb2.BATCH_STATE_RECEIVING: HopProgress.RECEIVING,
    delivery_pb2.BATCH_STATE_PROCESSING: HopProgress.WORKING,
    delivery_pb2.BATCH_STATE_DONE: HopProgress.ACKNOWLEDGED,
}
