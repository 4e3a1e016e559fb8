"""A device whose agents ask its owner: what tests of consent and of the ledger have in common."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal.clients.agent import Agent
from shoal.clients.memory.device_memory import Memory
from shoal.clients.memory.ledger import LedgerEntry, LedgerEvent
from shoal.clients.owner.policy import Policy
from shoal.clients.settings.config import AgentConfig
from shoal.clocks.clock import FakeClock
from shoal.entropy import SYSTEM
from shoal.task import Task
from tests.worlds.devices.clients import START, DirectTransport, FarEnd, World

PURPOSE = "to plan clinics"


@dataclass
class Device:
    """A folder with tasks and memory; agents made on it, one after another or side by side, as
    programs of one device are.
    """

    folder: Path
    world: World
    policy: dict[str, Any] = field(default_factory=dict)
    clock: FakeClock = field(default_factory=lambda: FakeClock(START + 100.0))
    config: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.world.write(self.folder / "tasks")
        self.far = FarEnd([self.world.hop])

    @property
    def settings(self) -> AgentConfig:
        fields = {
            "authorities": self.world.authorities,
            "max_epsilon0": 4.0,
            "min_batch_floor": 2,
            "purposes": {PURPOSE: "allowed"},
        }
        policy = Policy(**{**fields, **self.policy})
        return AgentConfig(
            self.folder / "tasks",
            self.folder / "outbox.db",
            policy,
            retry_first_s=0.01,
            retry_most_s=0.01,
            **self.config,
        )

    def agent(self, transport: DirectTransport | None = None, *, background: bool = False) -> Agent:
        way = transport or DirectTransport(self.far)

        def make(task: Task, insecure: bool) -> DirectTransport:
            return way

        return Agent(self.settings, background=background, clock=self.clock, transports=make)

    def entries(self, *events: LedgerEvent) -> list[LedgerEntry]:
        memory = Memory(self.settings, self.clock, SYSTEM)
        try:
            memory.commitments.verify()
            return [
                one.entry
                for one in memory.commitments.entries()
                if not events or one.entry.event in events
            ]
        finally:
            memory.close()


class Hanging(DirectTransport):
    """Takes a frame, says that it has it, and answers only when told to."""

    def __init__(self, far: FarEnd) -> None:
        super().__init__(far)
        self.arrived, self.go = asyncio.Event(), asyncio.Event()
        self.ended: list[str] = []

    async def submit(self, frame: bytes, ack_key: bytes, deadline_s: float) -> bytes:
        self.arrived.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        self.ended.append("sent")
        return await super().submit(frame, ack_key, deadline_s)
