"""The only way to make a gRPC channel, and to call through one: TLS or refuse, bytes in and bytes
out, failures typed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Protocol

import grpc

from shoal.errors import Kind, ShoalError
from shoal.limits import KIB, LIMITS
from shoal.rpc.address import is_loopback, parse_address
from shoal.rpc.status import from_rpc_error
from shoal.rpc.tls import TlsIdentity, check_certificates


def _options() -> list[tuple[str, int]]:
    return [
        (
            "grpc.max_send_message_length",
            LIMITS.batch_bytes + 64 * KIB,
        ),  # 1 MiB of many small pieces, with protobuf around each
        ("grpc.max_receive_message_length", LIMITS.reply_bytes + 1024),
        ("grpc.enable_retries", 0),  # retries are ours: identical bytes, counted, with jitter
        ("grpc.max_metadata_size", LIMITS.metadata_bytes),
        ("grpc.absolute_max_metadata_size", LIMITS.metadata_bytes),
        # By its name a pause, but gRPC ends an attempt to connect (TCP, TLS and the first frame of
        # HTTP/2) that takes longer than this.
        ("grpc.min_reconnect_backoff_ms", int(LIMITS.connect_s * 1000)),
        ("grpc.initial_reconnect_backoff_ms", int(LIMITS.reconnect_first_s * 1000)),
        ("grpc.max_reconnect_backoff_ms", int(LIMITS.reconnect_most_s * 1000)),
        (
            "grpc.keepalive_time_ms",
            int(LIMITS.keepalive_s * 1000),
        ),  # while calls are open: a peer that vanished is found
        ("grpc.keepalive_timeout_ms", int(LIMITS.keepalive_timeout_s * 1000)),
        ("grpc.http2.ping_timeout_ms", int(LIMITS.keepalive_timeout_s * 1000)),
        ("grpc.keepalive_permit_without_calls", 0),
    ]


def build_channel(
    address: str,
    ca: bytes | None,
    *,
    client: TlsIdentity | None = None,
    insecure: bool = False,
    private_pool: bool = False,
) -> grpc.aio.Channel:
    """A channel to ``address`` that trusts ``ca`` (PEM), showing ``client`` where the peer wants to
    know who calls.

    insecure: no TLS, on a loopback address alone. private_pool: an own connection instead of one
    shared by address. Raises CONFIG, KEY_FILE.
    """
    host, _ = parse_address(address, "address")
    options = [*_options(), ("grpc.use_local_subchannel_pool", int(private_pool))]
    if is_loopback(host):
        # A proxy that the environment names is elsewhere: it would look for its own services, and
        # see what is not encrypted.
        options.append(("grpc.enable_http_proxy", 0))
    # by its scheme: gRPC alone would take a host named "unix" or "dns" for one
    target = f"dns:///{address}"
    if insecure:
        if not is_loopback(host):
            raise ShoalError(
                Kind.CONFIG, f"{address}: without TLS only loopback addresses are allowed"
            )
        return grpc.aio.insecure_channel(target, options=options)
    if not ca:
        raise ShoalError(
            Kind.CONFIG, f"{address}: give the CA certificate that its TLS certificate chains to"
        )
    check_certificates(ca, f"{address}: its CA")
    credentials = grpc.ssl_channel_credentials(
        ca,
        private_key=client.key if client else None,
        certificate_chain=client.certificate if client else None,
    )
    return grpc.aio.secure_channel(target, credentials, options=options)


class CallsPeer(Protocol):
    """A channel, as far as callers need one: gRPC's own, or ``shoal.rpc.renewal``'s."""

    def unary_unary(self, method: str) -> Any:
        """Takes (request, timeout=seconds), gives the reply; of bytes both."""
        ...

    def stream_unary(self, method: str) -> Any:
        """The same for an async iterator of requests."""
        ...


async def call(
    channel: CallsPeer,
    method: str,
    request: bytes,
    deadline_s: float,
    *,
    peer: str = "service",
) -> bytes:
    """One unary call. ``method`` is "/package.Service/Method". Raises ShoalError with the peer's
    kind.
    """
    try:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
        return await call(request, timeout=deadline_s)
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error, peer) from None


async def call_stream(
    channel: CallsPeer,
    method: str,
    messages: AsyncIterator[bytes],
    deadline_s: float,
    *,
    peer: str = "service",
) -> bytes:
    """One call that streams messages up. Raises ShoalError with the peer's kind, and what
    ``messages`` raised.
    """
    broken: list[Exception] = []

    async def watched() -> AsyncIterator[bytes]:
        try:
            async for message in messages:
                yield message
        except Exception as error:
            broken.append(error)
            raise

    try:
        many: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(method)
        return await many(watched(), timeout=deadline_s)
    except asyncio.CancelledError:
        # gRPC cancels the call when its source of messages fails, and keeps the reason to itself
        if broken:
            raise broken[0] from None
        raise
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error, peer) from None
