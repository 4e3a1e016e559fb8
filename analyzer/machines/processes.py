"""The two processes that an operator starts for workers on other machines: the scheduler, where
they meet the analyzer, and the worker.
"""

from __future__ import annotations

import asyncio
import ctypes
import resource
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from shoal.analyzer.machines.comms import CONNECT_S, MachineTls, connect, disarm
from shoal.analyzer.machines.scheduler import MeetingPlace
from shoal.analyzer.machines.worker import OpeningWorker, WorkerSettings
from shoal.clocks.backoff import Backoff
from shoal.errors import Kind, ShoalError
from shoal.log import get_log
from shoal.services.process import run_service

log = get_log("machines")
_PR_SET_DUMPABLE = 4  # prctl(2)
_MIB = 1 << 20
_AGAIN = Backoff(1.0, 30.0)  # between two attempts to find the scheduler


def run_scheduler(listen: str, tls: MachineTls) -> None:
    """Until SIGTERM or SIGINT. Raises CONFIG, PORT_IN_USE."""
    disarm()
    harden(None)

    async def main(stop: asyncio.Event) -> None:
        place = MeetingPlace(listen, tls)
        try:
            await place
        except OSError as error:
            raise ShoalError(
                Kind.PORT_IN_USE,
                f"the scheduler can't listen on {listen} ({error.strerror or 'no such address'}): "
                "choose another address",
            ) from None
        log.info("scheduler serving", port=place.port)
        try:
            await stop.wait()
        finally:
            await place.close()

    run_service(main)


def run_worker(settings: WorkerSettings, memory_mib: int | None) -> None:
    """Until SIGTERM or SIGINT; a scheduler that goes is waited for. ``memory_mib``: of data, for
    this process. Raises CONFIG.
    """
    disarm()
    harden(memory_mib)
    security = settings.tls.security()

    async def one(stop: asyncio.Event, scratch: Path) -> None:
        """A worker from when the scheduler is there to when it goes."""
        (await connect(settings.scheduler, security)).abort()
        worker = OpeningWorker(replace(settings, scratch=scratch))
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait_for(worker, CONNECT_S)
            log.info("worker serving", port=worker.port)
            ended = asyncio.create_task(_end_of(worker))
            await asyncio.wait({stopped, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            await worker.end_now()

    async def main(stop: asyncio.Event) -> None:
        failures = 0
        while not stop.is_set():
            with tempfile.TemporaryDirectory(prefix="shoal-worker-") as scratch:
                try:
                    await one(stop, Path(scratch))
                    failures = 0
                except (TimeoutError, ShoalError, OSError, ValueError) as error:
                    failures += 1
                    log.warning("no scheduler: will be tried again", error=error)
            if not stop.is_set():
                try:
                    await asyncio.wait_for(stop.wait(), _AGAIN.length(max(failures, 1)))
                except TimeoutError:
                    continue

    run_service(main)


async def _end_of(worker: Any) -> None:
    await worker.finished()


def harden(memory_mib: int | None) -> None:
    """No core dumps; on Linux, no other process of this user reads this one's memory."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_mib is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (memory_mib * _MIB,) * 2)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
