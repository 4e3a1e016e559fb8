"""The demo's services as real processes: started, watched, restarted when they die, stopped, and
never left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from shoal.cli.load.progress import Bars
from shoal.errors import Kind, ShoalError
from shoal.rpc.admin_pages import fetch_status
from shoal.services.parent import signalled_with_parent

_START_S = 60.0  # seconds until a service must be ready, also on a loaded machine
# before a service that does not answer yet is asked again; between two looks at one that did
_AGAIN_S, _LOOK_S = 0.05, 0.2
_STOP_S = 15.0
_RESTARTS = 20


def _stop_with_parent() -> None:
    """In the child, before it becomes the service: no demo leaves processes behind, not even a
    killed one.
    """
    signalled_with_parent(signal.SIGTERM)


class Process:
    """``shoal ROLE serve --config FILE`` with its log in FILE's folder and its pid in NAME.pid (for
    whoever wants to kill it).
    """

    def __init__(self, role: str, config: Path, admin_port: int) -> None:
        self.role, self.config, self.admin_port = role, config, admin_port
        self.restarts = 0
        self._child: subprocess.Popen[bytes] | None = None
        self._told = False  # to stop

    def start(self) -> None:
        """Begin the service; what it prints is appended to its log. ``wait_ready`` says when it
        serves.
        """
        self._told = False
        with (self.config.parent / f"{self.role}.log").open("ab") as log:
            # no threads run in the child before exec
            # our own interpreter and our own arguments
            self._child = subprocess.Popen(  # noqa: S603
                [
                    sys.executable,
                    "-m",
                    "shoal.cli.main",
                    self.role,
                    "serve",
                    "--config",
                    str(self.config),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C goes to the demo, which then stops its services in order
                start_new_session=True,
                preexec_fn=_stop_with_parent,  # noqa: PLW1509
            )
        (self.config.parent / f"{self.role}.pid").write_text(f"{self._child.pid}\n")

    async def ready(self) -> None:
        """Wait until it says that it is. Raises UNAVAILABLE with its own reason why not, or the
        last line of its log, if it ended or takes too long.
        """
        deadline, trouble = time.monotonic() + _START_S, None
        while time.monotonic() < deadline:
            ended = None if self._child is None else self._child.poll()
            # One that a signal ended before it ran is started again: a fork of a process with
            # threads may fail before it becomes anything.
            if self._child is None or (ended is not None and not (ended < 0 and self.revive())):
                raise ShoalError(
                    Kind.UNAVAILABLE,
                    f"the {self.role} did not start (exit status {ended}): {self._last_line()}",
                )
            with contextlib.suppress(ShoalError):
                trouble = (await self.status())["ready"]
                if trouble is None:
                    return
            await asyncio.sleep(_AGAIN_S)
        raise ShoalError(
            Kind.UNAVAILABLE,
            f"the {self.role} was not ready after {_START_S:.0f} s: {trouble or self._last_line()}",
        )

    async def status(self) -> dict[str, Any]:
        """The service's /status. Raises UNAVAILABLE while it is down."""
        return await asyncio.to_thread(fetch_status, self.role, f"127.0.0.1:{self.admin_port}")

    def revive(self) -> bool:
        """Start it again if it died; True if it had. Raises UNAVAILABLE when that doesn't help."""
        if self._child is None or self._child.poll() is None:
            return False
        self.restarts += 1
        if self.restarts > _RESTARTS:
            raise ShoalError(
                Kind.UNAVAILABLE, f"the {self.role} dies again and again: {self._last_line()}"
            )
        self.start()
        return True

    def tell_to_stop(self) -> None:
        """SIGTERM; ``stop`` waits for its end."""
        if self._child is not None and self._child.poll() is None and not self._told:
            self._told = True
            self._child.terminate()

    def stop(self) -> None:
        """SIGTERM, then SIGKILL for one that doesn't go."""
        self.tell_to_stop()
        child, self._child = self._child, None
        if child is None:
            return
        try:
            child.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def _last_line(self) -> str:
        try:
            lines = (self.config.parent / f"{self.role}.log").read_text().strip().splitlines()
        except OSError:
            lines = []
        return lines[-1] if lines else "its log is empty"

    @property
    def pid(self) -> int | None:
        """None before the first start."""
        return self._child.pid if self._child else None


async def supervise(processes: list[Process], say: Callable[[str], None]) -> None:
    """Until cancelled: start again what dies, as an operator's systemd would."""
    while True:
        for process in processes:
            if process.revive():  # one that dies while it starts is met in the next round
                say(f"the {process.role} died and was started again")
        await asyncio.sleep(_LOOK_S)


@asynccontextmanager
async def running(
    services: list[Process], say: Callable[[str], None]
) -> AsyncIterator[asyncio.Task[None]]:
    """The services, ready and watched; stopped in the end, all at once. Gives the watching task: it
    fails if one can't be kept alive.
    """
    guard: asyncio.Task[None] | None = None
    try:
        for service in services:
            service.start()
        for service in services:
            await service.ready()
        guard = asyncio.create_task(supervise(services, say))
        yield guard
    finally:
        if guard is not None:
            guard.cancel()
            with contextlib.suppress(asyncio.CancelledError, ShoalError):
                await guard
        for service in services:
            service.tell_to_stop()
        for service in services:
            service.stop()


async def until(guard: asyncio.Task[None], work: Any) -> Any:
    """The result of ``work``, or the guard's failure if that comes first."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task, guard}, return_when=asyncio.FIRST_COMPLETED)
        if guard.done() and not task.done():
            await guard
        return await task
    finally:
        task.cancel()


def progress_bars(screen: Console) -> Bars:
    """Bars that count and stay on the screen, or lines where it is none."""
    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Bars(*columns, screen=screen)


def cpu_count() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
