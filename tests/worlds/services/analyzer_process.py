"""``shoal analyzer serve`` as a process of its own."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shoal.errors import Kind
from tests.worlds.services.analyzer import World, identity
from tests.worlds.services.analyzer_service import Caller

COMMAND = [sys.executable, "-m", "shoal.cli.main", "analyzer", "serve", "--config"]
PATIENCE_S = 60.0  # for a process to end or to say something; only a failing test waits that long


class Analyzer:
    """A running service; ``port`` once it serves."""

    def __init__(self, config: Path) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, str(config)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        self.events: list[dict[str, Any]] = []
        self.port = int(self.until("serving")["port"])

    def until(self, event: str) -> dict[str, Any]:
        """The next log line about ``event``."""
        assert self.process.stderr is not None
        too_long = threading.Timer(PATIENCE_S, self.process.kill)
        too_long.start()
        try:
            for line in self.process.stderr:
                self.events.append(json.loads(line))
                if self.events[-1]["event"] == event:
                    return self.events[-1]
        finally:
            too_long.cancel()
        raise AssertionError(f"ended without {event}: {self.events}")

    def workers(self) -> list[int]:
        """Pids of its children, and theirs."""
        found, todo = [], [self.process.pid]
        while todo:
            pid = todo.pop()
            for thread in Path(f"/proc/{pid}/task").iterdir():
                children = [int(child) for child in (thread / "children").read_text().split()]
                found += children
                todo += children
        return found

    def caller(self) -> Caller:
        return Caller(self.port, identity())

    def end(self, number: signal.Signals) -> int:
        """Send a signal; the exit status. Its last lines are in ``events``."""
        self.process.send_signal(number)
        assert self.process.stderr is not None
        rest = self.process.stderr.readlines()
        self.events += [json.loads(line) for line in rest if line.startswith(b"{")]
        other = [line for line in rest if not line.startswith(b"{")]
        # a helper of Python's outlives a SIGKILL and cleans up after it
        assert not other or number is signal.SIGKILL, other
        status = self.process.wait(PATIENCE_S)
        self.process.stderr.close()
        return status


def wait_gone(pids: list[int]) -> None:
    """Until none of the processes runs any more."""
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            ready, _, _ = select.select([handle], [], [], PATIENCE_S)
            assert ready, f"process {pid} lives on"
        finally:
            os.close(handle)


@contextmanager
def serving(world: World, folder: Path, **changes: str) -> Iterator[Analyzer]:
    """``world`` served from ``folder``; killed at the end if it still runs."""
    analyzer = Analyzer(world.write_config(folder, **changes))
    try:
        yield analyzer
    finally:
        if analyzer.process.poll() is None:
            analyzer.process.kill()
            analyzer.process.wait(PATIENCE_S)
        if analyzer.process.stderr is not None:
            analyzer.process.stderr.close()


def refused_start(config: Path) -> tuple[int, str]:
    """Exit status and what was printed by a service that does not start."""
    done = subprocess.run(
        [*COMMAND, str(config)], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert "Traceback" not in done.stderr
    assert Kind.INTERNAL.name not in done.stderr
    return done.returncode, done.stderr
