"""Many simulated devices in several processes, against real services.

Sealing holds the interpreter lock, so the fleet is shared out over spawned processes; each runs an event loop with a few
TLS channels and many devices in flight. Processes die with this one.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from shoal.clients.fleet.simulated import ACKED, UNKNOWN, Share, ShareResult, SimulatedTask, Simulation
from shoal.crypto.trust import trust_task
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.task import Task
from shoal.workers import die_with_parent

__all__ = ["ACKED", "UNKNOWN", "Progress", "SimulatedTask", "SimulationPlan", "SimulationResult", "simulate"]

_PROGRESS_S = 0.2
_LEAD_S = 0.5  # between the start signal and the first report under a rate: time to prepare a few


@dataclass(frozen=True, slots=True)
class SimulationPlan:
    """Who reports what, and how fast.

    ``tasks``: each with one value per device, all equally many. ``authorities``: Ed25519 public keys that the devices
    trust. ``processes``: 0 = one per core. ``channels``: TLS connections per process. ``in_flight``: devices (with relay:
    batches) under way per process. ``relay``: submit through SubmitBatch. ``rate``: reports per second over all, None = as
    fast as they go. ``address``: instead of the tasks' own. ``patience_s``: how long a
    report is tried again after a retryable failure. ``enrolment_roots``: private keys (PEM) of enrolment authorities, with which
    the processes enrol their devices: for tasks that admit enrolled devices alone. Raises INVALID.
    """

    tasks: tuple[SimulatedTask, ...]
    authorities: frozenset[bytes]
    processes: int = 0
    channels: int = 2
    in_flight: int = 64
    relay: bool = False
    rate: float | None = None
    address: str | None = None
    insecure: bool = False
    patience_s: float = 60.0
    deadline_s: float = LIMITS.send_deadline_s
    enrolment_roots: tuple[bytes, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        def require(condition: bool, message: str) -> None:
            if not condition:
                raise ShoalError(Kind.INVALID, message)

        require(
            len(self.tasks) > 0 and len({len(task.values) for task in self.tasks}) == 1, "a simulation wants tasks with equally many values"
        )
        require(len(self.tasks[0].values) > 0, "a simulation wants at least one device")
        require(0 <= self.processes <= 256, "processes: 0 (one per core) to 256")
        require(1 <= self.channels <= 64, "channels: 1 to 64 per process")
        require(1 <= self.in_flight <= 4_096, "in_flight: 1 to 4096 per process")
        require(self.rate is None or self.rate > 0, "rate: reports per second, above 0")
        require(self.patience_s >= 0 and self.deadline_s > 0, "patience and deadline are seconds, not below 0")

    @property
    def reports(self) -> int:
        return len(self.tasks) * len(self.tasks[0].values)


@dataclass(frozen=True, slots=True)
class Progress:
    """Reports so far, over all processes."""

    total: int
    acked: int
    refused: int
    unknown: int

    @property
    def done(self) -> int:
        return self.acked + self.refused + self.unknown


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """``refused``: reports that surely do not count, by kind. ``unknown``: reports that count once or not at all.

    ``outcomes[t][i]``: what became of device i's report for task t: ``ACKED`` (0), the number of the refusing kind, or
    ``UNKNOWN`` (255). ``latencies_ms``: per acknowledged report, from when it was due (or first sent) to its verified
    receipt. ``reasons``: one message per refusing kind. ``seconds``: wall time of the sending, without process start.
    """

    sent: int
    acked: int
    refused: dict[Kind, int]
    unknown: int
    seconds: float
    latencies_ms: array[float] = field(repr=False)
    outcomes: tuple[bytes, ...] = field(repr=False)
    reasons: dict[Kind, str] = field(default_factory=dict)

    def acked_of(self, task: int) -> int:
        return self.outcomes[task].count(ACKED)

    def unknown_of(self, task: int) -> int:
        return self.outcomes[task].count(UNKNOWN)


async def simulate(plan: SimulationPlan, progress: Callable[[Progress], None] | None = None) -> SimulationResult:
    """Run the whole plan. ``progress`` is called a few times per second, in this event loop.

    Cancelling ends the processes. Raises INTERNAL if one of them died, CONFIG for an address without a usable CA.
    """
    count = min(plan.processes or os.cpu_count() or 1, len(plan.tasks[0].values))
    workers = [_Worker(plan, number, count) for number in range(count)]
    try:
        for worker in workers:
            await worker.receive("ready")
        start = time.monotonic() + (_LEAD_S if plan.rate else 0.0)
        began = time.monotonic()
        for worker in workers:
            worker.connection.send(start)
        counts = {worker.number: (0, 0, 0) for worker in workers}

        def tell(number: int, now: tuple[int, int, int]) -> None:
            counts[number] = now
            if progress is not None:
                progress(Progress(plan.reports, *(sum(column) for column in zip(*counts.values(), strict=True))))

        results = await asyncio.gather(*(worker.result(tell) for worker in workers))
        return _merge(plan, results, time.monotonic() - began)
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """One spawned process and the pipe to it."""

    def __init__(self, plan: SimulationPlan, number: int, count: int) -> None:
        self.number = number
        values = [SimulatedTask(t.signed_task, t.signed_schedule, tuple(t.values[number::count]), t.window) for t in plan.tasks]
        share = Share(
            tuple(values),
            plan.authorities,
            number,
            count,
            max(1, min(plan.in_flight, len(values[0].values))),
            plan.relay,
            plan.rate,
            plan.patience_s,
            plan.deadline_s,
            plan.enrolment_roots,
        )
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        arguments = (theirs, os.getpid(), share, plan.channels, plan.address, plan.insecure)
        self._process = context.Process(target=_work, args=arguments, name=f"devices-{number}", daemon=True)
        self._process.start()
        theirs.close()

    async def _next(self) -> tuple[str, Any]:
        try:
            kind, content = await asyncio.to_thread(self.connection.recv)
        except (EOFError, OSError):
            raise ShoalError(Kind.INTERNAL, "a process of simulated devices died: run it again with fewer processes or devices") from None
        if kind == "error":
            raise ShoalError(*content)
        return kind, content

    async def receive(self, wanted: str) -> Any:
        kind, content = await self._next()
        if kind != wanted:
            raise ShoalError(Kind.INTERNAL, f'a process of simulated devices said "{kind}" instead of "{wanted}"')
        return content

    async def result(self, tell: Callable[[int, tuple[int, int, int]], None]) -> ShareResult:
        while True:
            kind, content = await self._next()
            if kind == "result":
                share: ShareResult = content
                tell(self.number, _counts(share))
                return share
            tell(self.number, content)

    def end(self) -> None:
        """Whatever it still does: a process whose result was read has nothing left but to exit."""
        self._process.kill()
        self._process.join()
        self.connection.close()


def _counts(result: ShareResult) -> tuple[int, int, int]:
    return result.acked, result.refused.total(), result.unknown


def _merge(plan: SimulationPlan, results: list[ShareResult], seconds: float) -> SimulationResult:
    outcomes = [bytearray(len(plan.tasks[0].values)) for _ in plan.tasks]
    refused: Counter[int] = Counter()
    latencies = array("f")
    reasons: dict[Kind, str] = {}
    for number, result in enumerate(results):
        for merged, codes in zip(outcomes, result.codes, strict=True):
            merged[number :: len(results)] = codes
        refused.update(result.refused)
        latencies.extend(result.latencies_ms)
        reasons |= {Kind(code): text for code, text in result.reasons.items()}
    return SimulationResult(
        sent=plan.reports,
        acked=sum(result.acked for result in results),
        refused={Kind(code): count for code, count in sorted(refused.items())},
        unknown=sum(result.unknown for result in results),
        seconds=seconds,
        latencies_ms=latencies,
        outcomes=tuple(bytes(codes) for codes in outcomes),
        reasons=reasons,
    )


# --- in the spawned process ---------------------------------------------------------------------------------------------


def _work(connection: Connection, parent: int, share: Share, channels: int, address: str | None, insecure: bool) -> None:
    die_with_parent(parent)
    try:
        result = _run(_serve(connection, share, channels, address, insecure))
        connection.send(("result", result))
    except ShoalError as error:
        connection.send(("error", (error.kind, error.message)))
    except BaseExceptionGroup as group:
        first = group.exceptions[0]
        text = first.message if isinstance(first, ShoalError) else f"a simulated device failed: {type(first).__name__}"
        connection.send(("error", (first.kind if isinstance(first, ShoalError) else Kind.INTERNAL, text)))
    connection.close()


def _run(main: Any) -> ShareResult:
    """asyncio.run, on uvloop where a server extra installed it: the calls cost a sixth less."""
    try:
        import uvloop
    except ImportError:
        result: ShareResult = asyncio.run(main)
    else:
        result = uvloop.run(main)
    return result


async def _serve(connection: Connection, share: Share, channels: int, address: str | None, insecure: bool) -> ShareResult:
    from shoal.clients.grpc_transport import GrpcTransport

    task = _first_trusted(share)
    target = address or task.shuffler_address
    transports = [GrpcTransport(target, task.shuffler_ca, insecure=insecure, private_pool=True) for _ in range(channels)]
    connection.send(("ready", None))
    start = float(await asyncio.to_thread(connection.recv))
    simulation = Simulation(share, transports, start)
    teller = asyncio.create_task(_tell(connection, simulation.result))
    try:
        return await simulation.run()
    finally:
        teller.cancel()
        await asyncio.gather(teller, return_exceptions=True)
        await asyncio.gather(*(transport.close() for transport in transports))


def _first_trusted(share: Share) -> Task:
    """Where to connect to is in a task, so one must verify. Raises what verification raises if none does."""
    failures: list[ShoalError] = []
    for simulated in share.tasks:
        try:
            return trust_task(simulated.signed_task, share.authorities).task
        except ShoalError as error:
            failures.append(error)
    raise failures[0]


async def _tell(connection: Connection, result: ShareResult) -> None:
    while True:
        await asyncio.sleep(_PROGRESS_S)
        connection.send(("progress", _counts(result)))
