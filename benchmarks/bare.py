"""A process with the libraries that a device can't do without, and nothing of ours.

``python -m benchmarks.bare grpc ADDRESS CA METHOD`` or ``mqtt PORT CA`` loads them as ``shoal
agent`` does, makes one call or publishes once, prints "ready" and ends when its input does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from pathlib import Path

LIBRARIES = (
    "import asyncio, sqlite3, tomllib, google.protobuf.message, cryptography.hazmat.primitives.hpke"
)


async def _grpc(address: str, ca: str, method: str) -> None:
    import asyncio

    import grpc

    credentials = grpc.ssl_channel_credentials(await asyncio.to_thread(Path(ca).read_bytes))
    async with grpc.aio.secure_channel(address, credentials) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
        await call(bytes(512), timeout=30.0)
        await _until_told()


async def _mqtt(port: str, ca: str) -> None:
    import asyncio
    import ssl

    from paho.mqtt.client import Client
    from paho.mqtt.enums import CallbackAPIVersion

    client = Client(CallbackAPIVersion.VERSION2)
    client.tls_set_context(await asyncio.to_thread(lambda: ssl.create_default_context(cafile=ca)))
    await asyncio.to_thread(client.connect, "localhost", int(port))
    client.loop_start()
    try:
        await asyncio.to_thread(client.publish("benchmark", bytes(512), 1).wait_for_publish, 30.0)
        await _until_told()
    finally:
        client.disconnect()
        client.loop_stop()


async def _until_told() -> None:
    import asyncio

    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)


def main(transport: str, *arguments: str) -> None:
    """Idle with a bare connection until killed. ``transport``: grpc or mqtt."""
    from shoal.cli.agent.light import import_asyncio

    import_asyncio()
    exec(LIBRARIES)  # noqa: S102 - a constant, above
    import asyncio

    works: dict[str, Callable[..., Coroutine[None, None, None]]] = {"grpc": _grpc, "mqtt": _mqtt}
    asyncio.run(works[transport](*arguments))


if __name__ == "__main__":
    main(*sys.argv[1:])
