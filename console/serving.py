"""A console's process: one port, until somebody ends it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import signal
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from shoal.console.connections import Connection
from shoal.errors import Kind, ShoalError
from shoal.rpc.address import is_loopback, parse_address
from shoal.rpc.renewal import TlsFiles
from shoal.rpc.tls import TlsIdentity

_CONNECTIONS = 256  # of browsers at once; beyond it those that owe a request go, then 503
_FILES = 4_096  # open at once, as far as the system lets us: handshakes that go on are among them
_HANDSHAKE_S = 30.0  # of TLS: that of a far link which loses packets
_RENEW_S = 60.0  # between two looks at the certificate's files
_KINDER = 5  # so much the console steps back where a service wants the processor too


@dataclass(frozen=True)
class Tls:
    """``client_ca``: whose certificates people show; None where none is asked for. Raises
    KEY_FILE.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None
    files: TlsFiles = field(init=False, repr=False)
    context: ssl.SSLContext = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", TlsFiles("tls", self.certificate, self.key))
        object.__setattr__(self, "context", self._made())
        self.files.on_renewal(self._take)

    def _made(self) -> ssl.SSLContext:
        TlsIdentity.load(self.certificate, self.key, self.client_ca)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(self.certificate, self.key)
        if self.client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.client_ca)
        return context

    def _take(self, _: TlsIdentity) -> None:
        """From the next handshake on."""
        self.context.load_cert_chain(self.certificate, self.key)


def check_address(address: str) -> None:
    """Raises CONFIG for what is no HOST:PORT, and for one beyond this machine."""
    host, _ = parse_address(address, "--listen")
    if not is_loopback(host):
        raise ShoalError(
            Kind.CONFIG,
            "--listen: only a loopback address is allowed without sign-in, for example "
            "127.0.0.1:7450: beyond it give --config with [tls], and [certificates] or [oidc]",
        )


def listen(address: str, *, known: bool = False) -> tuple[socket.socket, str]:
    """The bound socket, and the address with the port that it has. ``known``: people sign in.
    Raises PORT_IN_USE, and what ``check_address`` does.
    """
    if not known:
        check_address(address)
    host, port = parse_address(address, "--listen")
    name = host.strip("[]")
    try:
        family = socket.AF_INET6 if ":" in name else socket.AF_INET
        bound = socket.create_server((name, port), family=family, backlog=256)
    except OSError as error:
        why = (
            "another process has the port"
            if error.errno == errno.EADDRINUSE
            else error.strerror or "not possible"
        )
        raise ShoalError(
            Kind.PORT_IN_USE,
            f"--listen: cannot listen on {address}: {why}: choose another port (0 takes any)",
        ) from None
    return bound, f"{host}:{bound.getsockname()[1]}"


class _Server(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        bound: socket.socket,
        tls: Tls | None,
        ready: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._bound, self._tls, self._ready = bound, tls, ready
        self._renewing: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """With limits of TLS handshakes that uvicorn has none of."""
        await super().startup([])
        loop = asyncio.get_running_loop()
        self.servers.append(
            await loop.create_server(
                lambda: Connection(self.config, self.server_state, self.lifespan.state),
                sock=self._bound,
                ssl=None if self._tls is None else self._tls.context,
                ssl_handshake_timeout=None if self._tls is None else _HANDSHAKE_S,
            )
        )
        if self._tls is not None:
            self._renewing = asyncio.create_task(_renew(self._tls.files))
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        if self._renewing is not None:
            self._renewing.cancel()
        await super().shutdown(sockets)


async def _renew(files: TlsFiles) -> None:
    while True:
        await asyncio.sleep(_RENEW_S)
        await asyncio.to_thread(files.look)


def serve(
    app: ASGIApp, bound: socket.socket, ready: Callable[[], None], tls: Tls | None = None
) -> None:
    """Answer until Ctrl-C or SIGTERM. ``ready``: called once pages are answered."""
    os.nice(_KINDER)
    _more_files()
    # uvicorn raises a signal again after it has ended cleanly: of SIGTERM we would die before ours
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        server(app, bound, ready, tls).run()
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
        bound.close()


def server(
    app: ASGIApp,
    bound: socket.socket,
    ready: Callable[[], None],
    tls: Tls | None = None,
    limit: int = _CONNECTIONS,
) -> uvicorn.Server:
    """To be run; ``limit``: of connections."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # what a proxy says of somebody is nobody's proof
        lifespan="off",
        ws="none",
        limit_concurrency=limit,
        timeout_graceful_shutdown=2,
    )
    return _Server(config, bound, tls, ready)


def _more_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
