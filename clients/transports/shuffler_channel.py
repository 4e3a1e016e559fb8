"""Unary gRPC calls of a device to its shuffler, for every transport that makes them."""

from __future__ import annotations

import asyncio

from shoal.errors import Kind, ShoalError
from shoal.limits import call_s
from shoal.rpc.channel import build_channel, call
from shoal.rpc.status import Unnamed


class ShufflerChannel:
    """A channel to one shuffler; it connects at the first call and again whenever it must.

    ``ca``: PEM of the CA that the shuffler's certificate chains to. insecure: no TLS, loopback
    addresses alone. private_pool: a connection of its own instead of one shared by all channels of
    the process. Raises CONFIG. ``grpc``: the library's.
    """

    def __init__(
        self, address: str, ca: bytes, *, insecure: bool = False, private_pool: bool = False
    ) -> None:
        self._closed = False
        self.grpc = build_channel(
            address, None if insecure else ca, insecure=insecure, private_pool=private_pool
        )

    async def call(
        self, method: str, request: bytes, deadline_s: float, *, reply_bytes: int = 0
    ) -> bytes:
        """The reply's bytes. ``deadline_s``: of a call that carries few bytes; one with many gets
        more, ``limits.call_s``. ``reply_bytes``: at most so many come back.

        Raises a refusal's kind only if the shuffler itself named it, otherwise one after which the
        same bytes may be sent again.
        """
        if self._closed:
            raise _closed()
        try:
            return await call(
                self.grpc,
                method,
                request,
                call_s(deadline_s, len(request) + reply_bytes),
                peer="shuffler",
            )
        except Unnamed as error:
            # Nobody vouches for the kind. A proxy's 404 must not end a report or a round, and a
            # reply that was too large for us must not count as "not stored": only kinds that leave
            # everything open pass.
            if error.kind in {Kind.UNAVAILABLE, Kind.DEADLINE, Kind.INTERNAL}:
                raise
            advice = (
                "try again later"
                if error.retryable
                else "that is not a shuffler speaking, check the task's address"
            )
            raise ShoalError(
                Kind.UNAVAILABLE, f"{error.message}: {advice}", retry_after_s=error.retry_after_s
            ) from None
        except asyncio.CancelledError:
            # gRPC cancels the calls of a channel that is closed; a caller who is cancelled himself
            # must notice.
            task = asyncio.current_task()
            if self._closed and not (task is not None and task.cancelling()):
                raise _closed() from None
            raise

    async def close(self) -> None:
        """Close the channel for good: calls under way end with UNAVAILABLE. Idempotent."""
        self._closed = True
        await self.grpc.close()


def _closed() -> ShoalError:
    return ShoalError(
        Kind.UNAVAILABLE, "this transport is closed: open another and send the same bytes"
    )
