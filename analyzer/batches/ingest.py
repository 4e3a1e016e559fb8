"""shoal.v1.Delivery: the shuffler offers a batch and delivers its rows.

Offer is idempotent and says where to go on; Deliver takes rows from there. A reply with a number of
rows means that they are on disk. Every refusal is a typed error and leaves everything as it was.
See protos/delivery.proto.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Container

from shoal import codec
from shoal.analyzer.batches.manifest_signatures import ManifestSignatures
from shoal.analyzer.batches.spool import Spool, Spools
from shoal.analyzer.core import (
    Batch,
    BatchState,
    check_manifest,
    check_retention,
    check_same,
    supersedes,
)
from shoal.analyzer.keys import KeyFolder
from shoal.analyzer.missing_keys import MissingKeys
from shoal.analyzer.store import AnalyzerStore
from shoal.analyzer.tasks import AnalyzerTasks
from shoal.clocks.clock import SureClock
from shoal.crypto.signing import SigningContext, verify
from shoal.crypto.trust import ServedTask
from shoal.errors import Kind, ShoalError
from shoal.failpoints import hit
from shoal.ids import Digest, TaskId
from shoal.limits import KIB, LIMITS
from shoal.log import get_log
from shoal.protos import delivery_pb2
from shoal.rpc.call import Call
from shoal.rpc.server import Method, Service
from shoal.services.given_up import TaskWindow
from shoal.task import Task

log = get_log("analyzer")
SERVICE = "shoal.v1.Delivery"
_OFFER_BYTES = 4 * KIB  # a signed manifest is about 300 bytes
_SERVES_TASKS = 1_000  # asked for in one call
_SERVES_BYTES = 128 * KIB  # of which each takes about 72 bytes
_SERVES_WINDOWS = 40_000  # in one reply, of 3 bytes or so
_CHUNK_EXTRA = 1 * KIB  # protobuf around the rows of a chunk


class Ingest:
    """``complete`` is called, once or more, for every batch that is PROCESSING; ``clean`` is
    awaited before an acknowledgement leaves.

    ``trouble``: why no batch can be taken now, in one line, or "". ``signatures``: where those of
    manifests are kept, for who checks a release.
    """

    def __init__(
        self,
        *,
        store: AnalyzerStore,
        tasks: AnalyzerTasks,
        keys: KeyFolder,
        spools: Spools,
        clock: SureClock,
        complete: Callable[[Batch], None],
        clean: Callable[[Batch], Awaitable[None]],
        missing: MissingKeys | None = None,
        trouble: Callable[[], str] = str,
        given_up: Container[TaskWindow] = (),
        signatures: ManifestSignatures | None = None,
        step: Callable[[ServedTask], bytes | None] = lambda _: None,
    ) -> None:
        """``step``: what a discovery asks last, a SignedDiscoveryStep."""
        self._given_up, self._step = given_up, step
        self._store, self._tasks, self._keys, self._spools, self._clock = (
            store,
            tasks,
            keys,
            spools,
            clock,
        )
        self._complete, self._clean, self._trouble = complete, clean, trouble
        self._signatures = signatures
        self._missing = missing or MissingKeys(store, tasks, keys, clock)

    def service(self, peers: frozenset[str] | None, **more: Method) -> Service:
        """``peers``: names of the shufflers' client certificates; None (anybody) is for a loopback
        server without TLS in tests.
        """
        methods = {
            "Offer": Method(_OFFER_BYTES, handler=self.offer),
            "Serves": Method(_SERVES_BYTES, handler=self.serves),
            "Deliver": Method(LIMITS.chunk_bytes + _CHUNK_EXTRA, stream_handler=self.deliver),
        }
        return Service(SERVICE, {**methods, **more}, peers)

    # --- Offer ------------------------------------------------------------------------------------

    async def offer(self, request: bytes, call: Call) -> bytes:
        """SignedManifest -> OfferReply.

        Raises INVALID, UNKNOWN_TASK, BAD_SIGNATURE, CONFLICT, MISMATCH, TOO_FEW, TOO_EARLY,
        WINDOW_CLOSED, UNAVAILABLE (the key can't be read), OVERLOADED (disk).
        """
        signed = codec.parse(delivery_pb2.SignedManifest, request, "signed manifest")
        manifest = codec.decode_manifest(signed.manifest)
        served = await asyncio.to_thread(self._tasks.get, manifest.task_id)
        last_hop = served.task.hops[-1]
        verify(last_hop, SigningContext.MANIFEST, signed.manifest, signed.signature)
        if served.task.pairwise is not None:
            raise ShoalError(
                Kind.INVALID, "manifest: this task is summed in rounds, it has no batches"
            )
        batch = self._store.batch_of(manifest.task_id, manifest.window)
        if supersedes(batch, manifest) and batch is not None:
            check_manifest(manifest, served, self._clock.earliest())
            log.warning(
                "a batch lost rows at the shuffler: it begins again",
                task=manifest.task_id,
                window=manifest.window,
            )
            await asyncio.to_thread(self._store.supersede, batch.manifest_hash, signed.manifest)
            await asyncio.to_thread(self._spools.delete, batch.manifest_hash)
            batch = self._store.batch_of(manifest.task_id, manifest.window)
        check_same(batch, Digest.of(signed.manifest))
        if batch is None or batch.state is BatchState.RECEIVING:
            self._check_given_up(manifest)
            self._check_retention(served.task, min(manifest.window, served.task.windows.count - 1))
        if batch is None:
            check_manifest(manifest, served, self._clock.earliest())
            await asyncio.to_thread(self._check_key, manifest)
            batch = await asyncio.to_thread(self._store.accept, signed.manifest)
            hit("analyzer.offer.accepted")
            log.info(
                "batch accepted", task=manifest.task_id, window=manifest.window, rows=manifest.rows
            )
        if self._signatures is not None and batch.state is not BatchState.DONE:
            await asyncio.to_thread(self._signatures.keep, batch.manifest_hash, signed.signature)
        return (await self._reply(batch)).SerializeToString()

    def _check_key(self, manifest: codec.Manifest) -> None:
        """Nothing is taken on that could not be opened later."""
        self._keys.load_for(manifest.analyzer_key_id, manifest.task_id, manifest.window)

    async def _reply(self, batch: Batch) -> delivery_pb2.OfferReply:
        if batch.state is BatchState.RECEIVING:
            spool = await self._spool(batch)
            received = await asyncio.to_thread(spool.sync)
            if not await self._finish(batch, spool):
                return delivery_pb2.OfferReply(
                    state=delivery_pb2.BATCH_STATE_RECEIVING, received_rows=received
                )
        rows = batch.manifest.rows
        ack = self._store.ack(batch.manifest_hash)
        if ack is None:
            # Queued already, unless the call that completed the batch was cancelled between its
            # commit and this.
            self._complete(batch)
            return delivery_pb2.OfferReply(
                state=delivery_pb2.BATCH_STATE_PROCESSING, received_rows=rows
            )
        await self._clean(batch)
        signed = delivery_pb2.SignedAck(ack=ack.ack, signature=ack.signature)
        return delivery_pb2.OfferReply(
            state=delivery_pb2.BATCH_STATE_DONE, received_rows=rows, ack=signed
        )

    # --- Serves -----------------------------------------------------------------------------------

    async def serves(self, request: bytes, call: Call) -> bytes:
        """ServesRequest -> ServesReply: what of these tasks could not be taken, opened or released.
        Raises INVALID, OVERSIZE.
        """
        asked = codec.parse(delivery_pb2.ServesRequest, request, "question about tasks").tasks
        if len(asked) > _SERVES_TASKS:
            raise ShoalError(
                Kind.OVERSIZE,
                f"{len(asked)} tasks in one question, at most {_SERVES_TASKS} are answered: ask "
                "several times",
            )
        served = [await asyncio.to_thread(self._served, asked_task.task_id) for asked_task in asked]
        await asyncio.to_thread(self._missing.look)
        reply = delivery_pb2.ServesReply(trouble=self._trouble())
        listed = 0
        for asked_task, served_task in zip(asked, served, strict=True):
            if served_task is None or served_task.keys.digest.raw != asked_task.schedule_hash:
                reply.unserved.add(task_id=asked_task.task_id)
            elif windows := self._missing.unserved(served_task.task_id):
                listed += len(windows)
                # A reply has its limit; where keys are gone by the ten thousand the rest is of
                # little use.
                reply.unserved.add(
                    task_id=asked_task.task_id, windows=windows if listed <= _SERVES_WINDOWS else ()
                )
        await asyncio.to_thread(self._add_steps, reply, served)
        return reply.SerializeToString()

    def _add_steps(self, reply: delivery_pb2.ServesReply, served: list[ServedTask | None]) -> None:
        """As many as a reply has room for: who asks for few discoveries at once gets all."""
        left = LIMITS.reply_bytes - reply.ByteSize() - KIB
        for one in served:
            step = None if one is None else self._step(one)
            if step is not None and (left := left - len(step) - 8) >= 0:
                reply.steps.append(step)

    def _served(self, task_id: bytes) -> ServedTask | None:
        try:
            return self._tasks.get(TaskId(task_id))
        except ShoalError as error:
            if error.kind is not Kind.UNKNOWN_TASK:
                raise
            return None

    # --- Deliver ----------------------------------------------------------------------------------

    async def deliver(self, messages: AsyncIterator[bytes], call: Call) -> bytes:
        """A stream of Chunk, all of one batch -> DeliverReply.

        A chunk that is refused ends the call; the good ones before it stay. Raises INVALID,
        NOT_FOUND (not offered), WINDOW_CLOSED, OVERSIZE, MISMATCH (rows_hash), OVERLOADED (disk).
        """
        batch: Batch | None = None
        spool: Spool | None = None
        async for message in messages:
            chunk = codec.parse(delivery_pb2.Chunk, message, "chunk")
            manifest_hash = Digest(chunk.manifest_hash)
            if batch is None or spool is None:
                spool = await self._spool(self._receiving(manifest_hash))
                # one opened after the batch was complete, or beyond its retention, is not written
                # to
                batch = self._receiving(manifest_hash)
            elif batch.manifest_hash != manifest_hash:
                raise ShoalError(
                    Kind.INVALID,
                    "chunk: of another batch than the first of this call: use one call per batch",
                )
            await asyncio.to_thread(spool.append, chunk.first_row, chunk.rows)
        if batch is None or spool is None:
            raise ShoalError(Kind.INVALID, "deliver: no chunk came")
        received = await asyncio.to_thread(spool.sync)
        hit("analyzer.deliver.synced")
        await self._finish(batch, spool)
        return delivery_pb2.DeliverReply(received_rows=received).SerializeToString()

    def _receiving(self, manifest_hash: Digest) -> Batch:
        batch = self._store.batch(manifest_hash)
        if batch is None:
            raise ShoalError(
                Kind.NOT_FOUND, "chunk: of a batch that was not offered: offer it first"
            )
        if batch.state is not BatchState.RECEIVING:
            raise ShoalError(
                Kind.INVALID, "chunk: the batch is complete: offer it again for its acknowledgement"
            )
        manifest = batch.manifest
        self._check_given_up(manifest)
        self._check_retention(self._tasks.get(manifest.task_id).task, manifest.window)
        return batch

    def _check_given_up(self, manifest: codec.Manifest) -> None:
        if (manifest.task_id, manifest.window) in self._given_up:
            raise ShoalError(
                Kind.WINDOW_CLOSED,
                f"manifest: the analyzer's operator gave window {manifest.window} up: give it up "
                "at the shuffler too",
            )

    def _check_retention(self, task: Task, window: int) -> None:
        """Nothing is refused for good by a clock that is disputed: its key is still there."""
        now = self._clock.decide()
        if now is not None:
            check_retention(task, window, now)

    async def _spool(self, batch: Batch) -> Spool:
        """The one spool of a batch: several calls may be at it at once."""
        return await asyncio.to_thread(self._spools.get, batch.manifest_hash, batch.manifest)

    async def _finish(self, batch: Batch, spool: Spool) -> bool:
        """RECEIVING -> PROCESSING if every row is there and is the manifest's. Raises MISMATCH:
        then the rows are gone.
        """
        if not await asyncio.to_thread(spool.check):
            return False
        if await asyncio.to_thread(
            self._store.move, batch.manifest_hash, BatchState.RECEIVING, BatchState.PROCESSING
        ):
            hit("analyzer.batch.processing")
            self._spools.forget(batch.manifest_hash)
            log.info(
                "batch complete",
                task=batch.manifest.task_id,
                window=batch.manifest.window,
                rows=batch.manifest.rows,
            )
            self._complete(batch)
        return True
