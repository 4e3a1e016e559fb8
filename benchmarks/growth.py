"""What a report costs the shuffler's store as a window grows: CPU of taking it and of sealing it,
and memory, at sizes from 1e4 reports on.

Nothing of it may grow with the window but the storage keys, 16 bytes each, in memory.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import machine
from benchmarks.bench import Bench
from benchmarks.figures import MEGABYTES, MICROSECONDS, Figure, Goal, Outcome
from benchmarks.inbox import seal_and_read
from shoal.ids import Digest, TaskId
from shoal.limits import LIMITS
from shoal.services.workers import WorkerPool
from shoal.shuffler.core import Capacity, WindowId
from shoal.shuffler.stores.joined import rows_of
from shoal.shuffler.stores.sqlite.store import SqliteStore
from shoal.shuffler.stores.store import AdmittedRows

TITLE = "the store's cost per report as a window grows / the same at its first reports"
_GROUP = 1_000  # reports per commit
_ROW = 65  # bytes of a sealed message
_KEY = 16  # bytes of a storage key, stated to be held
_BYTES = "B"


@dataclass(frozen=True, slots=True)
class Growth:
    """A process with windows of one size. CPU in microseconds per report; ``held``, ``peak``: bytes
    of memory that the last window's reports added, kept and at most, before sealing; ``sealing``:
    what sealing added to the peak, in MB.
    """

    append: float
    seal: float
    held: float
    peak: float
    sealing: float


def run(bench: Bench) -> Outcome:
    """Figures at every size, and the last beside the first."""
    sizes = bench.pick(
        (1_000, 2_000), (10_000, 100_000, 1_000_000), (10_000, 100_000, 1_000_000, 10_000_000)
    )
    at_least = bench.pick(1, 200_000, 200_000)  # reports in all at a size, in windows of it
    found: dict[int, list[Growth]] = {size: [] for size in sizes}
    for _ in range(bench.pick(1, 3, 3)):
        for size in sizes:
            folder = bench.folder / "growth"
            process = WorkerPool(1)  # of its own, so that its peak is this window's
            folder.mkdir()
            try:
                found[size].append(process.submit(grow, folder, size, at_least).result())
            finally:
                process.close()
                shutil.rmtree(folder)
    first, last = sizes[0], sizes[-1]
    append = tuple(
        late.append / early.append for early, late in zip(found[first], found[last], strict=True)
    )
    seal = tuple(
        late.seal / early.seal for early, late in zip(found[first], found[last], strict=True)
    )
    figures = [
        Figure(
            f"append: CPU per report of {last:,} / of {first:,}", append, goal=Goal(at_most=1.5)
        ),
        Figure(f"seal and read: CPU per report of {last:,} / of {first:,}", seal),
        Figure(
            f"memory held per report of {last:,}",
            tuple(one.held for one in found[last]),
            _BYTES,
            Goal(at_most=2 * _KEY),
        ),
        Figure(
            f"memory at most per report of {last:,}, before sealing",
            tuple(one.peak for one in found[last]),
            _BYTES,
            Goal(at_most=5 * _KEY),
        ),
        Figure(
            f"memory that sealing {last:,} adds",
            tuple(one.sealing for one in found[last]),
            MEGABYTES,
        ),
    ]
    for size in sizes:
        figures += [
            Figure(
                f"append: CPU per report of {size:,}",
                tuple(one.append for one in found[size]),
                MICROSECONDS,
            ),
            Figure(
                f"seal and read: CPU per report of {size:,}",
                tuple(one.seal for one in found[size]),
                MICROSECONDS,
            ),
        ]
    return Outcome(
        tuple(figures),
        (
            f"{_GROUP} reports of {_ROW} B per commit, with their SHA-256, as workers bring them; "
            "CPU of the whole window, first report to last",
            f"held are {_KEY} B a report; sealing sorts runs of some MiB, whatever the window",
        ),
    )


# --- in a process of its own ----------------------------------------------------------------------


def grow(folder: Path, size: int, at_least: int) -> Growth:
    """Windows of so many reports, one after the other, each in a store of its own: as many as hold
    ``at_least`` reports together.
    """
    grow_one(folder / "first", 2 * _GROUP)  # imports and first calls are of no window
    windows = max(1, at_least // size)
    found = [grow_one(folder / f"{number}", size) for number in range(windows)]
    return Growth(
        sum(one.append for one in found) / windows,
        sum(one.seal for one in found) / windows,
        found[0].held,
        found[0].peak,
        found[0].sealing,
    )


def grow_one(folder: Path, size: int) -> Growth:
    """One window, taken, sealed and read."""
    folder.mkdir()
    window = WindowId(TaskId(bytes(TaskId.SIZE)), 0)
    store = SqliteStore(folder)
    capacity = Capacity(1, LIMITS.batch_rows, LIMITS.batch_rows)
    store.adopt(window.task_id, Digest(bytes(Digest.SIZE)), capacity, _ROW)
    held, peak, spent = machine.resident_mb(), machine.peak_mb(os.getpid()), 0.0
    for _ in range(size // _GROUP):
        sealed = os.urandom(_GROUP * _ROW)
        digests = b"".join(hashlib.sha256(row).digest() for row in rows_of(sealed, _ROW))
        begin = time.process_time()
        outcomes = store.append([AdmittedRows(window, sealed, _GROUP, (), digests)])
        store.confirm()
        spent += time.process_time() - begin
        if any(outcomes):
            raise RuntimeError("the store refused a row of the benchmark")
    held, before = machine.resident_mb() - held, machine.peak_mb(os.getpid())
    begin = time.process_time()
    seal_and_read(store, window, size)
    seal = time.process_time() - begin
    store.close()
    shutil.rmtree(folder)
    return Growth(
        spent / size * 1e6,
        seal / size * 1e6,
        max(0.0, held) * 1e6 / size,
        (before - peak) * 1e6 / size,
        machine.peak_mb(os.getpid()) - before,
    )
