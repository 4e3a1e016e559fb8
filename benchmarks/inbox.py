"""The shuffler's disk: durable appends to an open window, then sealing and reading in key order;
against a plain log.

The log is what a program with no structure at all would do: write, fdatasync, and at the end one
sort in memory.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import machine
from benchmarks.bench import Bench
from benchmarks.figures import BYTES_PER_BYTE, RATE, SECONDS, Figure, Goal, Outcome
from shoal.ids import Digest, TaskId
from shoal.limits import LIMITS
from shoal.services.workers import WorkerPool
from shoal.shuffler.core import Capacity, WindowId, WindowState
from shoal.shuffler.stores.joined import digests_of, rows_of
from shoal.shuffler.stores.sqlite.store import SqliteStore
from shoal.shuffler.stores.storage_keys import WindowHashes
from shoal.shuffler.stores.store import AdmittedReport, AdmittedRows

TITLE = (
    "the inbox of an open window, sealed and read in key order / append and fdatasync a log, sort "
    "it in memory"
)
_GROUP = 1_000  # rows per commit
_UNARY_GROUP = 30  # rows per commit when every report is a call of its own
_KEY = 16  # bytes of a storage key
_SHORT, _LONG = 65, 300  # bytes per sealed row: a one-byte report; a vector report


@dataclass(frozen=True, slots=True)
class Ingest:
    """One run of appends. ``took[i]``: seconds inside append for group i; ``written``: bytes, of
    all files.
    """

    took: list[float]
    spent: list[float]  # core-seconds of the same
    group: int
    written: int
    seal_read_s: float
    payload: int

    def rate(self, rows: int) -> float:
        """Rows per second at ``rows``: over the last quarter million (or the last half, where there
        are fewer) before it.
        """
        return self._rate(self.took, rows)

    def cpu_rate(self, rows: int) -> float:
        """Rows per core-second at ``rows``."""
        return self._rate(self.spent, rows)

    def _rate(self, seconds: list[float], rows: int) -> float:
        last = rows // self.group
        first = last - max(1, min(250_000, rows // 2) // self.group)
        return (last - first) * self.group / sum(seconds[first:last])

    @property
    def amplification(self) -> float:
        """Bytes written to disk per byte of reports."""
        return self.written / self.payload


def run(bench: Bench) -> Outcome:
    """How fast the inbox takes reports, beside a bare log, and how many bytes it writes."""
    early, late, sealed = bench.pick(
        (8_000, 16_000, 8_000), (100_000, 400_000, 200_000), (500_000, 2_000_000, 1_000_000)
    )
    logs, keyed, grown, whole, bare, long = [], [], [], [], [], []
    process = WorkerPool(1)
    try:
        runner = partial(_run, process, bench.folder / "inbox")
        for _ in range(bench.pick(1, 3, 3)):
            logs.append(runner(log, sealed, _SHORT))
            keyed.append(runner(hashes, sealed, _SHORT))
            whole.append(runner(ingest, sealed, _SHORT, _GROUP, True))
            bare.append(runner(ingest, sealed, _SHORT, _GROUP, False, False))
            grown.append(runner(ingest, late, _SHORT, _GROUP, False))
            long.append(runner(ingest, sealed // 4, _LONG, _GROUP, True))
        small = runner(ingest, sealed // 20, _SHORT, _UNARY_GROUP, True)
    finally:
        process.close()
    return _outcome(_Runs(logs, keyed, whole, bare, grown, long, small), early, late, sealed)


@dataclass(frozen=True, slots=True)
class _Runs:
    logs: list[Ingest]  # a plain log, sorted in memory
    keyed: list[Ingest]  # storage keys made of digests, nothing else
    whole: list[Ingest]  # short rows, sealed and read
    bare: list[Ingest]  # short rows without digests
    grown: list[Ingest]  # short rows, the most
    long: list[Ingest]  # long rows, sealed and read
    small: Ingest  # few rows per commit, sealed and read


def _outcome(runs: _Runs, early: int, late: int, sealed: int) -> Outcome:
    """``early``, ``late``, ``sealed``: rows at which the rates are taken."""
    share = sealed / 1_000_000
    return Outcome(
        (
            Figure(
                f"rate at {late:,} rows / at {early:,} rows",
                tuple(run.rate(late) / run.rate(early) for run in runs.grown),
                goal=Goal(at_least=0.8),
            ),
            Figure(
                f"rows per core-second at {late:,} rows / at {early:,} rows",
                tuple(run.cpu_rate(late) / run.cpu_rate(early) for run in runs.grown),
            ),
            Figure(
                f"bytes written per payload byte, {_SHORT} B rows, sealed",
                tuple(run.amplification for run in runs.whole),
                BYTES_PER_BYTE,
                Goal(at_most=6),
            ),
            Figure(
                f"bytes written per payload byte, {_LONG} B rows, sealed",
                tuple(run.amplification for run in runs.long),
                BYTES_PER_BYTE,
                Goal(at_most=6),
            ),
            Figure(
                f"seal and ordered read of {sealed:,} rows",
                tuple(run.seal_read_s for run in runs.whole),
                SECONDS,
                Goal(at_most=6 * share),
            ),
            *_beside_the_log(runs, sealed),
            Figure(
                "seal and read, time / sort in memory",
                tuple(
                    run.seal_read_s / one.seal_read_s
                    for run, one in zip(runs.whole, runs.logs, strict=True)
                ),
            ),
            *_rates(runs, early, late, sealed),
        ),
        (
            f"{_GROUP} rows per commit, synchronous=FULL; payload = sealed bytes alone, written = "
            "/proc/self/io, all files, seal included",
            "append computes each row's storage key (HMAC of the SHA-256 that workers bring), "
            "sorts and counts distinct ones; the log gets one ready block",
        ),
    )


def _beside_the_log(runs: _Runs, sealed: int) -> tuple[Figure, ...]:
    return (
        Figure(
            "append / plain log",
            tuple(
                run.rate(sealed) / one.rate(sealed)
                for run, one in zip(runs.whole, runs.logs, strict=True)
            ),
            goal=Goal(at_least=0.25),
        ),
        Figure(
            "append / plain log and storage keys, one after the other",
            tuple(
                run.rate(sealed) * (1 / one.rate(sealed) + 1 / keys.rate(sealed))
                for run, one, keys in zip(runs.whole, runs.logs, runs.keyed, strict=True)
            ),
            # of the two syncs of an append, rows and their count, the log has one
            goal=Goal(at_least=0.4),
        ),
        Figure(
            "append, SHA-256 of messages made there / plain log",
            tuple(
                run.rate(sealed) / one.rate(sealed)
                for run, one in zip(runs.bare, runs.logs, strict=True)
            ),
        ),
    )


def _rates(runs: _Runs, early: int, late: int, sealed: int) -> tuple[Figure, ...]:
    return (
        Figure(
            f"plain log: rate at {sealed:,} rows",
            tuple(run.rate(sealed) for run in runs.logs),
            RATE,
        ),
        Figure(
            f"storage keys alone: rate at {sealed:,} rows",
            tuple(run.rate(sealed) for run in runs.keyed),
            RATE,
        ),
        Figure(
            f"append: rate at {early:,} rows",
            tuple(run.rate(early) for run in runs.grown),
            RATE,
        ),
        Figure(f"append: rate at {late:,} rows", tuple(run.rate(late) for run in runs.grown), RATE),
        Figure(
            f"append: rate of {_LONG} B rows at {sealed // 4:,}",
            tuple(run.rate(sealed // 4) for run in runs.long),
            RATE,
        ),
        Figure(
            f"append: rate at {_UNARY_GROUP} rows per commit",
            (runs.small.rate(sealed // 20),),
            RATE,
        ),
        Figure(
            f"bytes per payload byte at {_UNARY_GROUP} rows per commit, sealed",
            (runs.small.amplification,),
            BYTES_PER_BYTE,
        ),
    )


def _run(
    process: WorkerPool, folder: Path, work: Callable[..., Ingest], *arguments: object
) -> Ingest:
    """Each run has a new folder, and the one process does nothing else, so that its counter of
    written bytes is the run's.
    """
    folder.mkdir()
    try:
        return process.submit(work, folder, *arguments).result()
    finally:
        shutil.rmtree(folder)


# --- in a process of its own ----------------------------------------------------------------------


def ingest(
    folder: Path, rows: int, row_size: int, group: int, seal: bool, digests: bool = True
) -> Ingest:
    """The real store, called as its writer calls it. Large groups come joined, with the digests of
    their messages or without; small ones as single reports.
    """
    window = WindowId(TaskId(bytes(TaskId.SIZE)), 0)
    store = SqliteStore(folder)
    before = machine.written_bytes()
    # With a max_batch that is never reached: then distinct reports are counted on the way, which
    # costs most.
    store.adopt(
        window.task_id,
        Digest(bytes(Digest.SIZE)),
        Capacity(1, LIMITS.batch_rows, LIMITS.batch_rows),
        row_size,
    )
    took: list[float] = []
    spent: list[float] = []
    for _ in range(rows // group):
        block = os.urandom(group * row_size)
        parts = rows_of(block, row_size)
        reports: list[AdmittedReport | AdmittedRows] = [
            AdmittedReport(window, (part,)) for part in parts
        ]
        if group == _GROUP:
            known = digests_of(parts) if digests else b""
            reports = [AdmittedRows(window, block, group, (), known)]
        begin, cpu = time.perf_counter(), time.process_time()
        outcomes = store.append(reports)
        store.confirm()  # counted too: what a caller waits for
        took.append(time.perf_counter() - begin)
        spent.append(time.process_time() - cpu)
        if any(outcomes):
            raise RuntimeError("the store refused a row of the benchmark")
    seconds = seal_and_read(store, window, rows // group * group) if seal else 0.0
    store.close()
    return Ingest(
        took,
        spent,
        group,
        machine.written_bytes() - before,
        seconds,
        rows // group * group * row_size,
    )


def seal_and_read(store: SqliteStore, window: WindowId, rows: int) -> float:
    """Close the window and deliver it, as the lifecycle does; seconds that it took."""
    begin = time.perf_counter()
    store.close_intake(window)
    sealed = store.seal(window)
    store.advance(window, WindowState.CLOSING, WindowState.SEALED, sealed, sealed.rows, b"manifest")
    store.destroy_inbox(window)
    step = LIMITS.chunk_bytes // sealed.row_size
    read = sum(len(store.read_rows(window, at, step)) for at in range(0, sealed.rows, step))
    if read != rows * sealed.row_size:
        raise RuntimeError("the store lost rows of the benchmark")
    return time.perf_counter() - begin


def hashes(_folder: Path, rows: int, row_size: int) -> Ingest:
    """Storage keys of digests, as the store makes them: what the design asks of any store."""
    keyed, took, spent = WindowHashes(bytes(32)), list[float](), list[float]()
    for _ in range(rows // _GROUP):
        digests = os.urandom(_GROUP * 32)
        begin, cpu = time.perf_counter(), time.process_time()
        keyed.joined_keys_of(rows_of(digests, 32))
        took.append(time.perf_counter() - begin)
        spent.append(time.process_time() - cpu)
    return Ingest(took, spent, _GROUP, 0, 0.0, rows * row_size)


def log(folder: Path, rows: int, row_size: int) -> Ingest:
    """Keys are random beforehand; a row is key and payload. Sorting needs the whole batch in
    memory.
    """
    path, width = folder / "log", _KEY + row_size
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    before = machine.written_bytes()
    took: list[float] = []
    spent: list[float] = []
    for _ in range(rows // _GROUP):
        block = os.urandom(_GROUP * width)
        begin, cpu = time.perf_counter(), time.process_time()
        os.write(handle, block)
        os.fdatasync(handle)
        took.append(time.perf_counter() - begin)
        spent.append(time.process_time() - cpu)
    os.close(handle)
    begin = time.perf_counter()
    table = np.fromfile(path, dtype=np.uint8).reshape(-1, width)
    order = np.argsort(np.ascontiguousarray(table[:, :8]).view(np.uint64)[:, 0])
    ordered = table[order, _KEY:].tobytes()
    seconds = time.perf_counter() - begin
    return Ingest(took, spent, _GROUP, machine.written_bytes() - before, seconds, len(ordered))
