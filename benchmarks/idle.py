"""Memory of processes that got ready and then do nothing: an agent after its first report, and the
bare libraries after one call.

All of them find their modules compiled, as an installed package has them: compiling leaves
megabytes behind in the process that does it.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_PATIENCE_S = 120.0
_LOADED = (
    "benchmarks.bare, grpc, paho.mqtt.client, shoal.cli.agent.command, shoal.cli.agent.light, "
    "shoal.clients.feeds.grpc_feed, shoal.clients.feeds.mqtt_feed, "
    "shoal.clients.service.runner, shoal.clients.transports.grpc_transport, "
    "shoal.clients.transports.mqtt_transport, shoal.clients.memory.outbox_sqlite, "
    "shoal.clients.sources.json_file, shoal.mechanisms.categories.krr, "
    "shoal.mechanisms.registry, shoal.accounting.guarantee"
)


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one process, in MB (1e6 bytes). ``resident``: VmRSS, which counts pages of library files
    too; ``anonymous``: without those.
    """

    resident: float
    anonymous: float


def memory(pid: int) -> Memory:
    """What a process holds now, in MB. Raises OSError if it is gone."""
    sizes: dict[str, float] = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in {"VmRSS", "RssAnon"}:
            sizes[name] = int(value.split()[0]) * 1024 / 1e6
    return Memory(sizes["VmRSS"], sizes["RssAnon"])


def compiled(folder: Path | None) -> dict[str, str]:
    """Environment of processes of which ``folder`` keeps the bytecode: that of all that is measured
    here is in it. None: this process's, where it does not matter what is compiled.
    """
    if folder is None:
        return dict(os.environ)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = {**kept, "PYTHONPATH": str(_ROOT), "PYTHONPYCACHEPREFIX": str(folder)}
    subprocess.run(
        [sys.executable, "-c", f"import {_LOADED}"], check=True, cwd=_ROOT, env=environment
    )
    return environment


def of_bare(environment: Mapping[str, str], *arguments: str) -> Memory:
    """Of a bare process: ``arguments`` as ``benchmarks.bare`` takes them."""
    with _process(environment, "-m", "benchmarks.bare", *arguments) as process:
        if not process.stdout or process.stdout.readline() != "ready\n":
            raise RuntimeError(f"benchmarks.bare {arguments[0]} did not get ready")
        return memory(process.pid)


def of_agent(environment: Mapping[str, str], config: Path) -> Memory:
    """Of ``shoal agent run``, once its first report is acknowledged."""
    with _process(
        environment, "-m", "shoal.cli.main", "agent", "run", "--config", str(config)
    ) as process:
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
def _process(environment: Mapping[str, str], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, *arguments]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
        env=environment,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.communicate()
