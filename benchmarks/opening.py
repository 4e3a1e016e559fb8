"""The analyzer's work on a batch: open every row, judge it, tally it, count each nonce once;
against opening the rows alone.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import machine
from benchmarks.bench import Bench
from benchmarks.figures import (
    MEGABYTES,
    MICROSECONDS,
    RATE,
    Figure,
    Goal,
    Outcome,
    Sample,
    alternate,
    spread,
)
from benchmarks.raw import Opening, Processes, open_held
from benchmarks.site import WINDOW
from shoal import codec
from shoal.analyzer.batches.chunk_source import FileSource
from shoal.analyzer.batches.executor import ProcessExecutor
from shoal.analyzer.batches.key_delivery import InMemoryDelivery
from shoal.analyzer.batches.opening import Opened, open_batch
from shoal.analyzer.batches.row_opening import RowContext
from shoal.crypto.envelope import report_info
from shoal.crypto.hpke import HpkePrivateKey
from shoal.crypto.suites import parse_config
from shoal.ids import TaskId
from shoal.services.workers import WorkerPool

TITLE = "a batch opened and tallied / opening its rows in as many processes"


@dataclass(frozen=True, slots=True)
class Batch:
    """What the process that plays the analyzer is given."""

    path: Path
    task: bytes
    config: bytes
    secret: bytes = field(repr=False)
    row_size: int
    workers: int


_pool: WorkerPool | None = None


def run(bench: Bench) -> Outcome:
    """How fast a batch is opened and tallied, beside HPKE alone on as many cores."""
    reports, repetitions = bench.pick(300, 100_000, 1_000_000), bench.pick(1, 3, 3)
    site = bench.site(reports)
    path = site.rows(bench.pool)
    config, secret, size = (
        site.analyzer_key.config,
        site.analyzer_key.to_raw_secret(),
        site.recipe.row_size,
    )
    slice_rows = bench.pick(300, 100_000, 200_000)
    opening = Opening(
        config.suite, secret, report_info(site.served.task_id, WINDOW, config.key_id), size
    )
    batch = Batch(path, site.recipe.task, site.recipe.analyzer_key, secret, size, bench.cores)
    openers, analyzer = Processes(bench.cores), WorkerPool(1)
    try:
        with path.open("rb") as file:
            openers.hold("rows", file.read(slice_rows * size), size)
        analyzer.submit(prepare, batch).result()
        pairs = alternate(
            repetitions,
            lambda: openers.run(open_held, "rows", opening),
            lambda: analyzer.submit(opened, batch, reports).result(),
        )
        peaks = analyzer.submit(peaks_mb).result()
    finally:
        analyzer.close()
        openers.close()
    return Outcome(
        (
            Figure("rate", pairs.rates(), goal=Goal(at_least=0.97)),
            Figure(
                "CPU per report, parent and workers", pairs.against(lambda sample: sample.cpu_us)
            ),
            spread("raw opens: rate", pairs.limits, lambda sample: sample.rate, RATE),
            spread("opened and tallied: rate", pairs.subjects, lambda sample: sample.rate, RATE),
            spread("raw opens: CPU", pairs.limits, lambda sample: sample.cpu_us, MICROSECONDS),
            spread(
                "opened and tallied: CPU of parent and workers",
                pairs.subjects,
                lambda sample: sample.cpu_us,
                MICROSECONDS,
            ),
            spread(
                "CPU of the parent alone, per report",
                pairs.subjects,
                lambda sample: sample.extra["parent_us"],
                MICROSECONDS,
            ),
            Figure("peak memory of the parent", (peaks[0],), MEGABYTES),
            Figure("peak memory of its largest worker", (max(peaks[1:]),), MEGABYTES),
        ),
        (
            f"{reports:,} different sealed reports of {size} bytes in a file; the limit opens "
            f"{slice_rows:,} of them around each run",
        ),
    )


# --- in the process that plays the analyzer -------------------------------------------------------


def prepare(batch: Batch) -> None:
    """Workers run before the first batch, as in the service; one small batch makes their
    imports.
    """
    global _pool  # noqa: PLW0603 - one process, one analyzer
    _pool = WorkerPool(batch.workers)
    _pool.warm()


def opened(batch: Batch, reports: int) -> Sample:
    """Open and tally the batch once, in the workers that were prepared. Raises RuntimeError if none
    were.
    """
    if _pool is None:
        raise RuntimeError("prepare first")
    task, suite = codec.decode_task(batch.task), parse_config(batch.config).suite
    key = HpkePrivateKey.from_raw_secret(suite, batch.secret)
    context = RowContext.of(task, TaskId.of(batch.task), WINDOW, key.config.key_id, batch.row_size)
    executor = ProcessExecutor(_pool)

    async def open_all() -> Opened:
        with FileSource(batch.path, batch.row_size) as source:
            return await open_batch(source, context, key, executor, InMemoryDelivery())

    before, parent, begin = machine.cpu_s(os.getpid()), time.process_time(), time.perf_counter()
    result = asyncio.run(open_all())
    wall, parent = time.perf_counter() - begin, time.process_time() - parent
    cpu = machine.cpu_s(os.getpid()) - before
    if result.rejected or result.tally.rows != reports:
        raise RuntimeError("the analyzer did not count every report of the benchmark")
    return Sample(reports, wall, cpu, {"parent_us": parent / reports * 1e6})


def peaks_mb() -> list[float]:
    """Peak resident sets: this process first, then its descendants. Ends the workers."""
    global _pool  # noqa: PLW0603 - see prepare
    found = [machine.peak_mb(pid) for pid in machine.tree(os.getpid())]
    if _pool is not None:
        _pool.close()
        _pool = None
    return found
