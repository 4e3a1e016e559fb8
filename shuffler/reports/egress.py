"""Handing a sealed batch to the analyzer: offer the signed manifest, deliver rows from where the
analyzer is, take its signed acknowledgement. Everything may be repeated; the analyzer's signature
alone ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc

from shoal import codec, failpoints
from shoal.crypto.signing import SigningContext, SigningKey, verify
from shoal.crypto.trust import ServedTask
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.limits import LIMITS
from shoal.protos import delivery_pb2
from shoal.rpc.channel import call, call_stream
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.store import SealedRows, Store, WindowRecord

SERVICE = "shoal.v1.Delivery"
_CHUNKS_PER_CALL = 256  # 64 MiB: a call is bounded in time, and what it brought is kept


def make_manifest(served: ServedTask, window: WindowId, sealed: SealedRows) -> bytes:
    """The manifest's bytes: made once, at sealing, kept, and from then on only signed and sent."""
    return codec.encode_manifest(
        codec.Manifest(
            task_id=window.task_id,
            window=window.window,
            rows=sealed.rows,
            row_size=sealed.row_size,
            analyzer_key_id=served.keys.analyzer_keys[window.window].key_id,
            hop_key_id=served.keys.hop_keys[window.window].key_id,
            schedule_hash=served.keys.digest,
            rows_hash=sealed.rows_hash,
            damaged=sealed.damaged,
        )
    )


class Egress:
    """One connection to one analyzer."""

    def __init__(self, channel: grpc.aio.Channel, key: SigningKey, store: Store) -> None:
        self._channel, self._key, self._store = channel, key, store

    async def attempt(self, served: ServedTask, window: WindowId, record: WindowRecord) -> bool:
        """One round: True once the analyzer's acknowledgement of exactly this manifest is verified,
        False while it works.

        Raises what the analyzer answered, UNAVAILABLE if it can't be reached, BAD_SIGNATURE or
        MISMATCH for an acknowledgement that isn't one, INVALID for an unreadable answer.
        """
        digest = Digest.of(record.manifest)
        signature = self._key.sign(SigningContext.MANIFEST, record.manifest)
        offer = delivery_pb2.SignedManifest(
            manifest=record.manifest, signature=signature
        ).SerializeToString()
        before = -1
        while True:
            failpoints.hit("egress.offer")
            answer = await call(
                self._channel, f"/{SERVICE}/Offer", offer, LIMITS.send_deadline_s, peer="analyzer"
            )
            reply = codec.parse(delivery_pb2.OfferReply, answer, "the analyzer's answer")
            if reply.state == delivery_pb2.BATCH_STATE_DONE:
                self._check(reply.ack, served, digest)
                return True
            if reply.state == delivery_pb2.BATCH_STATE_PROCESSING:
                return False
            if (
                reply.state != delivery_pb2.BATCH_STATE_RECEIVING
                or reply.received_rows > record.rows
            ):
                raise ShoalError(
                    Kind.INVALID,
                    "the analyzer's answer makes no sense: check that both sides run the same "
                    "version",
                )
            if reply.received_rows <= before or reply.received_rows == record.rows:
                return False  # no progress, or complete and about to be processed: ask again later
            before = reply.received_rows
            await self._deliver(window, record, digest, reply.received_rows)

    async def _deliver(
        self, window: WindowId, record: WindowRecord, digest: Digest, first: int
    ) -> None:
        broken: list[Exception] = []
        chunks = self._chunks(window, record, digest, first, broken)
        try:
            answer = await call_stream(
                self._channel,
                f"/{SERVICE}/Deliver",
                chunks,
                LIMITS.stream_deadline_s,
                peer="analyzer",
            )
        except asyncio.CancelledError:
            # gRPC cancels the call when its source of messages fails, and keeps the reason to
            # itself
            if broken:
                raise broken[0] from None
            raise
        codec.parse(delivery_pb2.DeliverReply, answer, "the analyzer's answer")

    async def _chunks(
        self,
        window: WindowId,
        record: WindowRecord,
        digest: Digest,
        first: int,
        broken: list[Exception],
    ) -> AsyncIterator[bytes]:
        """Whole rows, at most LIMITS.chunk_bytes of them at a time. ``broken`` gets the failure, if
        there is one.
        """
        step = max(1, LIMITS.chunk_bytes // record.row_size)
        try:
            for at in range(first, min(record.rows, first + _CHUNKS_PER_CALL * step), step):
                failpoints.hit("egress.chunk")
                rows = await asyncio.to_thread(self._store.read_rows, window, at, step)
                yield delivery_pb2.Chunk(
                    manifest_hash=digest.raw, first_row=at, rows=rows
                ).SerializeToString()
        except (ShoalError, OSError) as error:
            broken.append(error)
            raise

    @staticmethod
    def _check(signed: delivery_pb2.SignedAck, served: ServedTask, digest: Digest) -> None:
        verify(served.task.analyzer_key, SigningContext.ACK, signed.ack, signed.signature)
        ack = codec.parse(delivery_pb2.Ack, signed.ack, "acknowledgement")
        if ack.version != codec.VERSION or ack.manifest_hash != digest.raw:
            raise ShoalError(
                Kind.MISMATCH,
                "the analyzer acknowledged another batch than this: the batch is kept and offered "
                "again",
            )
