"""A console's process: one port, until somebody ends it."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from shoal.errors import Kind, ShoalError
from shoal.rpc.address import is_loopback, parse_address

_CONNECTIONS = 256  # of browsers at once; beyond it 503
_KINDER = 5  # so much the console steps back where a service wants the processor too


def check_address(address: str) -> None:
    """Raises CONFIG for what is no HOST:PORT, and for one beyond this machine."""
    host, _ = parse_address(address, "--listen")
    if not is_loopback(host):
        raise ShoalError(
            Kind.CONFIG,
            "--listen: only a loopback address is allowed without sign-in, for example "
            "127.0.0.1:7450",
        )


def listen(address: str) -> tuple[socket.socket, str]:
    """The bound socket, and the address with the port that it has. Raises PORT_IN_USE, and what
    ``check_address`` does.
    """
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


def serve(app: ASGIApp, bound: socket.socket, ready: Callable[[], None]) -> None:
    """Answer until Ctrl-C or SIGTERM. ``ready``: called once pages are answered."""
    os.nice(_KINDER)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready()

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=2,
    )
    try:
        Server(config).run(sockets=[bound])
    except KeyboardInterrupt:
        pass  # uvicorn raises it again after it has ended cleanly
    finally:
        bound.close()
