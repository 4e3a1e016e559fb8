"""Frames over gRPC with TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from google.protobuf.message import Message

from shoal import codec
from shoal.clients.transport import Receipt
from shoal.errors import Kind, ShoalError
from shoal.protos import submit_pb2
from shoal.rpc.channel import build_channel, call
from shoal.rpc.status import Unnamed

_SUBMIT = "/shoal.v1.Ingress/Submit"
_BATCH = "/shoal.v1.Ingress/SubmitBatch"


M = TypeVar("M", bound=Message)


def _parse(message: type[M], reply: bytes) -> M:
    try:
        return codec.parse(message, reply, "reply")
    except ShoalError as error:  # a garbled reply says nothing about the report: keep it
        raise ShoalError(Kind.INTERNAL, f"{error.message}: send the same bytes again") from None


class GrpcTransport:
    """A channel to one shuffler; it connects at the first call and again whenever it must.

    ``ca``: PEM of the CA that the shuffler's certificate chains to. insecure: no TLS, loopback addresses alone.
    private_pool: a connection of its own instead of one shared by all channels of the process. Raises CONFIG.
    """

    def __init__(self, address: str, ca: bytes, *, insecure: bool = False, private_pool: bool = False) -> None:
        self._closed = False
        self._channel = build_channel(address, None if insecure else ca, insecure=insecure, private_pool=private_pool)

    async def submit(self, frame: bytes, deadline_s: float) -> bytes:
        request = submit_pb2.SubmitRequest(frame=frame).SerializeToString()
        return _parse(submit_pb2.SubmitReply, await self._call(_SUBMIT, request, deadline_s)).mac

    async def submit_batch(self, frames: Sequence[bytes], deadline_s: float) -> list[Receipt]:
        request = submit_pb2.SubmitBatchRequest(frames=frames).SerializeToString()
        reply = _parse(submit_pb2.SubmitBatchReply, await self._call(_BATCH, request, deadline_s))
        if len(reply.receipts) != len(frames):
            raise ShoalError(Kind.INTERNAL, f"the shuffler answered {len(reply.receipts)} of {len(frames)} frames: send them again")
        return [Receipt(receipt.status, receipt.mac) for receipt in reply.receipts]

    async def _call(self, method: str, request: bytes, deadline_s: float) -> bytes:
        if self._closed:
            raise _closed()
        try:
            return await call(self._channel, method, request, deadline_s, peer="shuffler")
        except Unnamed as error:
            # Nobody vouches for the kind. A proxy's 404 must not end a report, and a reply that was too large for us must not
            # count as "not stored": only kinds that leave everything open pass.
            if error.kind in {Kind.UNAVAILABLE, Kind.DEADLINE, Kind.INTERNAL}:
                raise
            advice = "try again later" if error.retryable else "that is not a shuffler speaking, check the task's address"
            raise ShoalError(Kind.UNAVAILABLE, f"{error.message}: {advice}") from None
        except asyncio.CancelledError:
            # gRPC cancels the calls of a channel that is closed; a caller who is cancelled himself must notice.
            task = asyncio.current_task()
            if self._closed and not (task is not None and task.cancelling()):
                raise _closed() from None
            raise

    async def close(self) -> None:
        self._closed = True
        await self._channel.close()


def _closed() -> ShoalError:
    return ShoalError(Kind.UNAVAILABLE, "this transport is closed: open another and send the same bytes")
