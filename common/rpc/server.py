"""The only way to make a gRPC server: TLS or refuse, bytes in and bytes out, every failure typed,
no exception text to peers.

Handlers get raw bytes and parse them with ``shoal.codec``, so malformed input is INVALID_ARGUMENT
(the library's own parsing would answer UNKNOWN). Around each handler stand, outermost first: the
barrier (ShoalError -> its status; anything else -> INTERNAL with an incident number and nothing
more), a slot (``admission``), the identity check (services with ``peers`` answer only to client
certificates that carry an allowed name), the backlog, the time in which the message must come, room
for its bytes, the size limit of the method, the deadline. All of it begins with the call's headers,
before there is a message: who sends none, or half of one, holds a slot for a while and nothing
else. Nothing here or in a handler learns a peer's address: connections are told apart by a keyed
hash of it while they have calls open, and the hash goes nowhere else.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import grpc

from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.log import get_log
from shoal.rpc.address import is_loopback, parse_address
from shoal.rpc.admission import CallAdmission, Slot, busy
from shoal.rpc.backlog import Backlog
from shoal.rpc.call import Call
from shoal.rpc.deadlines import Limit
from shoal.rpc.health import HEALTH, Health
from shoal.rpc.status import KIND_KEY, MOST_TEXT, RETRY_KEY, status_of
from shoal.rpc.tls import TlsIdentity

log = get_log("rpc")
Context = grpc.aio.ServicerContext[Any, Any]


Handler = Callable[[bytes, Call], Awaitable[bytes]]
StreamHandler = Callable[[AsyncIterator[bytes], Call], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class Method:
    """A unary method (``handler``) or one that takes a stream of messages (``stream_handler``);
    sizes in bytes per message.

    ``longest_s``: seconds that a call may take once its message has come, for a stream from its
    beginning; 0: LIMITS.longest_call_s, for a stream LIMITS.longest_stream_s. ``backlog``: where
    the calls of a unary method wait for their turn.
    """

    max_bytes: int
    handler: Handler | None = None
    stream_handler: StreamHandler | None = None
    longest_s: float = 0.0
    backlog: Backlog | None = None

    def __post_init__(self) -> None:
        if (self.handler is None) == (self.stream_handler is None):
            raise ShoalError(Kind.CONFIG, "a method has either a handler or a stream_handler")
        if not self.longest_s:
            longest = LIMITS.longest_call_s if self.handler is not None else LIMITS.longest_stream_s
            object.__setattr__(self, "longest_s", longest)

    @property
    def reading_s(self) -> float:
        """Seconds in which a message must have come, from when the call came or the message before
        it.
        """
        return LIMITS.read_s + self.max_bytes / LIMITS.slowest_bytes_s


@dataclass(frozen=True, slots=True)
class Service:
    """A full service name and its methods. ``peers``: names (DNS, in a client certificate) that may
    call; None: anybody.
    """

    name: str
    methods: Mapping[str, Method]
    peers: frozenset[str] | None = None


def _options(max_bytes: int) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", max_bytes + 1024),
        ("grpc.max_send_message_length", LIMITS.reply_bytes + 1024),
        ("grpc.max_allowed_incoming_connections", LIMITS.connections),
        ("grpc.max_concurrent_streams", LIMITS.concurrent_streams),
        # What may come of a message that nobody has asked for yet. With probes of the bandwidth
        # gRPC would make that megabytes.
        ("grpc.http2.lookahead_bytes", LIMITS.lookahead_bytes),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.max_metadata_size", LIMITS.metadata_bytes),
        ("grpc.absolute_max_metadata_size", LIMITS.metadata_bytes),
        ("grpc.keepalive_time_ms", int(LIMITS.keepalive_s * 1000)),
        ("grpc.keepalive_timeout_ms", int(LIMITS.keepalive_timeout_s * 1000)),
        ("grpc.http2.ping_timeout_ms", int(LIMITS.keepalive_timeout_s * 1000)),
        ("grpc.http2.min_ping_interval_without_data_ms", LIMITS.ping_interval_s * 1000),
        ("grpc.keepalive_permit_without_calls", 0),
        ("grpc.max_connection_idle_ms", LIMITS.server_idle_s * 1000),
        ("grpc.max_connection_age_ms", LIMITS.connection_age_s * 1000),
        ("grpc.max_connection_age_grace_ms", LIMITS.connection_grace_s * 1000),
        ("grpc.server_handshake_timeout_ms", LIMITS.handshake_s * 1000),
        ("grpc.so_reuseport", 0),  # a second server must fail to bind, not take half of the traffic
        ("grpc.enable_channelz", 0),
        (
            "grpc.per_message_decompression",
            0,
        ),  # no decompression bombs, no lengths that depend on content ...
        (
            "grpc.compression_enabled_algorithms_bitset",
            1,
        ),  # ... and who compresses all the same is told UNIMPLEMENTED
    ]


class RpcServer:
    """A gRPC server at ``address`` (port 0: any free one). ``tls`` None needs insecure=True and a
    loopback address.

    ``grpc.health.v1.Health/Check`` is served beside the services, to whom any of them is.
    """

    def __init__(
        self,
        address: str,
        services: list[Service],
        tls: TlsIdentity | None,
        *,
        insecure: bool = False,
    ) -> None:
        host, _ = parse_address(address, "listen")
        if tls is None and not (insecure and is_loopback(host)):
            raise ShoalError(
                Kind.CONFIG,
                "a server without TLS is allowed on a loopback address alone, and only when asked "
                "for by name",
            )
        if any(service.peers is not None for service in services) and (
            tls is None or tls.client_ca is None
        ):
            raise ShoalError(
                Kind.CONFIG,
                "a service for named peers wants TLS and the CA of the peers' certificates "
                "(client_ca)",
            )
        if len({service.name for service in services}) != len(services):
            raise ShoalError(Kind.CONFIG, "a gRPC service is registered twice")
        self._address, self._services, self._tls = address, services, tls
        self._shown = tls  # what gRPC was given last
        self._server: grpc.aio.Server | None = None
        self.health = Health({service.name for service in services})
        self.admission = CallAdmission()

    async def start(self) -> int:
        """Bind and serve; returns the port. Raises PORT_IN_USE, KEY_FILE."""
        largest = max(
            method.max_bytes for service in self._services for method in service.methods.values()
        )
        server = grpc.aio.server(options=_options(largest), compression=None)
        for service in (*self._services, self._checks()):
            server.add_generic_rpc_handlers((_generic(service, self.admission),))
        try:
            port = self._bind(server)
        except (RuntimeError, ValueError):
            await server.stop(None)
            raise ShoalError(
                Kind.PORT_IN_USE,
                f"cannot listen on {self._address}: another process has the port, or the address "
                "is not ours",
            ) from None
        if port == 0:
            raise ShoalError(Kind.PORT_IN_USE, f"cannot listen on {self._address}")
        await server.start()
        self._server = server
        return port

    def _checks(self) -> Service:
        named = [service.peers for service in self._services if service.peers is not None]
        everybody = len(named) < len(self._services) or not named
        peers = None if everybody else frozenset[str]().union(*named)
        return Service(
            HEALTH, {"Check": Method(LIMITS.health_bytes, handler=self.health.check)}, peers
        )

    def _bind(self, server: grpc.aio.Server) -> int:
        if self._tls is None:
            return server.add_insecure_port(self._address)
        credentials = grpc.dynamic_ssl_server_credentials(
            _certificates(self._tls),
            cast(Any, self._newer),  # the stubs don't know of None
            require_client_authentication=self._tls.client_ca is not None,
        )
        return server.add_secure_port(self._address, credentials)

    def renew(self, tls: TlsIdentity) -> None:
        """Show this certificate, and trust these clients, from the next handshake on. Connections
        that stand go on. Raises CONFIG where the server did not begin with the same kind.
        """
        before = self._tls
        if before is None or (before.client_ca is None) != (tls.client_ca is None):
            raise ShoalError(
                Kind.CONFIG, "whether clients show certificates is decided when a server starts"
            )
        self._tls = tls

    def _newer(self) -> grpc.ServerCertificateConfiguration | None:
        """Asked by gRPC at every handshake, in its own threads: None means what was given last.
        Made anew for each that gets one: gRPC takes it apart.
        """
        newest = self._tls
        if newest is None or newest is self._shown:
            return None
        self._shown = newest
        return _certificates(newest)

    async def stop(self, grace_s: float = LIMITS.drain_s) -> None:
        """Take no new calls, let open ones finish for ``grace_s`` seconds."""
        if self._server is not None:
            self.health.stopping = True
            await self._server.stop(grace_s)
            self._server = None


def _certificates(tls: TlsIdentity) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(tls.key, tls.certificate)], root_certificates=tls.client_ca
    )


def _generic(service: Service, admission: CallAdmission) -> grpc.GenericRpcHandler:
    """All methods are streams of messages to gRPC: a unary one would get its handler, and its time
    limit, with its message alone.
    """
    handlers: dict[str, Any] = {}
    for name, method in service.methods.items():
        serve = _unary(method, method.handler) if method.handler is not None else _stream(method)
        handlers[name] = grpc.stream_unary_rpc_method_handler(
            _guarded(serve, service.peers, method, admission)
        )
    return grpc.method_handlers_generic_handler(service.name, handlers)


Serve = Callable[[AsyncIterator[bytes], Context, "Slot", Limit], Awaitable[bytes]]


def _guarded(
    serve: Serve, peers: frozenset[str] | None, method: Method, admission: CallAdmission
) -> Any:  # grpc's own handler type
    async def guarded(messages: AsyncIterator[bytes], context: Context) -> bytes:
        slot: Slot | None = None
        try:
            slot = admission.enter(_connection(context))
            _enter(context, peers)
            if method.backlog is not None:
                method.backlog.look(slot.who)
            with admission.deadlines.within(method.reading_s) as limit:
                return await serve(messages, context, slot, limit)
        except BaseException as error:  # the barrier: nothing untyped may pass
            await _refuse(
                context,
                busy()
                if slot is not None and slot.displaced and isinstance(error, TimeoutError)
                else error,
            )
            raise  # not reached: abort raises

    return guarded


def _unary(method: Method, handler: Handler) -> Serve:
    max_bytes, backlog = method.max_bytes, method.backlog

    async def serve(_: AsyncIterator[bytes], context: Context, slot: Slot, limit: Limit) -> bytes:
        slot.reserve(max_bytes, limit)
        request = await context.read()
        if not isinstance(request, bytes):
            raise ShoalError(Kind.INVALID, "the call brought no message")
        if len(request) > max_bytes:
            raise ShoalError(
                Kind.OVERSIZE,
                f"the request is {len(request)} bytes long, at most {max_bytes} are taken",
            )
        slot.keep(len(request))
        allowed = _allowed(context, method.longest_s)
        limit.move(asyncio.get_running_loop().time() + allowed)
        if backlog is None:
            return await handler(request, Call(allowed))
        with backlog.admit(slot.who, len(request)):
            return await handler(request, Call(allowed))

    return serve


def _stream(method: Method) -> Serve:
    handler, max_bytes = method.stream_handler, method.max_bytes

    async def many(
        messages: AsyncIterator[bytes], context: Context, slot: Slot, limit: Limit
    ) -> bytes:
        loop = asyncio.get_running_loop()
        allowed = _allowed(context, method.longest_s)
        last = loop.time() + allowed

        async def checked() -> AsyncIterator[bytes]:
            limit.move(min(last, loop.time() + method.reading_s))
            async for message in messages:
                limit.move(last)
                if len(message) > max_bytes:
                    raise ShoalError(
                        Kind.OVERSIZE,
                        f"a message is {len(message)} bytes long, at most {max_bytes} are taken",
                    )
                yield message
                limit.move(min(last, loop.time() + method.reading_s))
            limit.move(last)

        assert handler is not None  # noqa: S101 - of a method without ``handler``, see Method
        slot.reserve(max_bytes, limit)
        slot.keep(max_bytes)  # a stream comes in pieces, from a named peer: it need not make way
        stream = checked()
        try:
            return await handler(stream, Call(allowed))
        except ShoalError:
            # A refusal that meets a caller who is still writing is lost inside gRPC, which then
            # says INTERNAL: let it finish.
            async for _ in messages:
                pass
            raise

    return many


def _connection(context: Context) -> str:
    """Stands for the connection while it lasts: a hash under a key of this process, which nothing
    keeps beyond the call.
    """
    return f"{hash(context.peer()):x}"


def _enter(context: Context, peers: frozenset[str] | None) -> None:
    """Identity, then deadline."""
    if peers is not None:
        names = {
            name.decode("utf-8", "replace") for name in context.auth_context().get("peer_dns", ())
        }
        if not names & peers:
            raise ShoalError(Kind.FORBIDDEN, "this client certificate may not call this service")
    left = context.time_remaining()
    if left is not None and left < LIMITS.smallest_deadline_s:
        raise ShoalError(
            Kind.DEADLINE, "too little time is left for this call: use a longer deadline"
        )


def _allowed(context: Context, longest_s: float) -> float:
    """Seconds that a call has from now on. gRPC ends it too at the deadline that the caller
    stated.
    """
    left = context.time_remaining()
    return min(LIMITS.default_deadline_s if left is None else left, longest_s)


async def _refuse(context: Context, error: BaseException) -> None:
    """End the call with a typed status. Cancellation by the caller passes on; its effects on disk
    stay.
    """
    if isinstance(error, asyncio.CancelledError) and context.cancelled():
        raise error
    if isinstance(error, asyncio.CancelledError):
        error = ShoalError(Kind.UNAVAILABLE, "the service is stopping: try again")
    elif isinstance(error, TimeoutError):
        error = ShoalError(Kind.DEADLINE, "the call took too long: try again")
    elif not isinstance(error, ShoalError):
        incident = secrets.token_hex(4)
        log.error("unexpected failure", incident=incident, error=error, where=_where(error))
        error = ShoalError(
            Kind.INTERNAL, f"internal error, incident {incident}: its operator finds it in the log"
        )
    trailers = [(KIND_KEY, str(error.kind.value))]
    if error.retry_after_s > 0:
        trailers.append((RETRY_KEY, str(math.ceil(error.retry_after_s * 1000))))
    await context.abort(status_of(error), error.message[:MOST_TEXT], tuple(trailers))


def _where(error: BaseException) -> str:
    """file:line of the innermost frame: enough to find a bug, and no data."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return (
        "unknown"
        if trace is None
        else f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
    )
