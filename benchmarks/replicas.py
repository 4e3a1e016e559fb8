"""Several shufflers on one PostgreSQL to one release, beside one on PostgreSQL and one on SQLite:
the same reports, through real services.

Frames are made once and sent to each deployment, which is a copy of one prepared folder: the same
keys, the same task, nothing stored. In the first half one call in a hundred goes to two replicas,
as from a relay that got no answer. A run fails unless every report was acknowledged, and the
release counts each of them once.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import grpc
import uvloop

from benchmarks import machine, postgresql
from benchmarks.bench import Bench
from benchmarks.figures import MEGABYTES, MICROSECONDS, SECONDS, Figure, Outcome
from benchmarks.site import Recipe, Sealed, Site, seal_frames, started
from shoal.analyzer.results.release_json import decode_release
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.cli.demo.ports import free_port
from shoal.cli.demo.processes import Process
from shoal.crypto.envelope import ACK_KEY_SIZE, verify_receipt
from shoal.protos import submit_pb2
from shoal.rpc.channel import build_channel
from tests.worlds.postgres import Server

TITLE = "three shufflers on one PostgreSQL to one release / one on PostgreSQL; one on SQLite"
REPLICAS = 3
SUBMIT_BATCH = "/shoal.v1.Ingress/SubmitBatch"
_BATCH = 500  # reports per call, as a relay sends them
_IN_FLIGHT = 8  # calls at a time, over all replicas and senders
_TWICE = 100  # of so many calls one goes to two replicas, in the first half
_DEADLINE_S = 120.0
_AGAIN_S, _TRIES = 0.5, 100  # a shuffler that has enough to do is asked again, as it says
_PATIENCE_S = 1_800.0  # from the last acknowledgement to the release
_WORKERS = 1  # processes that open frames, of each shuffler
_PARTS = ("main", "workers", "database", "analyzer")


@dataclass(frozen=True, slots=True)
class Prepared:
    """Files with all frames, and with the key of each one's receipt."""

    frames: Path
    ack_keys: Path
    frame_size: int
    count: int


@dataclass(frozen=True, slots=True)
class Ran:
    """One deployment, from the first report to the release. ``cpu``: core-seconds of each of
    ``_PARTS``, of all shufflers together; ``peak``: MB, of the largest shuffler's main process.
    """

    reports: int
    sending: float
    release: float
    cpu: dict[str, float]
    peak: float

    @property
    def wall(self) -> float:
        """Seconds in all."""
        return self.sending + self.release

    def us(self, *parts: str) -> float:
        """Microseconds of CPU per report."""
        return sum(self.cpu[part] for part in parts) / self.reports * 1e6


def run(bench: Bench) -> Outcome:
    """Each deployment once, or in turn where that takes seconds."""
    each, repetitions = bench.pick(500, 20_000, 1_000_000), bench.pick(1, 3, 1)
    reports = REPLICAS * each
    site = bench.fresh_site("replicas", reports)
    prepared = prepare(bench, site)
    found: dict[str, list[Ran]] = {"three": [], "one": [], "sqlite": []}
    with postgresql.server() as server:
        for _ in range(repetitions):
            for name, replicas, shared in (
                ("three", REPLICAS, server),
                ("one", 1, server),
                ("sqlite", 1, None),
            ):
                deployment = Deployment(site, site.folder / "run", replicas, shared)
                with deployment as running:
                    found[name].append(running.deliver(bench, prepared))
    return _outcome(found, each)


def _outcome(found: dict[str, list[Ran]], each: int) -> Outcome:
    three, one, embedded = found.values()
    shufflers = ("main", "workers")

    def ratio(limit: list[Ran], *parts: str) -> tuple[float, ...]:
        return tuple(
            ran.us(*parts) / other.us(*parts) for ran, other in zip(three, limit, strict=True)
        )

    figures = [
        Figure("CPU per report, all of it, three / one", ratio(one, *_PARTS)),
        Figure("CPU per report, shufflers, three / one", ratio(one, *shufflers)),
        Figure("CPU per report, all of it, three / one on SQLite", ratio(embedded, *_PARTS)),
        Figure(
            "wall to the release, three / one",
            tuple(ran.wall / other.wall for ran, other in zip(three, one, strict=True)),
        ),
    ]
    for title, runs in (
        (f"{REPLICAS} replicas", three),
        ("one replica", one),
        ("one on SQLite", embedded),
    ):
        figures += [
            Figure(f"{title}: first report to last answer", _each(runs, "sending"), SECONDS),
            Figure(f"{title}: last answer to the release", _each(runs, "release"), SECONDS),
        ]
        figures += [
            Figure(f"{title}: CPU of {what}", tuple(ran.us(part) for ran in runs), MICROSECONDS)
            for part, what in (
                ("main", "main processes"),
                ("workers", "their workers"),
                ("database", "the database"),
                ("analyzer", "the analyzer"),
            )
            if runs is not embedded or part != "database"
        ]
        figures.append(
            Figure(f"{title}: peak of the largest main process", _each(runs, "peak"), MEGABYTES)
        )
    return Outcome(
        tuple(figures),
        (
            f"{REPLICAS} x {each:,} reports, {_BATCH} per call, {_IN_FLIGHT} calls in flight; in "
            f"the first half one call in {_TWICE} goes to two replicas; all acknowledged, each "
            "counted once",
            "all of it runs on this machine's cores, senders too, so wall time says little: more "
            "replicas help where there are more cores; CPU per report says what that costs",
        ),
    )


def _each(runs: Sequence[Ran], name: str) -> tuple[float, ...]:
    return tuple(getattr(ran, name) for ran in runs)


def prepare(bench: Bench, site: Site) -> Prepared:
    """All frames, around reports that the analyzer can open. Both layers are sealed by every
    core.
    """
    rows, recipe, size = site.rows(bench.pool), site.recipe, site.recipe.row_size
    frames, keys = site.folder / "frames.bin", site.folder / "ack_keys.bin"
    width = 0
    # a part for each core at a time: what is not written yet is in memory
    step = 20 * _BATCH
    with frames.open("wb") as frame_file, keys.open("wb") as key_file, rows.open("rb") as row_file:
        while parts := [part for _ in range(bench.cores) if (part := row_file.read(step * size))]:
            for done in [bench.pool.submit(frames_around, recipe, part) for part in parts]:
                sealed = done.result()
                width = len(sealed.frames[0])
                frame_file.write(b"".join(sealed.frames))
                key_file.write(b"".join(sealed.ack_keys))
    return Prepared(frames, keys, width, site.reports)


class Deployment(AbstractContextManager["Deployment"]):
    """``replicas`` shufflers and an analyzer, made of the site's folder, in ``folder``; gone on
    exit. ``server``: where reports are stored; None: each shuffler's own disk.
    """

    def __init__(self, site: Site, folder: Path, replicas: int, server: Server | None) -> None:
        self._site, self._folder, self._server = site, folder, server
        folder.mkdir()
        for name in ("tasks", "analyzer"):
            shutil.copytree(site.folder / name, folder / name)
        dsn = None if server is None else server.database()
        self._database = None if dsn is None else dsn.rpartition("/")[2]
        self.addresses, self.shufflers = list[str](), list[Process]()
        for number in range(replicas):
            port, admin = free_port(), free_port()
            self.addresses.append(f"localhost:{port}")
            config = self._configure(f"shuffler-{number}", port, admin, replicas, dsn)
            self.shufflers.append(Process("shuffler", config, admin))
        workspace = site.workspace
        config = folder / "analyzer" / workspace.analyzer_config.name
        self.analyzer = Process("analyzer", config, workspace.analyzer_admin)

    def _configure(self, name: str, port: int, admin: int, replicas: int, dsn: str | None) -> Path:
        folder, own = self._folder / name, self._site.workspace.shuffler_config
        shutil.copytree(own.parent, folder)
        # what the demo tunes for itself is left to the shuffler
        others = ("listen", "admin_listen", "open_workers", "commit_ms")
        kept = [line for line in own.read_text().splitlines() if not line.startswith(others)]
        lines = [
            f'listen = "127.0.0.1:{port}"',
            f'admin_listen = "127.0.0.1:{admin}"',
            f"open_workers = {_WORKERS}",
            *kept,
        ]
        if dsn is not None:
            (folder / "dsn").touch(mode=0o600)
            (folder / "dsn").write_text(dsn)
            lines += ["[store]", 'kind = "postgresql"', 'dsn_file = "dsn"']
            lines += [f"replicas = {replicas}", "without_standby = true"]
        (folder / own.name).write_text("\n".join(lines) + "\n")
        return folder / own.name

    def __enter__(self) -> Deployment:
        try:
            started(self.analyzer, *self.shufflers)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for service in (*self.shufflers, self.analyzer):
            service.tell_to_stop()
        for service in (*self.shufflers, self.analyzer):
            service.stop()
        shutil.rmtree(self._folder)
        if self._server is not None:
            self._server.sql(f"DROP DATABASE {self._database} WITH (FORCE)")
            self._server.sql("CHECKPOINT")

    def deliver(self, bench: Bench, prepared: Prepared) -> Ran:
        """Everything that was prepared, until its release. Raises RuntimeError if a report was not
        acknowledged, or not counted once.
        """
        before, begin = self._cpu(), time.monotonic()
        senders = bench.cores
        sending = [
            bench.pool.submit(
                send,
                self.addresses,
                self._site.ca,
                prepared,
                sender,
                senders,
                _IN_FLIGHT // senders,
            )
            for sender in range(senders)
        ]
        acknowledged = sum(one.result() for one in sending)
        sent = time.monotonic()
        path = self._folder / "analyzer" / "data" / FILE_NAME
        check(prepared.count, acknowledged, *_released(path))
        released = time.monotonic()
        after = self._cpu()
        return Ran(
            prepared.count,
            sent - begin,
            released - sent,
            {part: after[part] - before[part] for part in _PARTS},
            max(machine.peak_mb(one.pid or 0) for one in self.shufflers),
        )

    def _cpu(self) -> dict[str, float]:
        """Core-seconds so far, by part."""
        pids = [one.pid or 0 for one in self.shufflers]
        main = sum(machine.own_cpu_s(pid) for pid in pids)
        return {
            "main": main,
            "workers": sum(machine.cpu_s(pid) for pid in pids) - main,
            "database": 0.0 if self._server is None else postgresql.cpu_s(self._server.process.pid),
            "analyzer": machine.cpu_s(self.analyzer.pid or 0),
        }


def check(sent: int, acknowledged: int, counted: int, rejected: int) -> None:
    """Raises RuntimeError unless every report was acknowledged and counted exactly once: the task's
    window closes with so many distinct ones, so one that was stored twice would leave another out.
    """
    if (acknowledged, counted, rejected) != (sent, sent, 0):
        raise RuntimeError(
            f"lost or doubled: {acknowledged} acknowledged, {counted} counted, {rejected} rejected "
            f"of {sent} reports"
        )


def _released(path: Path) -> tuple[int, int]:
    """How many reports the one release counts, and how many it rejected."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        if path.is_file():
            store = AnalyzerStore(path, read_only=True)
            try:
                releases = store.releases()
            finally:
                store.close()
            if releases:
                (one,) = releases
                release = decode_release(one.release)
                return release.n, sum(some.count for some in release.rejected)
        time.sleep(0.25)
    raise RuntimeError(f"no release after {_PATIENCE_S:.0f} s")


# --- in a sending process -------------------------------------------------------------------------


def frames_around(recipe: Recipe, rows: bytes) -> Sealed:
    """A frame around each of the rows, which are joined."""
    return seal_frames(recipe, _cut(rows, recipe.row_size))


def send(
    addresses: list[str], ca: bytes, prepared: Prepared, sender: int, senders: int, calls: int
) -> int:
    """The calls of one of ``senders``, ``calls`` at a time, spread evenly over the replicas. How
    many reports were acknowledged; any refusal raises.
    """
    return uvloop.run(
        _send(addresses, ca, prepared, range(sender, _calls(prepared), senders), calls)
    )


def _calls(prepared: Prepared) -> int:
    return -(-prepared.count // _BATCH)


async def _send(
    addresses: list[str], ca: bytes, prepared: Prepared, mine: range, calls: int
) -> int:
    channels = [build_channel(address, ca, private_pool=True) for address in addresses]
    methods: list[grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]] = [
        channel.unary_unary(SUBMIT_BATCH) for channel in channels
    ]
    left, acknowledged = iter(mine), 0
    half = _calls(prepared) // 2

    async def work() -> None:
        nonlocal acknowledged
        with prepared.frames.open("rb") as frames, prepared.ack_keys.open("rb") as keys:
            for number in left:
                frames.seek(number * _BATCH * prepared.frame_size)
                keys.seek(number * _BATCH * ACK_KEY_SIZE)
                batch = _cut(frames.read(_BATCH * prepared.frame_size), prepared.frame_size)
                ack_key = keys.read(ACK_KEY_SIZE)
                request = submit_pb2.SubmitBatchRequest(frames=batch).SerializeToString()
                to = [methods[number % len(methods)]]
                # while the window is open for certain: one that is full is closed soon
                if number % _TWICE == 0 and number < half:
                    to.append(methods[(number + 1) % len(methods)])
                for reply in [await _answer(method, request) for method in to]:
                    _check_receipts(reply, batch, ack_key)
                acknowledged += len(batch)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(calls):
                group.create_task(work())
    finally:
        for channel in channels:
            await channel.close()
    return acknowledged


async def _answer(method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes], request: bytes) -> bytes:
    for _ in range(_TRIES):
        try:
            return await method(request, timeout=_DEADLINE_S)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
        await asyncio.sleep(_AGAIN_S)
    raise RuntimeError("a shuffler takes no more reports")


def _cut(joined: bytes, size: int) -> list[bytes]:
    return [joined[at : at + size] for at in range(0, len(joined), size)]


def _check_receipts(reply: bytes, batch: Sequence[bytes], ack_key: bytes) -> None:
    """Every receipt says accepted; the first one's mac is verified."""
    receipts = submit_pb2.SubmitBatchReply.FromString(reply).receipts
    if len(receipts) != len(batch) or any(receipt.status for receipt in receipts):
        raise RuntimeError("a shuffler refused a frame of the benchmark")
    verify_receipt(ack_key, 0, batch[0], receipts[0].mac)
