"""A real analyzer in this process, on real sockets with TLS, and the shuffler's side of the
calls.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import itertools
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from shoal.analyzer.service import SPOOL_FOLDER, AnalyzerService
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.clocks.clock import FakeClock
from shoal.clocks.readings import Readings
from shoal.errors import Kind
from shoal.protos import delivery_pb2
from shoal.rpc.channel import build_channel
from shoal.rpc.status import from_rpc_error
from shoal.rpc.tls import TlsIdentity
from shoal.services.process import DataFolder
from shoal.services.workers import WorkerPool
from tests.worlds.services.analyzer import TLS_CA, Batch, World, identity

OFFER, DELIVER = "/shoal.v1.Delivery/Offer", "/shoal.v1.Delivery/Deliver"
PATIENCE_S = 90.0  # real seconds after which a test gives up waiting for what must happen


def tries() -> Iterator[int]:
    """Numbers, until patience ends: looks at what must happen. By time and not by their number, as
    a look may be quick while a disk is slow.
    """
    end = time.monotonic() + PATIENCE_S
    for number in itertools.count():
        if time.monotonic() >= end:
            return
        yield number


@functools.cache
def shared_pool() -> WorkerPool:
    """Two warm workers for every test of a process; they end with it."""
    return WorkerPool(2)


@dataclass(frozen=True)
class Refusal:
    """How a call ended on the wire."""

    kind: Kind
    status: str
    message: str


class Refused(Exception):  # noqa: N818 - what a refused call raises here
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f"{refusal.kind.name} {refusal.status}: {refusal.message}")
        self.refusal = refusal


class Caller:
    """A shuffler, as far as the wire shows one."""

    def __init__(self, port: int, client: TlsIdentity | None) -> None:
        self.channel = build_channel(
            f"127.0.0.1:{port}", TLS_CA.cert_pem, client=client, private_pool=True
        )

    async def offer(self, batch: Batch | bytes) -> delivery_pb2.OfferReply:
        request = batch.signed if isinstance(batch, Batch) else batch
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self.channel.unary_unary(OFFER)
        try:
            return delivery_pb2.OfferReply.FromString(await call(request, timeout=30))
        except grpc.aio.AioRpcError as error:
            raise _refused(error) from None

    async def deliver(self, chunks: Iterable[bytes]) -> int:
        async def stream() -> AsyncIterator[bytes]:
            for chunk in chunks:
                yield chunk

        return await self.stream(stream())

    async def stream(self, messages: AsyncIterator[bytes]) -> int:
        call: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = self.channel.stream_unary(DELIVER)
        try:
            return delivery_pb2.DeliverReply.FromString(
                await call(messages, timeout=30)
            ).received_rows
        except grpc.aio.AioRpcError as error:
            raise _refused(error) from None

    async def done(self, batch: Batch) -> delivery_pb2.SignedAck:
        """Offer, deliver what is missing, and ask until the acknowledgement comes."""
        for _ in tries():
            reply = await self.offer(batch)
            if reply.state == delivery_pb2.BATCH_STATE_DONE:
                return reply.ack
            if reply.state == delivery_pb2.BATCH_STATE_RECEIVING:
                await self.deliver(chunks(batch, reply.received_rows))
            await asyncio.sleep(0.01)
        raise AssertionError("the batch was not done in time")


def chunks(batch: Batch, first: int = 0, step: int = 16) -> list[bytes]:
    return [batch.chunk(at, step) for at in range(first, len(batch.rows), step)]


def _refused(error: grpc.aio.AioRpcError) -> Refused:
    typed = from_rpc_error(error, "analyzer")
    return Refused(Refusal(typed.kind, error.code().name, error.details() or ""))


@dataclass
class Running:
    folder: Path
    data: Path
    store: AnalyzerStore
    service: AnalyzerService
    port: int
    admin_port: int
    caller: Caller

    def digest(self) -> str:
        """Of everything that a call could change: the store's content, files of the data folder,
        keys.
        """
        return digest(self.folder, self.data)


def digest(folder: Path, data: Path) -> str:
    found = hashlib.sha256()
    store = AnalyzerStore(data / FILE_NAME, read_only=True)
    for table in ("batches", "releases", "tallies", "acks"):
        found.update(repr(store._db.execute(f"SELECT * FROM {table}").fetchall()).encode())  # noqa: S608 - constant names; to see everything
    store.close()
    for path in sorted([*(data / SPOOL_FOLDER).iterdir(), *(folder / "keys").iterdir()]):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()


@asynccontextmanager
async def running(
    world: World, folder: Path, *, clock: FakeClock | None = None, readings: Readings | None = None
) -> AsyncIterator[Running]:
    """``world`` served from ``folder`` (written there unless it is already), at a time when all
    windows are over.

    ``readings``: of a machine whose clocks it keeps itself.
    """
    config = world.config(folder)
    with DataFolder(config.data_dir) as data:
        store = AnalyzerStore(data / FILE_NAME)
        given = None if readings else clock or FakeClock(world.after)
        service = AnalyzerService(
            config, data, store, clock=given, pool=shared_pool(), readings=readings
        )
        try:
            port, admin_port = await service.start()
            caller = Caller(port, identity())
            try:
                yield Running(folder, data, store, service, port, admin_port, caller)
            finally:
                await caller.channel.close()
        finally:
            await service.stop()
            store.close()


async def refused(run: Running, call: Any) -> Refusal:
    """How ``call`` is refused; afterwards everything must be as it was before."""
    before = run.digest()
    with pytest.raises(Refused) as error:
        await call
    refusal = error.value.refusal
    assert refusal.status not in {"UNKNOWN", "INTERNAL"}
    assert refusal.message
    assert "\n" not in refusal.message
    assert "Traceback" not in refusal.message
    assert run.digest() == before
    return refusal
