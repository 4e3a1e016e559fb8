"""Several shufflers of one task, as real processes on one database: each with its own folder of
keys and data.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from shoal.analyzer.config import AnalyzerConfig
from shoal.analyzer.service import AnalyzerService
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.services.process import DataFolder
from shoal.services.settings import load_settings
from tests.worlds.operations import Site
from tests.worlds.ports import free_port
from tests.worlds.services.analyzer_service import shared_pool
from tests.worlds.services.shuffler import Published, World

PATIENCE_S = 120.0  # only a failing test waits that long


class Replica:
    """One process. ``listen``: where it takes reports; ``events``: its log."""

    def __init__(self, folder: Path, listen: str, failpoints: str = "") -> None:
        self.folder, self.listen = folder, listen
        self.events: list[dict[str, Any]] = []
        self._news = threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "shoal.cli.main", "shuffler", "serve", "--config",
             str(folder / "shuffler.toml")],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "SHOAL_FAILPOINTS": failpoints},
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.events.append(json.loads(line) if line.startswith("{") else {"event": line})
                self._news.notify_all()
        with self._news:
            self.events.append({"event": "(ended)"})
            self._news.notify_all()

    def until(self, event: str) -> None:
        """It has said so."""

        def said() -> bool:
            return any(one["event"] in (event, "(ended)") for one in self.events)

        with self._news:
            assert self._news.wait_for(said, PATIENCE_S), self.events[-10:]
        assert any(one["event"] == event for one in self.events), self.events[-10:]

    def count(self, event: str) -> int:
        """How often it said so."""
        return sum(one["event"] == event for one in self.events)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Its status, after this signal."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """Its status, when it has ended."""
        status = self.process.wait(PATIENCE_S)
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return status


def write_replica(
    world: World, name: str, dsn: str, analyzer_at: str, replicas: int, **changes: object
) -> tuple[Path, str]:
    """A folder like the world's, with its own copies of the keys; where it will listen."""
    folder = world.folder.parent / name
    shutil.copytree(world.folder, folder, ignore=shutil.ignore_patterns("data"))
    (folder / "data").mkdir(mode=0o700)
    (folder / "dsn").touch(mode=0o600)
    (folder / "dsn").write_text(dsn)
    listen = f"127.0.0.1:{free_port()}"
    here = World.__new__(World)
    here.folder, here.authority = folder, world.authority
    store: Mapping[str, object] = {
        "kind": "postgresql",
        "dsn_file": "dsn",
        "replicas": replicas,
        "without_standby": True,
    }
    admin = f"127.0.0.1:{free_port()}"
    here.write_config(analyzer_at, listen=listen, admin_listen=admin, store=store, **changes)
    return folder, listen


@contextmanager
def serving(
    *replicas: tuple[Path, str], failpoints: Mapping[int, str] = {}
) -> Iterator[list[Replica]]:
    """The replicas, serving; killed at the end if they still run."""
    running = [
        Replica(folder, listen, failpoints.get(number, ""))
        for number, (folder, listen) in enumerate(replicas)
    ]
    try:
        for one in running:
            one.until("serving")
        yield running
    finally:
        for one in running:
            if one.process.poll() is None:
                one.end(signal.SIGKILL)


@asynccontextmanager
async def analyzing(site: Site) -> AsyncIterator[AnalyzerStore]:
    """The site's analyzer, in this process."""
    config = load_settings(AnalyzerConfig, site.analyzer_toml())
    with DataFolder(config.data_dir) as folder:
        store = AnalyzerStore(folder / FILE_NAME)
        service = AnalyzerService(config, folder, store, pool=shared_pool())
        await service.start()
        try:
            yield store
        finally:
            await service.stop()
            store.close()


async def released(store: AnalyzerStore, patience_s: float = PATIENCE_S) -> list[Any]:
    """What it has released, as soon as it has released anything."""
    async with asyncio.timeout(patience_s):
        while True:
            if found := list(store.releases()):
                return found
            await asyncio.sleep(0.1)


async def no_keys(folder: Path, published: Published) -> None:
    """No key of window 0 is left in a replica's folder, soon."""
    hop = published.served.keys.hop_keys[0].key_id.hex
    names = f"data/window-keys/{published.task_id.hex}-0.*.key", f"keys/{hop}.key"
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if not _found(folder, names):
                return
            await asyncio.sleep(0.05)


def _found(folder: Path, names: Iterable[str]) -> list[Path]:
    return [one for name in names for one in folder.glob(name)]
