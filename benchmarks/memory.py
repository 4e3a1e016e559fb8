"""Peak memory of real services with a batch of n reports and one of ten times n: from the first
report to the release.
"""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import uvloop

from benchmarks import machine
from benchmarks.bench import Bench
from benchmarks.figures import MEGABYTES, RATE, SECONDS, Figure, Goal, Outcome
from benchmarks.site import Recipe, Site, seal_frames, started
from shoal.analyzer.results.release_json import decode_release
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.clients.transports.grpc_transport import GrpcTransport

TITLE = (
    "peak resident memory of shuffler and analyzer, each with its workers, from the first report "
    "to the release"
)
_BATCH = 500  # reports per call
_IN_FLIGHT = 3  # calls per feeding process
_PATIENCE_S = 600.0
_ROLES = ("shuffler", "a shuffler worker", "analyzer", "an analyzer worker")


@dataclass(frozen=True, slots=True)
class BatchRun:
    """One batch through real services. ``peaks``: MB per role, of its largest process."""

    reports: int
    peaks: dict[str, float]
    submit_s: float
    release_s: float


def run(bench: Bench) -> Outcome:
    """Peaks of memory of both services, at two sizes of a batch."""
    small, large = bench.pick((300, 300), (10_000, 100_000), (100_000, 1_000_000))
    runs = {
        reports: deliver_and_release(bench, bench.site(reports))
        for reports in sorted({small, large})
    }
    little, much = runs[small], runs[large]
    figures = [
        Figure(
            f"{role}: peak at {large:,} / at {small:,}", (much.peaks[role] / little.peaks[role],)
        )
        for role in _ROLES
    ]
    figures += [
        Figure(
            f"{role}: peak at {large:,} reports", (much.peaks[role],), MEGABYTES, Goal(at_most=200)
        )
        for role in _ROLES
    ]
    figures += [
        Figure(f"{role}: peak at {small:,} reports", (little.peaks[role],), MEGABYTES)
        for role in _ROLES
    ]
    figures += [
        Figure(f"hop-sealed and submitted, {large:,} reports", (large / much.submit_s,), RATE),
        Figure(
            "last report to release: closed, sealed, delayed, delivered, opened",
            (much.release_s,),
            SECONDS,
        ),
    ]
    notes = (
        "the limit is the same service with a tenth of the reports: a ratio near 1 means memory "
        "does not grow with the batch",
    )
    return Outcome(tuple(figures), notes)


def deliver_and_release(bench: Bench, site: Site) -> BatchRun:
    """Everything is real: sealed reports in frames over TLS, the window closing when it is full,
    delivery, release.
    """
    rows = site.rows(bench.pool)
    shuffler, analyzer = site.shuffler(), site.analyzer()
    try:
        started(shuffler, analyzer)
        with _Watch({"shuffler": shuffler.pid or 0, "analyzer": analyzer.pid or 0}) as watch:
            begin = time.monotonic()
            share = -(-site.reports // bench.cores)
            feeding = [
                bench.pool.submit(
                    feed,
                    site.address,
                    site.ca,
                    site.recipe,
                    rows,
                    first,
                    min(share, site.reports - first),
                )
                for first in range(0, site.reports, share)
            ]
            for one in feeding:
                one.result()
            submitted = time.monotonic()
            _await_release(site)
            released = time.monotonic()
    finally:
        shuffler.stop()
        analyzer.stop()
    return BatchRun(site.reports, watch.peaks, submitted - begin, released - submitted)


def _await_release(site: Site) -> None:
    """Wait for the release and check that it counts every report."""
    path = site.workspace.analyzer_data / FILE_NAME
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        if path.is_file():
            store = AnalyzerStore(path, read_only=True)
            try:
                releases = store.releases()
            finally:
                store.close()
            if releases:
                reports = decode_release(releases[0].release).n
                if reports != site.reports:
                    raise RuntimeError(f"the release counts {reports} of {site.reports} reports")
                return
        time.sleep(0.25)
    raise RuntimeError(f"no release of {site.reports} reports after {_PATIENCE_S:.0f} s")


class _Watch:
    """Looks at the services' processes four times a second: workers come and go, and take their
    peaks with them.
    """

    def __init__(self, services: dict[str, int]) -> None:
        self._services, self._end = services, threading.Event()
        self.peaks = dict.fromkeys(_ROLES, 0.0)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(0.25):
            for name, root in self._services.items():
                worker = "a shuffler worker" if name == "shuffler" else "an analyzer worker"
                for pid in machine.tree(root):
                    role = name if pid == root else worker
                    self.peaks[role] = max(self.peaks[role], machine.peak_mb(pid))


# --- in a feeding process -------------------------------------------------------------------------


def feed(address: str, ca: bytes, recipe: Recipe, path: Path, first: int, count: int) -> None:
    """Seal the hop layer around rows of the file and submit them; any refusal raises."""
    uvloop.run(_feed(address, ca, recipe, path, first, count))


async def _feed(
    address: str, ca: bytes, recipe: Recipe, path: Path, first: int, count: int
) -> None:
    transport = GrpcTransport(address, ca, private_pool=True)
    starts = iter(range(first, first + count, _BATCH))

    async def work() -> None:
        with path.open("rb") as file:
            for start in starts:
                file.seek(start * recipe.row_size)
                rows = min(_BATCH, first + count - start)
                sealed = seal_frames(recipe, [file.read(recipe.row_size) for _ in range(rows)])
                receipts = await transport.submit_batch(sealed.frames, [b""] * rows, 60.0)
                if any(receipt.status for receipt in receipts):
                    raise RuntimeError("the shuffler refused a frame of the benchmark")

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(_IN_FLIGHT):
                group.create_task(work())
    finally:
        await transport.close()
