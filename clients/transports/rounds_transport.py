"""How one sealed step of a round reaches the shuffler, and its sealed answer the device."""

from __future__ import annotations

from typing import Protocol

from shoal import codec
from shoal.clients.transports.shuffler_channel import ShufflerChannel
from shoal.errors import Kind, ShoalError
from shoal.protos import pairwise_pb2

_EXCHANGE = "/shoal.v1.Rounds/Exchange"


class RoundTransport(Protocol):
    """A way to one shuffler. Opened lazily: making one never fails because nobody answers."""

    async def exchange(self, frame: bytes, deadline_s: float) -> bytes:
        """Send one frame; the sealed answer.

        Raises ShoalError: a refusal's kind only if the shuffler itself named it, otherwise a kind
        after which the same bytes may be sent again (UNAVAILABLE, DEADLINE, OVERLOADED, INTERNAL).
        """
        ...

    async def close(self) -> None:
        """Idempotent; calls under way end with UNAVAILABLE."""
        ...


class GrpcRoundTransport:
    """A channel to one shuffler; it connects at the first call and again whenever it must.

    ``ca``: PEM of the CA that the shuffler's certificate chains to. insecure: no TLS, loopback
    addresses alone. private_pool: a connection of its own instead of one shared by all channels of
    the process. Raises CONFIG.
    """

    def __init__(
        self, address: str, ca: bytes, *, insecure: bool = False, private_pool: bool = False
    ) -> None:
        self._channel = ShufflerChannel(address, ca, insecure=insecure, private_pool=private_pool)

    async def exchange(self, frame: bytes, deadline_s: float) -> bytes:
        """As ``RoundTransport.exchange``."""
        request = pairwise_pb2.ExchangeRequest(frame=frame).SerializeToString()
        reply = await self._channel.call(_EXCHANGE, request, deadline_s)
        try:
            return codec.parse(pairwise_pb2.ExchangeReply, reply, "reply").sealed
        except ShoalError as error:  # a garbled reply says nothing about the step
            raise ShoalError(Kind.INTERNAL, f"{error.message}: send the same bytes again") from None

    async def close(self) -> None:
        """As ``RoundTransport.close``."""
        await self._channel.close()
