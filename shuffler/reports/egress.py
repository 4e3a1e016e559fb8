"""Handing a sealed batch to the next hop: offer the signed manifest, deliver rows from where it is,
take its signed acknowledgement. Everything may be repeated; the hop's signature alone ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from shoal import codec, failpoints
from shoal.crypto.signing import SigningContext, SigningKey, verify
from shoal.crypto.trust import ServedTask
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.limits import LIMITS
from shoal.protos import delivery_pb2
from shoal.shuffler.core import WindowId
from shoal.shuffler.reports.next_hop import SENSELESS, Chunks, HopProgress, NextHop, OfferAnswer
from shoal.shuffler.stores.store import SealedRows, Store, WindowRecord

_CHUNKS_PER_CALL = 256  # 64 MiB: a call is bounded in time, and what it brought is kept


Asked = Callable[[WindowId], bytes]
"""What names the question of a window of a discovery; of others nothing does."""


def nothing_asked(_: WindowId) -> bytes:
    """Of shufflers without discoveries."""
    return b""


def make_manifest(
    served: ServedTask, window: WindowId, sealed: SealedRows, asked: Asked = nothing_asked
) -> bytes:
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
            reports=0 if served.task.reports_are_rows else sealed.reports,
            asked=asked(window),
        )
    )


class Delivery(Protocol):
    """What ``Egress`` does; tests put an in-process analyzer behind it."""

    async def attempt(self, served: ServedTask, window: WindowId, record: WindowRecord) -> bool:
        """As ``Egress.attempt``."""
        ...


class Egress:
    """``next_hop``: whom batches go to. ``key`` signs their manifests."""

    def __init__(self, next_hop: NextHop, key: SigningKey, store: Store) -> None:
        self._next, self._key, self._store = next_hop, key, store

    async def attempt(self, served: ServedTask, window: WindowId, record: WindowRecord) -> bool:
        """One round: True once the hop's acknowledgement of exactly this manifest is verified,
        False while it works.

        Raises what the hop answered, UNAVAILABLE if it can't be reached, BAD_SIGNATURE or MISMATCH
        for an acknowledgement that isn't one, INVALID for an unreadable answer.
        """
        digest = Digest.of(record.manifest)
        signature = self._key.sign(SigningContext.MANIFEST, record.manifest)
        before = -1
        while True:
            failpoints.hit("egress.offer")
            answer = await self._next.offer(record.manifest, signature)
            if answer.progress is HopProgress.ACKNOWLEDGED:
                _check(answer, self._next.key(served.task), digest)
                return True
            if answer.progress is HopProgress.WORKING:
                return False
            if answer.received_rows > record.rows:
                raise ShoalError(Kind.INVALID, SENSELESS)
            if answer.received_rows <= before or answer.received_rows == record.rows:
                return False  # no progress, or complete and about to be processed: ask again later
            before = answer.received_rows
            await self._next.deliver(digest, self._chunks(window, record, before))

    async def _chunks(self, window: WindowId, record: WindowRecord, first: int) -> Chunks:
        """Whole rows from row ``first`` on, at most LIMITS.chunk_bytes of them at a time."""
        step = max(1, LIMITS.chunk_bytes // record.row_size)
        for at in range(first, min(record.rows, first + _CHUNKS_PER_CALL * step), step):
            failpoints.hit("egress.chunk")
            yield at, await self._store.read_rows(window, at, step)


def _check(answer: OfferAnswer, key: bytes, digest: Digest) -> None:
    verify(key, SigningContext.ACK, answer.ack, answer.signature)
    ack = codec.parse(delivery_pb2.Ack, answer.ack, "acknowledgement")
    if ack.version != codec.VERSION or ack.manifest_hash != digest.raw:
        raise ShoalError(
            Kind.MISMATCH,
            "the analyzer acknowledged another batch than this: the batch is kept and offered "
            "again",
        )
