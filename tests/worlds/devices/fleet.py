"""Tasks and plans for a simulated fleet, and a clock that moves by hand."""

from __future__ import annotations

import multiprocessing
import time

from shoal.clients.fleet.plan import SimulationPlan
from shoal.clients.fleet.share import SimulatedTask
from shoal.crypto.hpke import generate
from shoal.crypto.signing import SigningKey
from shoal.crypto.suites import SuiteId
from shoal.domain import Numeric, YesNo
from tests.worlds.devices.clients import VISITS, FarEnd, World, make_world

HOUR = 3_600


def worlds_at(far: FarEnd) -> list[World]:
    """Three tasks of one authority behind one hop key."""
    authority, hop = SigningKey.generate(), generate(SuiteId.X25519_AES128)
    far.hops[:] = [hop]
    start = int(time.time()) - HOUR // 2
    kinds = (
        ("any", YesNo(), "binary_rr"),
        ("visits", VISITS, "krr"),
        ("mean", Numeric(0, 20, 21), "kmean"),
    )
    return [
        make_world(
            f"localhost:{far.port}",
            name=name,
            domain=domain,
            mechanism=mechanism,
            start=start,
            length=HOUR,
            authority=authority,
            hop=hop,
        )
        for name, domain, mechanism in kinds
    ]


def plan_of(worlds: list[World], devices: int, **changes: object) -> SimulationPlan:
    tasks = tuple(
        SimulatedTask(world.signed_task, world.signed_schedule, tuple(range(devices)))
        for world in worlds
    )
    values: dict[str, object] = {
        "tasks": tasks,
        "authorities": worlds[0].authorities,
        "processes": 2,
        "in_flight": 8,
    }
    # each test knows its own
    return SimulationPlan(**{**values, **changes})  # type: ignore[arg-type]


class HandClock:
    """Time that passes only when somebody sleeps or stalls."""

    def __init__(self) -> None:
        self.time = 1_000.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


def children() -> list[str]:
    return [
        child.name
        for child in multiprocessing.active_children()
        if child.name.startswith("devices-")
    ]
