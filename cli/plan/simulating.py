"""``shoal plan --simulate``: the production code on made-up devices, here or on other machines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from shoal.analyzer.planner import Frequencies, Plan, Simulation, simulate
from shoal.analyzer.planner.simulation.processes import Processes
from shoal.analyzer.planner.simulation.several import check_messages, simulate_several
from shoal.analyzer.planner.simulation.simulate import MOST_RUNS, Tell, zipf
from shoal.analyzer.planner.simulation.stretches import Engine
from shoal.cli.extras import need
from shoal.cli.output import stderr
from shoal.cli.plan.options import Data
from shoal.domain import Domain
from shoal.entropy import SYSTEM, Entropy, SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.several.registry import create as create_several

if TYPE_CHECKING:
    from shoal.analyzer.machines.cluster import Cluster
    from shoal.analyzer.planner.frontier.option import SeveralOption


@dataclass(frozen=True, slots=True)
class Runs:
    """The options of ``--simulate``, as they were typed; None for those that were left out."""

    count: int | None
    data: Data | None
    seed: int | None
    processes: int | None
    engine: Path | None

    def check(self, asked: object) -> None:
        """Before anything is computed: raises CONFIG."""
        if self.count is not None and not 2 <= self.count <= MOST_RUNS:
            raise ShoalError(
                Kind.CONFIG, f"--simulate wants 2 to {MOST_RUNS} runs, got {self.count}"
            )
        if self.seed is not None and self.count is None:
            raise ShoalError(
                Kind.CONFIG, "--seed goes with --simulate, nothing else is drawn: leave it out"
            )
        for option, given in (("--processes", self.processes), ("--engine", self.engine)):
            if given is not None and self.count is None:
                raise ShoalError(
                    Kind.CONFIG,
                    f"{option} goes with --simulate, nothing else is spread: leave it out",
                )
        if self.engine is not None:
            if self.processes is not None:
                raise ShoalError(
                    Kind.CONFIG,
                    "--processes are of this machine, --engine has workers on others: leave one "
                    "of the two out",
                )
            _cluster(self.engine)
        if self.data is not None and (self.count is None or not isinstance(asked, Frequencies)):
            raise ShoalError(
                Kind.CONFIG,
                "--data goes with --simulate, and with counts, not means: leave it out",
            )

    def check_several(self, option: SeveralOption | None, n: int) -> None:
        """Before anything is simulated: raises CONFIG where ``option``, which is recommended, can't
        be.
        """
        if self.count is None or option is None:
            return
        if self.engine is not None:
            raise ShoalError(
                Kind.CONFIG,
                "--engine simulates one message per device, and several are recommended: leave it "
                "or --several-messages out",
            )
        check_messages(create_several(option.spec, option.domain), n, self.count)

    def simulate(self, made: Plan) -> Simulation | None:
        """What was asked for, if anything was. Raises UNAVAILABLE without processes or workers."""
        if self.count is None:
            return None
        request, candidate = made.request, made.choice.candidate
        with _bar(self.count * request.n) as tell:
            return simulate(
                request.question,
                candidate.build(made.choice.epsilon0),
                candidate.domain,
                request.n,
                self.count,
                shares=self._shares(candidate.domain),
                entropy=self._entropy,
                tell=tell,
                engine=self._engine(candidate.domain),
            )

    def simulate_several(self, made: Plan, option: SeveralOption | None) -> Simulation | None:
        """The same of several messages, where they are recommended."""
        if self.count is None or option is None:
            return None
        request = made.request
        with _bar(self.count * request.n) as tell:
            return simulate_several(
                request.question,
                create_several(option.spec, option.domain),
                option.domain,
                request.n,
                self.count,
                shares=self._shares(option.domain),
                entropy=self._entropy,
                tell=tell,
                engine=self._engine(option.domain),
            )

    @property
    def _entropy(self) -> Entropy:
        return SYSTEM if self.seed is None else SeededEntropy(self.seed)

    def _shares(self, domain: Domain) -> tuple[float, ...]:
        if self.data is None:
            return ()
        return zipf(domain.size) if self.data is Data.zipf else (1.0 / domain.size,) * domain.size

    def _engine(self, domain: Domain) -> Engine:
        if self.engine is not None:
            from shoal.analyzer.machines.simulating import SimulatingMachines

            return SimulatingMachines(_cluster(self.engine), domain)
        cores = min(len(os.sched_getaffinity(0)), 256)
        return Processes(self.processes or cores, ready=self.processes is not None)


def _cluster(path: Path) -> Cluster:
    need("dask")
    need("server")
    from shoal.analyzer.machines.configured import cluster_of_file

    return cluster_of_file(path)


@contextmanager
def _bar(devices: int) -> Iterator[Tell]:
    """A bar on standard error while devices are simulated."""
    columns = (
        TextColumn("simulating batches"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=stderr, transient=True, disable=not stderr.is_terminal
    ) as progress:
        bar = progress.add_task("", total=devices)

        def tell(done: int) -> None:
            progress.advance(bar, done)

        yield tell
