"""How one sealed step of a round reaches the shuffler, and its sealed answer the device."""

from __future__ import annotations

import asyncio
from typing import Protocol

from shoal import codec
from shoal.errors import Kind, ShoalError
from shoal.protos import pairwise_pb2
from shoal.rpc.channel import build_channel, call
from shoal.rpc.status import Unnamed

_EXCHANGE = "/shoal.v1.Rounds/Exchange"


class RoundTransport(Protocol):
    """A way to one shuffler. Opened lazily: making one never fails because nobody answers."""

    async def exchange(self, frame: bytes, deadline_s: float) -> bytes:
        """Send one frame; the sealed answer.

        Raises ShoalError: a refusal's kind only if the shuffler itself named it, otherwise a kind after which the same bytes may
        be sent again (UNAVAILABLE, DEADLINE, OVERLOADED, INTERNAL).
        """
        ...

    async def close(self) -> None:
        """Idempotent; calls under way end with UNAVAILABLE."""
        ...


class GrpcRoundTransport:
    """A channel to one shuffler; it connects at the first call and again whenever it must.

    ``ca``: PEM of the CA that the shuffler's certificate chains to. insecure: no TLS, loopback addresses alone.
    private_pool: a connection of its own instead of one shared by all channels of the process. Raises CONFIG.
    """

    def __init__(self, address: str, ca: bytes, *, insecure: bool = False, private_pool: bool = False) -> None:
        self._closed = False
        self._channel = build_channel(address, None if insecure else ca, insecure=insecure, private_pool=private_pool)

    async def exchange(self, frame: bytes, deadline_s: float) -> bytes:
        request = pairwise_pb2.ExchangeRequest(frame=frame).SerializeToString()
        reply = await self._call(request, deadline_s)
        try:
            return codec.parse(pairwise_pb2.ExchangeReply, reply, "reply").sealed
        except ShoalError as error:  # a garbled reply says nothing about the step
            raise ShoalError(Kind.INTERNAL, f"{error.message}: send the same bytes again") from None

    async def _call(self, request: bytes, deadline_s: float) -> bytes:
        if self._closed:
            raise _closed()
        try:
            return await call(self._channel, _EXCHANGE, request, deadline_s, peer="shuffler")
        except Unnamed as error:
            # Nobody vouches for the kind: a proxy's 404 must not end a round.
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
