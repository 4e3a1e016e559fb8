"""Two replicas on one database behind a balancer, restarted one after the other under load, as a
StatefulSet of Kubernetes does it: an exact count.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from shoal.clients.fleet.misbehaviour import Carrier, Shares
from shoal.clients.fleet.plan import Progress, SimulationPlan
from shoal.clients.fleet.simulator import simulate
from shoal.errors import Kind
from tests.sizes import size
from tests.worlds import postgres
from tests.worlds.balancer import Balancer
from tests.worlds.ports import free_port
from tests.worlds.services.load import Killable, LoadSite, LoadTask, counts_of

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)
COUNTED = size(300, 20_000)  # the window holds so many
DEVICES = COUNTED + 20  # who comes after them finds it full
STEPS = size(2, 6)  # restarts, of both replicas in turn


def replica(site: LoadSite, number: int, dsn: str) -> tuple[Killable, int]:
    """A shuffler with a folder of its own and copies of the keys; its port for devices."""
    original = site.site.shuffler_config
    folder = original.parent.parent / f"replica-{number}"
    shutil.copytree(original.parent, folder, ignore=shutil.ignore_patterns("*.log", "*.pid"))
    (folder / "dsn").touch(mode=0o600)
    (folder / "dsn").write_text(dsn)
    port, admin = free_port(), site.site.shuffler_admin if number == 1 else free_port()
    text = re.sub(r'(?m)^listen = ".*"$', f'listen = "127.0.0.1:{port}"', original.read_text())
    text = re.sub(r'(?m)^admin_listen = ".*"$', f'admin_listen = "127.0.0.1:{admin}"', text)
    text += '\n[store]\nkind = "postgresql"\ndsn_file = "dsn"\nreplicas = 2\n'
    (folder / original.name).write_text(text)
    return Killable("shuffler", folder / original.name, admin), port


@dataclass
class Deployed:
    """What runs, and how far the load is."""

    site: LoadSite
    task: LoadTask
    replicas: list[tuple[Killable, int]]
    balancer: Balancer
    done: int = 0
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    def look(self, now: Progress) -> None:
        self.done = now.done
        self.moved.set()

    async def until(self, part: float) -> None:
        """So much of the load is done."""
        while self.done < part * DEVICES:
            self.moved.clear()
            await self.moved.wait()

    async def restart(self, number: int) -> None:
        """As a StatefulSet does it."""
        one, port = self.replicas[number]
        self.balancer.leave(port)
        await asyncio.to_thread(one.stop)
        one.start()
        await one.ready()
        self.balancer.back(port)


@asynccontextmanager
async def deployed(folder: Path) -> AsyncIterator[Deployed]:
    """An analyzer, two replicas and a balancer at the task's address, all ready; a database whose
    commits wait for a standby.
    """
    site = LoadSite.at(folder)
    task = site.add("rolling", COUNTED)
    async with AsyncExitStack() as stack:
        server = stack.enter_context(postgres.Server(["fsync = on"]))
        stack.enter_context(server.standby("two", ["fsync = on"]))
        server.wait_for("two")
        dsn = server.database()
        replicas = [replica(site, number, dsn) for number in (1, 2)]
        analyzer = Killable("analyzer", site.site.analyzer_config, site.site.analyzer_admin)
        services = [analyzer, *(one for one, _ in replicas)]
        for one in services:
            stack.callback(one.stop)
            one.start()
        for one in services:
            await one.ready()
        door = int(site.site.shuffler_address.rpartition(":")[2])
        balancer = Balancer(door, [port for _, port in replicas])
        await stack.enter_async_context(balancer.open())
        yield Deployed(site, task, replicas, balancer)


@pytest.mark.parametrize("way", [Carrier.GRPC, Carrier.RELAY])
async def test_a_rolling_restart_loses_nothing_and_counts_nothing_twice(
    tmp_path: Path, way: Carrier
) -> None:
    """Each replica leaves the endpoints, gets SIGTERM, ends, starts, is an endpoint again when it
    is ready; then the next one. Every tenth device sends everything three times. Planted: both
    restarted at once -> connections are refused, fails; a device that draws anew for each attempt
    -> more are counted than devices.
    """
    async with deployed(tmp_path / "site") as here:
        plan = SimulationPlan(
            (here.task.simulated(DEVICES),),
            here.site.authorities,
            processes=1,
            channels=4,
            in_flight=size(8, 32),
            way=way,
            over_s=size(12, 120),
            patience_s=240.0,
            deadline_s=5.0,
            shares=Shares(duplicates=0.1),
        )
        fleet = asyncio.create_task(simulate(plan, here.look))
        for step in range(STEPS):
            await here.until((step + 1) / (STEPS + 2))
            await here.restart(step % 2)
        result = await fleet
        counted = await asyncio.wait_for(counts_of(here.site, here.task), 120)
    balancer = here.balancer
    print(  # noqa: T201 - what docs/KUBERNETES.md tells
        f"\n{way.value}: {DEVICES} devices, {STEPS} restarts, {balancer.opened} connections, "
        f"{balancer.passed_on} passed on, {result.retried} sent again"
    )
    assert (result.surprises, result.unknown) == ({}, 0)
    assert result.refused.keys() <= {Kind.WINDOW_FULL, Kind.WINDOW_CLOSED}
    assert result.acked == COUNTED
    assert (counted.n, counted.rejected) == (COUNTED, 0), "lost or twice"
    assert balancer.refused == 0, "there was always a replica that took connections"
