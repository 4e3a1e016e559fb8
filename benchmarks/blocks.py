"""The inbox of a shared database: durable appends of a replica to an open window, beside a bare
COPY into the same server, and beside the inbox of one machine. And what a report costs as the
window grows, with seats and counting.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import asyncpg

from benchmarks import machine, postgresql
from benchmarks.bench import Bench
from benchmarks.figures import (
    MEGABYTES,
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
from benchmarks.inbox import hashes, ingest
from shoal.crypto.hpke import HpkePrivateKey, generate
from shoal.crypto.suites import SuiteId
from shoal.ids import Digest, TaskId
from shoal.limits import LIMITS
from shoal.services.workers import WorkerPool
from shoal.shuffler.core import Capacity, WindowId, WindowState
from shoal.shuffler.stores.claims import OwnerId
from shoal.shuffler.stores.joined import digests_of, rows_of
from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.store import PostgresStore, open_reports
from shoal.shuffler.stores.store import AdmittedRows
from tests.worlds.postgres import Server

TITLE = "a replica's inbox on PostgreSQL / bare COPY into the same server; the inbox on SQLite"
_GROUP = 1_000  # rows per commit
_ROW = 140  # bytes of a sealed row
_KEY = 16  # bytes of a storage key
_AT_ONCE = 4  # commits under way, as a replica has them
_SEGMENT = 20_000  # rows that are made between two measurements
_SERVER = "server_us"
_KEYS = "keys_s"  # seconds that the storage keys of so many rows take by themselves
_BYTES = "B"


@dataclass(frozen=True, slots=True)
class Grown:
    """A window of ``rows``, in a process of its own. Microseconds of CPU per row, of the replica
    and of the server; ``held``, ``peak``: bytes of memory per row that it added, kept and at most,
    before sealing; ``sealing``: MB that sealing and reading added to the peak.
    """

    rows: int
    append: float
    server: float
    seal: float
    seal_server: float
    held: float
    peak: float
    sealing: float


def run(bench: Bench) -> Outcome:
    """Rates beside both limits, and growth."""
    rows = bench.pick(1_000, 200_000, 1_000_000)
    sizes = bench.pick((1_000, 2_000), (100_000, 1_000_000), (100_000, 1_000_000, 3_000_000))
    process = WorkerPool(1)
    folder = bench.folder / "blocks"
    folder.mkdir()
    with postgresql.server() as server:
        pid = server.process.pid

        def database(work: Callable[..., Sample]) -> Sample:
            name = server.database()
            try:
                return process.submit(work, name, folder / "one", rows, pid).result()
            finally:
                _drop(server, name, folder / "one")

        def bare() -> Sample:
            done, keys = database(copy), process.submit(hashes, folder, rows, _ROW).result()
            return replace(done, extra={**done.extra, _KEYS: sum(keys.took)})

        def embedded() -> Sample:
            (folder / "one").mkdir()
            try:
                done = process.submit(ingest, folder / "one", rows, _ROW, _GROUP, False).result()
            finally:
                shutil.rmtree(folder / "one")
            return Sample(rows, sum(done.took), sum(done.spent))

        try:
            database(fill)  # imports, and first calls
            beside_copy = alternate(bench.repetitions, bare, lambda: database(fill))
            beside_sqlite = alternate(bench.repetitions, embedded, lambda: database(fill))
            grown = _grown(bench, server, folder, sizes)
        finally:
            process.close()
    return _outcome(beside_copy, beside_sqlite, grown, rows)


def _grown(
    bench: Bench, server: Server, folder: Path, sizes: tuple[int, ...]
) -> dict[int, list[Grown]]:
    found: dict[int, list[Grown]] = {size: [] for size in sizes}
    pid = server.process.pid
    for _ in range(bench.pick(1, 1, 3)):
        for size in sizes:
            own, name = WorkerPool(1), server.database()  # its peak is this window's
            try:
                # imports, first calls and buffers are of no window
                own.submit(grow, server.database(), folder / "few", 4 * _GROUP, pid).result()
                found[size].append(own.submit(grow, name, folder / "one", size, pid).result())
            finally:
                own.close()
                shutil.rmtree(folder / "few", ignore_errors=True)
                _drop(server, name, folder / "one")
    return found


def _drop(server: Server, dsn: str, folder: Path) -> None:
    """What a run left must not be written to the disk during the next one."""
    shutil.rmtree(folder, ignore_errors=True)
    server.sql(f"DROP DATABASE {dsn.rpartition('/')[2]} WITH (FORCE)")
    server.sql("CHECKPOINT")


def _outcome(
    beside_copy: Pairs, beside_sqlite: Pairs, grown: dict[int, list[Grown]], rows: int
) -> Outcome:
    def both(sample: Sample) -> float:
        return sample.cpu_us + sample.extra.get(_SERVER, 0.0)

    def with_keys(sample: Sample) -> float:
        return sample.units / (sample.wall + sample.extra.get(_KEYS, 0.0))

    ratios, values = _growth(grown)
    figures = [
        Figure(
            "rate / bare COPY and storage keys, one after the other",
            beside_copy.against(with_keys),
            goal=Goal(at_least=0.9),
        ),
        Figure("rate / SQLite's inbox", beside_sqlite.rates(), goal=Goal(at_least=0.5)),
        Figure("rate / bare COPY", beside_copy.rates()),
        Figure("CPU per row, replica and server / bare COPY", beside_copy.against(both)),
        Figure("CPU per row, replica and server / SQLite's inbox", beside_sqlite.against(both)),
        *ratios,
    ]
    for name, samples in (
        ("COPY", beside_copy.limits),
        ("SQLite", beside_sqlite.limits),
        ("PostgreSQL", (*beside_copy.subjects, *beside_sqlite.subjects)),
    ):
        figures += _costs(name, samples)
    return Outcome(
        (*figures, *values),
        (
            f"{rows:,} rows of {_ROW} B, {_GROUP} per commit, {_AT_ONCE} commits under way, fsync; "
            "COPY writes them with ready keys into a table without an index, and encrypts nothing",
            "server: all its processes, checkpoints among them; SQLite's one writer has one commit "
            "at a time",
            "growth: a max_batch that is never reached, so reports are counted and seats are spent",
        ),
    )


def _costs(name: str, samples: tuple[Sample, ...]) -> list[Figure]:
    figures = [
        spread(f"{name}: rate", samples, lambda one: one.rate, RATE),
        spread(f"{name}: CPU of the caller", samples, lambda one: one.cpu_us, MICROSECONDS),
    ]
    if _SERVER in samples[0].extra:
        values = tuple(one.extra[_SERVER] for one in samples)
        figures.append(Figure(f"{name}: CPU of the server", values, MICROSECONDS))
    return figures


def _growth(grown: dict[int, list[Grown]]) -> tuple[list[Figure], list[Figure]]:
    """The last size beside the first; and what each of them cost."""
    first, last = min(grown), max(grown)

    def ratio(value: Callable[[Grown], float]) -> tuple[float, ...]:
        pairs = zip(grown[first], grown[last], strict=True)
        return tuple(value(late) / max(value(early), 1e-9) for early, late in pairs)

    ratios = [
        Figure(
            f"append: CPU per row of {last:,} / of {first:,}",
            ratio(lambda one: one.append + one.server),
            goal=Goal(at_most=1.5),
        ),
        Figure(
            f"seal and read: CPU per row of {last:,} / of {first:,}",
            ratio(lambda one: one.seal + one.seal_server),
        ),
        Figure(
            f"memory held per row of {last:,}",
            tuple(one.held for one in grown[last]),
            _BYTES,
            Goal(at_most=2 * _KEY),
        ),
        Figure(
            f"memory at most per row of {last:,}, before sealing",
            tuple(one.peak for one in grown[last]),
            _BYTES,
            Goal(at_most=5 * _KEY),
        ),
        Figure(
            f"memory that sealing {last:,} adds",
            tuple(one.sealing for one in grown[last]),
            MEGABYTES,
        ),
    ]
    values = [
        Figure(f"{what}, of {size:,}", tuple(getattr(one, name) for one in runs), MICROSECONDS)
        for size, runs in grown.items()
        for what, name in (
            ("append: CPU of the replica", "append"),
            ("append: CPU of the server", "server"),
            ("seal and read: CPU of the replica", "seal"),
            ("seal and read: CPU of the server", "seal_server"),
        )
    ]
    return ratios, values


# --- in a process of its own ----------------------------------------------------------------------

_WINDOW = WindowId(TaskId(bytes(TaskId.SIZE)), 0)
_CAPACITY = Capacity(1, LIMITS.batch_rows, LIMITS.batch_rows)


async def _at_once(
    groups: list[AdmittedRows], work: Callable[[AdmittedRows], Awaitable[None]]
) -> None:
    left = iter(groups)

    async def go() -> None:
        for group in left:
            await work(group)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_AT_ONCE):
            tasks.create_task(go())


def _made(rows: int) -> list[AdmittedRows]:
    """As workers hand them over."""
    groups = list[AdmittedRows]()
    for _ in range(rows // _GROUP):
        sealed = os.urandom(_GROUP * _ROW)
        digests = digests_of(rows_of(sealed, _ROW))
        groups.append(AdmittedRows(_WINDOW, sealed, _GROUP, (), digests))
    return groups


@dataclass
class _Meter:
    """Adds up what runs inside ``async with``: seconds, and core-seconds of this process and of the
    server.
    """

    server: int
    wall: float = 0.0
    own: float = 0.0
    theirs: float = 0.0

    def __enter__(self) -> None:
        self._begin = time.perf_counter(), time.process_time(), postgresql.cpu_s(self.server)

    def __exit__(self, *_: object) -> None:
        wall, own, theirs = self._begin
        self.wall += time.perf_counter() - wall
        self.own += time.process_time() - own
        self.theirs += postgresql.cpu_s(self.server) - theirs

    def sample(self, rows: int) -> Sample:
        return Sample(rows, self.wall, self.own, {_SERVER: self.theirs / rows * 1e6})


async def _opened(dsn: str, folder: Path) -> PostgresStore:
    store = await open_reports(await Database.open(dsn, bytes(32)), folder, commit_ms=0)
    key: HpkePrivateKey = generate(SuiteId.X25519_AES128)
    store.adopt(_WINDOW.task_id, Digest(bytes(Digest.SIZE)), _CAPACITY, _ROW, lambda _: key)
    return store


async def _append(store: PostgresStore, rows: int, meter: _Meter) -> None:
    """In segments, so that what is made beforehand stays small."""

    async def one(group: AdmittedRows) -> None:
        (outcomes,) = await store.append_rows([group])
        if any(outcomes):
            raise RuntimeError("the store refused a row of the benchmark")

    for begin in range(0, rows, _SEGMENT):
        groups = _made(min(_SEGMENT, rows - begin))
        with meter:
            await _at_once(groups, one)
        del groups  # before the next are made


def fill(dsn: str, folder: Path, rows: int, server: int) -> Sample:
    """The real store of a replica, called as its ingress calls it."""
    folder.mkdir()
    return asyncio.run(_fill(dsn, folder, rows, _Meter(server)))


async def _fill(dsn: str, folder: Path, rows: int, meter: _Meter) -> Sample:
    store = await _opened(dsn, folder)
    try:
        await _append(store, rows, meter)
    finally:
        await store.close()
    return meter.sample(rows)


def copy(dsn: str, _folder: Path, rows: int, server: int) -> Sample:
    """Ready rows to a table, in as many transactions."""
    return asyncio.run(_copy(dsn, rows, _Meter(server)))


async def _copy(dsn: str, rows: int, meter: _Meter) -> Sample:
    async with asyncpg.create_pool(dsn, min_size=_AT_ONCE, max_size=_AT_ONCE) as pool:
        await pool.execute("CREATE TABLE heap (key bytea, body bytea)")

        async def one(group: AdmittedRows) -> None:
            records = ready[group.digests]
            async with pool.acquire() as connection:
                await connection.copy_records_to_table(
                    "heap", records=records, columns=("key", "body")
                )

        for begin in range(0, rows, _SEGMENT):
            groups = _made(min(_SEGMENT, rows - begin))
            ready = {group.digests: _records(group) for group in groups}
            with meter:
                await _at_once(groups, one)
    return meter.sample(rows)


def _records(group: AdmittedRows) -> list[tuple[bytes, bytes]]:
    keys = rows_of(os.urandom(_GROUP * _KEY), _KEY)
    return list(zip(keys, rows_of(group.sealed, _ROW), strict=True))


def grow(dsn: str, folder: Path, rows: int, server: int) -> Grown:
    """One window: taken, sealed, and read."""
    folder.mkdir()
    return asyncio.run(_grow(dsn, folder, rows, server))


async def _grow(dsn: str, folder: Path, rows: int, server: int) -> Grown:
    store = await _opened(dsn, folder)
    try:
        _made(min(_SEGMENT, rows))  # as large as memory is without the store
        held, peak = machine.resident_mb(), machine.peak_mb(os.getpid())
        meter, ending = _Meter(server), _Meter(server)
        await _append(store, rows, meter)
        held, before = machine.resident_mb() - held, machine.peak_mb(os.getpid())
        with ending:
            await _seal_and_read(store, rows)
    finally:
        await store.close()
    return Grown(
        rows,
        meter.own / rows * 1e6,
        meter.theirs / rows * 1e6,
        ending.own / rows * 1e6,
        ending.theirs / rows * 1e6,
        max(0.0, held) * 1e6 / rows,
        (before - peak) * 1e6 / rows,
        machine.peak_mb(os.getpid()) - before,
    )


async def _seal_and_read(store: PostgresStore, rows: int) -> None:
    """Close the window and deliver it, as the lifecycle does."""
    claim = await store.claim(_WINDOW, OwnerId.draw(), 3_600.0)
    if claim is None:
        raise RuntimeError("nobody else has the window of the benchmark")
    await store.close_intake(claim)
    sealed = await store.seal(claim)
    await store.advance(
        claim, WindowState.CLOSING, WindowState.SEALED, sealed, sealed.rows, b"manifest"
    )
    await store.destroy_inbox(claim)
    digest, step = hashlib.sha256(), LIMITS.chunk_bytes // sealed.row_size
    for at in range(0, sealed.rows, step):
        digest.update(await store.read_rows(_WINDOW, at, step))
    if sealed.rows != rows or digest.digest() != sealed.rows_hash.raw:
        raise RuntimeError("the store lost rows of the benchmark")
