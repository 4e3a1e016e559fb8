"""The only way to make a gRPC server: TLS or refuse, bytes in and bytes out, every failure typed, no exception text to peers.

Handlers get raw bytes and parse them with ``shoal.codec``, so malformed input is INVALID_ARGUMENT (the library's own
parsing would answer UNKNOWN). Around each handler stand, outermost first: the barrier (ShoalError -> its status; anything
else -> INTERNAL with an incident number and nothing more), the identity check (services with ``peers`` answer only to
client certificates that carry an allowed name), the size limit of the method, the deadline. Nothing here or in a
handler ever asks for a peer's address.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc

from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.log import get_log
from shoal.rpc.address import is_loopback, parse_address
from shoal.rpc.status import KIND_KEY, MOST_TEXT, status_of
from shoal.rpc.tls import TlsIdentity

log = get_log("rpc")
Context = grpc.aio.ServicerContext[Any, Any]


class Call:
    """What a handler may know of a call: how long it has left. Nothing about who calls."""

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context

    def deadline_left(self) -> float:
        """Seconds; LIMITS.default_deadline_s where the caller stated none."""
        left = self._context.time_remaining()
        return LIMITS.default_deadline_s if left is None else left


Handler = Callable[[bytes, Call], Awaitable[bytes]]
StreamHandler = Callable[[AsyncIterator[bytes], Call], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class Method:
    """A unary method (``handler``) or one that takes a stream of messages (``stream_handler``); sizes in bytes per message."""

    max_bytes: int
    handler: Handler | None = None
    stream_handler: StreamHandler | None = None

    def __post_init__(self) -> None:
        if (self.handler is None) == (self.stream_handler is None):
            raise ShoalError(Kind.CONFIG, "a method has either a handler or a stream_handler")


@dataclass(frozen=True, slots=True)
class Service:
    """A full service name and its methods. ``peers``: names (DNS, in a client certificate) that may call; None: anybody."""

    name: str
    methods: Mapping[str, Method]
    peers: frozenset[str] | None = None


def _options(max_bytes: int) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", max_bytes + 1024),
        ("grpc.max_send_message_length", LIMITS.reply_bytes + 1024),
        ("grpc.max_concurrent_streams", LIMITS.concurrent_streams),
        ("grpc.max_metadata_size", LIMITS.metadata_bytes),
        ("grpc.absolute_max_metadata_size", LIMITS.metadata_bytes),
        ("grpc.keepalive_time_ms", int(LIMITS.keepalive_s * 1000)),
        ("grpc.keepalive_timeout_ms", int(LIMITS.keepalive_timeout_s * 1000)),
        ("grpc.http2.min_ping_interval_without_data_ms", LIMITS.ping_interval_s * 1000),
        ("grpc.keepalive_permit_without_calls", 0),
        ("grpc.max_connection_idle_ms", LIMITS.connection_idle_s * 1000),
        ("grpc.max_connection_age_ms", LIMITS.connection_age_s * 1000),
        ("grpc.max_connection_age_grace_ms", LIMITS.connection_grace_s * 1000),
        ("grpc.server_handshake_timeout_ms", LIMITS.handshake_s * 1000),
        ("grpc.so_reuseport", 0),  # a second server must fail to bind, not take half of the traffic
        ("grpc.enable_channelz", 0),
        ("grpc.per_message_decompression", 0),  # no decompression bombs, no lengths that depend on content
    ]


class RpcServer:
    """A gRPC server at ``address`` (port 0: any free one). ``tls`` None needs insecure=True and a loopback address."""

    def __init__(self, address: str, services: list[Service], tls: TlsIdentity | None, *, insecure: bool = False) -> None:
        host, _ = parse_address(address, "listen")
        if tls is None and not (insecure and is_loopback(host)):
            raise ShoalError(Kind.CONFIG, "a server without TLS is allowed on a loopback address alone, and only when asked for by name")
        if any(service.peers is not None for service in services) and (tls is None or tls.client_ca is None):
            raise ShoalError(Kind.CONFIG, "a service for named peers wants TLS and the CA of the peers' certificates (client_ca)")
        if len({service.name for service in services}) != len(services):
            raise ShoalError(Kind.CONFIG, "a gRPC service is registered twice")
        self._address, self._services, self._tls = address, services, tls
        self._server: grpc.aio.Server | None = None

    async def start(self) -> int:
        """Bind and serve; returns the port. Raises PORT_IN_USE, KEY_FILE."""
        largest = max(method.max_bytes for service in self._services for method in service.methods.values())
        server = grpc.aio.server(options=_options(largest), maximum_concurrent_rpcs=LIMITS.concurrent_calls, compression=None)
        for service in self._services:
            server.add_generic_rpc_handlers((_generic(service),))
        from grpc_health.v1 import health, health_pb2, health_pb2_grpc

        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        for name in ("", *(service.name for service in self._services)):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        try:
            port = self._bind(server)
        except (RuntimeError, ValueError):
            await server.stop(None)
            raise ShoalError(
                Kind.PORT_IN_USE, f"cannot listen on {self._address}: another process has the port, or the address is not ours"
            ) from None
        if port == 0:
            raise ShoalError(Kind.PORT_IN_USE, f"cannot listen on {self._address}")
        await server.start()
        self._server = server
        return port

    def _bind(self, server: grpc.aio.Server) -> int:
        if self._tls is None:
            return server.add_insecure_port(self._address)
        credentials = grpc.ssl_server_credentials(
            [(self._tls.key, self._tls.certificate)],
            root_certificates=self._tls.client_ca,
            require_client_auth=self._tls.client_ca is not None,
        )
        return server.add_secure_port(self._address, credentials)

    async def stop(self, grace_s: float = LIMITS.drain_s) -> None:
        """Take no new calls, let open ones finish for ``grace_s`` seconds."""
        if self._server is not None:
            await self._health.enter_graceful_shutdown()
            await self._server.stop(grace_s)
            self._server = None


def _generic(service: Service) -> grpc.GenericRpcHandler:
    handlers: dict[str, Any] = {}
    for name, method in service.methods.items():
        if method.handler is not None:
            handlers[name] = grpc.unary_unary_rpc_method_handler(_unary(method.handler, method.max_bytes, service.peers))
        elif method.stream_handler is not None:
            handlers[name] = grpc.stream_unary_rpc_method_handler(_stream(method.stream_handler, method.max_bytes, service.peers))
    return grpc.method_handlers_generic_handler(service.name, handlers)


def _unary(handler: Handler, max_bytes: int, peers: frozenset[str] | None) -> Any:  # grpc's own handler type
    async def guarded(request: bytes, context: Context) -> bytes:
        try:
            own_deadline = _enter(context, peers)
            if len(request) > max_bytes:
                raise ShoalError(Kind.OVERSIZE, f"the request is {len(request)} bytes long, at most {max_bytes} are taken")
            if own_deadline is None:
                return await handler(request, Call(context))
            async with asyncio.timeout(own_deadline):
                return await handler(request, Call(context))
        except BaseException as error:  # the barrier: nothing untyped may pass
            await _refuse(context, error)
            raise  # not reached: abort raises

    return guarded


def _stream(handler: StreamHandler, max_bytes: int, peers: frozenset[str] | None) -> Any:  # grpc's own handler type
    async def checked(messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for message in messages:
            if len(message) > max_bytes:
                raise ShoalError(Kind.OVERSIZE, f"a message is {len(message)} bytes long, at most {max_bytes} are taken")
            yield message

    async def guarded(messages: AsyncIterator[bytes], context: Context) -> bytes:
        try:
            async with asyncio.timeout(_enter(context, peers)):
                stream = checked(messages)
                try:
                    return await handler(stream, Call(context))
                except ShoalError:
                    # A refusal that meets a caller who is still writing is lost inside gRPC, which then says INTERNAL: let it finish.
                    async for _ in stream:
                        pass
                    raise
        except BaseException as error:  # the barrier: nothing untyped may pass
            await _refuse(context, error)
            raise  # not reached: abort raises

    return guarded


def _enter(context: Context, peers: frozenset[str] | None) -> float | None:
    """Identity, then deadline. Returns the seconds that we allow where the caller stated no deadline, otherwise None: gRPC keeps it."""
    if peers is not None:
        names = {name.decode("utf-8", "replace") for name in context.auth_context().get("peer_dns", ())}
        if not names & peers:
            raise ShoalError(Kind.FORBIDDEN, "this client certificate may not call this service")
    left = context.time_remaining()
    if left is not None and left < LIMITS.smallest_deadline_s:
        raise ShoalError(Kind.DEADLINE, "too little time is left for this call: use a longer deadline")
    return LIMITS.default_deadline_s if left is None else None


async def _refuse(context: Context, error: BaseException) -> None:
    """End the call with a typed status. Cancellation by the caller passes on; its effects on disk stay."""
    if isinstance(error, asyncio.CancelledError) and context.cancelled():
        raise error
    if isinstance(error, asyncio.CancelledError):
        error = ShoalError(Kind.UNAVAILABLE, "the service is stopping: try again")
    elif isinstance(error, TimeoutError):
        error = ShoalError(Kind.DEADLINE, "the call took too long: try again")
    elif not isinstance(error, ShoalError):
        incident = secrets.token_hex(4)
        log.error("unexpected failure", incident=incident, error=error, where=_where(error))
        error = ShoalError(Kind.INTERNAL, f"internal error, incident {incident}: its operator finds it in the log")
    await context.abort(status_of(error), error.message[:MOST_TEXT], ((KIND_KEY, str(error.kind.value)),))


def _where(error: BaseException) -> str:
    """file:line of the innermost frame: enough to find a bug, and no data."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "unknown" if trace is None else f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
