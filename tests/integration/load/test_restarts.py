"""A fleet over MQTT and one over gRPC into the same window, while the broker and the shuffler die
and come back: an exact count.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from shoal.clients.fleet.misbehaviour import Carrier, Shares
from shoal.clients.fleet.plan import Progress, SimulationPlan
from shoal.clients.fleet.simulator import simulate
from tests.sizes import size
from tests.worlds.mqtt.broker import Broker
from tests.worlds.services.load import LoadSite, counts_of

DEVICES = size(100, 1_000)  # over each way


async def test_nothing_is_lost_or_doubled_while_broker_and_shuffler_die_twice(
    tmp_path: Path,
) -> None:
    """Every tenth device sends everything three times. Each death comes when another part of the
    reports is there, so that some are always under way. Planted: a shuffler that answers before its
    store is durable, or a device that seals anew -> counts differ.
    """
    site = LoadSite.at(tmp_path / "site")
    task = site.add("restarts", 2 * DEVICES)
    done = {Carrier.GRPC: 0, Carrier.MQTT: 0}
    moved = asyncio.Event()

    def look(way: Carrier, now: Progress) -> None:
        done[way] = now.done
        moved.set()

    async def until(part: float) -> None:
        while sum(done.values()) < part * 2 * DEVICES:
            moved.clear()
            await moved.wait()

    async with Broker(tls=False) as broker:
        site.through(broker.settings)
        async with site.running() as (_, shuffler):
            common = SimulationPlan(
                (task.simulated(DEVICES),),
                site.authorities,
                processes=1,
                channels=1,
                in_flight=8,
                over_s=size(8, 40),
                patience_s=240.0,
                deadline_s=2.0,
                shares=Shares(duplicates=0.1),
            )
            plans = {Carrier.GRPC: common, Carrier.MQTT: common.over(broker.settings)}
            fleets = [
                asyncio.create_task(simulate(plan, partial(look, way)))
                for way, plan in plans.items()
            ]
            for part in (0.15, 0.5):
                await until(part)
                await broker.kill()
                await broker.start()
                await until(part + 0.15)
                assert shuffler.pid is not None
                shuffler.kill()
                assert shuffler.revive()
            results = await asyncio.gather(*fleets)
            counted = await counts_of(site, task)
    for result in results:
        assert (result.surprises, result.refused) == ({}, {})
    acked, unknown = (
        sum(values)
        for values in zip(*((result.acked, result.unknown) for result in results), strict=True)
    )
    assert acked <= counted.n <= acked + unknown
    assert (counted.n, counted.rejected) == (2 * DEVICES, 0)
