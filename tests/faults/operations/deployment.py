"""Both services as processes of their own that are killed at any moment, devices that send all the
time, and what may have come of it: what was acknowledged is what is counted.

Windows are of the real clock, a few seconds long; they stay open until they are full, so none ends
by time, and every release is of a window whose reports are known here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from shoal.analyzer.results.release_json import decode_release
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.crypto.trust import ServedTask
from shoal.errors import ShoalError
from shoal.ids import TaskId
from shoal.protos.release_pb2 import Release
from tests.faults.operations.fleet import FULL, LENGTH, PATIENCE_S, Fleet, newest
from tests.worlds.operations import Site

SHOAL = [sys.executable, "-m", "tests.faults.operations.child"]
BEGUN, WINDOWS = 2, 240  # windows that have begun at the start; in all
LEAST = 10  # reports of a window that is released
DEVICES = 6
PLAN: dict[str, Any] = {
    "length_s": LENGTH,
    "count": WINDOWS,
    "skew_s": 1,
    "grace_s": 5 * 86_400,
    "min_batch": LEAST,
    "max_batch": FULL,
    "target_epsilon": 4.0,
}


class Deployment(Site):
    """``SERVICES`` by name; each has a folder, a configuration and, while it runs, a process."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.configs = {
            "shuffler": self.shuffler_toml(reload_s=1),
            "analyzer": self.analyzer_toml(),
        }
        analyzer = self.configs["analyzer"]
        text = analyzer.read_text().replace("open_workers = 2", "open_workers = 1\nreload_s = 1")
        analyzer.write_text(text.replace("../shuffler/tasks", "tasks"))  # nothing is shared
        self.share()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.log = (folder / "log").open("ab")

    def share(self) -> None:
        """Give the analyzer the tasks that the shuffler has, and it has not."""
        (self.analyzer_dir / "tasks").mkdir(exist_ok=True)
        for path in self.tasks_dir.iterdir():
            copy = self.analyzer_dir / "tasks" / path.name
            if not copy.exists():
                copy.write_bytes(path.read_bytes())

    def ask(self, **changes: Any) -> Any:
        return super().ask(**{**PLAN, "start_s": int(time.time()) - LENGTH * BEGUN, **changes})

    def now(self) -> int:
        """The newest window that has begun."""
        return newest(self.published.served)

    # --- processes --------------------------------------------------------------------------------

    def start(self, service: str) -> None:
        command = [*SHOAL, service, "serve", "--config", str(self.configs[service])]
        self.processes[service] = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def kill(self, service: str) -> None:
        process = self.processes.pop(service)
        assert process.poll() is None, f"{service} ended by itself: {self.said()}"
        process.kill()
        process.wait(PATIENCE_S)

    def said(self) -> str:
        return (self.root_dir / "log").read_text()[-4_000:]

    async def shoal(
        self, *arguments: str | Path, dies: str = "", after_s: float = 0.0, as_json: bool = True
    ) -> Any:
        """A command: its JSON; None if it was killed, at a point that ``dies`` names or
        ``after_s`` seconds after its start; its one line of failure.
        """
        command = [*SHOAL, *map(str, arguments), *(["--json"] if as_json else [])]
        process = _started(command, f"{dies}=exit@1" if dies else "")
        try:
            out, err = await asyncio.to_thread(process.communicate, None, after_s or PATIENCE_S)
        except subprocess.TimeoutExpired:
            assert after_s, f"{arguments[0]} did not end"
            process.kill()
            await asyncio.to_thread(process.communicate)
            return None
        if process.returncode == -signal.SIGKILL:
            return None
        if process.returncode == 0:
            return json.loads(out) if as_json else ""
        return err.decode()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Fleet]:
        """Both services, and devices that send."""
        for service in self.configs:
            self.start(service)
        try:
            async with self.sending(self.published.served) as fleet:
                yield fleet
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait(PATIENCE_S)
            self.log.close()

    @asynccontextmanager
    async def sending(self, served: ServedTask) -> AsyncIterator[Fleet]:
        """Devices of a task."""
        fleet = Fleet(self.ports[0], served)
        devices = [asyncio.create_task(fleet.device()) for _ in range(DEVICES)]
        try:
            yield fleet
        finally:
            fleet.stopping = True
            done = await asyncio.gather(*devices, return_exceptions=True)
        assert [one for one in done if isinstance(one, BaseException)] == []

    async def trouble(self, fleet: Fleet, rng: random.Random, kills: int) -> None:
        """kill -9 of one service or both, again and again, at a random number of
        acknowledgements.
        """
        for _ in range(kills):
            await fleet.reach(fleet.acks + rng.randrange(1, 2 * FULL))
            victims = rng.choice([["shuffler"], ["analyzer"], ["shuffler", "analyzer"]])
            for service in victims:
                self.kill(service)
            for service in victims:
                self.start(service)

    # --- what came of it --------------------------------------------------------------------------

    def releases(self, task_id: TaskId | None = None) -> dict[int, Release]:
        """By window, as they are signed on the disk."""
        path = self.analyzer_dir / "data" / FILE_NAME
        if not path.exists():
            return {}
        with closing(AnalyzerStore(path, read_only=True)) as store:
            return {
                one.window: decode_release(one.release)
                for one in store.releases()
                if one.task_id == (task_id or self.published.task_id)
            }

    async def released(
        self, windows: set[int], task_id: TaskId | None = None
    ) -> dict[int, Release]:
        """Once all of them are."""
        end = time.monotonic() + PATIENCE_S
        while True:
            found = dict[int, Release]()
            with contextlib.suppress(ShoalError):  # the service is just making it
                found = self.releases(task_id)
            if windows <= found.keys():
                return found
            assert time.monotonic() < end, f"{windows - found.keys()} missing: {self.said()}"
            await asyncio.sleep(0.1)

    async def without_keys(self, gone: set[str]) -> None:
        """Once the analyzer has none of these keys."""
        end = time.monotonic() + PATIENCE_S
        while left := gone & {path.stem for path in (self.analyzer_dir / "keys").iterdir()}:
            assert time.monotonic() < end, f"{left} are not deleted: {self.said()}"
            await asyncio.sleep(0.1)


def _started(command: list[str], failpoints: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "SHOAL_FAILPOINTS": failpoints}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
