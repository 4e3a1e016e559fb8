"""``shoal agent run`` as a process of its own, on a device's folder, and a real shuffler for it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal.clients.agent import Agent
from shoal.clients.core import ReportState
from shoal.clients.memory.ledger import LedgerEntry, LedgerEvent
from shoal.clients.settings.config import AgentConfig
from shoal.domain import YesNo
from shoal.mechanisms import create, design
from shoal.shuffler.core import WindowId
from shoal.shuffler.service import Shuffler
from tests.worlds.services import shuffler as shuffler_world
from tests.worlds.services.shuffler import AnalyzerEnd, Published

PATIENCE_S = 60.0  # only a failing test waits that long


def now() -> int:
    return int(time.time())


STARTED: list[asyncio.subprocess.Process] = []  # what a test leaves running is ended after it


@dataclass
class Device:
    """A device's folder and the service on it, started again and again."""

    folder: Path
    authority: bytes
    purposes: dict[str, str] = field(default_factory=lambda: {"testing": "allowed"})
    feeds: str = ""
    send: str = ""
    sources: dict[str, str] = field(default_factory=lambda: {"test": "value.json"})
    process: asyncio.subprocess.Process | None = None
    events: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "tasks").mkdir(parents=True, exist_ok=True)
        (self.folder / "value.json").write_text("1")
        self.write()

    def write(self) -> None:
        purposes = "\n".join(
            f'"{purpose}" = "{answer}"' for purpose, answer in self.purposes.items()
        )
        sources = "\n".join(
            f'[sources.{name}]\nkind = "json"\nfile = "{file}"'
            for name, file in self.sources.items()
        )
        (self.folder / "agent.toml").write_text(
            'tasks = "tasks"\noutbox = "outbox.db"\n[policy]\nauthorities = '
            f'["{self.authority.hex()}"]\nmax_epsilon0 = 4.0\n'
            f"min_batch_floor = 2\n[policy.purposes]\n{purposes}\n[send]\ndeadline_s = "
            "5.0\nretry_first_s = 0.01\nretry_most_s = 0.1\n"
            f"gap_s = 0.01\n{self.send}\n[measure]\nmean_s = 0.01\n{sources}\n{self.feeds}\n"
        )

    @property
    def config(self) -> AgentConfig:
        return AgentConfig.load(self.folder / "agent.toml")

    async def start(self, *arguments: str, failpoints: str = "") -> None:
        self.process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "shoal.cli.main",
                "agent",
                "run",
                "--config",
                str(self.folder / "agent.toml"),
                *arguments,
            ),
            stderr=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            env={**os.environ, "SHOAL_FAILPOINTS": failpoints},
        )
        STARTED.append(self.process)

    async def until(self, event: str) -> dict[str, Any]:
        """The next log line about it."""
        assert self.process is not None
        assert self.process.stderr is not None
        async with asyncio.timeout(PATIENCE_S):
            while line := await self.process.stderr.readline():
                self.events.append(json.loads(line))
                if self.events[-1]["event"] == event:
                    return self.events[-1]
        raise AssertionError(f"ended without {event}: {self.events}")

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        with suppress(ProcessLookupError):
            self.process.send_signal(number)
        return await self.ended()

    async def ended(self) -> int:
        """The exit status. Whatever it said last is in ``events``: JSON lines, and nothing else."""
        assert self.process is not None
        async with asyncio.timeout(PATIENCE_S):
            _, err = await self.process.communicate()
        self.events += [json.loads(line) for line in err.splitlines()]
        status = self.process.returncode
        assert status is not None
        return status

    async def entries(self, *events: LedgerEvent) -> list[LedgerEntry]:
        """Of the ledger, whose chain holds."""
        async with Agent(self.config, background=False) as agent:
            await agent.verify()
            return [one.entry for one in await agent.ledger() if one.entry.event in events]

    async def entered(self, event: LedgerEvent, count: int) -> None:
        """Until the ledger has so many entries of this kind."""

        async def enough() -> bool:
            return len(await self.entries(event)) >= count

        await _until(enough)

    async def delivered(self) -> None:
        """Until its one report is acknowledged."""

        async def acked() -> bool:
            return await self.states() == [ReportState.ACKED]

        await _until(acked)

    async def states(self) -> list[ReportState]:
        async with Agent(self.config, background=False) as agent:
            return [one.state for one in await agent.outcomes()]


async def _until(wanted: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await wanted():  # noqa: ASYNC110 - another process makes it so
            await asyncio.sleep(0.1)  # each look opens the memory


@dataclass
class Place:
    """A shuffler in this process, with one task of three windows, and a device that trusts its
    authority.
    """

    world: shuffler_world.World
    published: Published
    shuffler: Shuffler
    device: Device

    def counted(self, window: int = 0) -> int:
        return self.shuffler.store.distinct(WindowId(self.published.task_id, window))

    async def arrived(self, count: int = 1, window: int = 0) -> None:
        await until(lambda: self.counted(window) >= count)


async def until(wanted: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not wanted():  # noqa: ASYNC110 - another process makes it so
            await asyncio.sleep(0.02)


@asynccontextmanager
async def shuffling(
    folder: Path, port: int, **changes: Any
) -> AsyncIterator[tuple[shuffler_world.World, Published, Shuffler]]:
    world = shuffler_world.World(folder)
    mechanism = design("binary_rr", YesNo(), 3.0)
    made = create(mechanism, YesNo())
    published = world.publish(
        start_s=now() - 600,
        count=3,
        shuffler_address=f"localhost:{port}",
        mechanism=mechanism,
        report_size=made.report_size,
        messages=made.messages,
    )
    analyzer = AnalyzerEnd(world)
    address = await analyzer.start()
    try:
        async with Shuffler(
            world.config(address, listen=f"127.0.0.1:{port}", **changes)
        ) as shuffler:
            yield world, published, shuffler
    finally:
        await analyzer.stop()
