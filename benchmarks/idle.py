"""Memory of processes that got ready and then do nothing: an agent after its first report, and the bare libraries after one call.

``python -m benchmarks.idle grpc ADDRESS CA METHOD`` or ``mqtt PORT CA`` is such a bare process: it loads the libraries that a device
can't do without, makes one call or publishes once, prints "ready" and ends when its input does.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_PATIENCE_S = 120.0
LIBRARIES = "import asyncio, ssl, sqlite3, tomllib, numpy, google.protobuf.message, cryptography.x509, cryptography.hazmat.primitives.hpke"


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one process, in MB (1e6 bytes). ``resident``: VmRSS, which counts pages of library files too; ``anonymous``: without those."""

    resident: float
    anonymous: float


def memory(pid: int) -> Memory:
    found: dict[str, float] = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in {"VmRSS", "RssAnon"}:
            found[name] = int(value.split()[0]) * 1024 / 1e6
    return Memory(found["VmRSS"], found["RssAnon"])


def of_bare(*arguments: str) -> Memory:
    """Of a bare process: ``arguments`` as above."""
    with _process("-m", "benchmarks.idle", *arguments) as process:
        if not process.stdout or process.stdout.readline() != "ready\n":
            raise RuntimeError(f"benchmarks.idle {arguments[0]} did not get ready")
        return memory(process.pid)


def of_agent(config: Path) -> Memory:
    """Of ``shoal agent run``, once its first report is acknowledged."""
    with _process("-m", "shoal.cli.main", "agent", "run", "--config", str(config)) as process:
        end = time.monotonic() + _PATIENCE_S
        while process.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
            if _states(config.with_name("outbox.db")) == ["acked"]:
                return memory(process.pid)
        raise RuntimeError("the agent of the benchmark did not deliver its report")


def _states(outbox: Path) -> list[str]:
    try:
        db = sqlite3.connect(f"file:{outbox}?mode=ro", uri=True)
    except sqlite3.Error:
        return []
    try:
        return [str(state) for (state,) in db.execute("SELECT state FROM report")]
    except sqlite3.Error:  # not there yet
        return []
    finally:
        db.close()


@contextmanager
def _process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT, env=environment) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.communicate()


# --- the bare process -------------------------------------------------------------------------------------------------


async def _grpc(address: str, ca: str, method: str) -> None:
    import grpc

    credentials = grpc.ssl_channel_credentials(await asyncio.to_thread(Path(ca).read_bytes))
    async with grpc.aio.secure_channel(address, credentials) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
        await call(bytes(512), timeout=30.0)
        await _until_told()


async def _mqtt(port: str, ca: str) -> None:
    import ssl

    import aiomqtt

    context = await asyncio.to_thread(lambda: ssl.create_default_context(cafile=ca))
    async with aiomqtt.Client("localhost", int(port), tls_context=context) as client:
        await client.publish("benchmark", bytes(512), qos=1)
        await _until_told()


async def _until_told() -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    exec(LIBRARIES)  # noqa: S102 - a constant, above
    works: dict[str, Callable[..., Coroutine[None, None, None]]] = {"grpc": _grpc, "mqtt": _mqtt}
    asyncio.run(works[sys.argv[1]](*sys.argv[2:]))
