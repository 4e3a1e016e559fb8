"""A simulation over workers on other machines: the engine of ``shoal plan --simulate --engine``.

Stretches go to whoever has room, as ranges of a batch do (``engine``). A lost worker's stretches
start over at another one; what a worker answers for other devices than it was asked for counts
nothing, and ends the simulation with its name.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import aclosing
from itertools import islice

from shoal.analyzer.machines.cluster import IN_FLIGHT, Cluster
from shoal.analyzer.machines.connection import WorkerConnection
from shoal.analyzer.machines.messages import Ask
from shoal.analyzer.machines.rehearsing import order_of, stretch_of, tallies_from
from shoal.analyzer.planner.simulation.stretches import Done, Rehearsal, Stretch
from shoal.domain import Domain


class SimulatingMachines:
    """``domain``: of what is simulated."""

    def __init__(self, cluster: Cluster, domain: Domain) -> None:
        self._cluster, self._domain = cluster, domain

    def tallies(self, work: Rehearsal, stretches: Iterable[Stretch]) -> Generator[Done]:
        """See ``Engine.tallies``. Workers go on while the caller has a result. Raises UNAVAILABLE
        if there is no worker, MISMATCH if one lies, and what one refuses.
        """
        found = self.over(work, stretches)

        async def following() -> Done | None:
            return await anext(found, None)

        with asyncio.Runner() as runner:
            try:
                while (done := runner.run(following())) is not None:
                    yield done
            finally:
                runner.run(_closed(found))

    async def over(self, work: Rehearsal, stretches: Iterable[Stretch]) -> AsyncGenerator[Done]:
        """The same, in a loop that runs."""
        order, left = order_of(work, self._domain), iter(stretches)
        under_way = set[asyncio.Task[Done]]()
        async with self._cluster.used():
            try:
                while True:
                    # one more than they have: a worker has the next one when it has done one
                    room = (IN_FLIGHT + 1) * max(self._cluster.size, 1) - len(under_way)
                    for stretch in islice(left, max(room, 0)):
                        under_way.add(asyncio.create_task(self._one(order, work, stretch)))
                    if not under_way:
                        return
                    done, under_way = await asyncio.wait(
                        under_way, return_when=asyncio.FIRST_COMPLETED
                    )
                    for one in done:
                        yield one.result()
            finally:
                for task in under_way:
                    task.cancel()
                await asyncio.gather(*under_way, return_exceptions=True)

    async def _one(self, order: bytes, work: Rehearsal, stretch: Stretch) -> Done:
        async def ask(worker: WorkerConnection) -> object:
            return await worker.ask(Ask.SIMULATE, order, stretch_of(stretch))

        return await self._cluster.ask_one(
            ask, lambda answer: (stretch, tallies_from(answer, work, stretch))
        )


async def _closed(found: AsyncGenerator[Done]) -> None:
    async with aclosing(found):
        pass
    for _ in range(3):  # connections that were aborted are closed in the loop's next turns
        await asyncio.sleep(0)
