"""Frames over gRPC with TLS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from google.protobuf.message import Message

from shoal import codec
from shoal.clients.transports.shuffler_channel import ShufflerChannel
from shoal.clients.transports.transport import Receipt
from shoal.errors import Kind, ShoalError
from shoal.protos import submit_pb2

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

    ``ca``: PEM of the CA that the shuffler's certificate chains to. insecure: no TLS, loopback
    addresses alone. private_pool: a connection of its own instead of one shared by all channels of
    the process. Raises CONFIG.
    """

    def __init__(
        self, address: str, ca: bytes, *, insecure: bool = False, private_pool: bool = False
    ) -> None:
        self._channel = ShufflerChannel(address, ca, insecure=insecure, private_pool=private_pool)

    async def submit(self, frame: bytes, ack_key: bytes, deadline_s: float) -> bytes:
        """As ``Transport.submit``."""
        request = submit_pb2.SubmitRequest(frame=frame).SerializeToString()
        return _parse(
            submit_pb2.SubmitReply, await self._channel.call(_SUBMIT, request, deadline_s)
        ).mac

    async def submit_batch(
        self, frames: Sequence[bytes], ack_keys: Sequence[bytes], deadline_s: float
    ) -> list[Receipt]:
        """As ``BatchTransport.submit_batch``."""
        request = submit_pb2.SubmitBatchRequest(frames=frames).SerializeToString()
        reply = _parse(
            submit_pb2.SubmitBatchReply, await self._channel.call(_BATCH, request, deadline_s)
        )
        if len(reply.receipts) != len(frames):
            raise ShoalError(
                Kind.INTERNAL,
                f"the shuffler answered {len(reply.receipts)} of {len(frames)} frames: send them "
                "again",
            )
        return [Receipt(receipt.status, receipt.mac) for receipt in reply.receipts]

    async def close(self) -> None:
        """As ``Transport.close``."""
        await self._channel.close()
