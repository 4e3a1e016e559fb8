"""A process that gets ready and then does nothing, to be looked at: ``python -m benchmarks.idle WHAT ...``.

WHAT is ``agent CONFIG TASK`` (one report, then it waits for windows to come), ``grpc ADDRESS CA METHOD`` or ``mqtt PORT CA``, the bare
limits: the same libraries and one call. Prints "ready"; ends when its input does. It imports nothing that its subject does not.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path


async def agent(config: str, task: str) -> None:
    """A device after its first report."""
    from shoal.clients import Agent, AgentConfig

    async with Agent(AgentConfig.load(Path(config))) as one:
        outcome = await one.report(task, 1)
        if outcome.state.value != "acked":
            raise RuntimeError(f"the report of the benchmark is {outcome.state.value}: {outcome.message}")
        await until_told()


def _libraries() -> None:
    """What any device must load that keeps a file, randomizes whole arrays or one value, and seals; imported for its weight."""
    import sqlite3
    import tomllib

    import google.protobuf.message
    import numpy
    from cryptography import x509
    from cryptography.hazmat.primitives import hpke
    from cryptography.hazmat.primitives.asymmetric import ed25519, x25519

    del sqlite3, tomllib, google, numpy, x509, hpke, ed25519, x25519


async def bare_grpc(address: str, ca: str, method: str) -> None:
    _libraries()
    import grpc

    credentials = grpc.ssl_channel_credentials(await asyncio.to_thread(Path(ca).read_bytes))
    async with grpc.aio.secure_channel(address, credentials) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
        await call(bytes(512), timeout=30.0)
        await until_told()


async def bare_mqtt(port: str, ca: str) -> None:
    _libraries()
    import ssl

    import aiomqtt

    async with aiomqtt.Client("localhost", int(port), tls_context=ssl.create_default_context(cafile=ca)) as client:
        await client.publish("benchmark", bytes(512), qos=1)
        await until_told()


async def until_told() -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    works: dict[str, Callable[..., Coroutine[None, None, None]]] = {"agent": agent, "grpc": bare_grpc, "mqtt": bare_mqtt}
    asyncio.run(works[sys.argv[1]](*sys.argv[2:]))
