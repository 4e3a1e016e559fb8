"""The bare limit of a call: a grpc.aio server over TLS that answers each request with its own
bytes. ``python -m benchmarks.echo FOLDER``.

Same TLS certificate, same event loop as the services, none of their code. Prints its port; ends
when its input does.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import grpc
import uvloop

METHOD = "/benchmarks.Echo/Echo"


async def _echo(request: bytes, _: Any) -> bytes:
    return request


async def serve(folder: Path) -> None:
    """``folder`` holds tls.key and tls.pem."""
    server = grpc.aio.server()
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(_echo)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("benchmarks.Echo", {"Echo": handler}),)
    )
    pair = ((folder / "tls.key").read_bytes(), (folder / "tls.pem").read_bytes())
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    await server.start()
    print(port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(None)


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1])))
