"""A batch opened by two workers that are met through the scheduler, over TLS and sealed from end to
end; against opening the rows alone in as many processes, and against the local worker pool.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import machine, opening
from benchmarks.bench import Bench
from benchmarks.figures import (
    MICROSECONDS,
    RATE,
    Figure,
    Goal,
    Outcome,
    Pairs,
    Sample,
    alternate,
    spread,
)
from benchmarks.raw import Opening, Processes, open_held
from benchmarks.site import WINDOW
from shoal import codec
from shoal.analyzer.batches.chunk_source import FileSource
from shoal.analyzer.batches.opening import Opened, open_batch
from shoal.analyzer.batches.row_opening import RowContext
from shoal.cli.demo.ports import free_port
from shoal.crypto.envelope import report_info
from shoal.crypto.hpke import HpkePrivateKey
from shoal.crypto.keyfiles import load_signing_key, save_private_pem, save_signing_key
from shoal.crypto.signing import SigningKey
from shoal.crypto.suites import parse_config
from shoal.crypto.tlscerts import issue, make_authority
from shoal.ids import TaskId
from shoal.services.workers import WorkerPool

if TYPE_CHECKING:
    from shoal.analyzer.machines.cluster import Cluster

TITLE = "a batch opened by two workers over TLS / opening its rows in two processes"
_WORKERS = 2
_ROWS_PER_TASK = 65_536  # as the analyzer's configuration has it
_PATIENCE_S = 120.0  # for a scheduler and workers to start, on a machine that others use
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Remote:
    """What the process that plays the analyzer is given of the machines."""

    folder: Path
    address: str
    workers: tuple[bytes, ...]
    pids: tuple[int, ...]


@dataclass
class _Analyzer:
    cluster: Cluster
    pids: tuple[int, ...]
    runner: asyncio.Runner = field(default_factory=asyncio.Runner)


_analyzer: _Analyzer | None = None


def run(bench: Bench) -> Outcome:
    """How fast two workers elsewhere open a batch, beside HPKE alone and beside the local pool."""
    reports = bench.pick(300, 100_000, 400_000)
    repetitions = bench.pick(1, 3, 5)
    site = bench.site(reports)
    path = site.rows(bench.pool)
    secret, size = site.analyzer_key.to_raw_secret(), site.recipe.row_size
    config = site.analyzer_key.config
    bare = Opening(
        config.suite, secret, report_info(site.served.task_id, WINDOW, config.key_id), size
    )
    batch = opening.Batch(path, site.recipe.task, site.recipe.analyzer_key, secret, size, _WORKERS)
    openers, analyzer, local = Processes(_WORKERS), WorkerPool(1), WorkerPool(1)
    try:
        with path.open("rb") as file:
            openers.hold("rows", file.read(bench.pick(300, 100_000, 200_000) * size), size)
        with _machines(bench.folder / "machines") as remote:
            analyzer.submit(prepare, remote).result()
            local.submit(opening.prepare, batch).result()
            against_bare = alternate(
                repetitions,
                lambda: openers.run(open_held, "rows", bare),
                lambda: analyzer.submit(opened, batch, reports).result(),
            )
            against_local = alternate(
                repetitions,
                lambda: local.submit(opening.opened, batch, reports).result(),
                lambda: analyzer.submit(opened, batch, reports).result(),
            )
            analyzer.submit(finish).result()
            local.submit(opening.peaks_mb).result()  # ends its workers
    finally:
        for one in (local, analyzer, openers):
            one.close()
    return Outcome(
        _figures(against_bare, against_local),
        (
            f"{reports:,} different sealed reports of {size} bytes in a file, sent to "
            f"{_WORKERS} workers on this machine; connecting to them and lending them the key are "
            "part of each run",
        ),
    )


def _figures(against_bare: Pairs, against_local: Pairs) -> tuple[Figure, ...]:
    remotely = (*against_bare.subjects, *against_local.subjects)
    return (
        Figure("rate", against_bare.rates(), goal=Goal(at_least=0.85)),
        Figure(
            "CPU per report, analyzer and workers",
            against_bare.against(lambda sample: sample.cpu_us),
        ),
        Figure("rate / local pool's", against_local.rates()),
        Figure(
            "CPU per report / local pool's",
            against_local.against(lambda sample: sample.cpu_us),
        ),
        spread("raw opens: rate", against_bare.limits, lambda sample: sample.rate, RATE),
        spread("local pool: rate", against_local.limits, lambda sample: sample.rate, RATE),
        spread("workers over TLS: rate", remotely, lambda sample: sample.rate, RATE),
        spread("raw opens: CPU", against_bare.limits, lambda sample: sample.cpu_us, MICROSECONDS),
        spread(
            "local pool: CPU of parent and workers",
            against_local.limits,
            lambda sample: sample.cpu_us,
            MICROSECONDS,
        ),
        spread(
            "workers over TLS: CPU of analyzer and workers",
            remotely,
            lambda sample: sample.cpu_us,
            MICROSECONDS,
        ),
        spread(
            "CPU of the analyzer alone, per report",
            remotely,
            lambda sample: sample.extra["analyzer_us"],
            MICROSECONDS,
        ),
    )


@contextmanager
def _machines(folder: Path) -> Iterator[Remote]:
    """A scheduler and workers as an operator starts them, and their end."""
    folder.mkdir()
    authority = make_authority("machines")
    (folder / "ca.pem").write_bytes(authority[0])
    address = f"127.0.0.1:{free_port()}"
    analyzer, identity = SigningKey.generate(), SigningKey.generate()
    save_signing_key(folder / "analyzer-signing.key", analyzer)
    save_signing_key(folder / "worker-signing.key", identity)
    began: list[subprocess.Popen[bytes]] = []

    def certificate(name: str) -> list[str]:
        made = issue(authority, name, ["127.0.0.1"], server=True, client=True, days=2)
        (folder / f"{name}.pem").write_bytes(made.cert_pem)
        save_private_pem(folder / f"{name}.key", made.key_pem)
        files = {"--ca": "ca.pem", "--certificate": f"{name}.pem", "--key": f"{name}.key"}
        return [word for option, file in files.items() for word in (option, str(folder / file))]

    def start(name: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "shoal.cli.main", "analyzer", *arguments]
        with (folder / f"{name}.log").open("wb") as log:
            began.append(
                # our own interpreter and our own arguments
                subprocess.Popen(
                    [sys.executable, "-m", "shoal.services.parent", *command, *certificate(name)],
                    stdout=log,
                    stderr=log,
                )
            )

    certificate("analyzer")
    try:
        start("scheduler", "scheduler", "--listen", address)
        for number in range(_WORKERS):
            start(
                f"worker{number}",
                *("worker", "--scheduler", address, "--listen", f"127.0.0.1:{free_port()}"),
                *("--identity", str(folder / "worker-signing.key")),
                *("--analyzer", analyzer.public.hex()),
            )
        pids = tuple(process.pid for process in began[1:])
        yield Remote(folder, address, (identity.public,), pids)
    finally:
        for process in reversed(began):
            process.terminate()
        for process in began:
            process.wait()


# --- in the process that plays the analyzer -------------------------------------------------------


def prepare(remote: Remote) -> None:
    """Wait until all workers are there. Raises RuntimeError if they don't come."""
    global _analyzer  # noqa: PLW0603 - one process, one analyzer
    from shoal.analyzer.machines.cluster import Cluster, ClusterSettings  # the extra [dask]
    from shoal.analyzer.machines.comms import MachineTls, over_tls

    folder = remote.folder
    tls = MachineTls(folder / "ca.pem", folder / "analyzer.pem", folder / "analyzer.key")
    settings = ClusterSettings(
        over_tls(remote.address), tls, frozenset(remote.workers), _PATIENCE_S
    )
    cluster = Cluster(settings, load_signing_key(folder / "analyzer-signing.key"))
    _analyzer = _Analyzer(cluster, remote.pids)

    async def all_there() -> None:
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                async with cluster.looked():
                    if cluster.size == len(remote.pids):
                        return
                await asyncio.sleep(_LOOK_S)

    try:
        _analyzer.runner.run(all_there())
    except TimeoutError:
        raise RuntimeError(f"the workers did not come: see the logs in {folder}") from None


def opened(batch: opening.Batch, reports: int) -> Sample:
    """Open and tally the batch once, in the workers. Raises RuntimeError if none were prepared."""
    if _analyzer is None:
        raise RuntimeError("prepare first")
    from shoal.analyzer.machines.engine import MachinesDelivery, MachinesExecutor

    task, suite = codec.decode_task(batch.task), parse_config(batch.config).suite
    key = HpkePrivateKey.from_raw_secret(suite, batch.secret)
    context = RowContext.of(task, TaskId.of(batch.task), WINDOW, key.config.key_id, batch.row_size)
    executor = MachinesExecutor(_analyzer.cluster, _ROWS_PER_TASK)
    delivery, pids = MachinesDelivery(_analyzer.cluster), _analyzer.pids

    async def open_all() -> Opened:
        with FileSource(batch.path, batch.row_size) as source:
            return await open_batch(source, context, key, executor, delivery)

    before = sum(map(machine.own_cpu_s, pids))
    own, begin = time.process_time(), time.perf_counter()
    result = _analyzer.runner.run(open_all())
    wall, own = time.perf_counter() - begin, time.process_time() - own
    cpu = sum(map(machine.own_cpu_s, pids)) - before + own
    if result.rejected or result.tally.rows != reports:
        raise RuntimeError("the analyzer did not count every report of the benchmark")
    return Sample(reports, wall, cpu, {"analyzer_us": own / reports * 1e6})


def finish() -> None:
    """No analyzer any more."""
    global _analyzer  # noqa: PLW0603 - see prepare
    if _analyzer is not None:
        _analyzer.runner.close()
        _analyzer = None
