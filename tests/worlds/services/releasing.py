"""Real services that release tasks of several messages: keys, certificates, a shuffler and an
analyzer in processes of their own, and devices that draw, seal and send with the code of real ones.

For measurements: what was released beside what is true, and how many messages were opened for it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.accounting.several_messages.noise_design import design_cancelling
from shoal.accounting.several_messages.of_domain import design_several
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.cli.demo.processes import Process
from shoal.cli.demo.survey import Question
from shoal.cli.demo.workspace import Site, TaskTerms, task_of
from shoal.clients.fleet.misbehaviour import Carrier
from shoal.clients.fleet.plan import SimulationPlan
from shoal.clients.fleet.share import SimulatedTask
from shoal.clients.fleet.simulator import simulate
from shoal.domain import Categories, Domain, Value, YesNo
from shoal.errors import ShoalError
from shoal.ids import TaskId
from shoal.mechanisms.several.names import SIGNED_COUNT
from shoal.mechanisms.several.noise_law import Truth
from shoal.mechanisms.several.parameters import spec_of
from shoal.mechanisms.several.protocol import Noisy
from shoal.mechanisms.several.registry import create
from shoal.task import MechanismSpec

EPSILON, DELTA = 1.0, 1e-6  # central, of every task here
PPM = 1_000_000
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Counting:
    """A question that ``devices`` answer, in ``windows`` tasks of one window each. ``cells``: of
    the domain, no answer among them; 2 for a yes/no that is counted by signs. ``honest_ppm``: of
    the devices. ``s``, ``largest``: of the noise, where it is not what a task file gets.
    """

    name: str
    cells: int
    devices: int
    windows: int
    honest_ppm: int = PPM
    s: float | None = None
    largest: int | None = None

    @property
    def domain(self) -> Domain:
        """Cells with numbers for names; the last one is for no answer."""
        if self.name == SIGNED_COUNT:
            return YesNo()
        count = self.cells - 1
        return Categories(tuple(map(str, range(count))), tuple(range(count)))

    @property
    def honest(self) -> int:
        """Devices that the noise is split over."""
        return self.devices * self.honest_ppm // PPM

    def spec(self) -> MechanismSpec:
        """Its mechanism for (1, 1e-6). Raises CONFIG where there is none."""
        if self.s is None and self.largest is None:
            return design_several(self.name, self.domain, self.honest, EPSILON, DELTA, windows=1)
        law = design_cancelling(
            Truth.CELL, self.cells, self.honest, EPSILON, DELTA, s=self.s, largest=self.largest
        )
        return spec_of(self.name, law)

    def values(self) -> tuple[Value, ...]:
        """Of every device: half of them one answer, the others all of them in turn."""
        if isinstance(self.domain, YesNo):
            return tuple(device % 3 == 0 for device in range(self.devices))
        return tuple(
            0 if device % 2 else (device // 2) % (self.cells - 1) for device in range(self.devices)
        )

    def truth(self) -> NDArray[np.int64]:
        """int64[cells]: how many devices answer each."""
        domain = self.domain
        cells = [domain.encode(value) for value in self.values()]
        return np.bincount(cells, minlength=domain.size)


@dataclass(frozen=True, slots=True)
class Window:
    """A release as JSON, and how many ``rows`` were opened for it."""

    release: dict[str, Any]
    rows: int

    def errors(self, counting: Counting) -> NDArray[np.float64]:
        """float64[cells]: what was released less what is true. Of a yes/no the yes alone: the no is
        what is left of n.
        """
        values = np.array([one["value"] for one in self.release["estimates"]])
        errors: NDArray[np.float64] = values - counting.truth()
        return errors[1:] if counting.name == SIGNED_COUNT else errors


@dataclass(frozen=True)
class Asked:
    """A task of each window, signed and served; ``mechanism``: of all of them."""

    counting: Counting
    mechanism: Noisy
    tasks: tuple[tuple[TaskId, bytes, bytes], ...]


def ask(site: Site, counting: Counting, mechanism: Noisy | None = None) -> Asked:
    """Tasks that lint finds no fault with. ``mechanism``: the one of the tasks if it is another one
    than was designed.
    """
    domain, spec = counting.domain, counting.spec()
    if mechanism is None:
        made = create(spec, domain)
        assert isinstance(made, Noisy)
        mechanism = made
    question = Question("near-central", "How many?", domain, mechanism.spec)
    terms = TaskTerms("measurements", counting.honest_ppm, DELTA, EPSILON)
    task = task_of(question, counting.devices, site, terms)
    tasks = tuple(
        site.add(replace(task, salt=os.urandom(16), name=f"near-central-{window}"))
        for window in range(counting.windows)
    )
    return Asked(counting, mechanism, tasks)


@asynccontextmanager
async def running(site: Site) -> AsyncIterator[tuple[Process, Process]]:
    """(shuffler, analyzer), ready, until the end."""
    shuffler = Process("shuffler", site.shuffler_config, site.shuffler_admin)
    analyzer = Process("analyzer", site.analyzer_config, site.analyzer_admin)
    try:
        for one in (analyzer, shuffler):
            one.start()
        for one in (analyzer, shuffler):
            await one.ready()
        yield shuffler, analyzer
    finally:
        shuffler.stop()
        analyzer.stop()


async def send(site: Site, asked: Asked, *, at_once: int = 8, processes: int = 0) -> None:
    """The answers of all devices to all tasks, to ``at_once`` of them at a time. ``processes``: 0:
    one per core. Raises RuntimeError unless all were acknowledged.
    """
    values = asked.counting.values()
    for start in range(0, len(asked.tasks), at_once):
        tasks = tuple(
            SimulatedTask(signed_task, signed_schedule, values)
            for _, signed_task, signed_schedule in asked.tasks[start : start + at_once]
        )
        authorities = frozenset({site.authority.public})
        plan = SimulationPlan(tasks, authorities, processes=processes, way=Carrier.RELAY)
        result = await simulate(plan)
        if (result.acked, result.refused, result.unknown) != (plan.reports, {}, 0):
            raise RuntimeError(f"{result.acked} of {plan.reports} acknowledged: {result.refused}")


async def windows_of(site: Site, count: int) -> list[Window]:
    """The releases, once there are so many. Raises RuntimeError for one that is withheld or says
    that something was rejected.
    """
    found: list[Window] = []
    while not found:
        await asyncio.sleep(_LOOK_S)
        try:
            store = AnalyzerStore(site.analyzer_data / FILE_NAME, read_only=True)
        except (ShoalError, FileNotFoundError):
            continue
        try:
            found = _windows(store, count)
        finally:
            store.close()
    for one in found:
        if one.release["withheld"] is not None or one.release["rejected"]:
            raise RuntimeError(f"not every report was counted: {one.release['rejected']}")
    return found


def _windows(store: AnalyzerStore, count: int) -> list[Window]:
    stored = store.releases()
    if len(stored) < count:
        return []
    rows = {
        (one.manifest.task_id, one.manifest.window): one.manifest.rows for one in store.batches()
    }
    return [
        Window(to_json(decode_release(one.release)), rows[one.task_id, one.window])
        for one in stored
    ]


async def released(site: Site, asked: Asked, *, processes: int = 0) -> list[Window]:
    """All windows of all tasks, from the devices' draws to the releases."""
    async with running(site):
        await send(site, asked, processes=processes)
        return await windows_of(site, len(asked.tasks))


@dataclass(frozen=True, slots=True)
class Spread:
    """``measured``: the root of the mean square of ``count`` errors, of mean 0. ``expected``: the
    account's. ``uncertain``: the standard error of ``measured``, as a share of it, by the
    cumulants of the law.
    """

    measured: float
    expected: float
    uncertain: float
    count: int

    @property
    def ratio(self) -> float:
        """Measured / expected."""
        return self.measured / self.expected


def spread_of(counting: Counting, mechanism: Noisy, windows: Sequence[Window]) -> Spread:
    """Of all cells of all windows: their noise is independent, and the same law."""
    errors = np.concatenate([one.errors(counting) for one in windows])
    rates = [rate for rate in mechanism.noise.rates() if rate.moves]
    # of a sum of Poisson numbers P of weight j the fourth cumulant is the sum of rate j^4
    second, fourth = (
        sum(rate.weight * rate.size**power for rate in rates) * counting.devices / 2.0**64
        for power in (2, 4)
    )
    uncertain = ((fourth / second**2 + 2.0) / len(errors)) ** 0.5 / 2.0
    expected = mechanism.expected_stderr(counting.devices)
    return Spread(float(np.sqrt(np.mean(errors**2))), expected, uncertain, len(errors))
