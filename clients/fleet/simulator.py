"""Many simulated devices in several processes, against real services.

Sealing holds the interpreter lock, so the fleet is shared out over spawned processes; each runs an
event loop with a few connections and many devices in flight. Processes die with this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from shoal.clients.fleet.measure import peak_memory_bytes
from shoal.clients.fleet.misbehaviour import Carrier
from shoal.clients.fleet.plan import Progress, SimulationPlan, SimulationResult, merge
from shoal.clients.fleet.reporter import Reporter
from shoal.clients.fleet.share import SealingEffort, Share, ShareResult, SimulatedTask, blank
from shoal.clients.fleet.simulated import FleetSimulation
from shoal.clients.transports.transport import Transport
from shoal.crypto.trust import trust_task
from shoal.errors import Kind, ShoalError
from shoal.log import configure
from shoal.mqtt.settings import BrokerSettings
from shoal.rpc.address import is_loopback, parse_address
from shoal.services.parent import die_with_parent
from shoal.services.workers import deaf_to_interrupts
from shoal.task import Task

_PROGRESS_S = 0.2
_END_S = 1.0  # that a process may take to end once its pipe is closed
_LEAD_S = 0.5  # between the start signal and the first report under a rate: time to prepare a few


async def simulate(
    plan: SimulationPlan,
    progress: Callable[[Progress], None] | None = None,
    stop: asyncio.Event | None = None,
    preparing: Callable[[float], None] | None = None,
    ready: Callable[[SimulationPlan], SimulationPlan] | None = None,
) -> SimulationResult:
    """Run the whole plan. ``progress`` is called a few times per second, in this event loop; before
    the first report, where the plan says ``prepare``, ``preparing`` with the part of the
    encapsulations that is made, in (0, 1].

    ``ready``: called once with the plan when everything is prepared, which may have taken minutes;
    what it raises ends everything before a report was sent, and the arrivals of the plan that it
    returns are those that are kept to.

    ``stop``: set it to end early; what was measured until then comes back, ``interrupted``.
    Cancelling ends the processes and gives nothing. Raises INTERNAL if one of them died, CONFIG for
    an address without a usable CA, or one that is not on this machine and not named by the plan
    itself.
    """
    conduct = plan.conduct()
    target_of(plan)
    count = min(plan.processes or os.cpu_count() or 1, len(plan.tasks[0].values))
    workers: list[_Worker] = []
    stopped = stop or asyncio.Event()
    entered = time.monotonic()
    try:
        with deaf_to_interrupts():
            for number in range(count):
                workers.append(_Worker(plan, number, plan.share(conduct, number, count)))
        if not await _ready(workers, stopped, preparing):
            return merge(
                plan,
                conduct,
                [blank(plan.share(conduct, number, count)) for number in range(count)],
                0.0,
                True,
            )
        plan = ready(plan) if ready is not None else plan
        start = time.monotonic() + (_LEAD_S if plan.arrivals else 0.0)
        began, began_at = time.monotonic(), time.time()
        for worker in workers:
            worker.connection.send((start, plan.arrivals))
        told = _ProgressSum(plan.reports, workers, progress)
        stopper = asyncio.create_task(_stop(stopped, workers))
        try:
            results = await asyncio.gather(*(worker.result(told.tell) for worker in workers))
        finally:
            stopper.cancel()
        seconds, prepare_s = time.monotonic() - began, began - entered if plan.prepare else 0.0
        return replace(
            merge(plan, conduct, results, seconds, stopped.is_set()),
            began_at=began_at,
            prepare_s=prepare_s,
        )
    finally:
        for worker in workers:
            worker.end()


def target_of(plan: SimulationPlan) -> str:
    """Where frames go: HOST:PORT. Raises CONFIG for a task's own address that is not on this
    machine: a load test that reaches somebody's services by accident is an attack. What
    verification of the first task raises is left to the devices.
    """
    if plan.broker is not None:
        return f"{plan.broker.host}:{plan.broker.port}"
    if plan.address is not None:
        return plan.address
    address = _first_trusted(plan.tasks, plan.authorities).shuffler_address
    if not is_loopback(parse_address(address, "a task's shuffler_address")[0]):
        raise ShoalError(
            Kind.CONFIG,
            f"the tasks' shuffler {address} is not on this machine: name it, --address {address}, "
            "if you mean to load it",
        )
    return address


async def _ready(
    workers: list[_Worker], stopped: asyncio.Event, preparing: Callable[[float], None] | None
) -> bool:
    """True once all processes can begin; False if it was stopped before."""
    parts = dict.fromkeys(range(len(workers)), 0.0)

    def tell(number: int, part: float) -> None:
        parts[number] = part
        if preparing is not None:
            preparing(sum(parts.values()) / len(parts))

    ready = asyncio.gather(*(worker.ready(tell) for worker in workers))
    stopper = asyncio.create_task(stopped.wait())
    try:
        waited: set[asyncio.Future[Any]] = {ready, stopper}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            await ready
        return not stopped.is_set()
    finally:
        stopper.cancel()
        ready.cancel()
        await asyncio.gather(ready, return_exceptions=True)


async def _stop(stopped: asyncio.Event, workers: list[_Worker]) -> None:
    await stopped.wait()
    for worker in workers:
        with contextlib.suppress(OSError):  # it has ended already
            worker.connection.send("stop")


class _ProgressSum:
    """What all processes have told of their progress, added up for whoever watches."""

    def __init__(
        self,
        reports: int,
        workers: list[_Worker],
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self._reports, self._progress = reports, progress
        self._counts = {worker.number: (0,) * Progress.COUNTS for worker in workers}
        self._troubles: dict[int, str] = {}

    def tell(self, number: int, counts: tuple[int, ...], trouble: str) -> None:
        """Process ``number`` has come so far; ``trouble``: one line, or ""."""
        self._counts[number], self._troubles[number] = counts, trouble
        if self._progress is not None:
            sums = (sum(column) for column in zip(*self._counts.values(), strict=True))
            text = next(filter(None, self._troubles.values()), "")
            self._progress(replace(Progress(self._reports, *sums), trouble=text))


class _Worker:
    """One spawned process and the pipe to it."""

    def __init__(self, plan: SimulationPlan, number: int, share: Share) -> None:
        self.number = number
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        arguments = (
            theirs,
            os.getpid(),
            share,
            plan.channels,
            plan.address,
            plan.insecure,
            _parts(plan),
        )
        self._process = context.Process(
            target=_work, args=arguments, name=f"devices-{number}", daemon=True
        )
        self._process.start()
        theirs.close()

    async def _next(self) -> tuple[str, Any]:
        try:
            kind, content = await asyncio.to_thread(self.connection.recv)
        except (EOFError, OSError):
            raise ShoalError(
                Kind.INTERNAL,
                f"a process of simulated devices died ({self._fate()}): run it again with fewer "
                "processes or devices",
            ) from None
        if kind == "error":
            raise ShoalError(*content)
        return kind, content

    def _fate(self) -> str:
        """How a process whose pipe is closed ended."""
        self._process.join(_END_S)
        code = self._process.exitcode
        return (
            "it hangs" if code is None else f"signal {-code}" if code < 0 else f"exit status {code}"
        )

    async def ready(self, tell: Callable[[int, float], None]) -> None:
        while True:
            kind, content = await self._next()
            if kind == "ready":
                return
            tell(self.number, content)

    async def result(self, tell: Callable[[int, tuple[int, ...], str], None]) -> ShareResult:
        while True:
            kind, content = await self._next()
            if kind == "result":
                share: ShareResult = content
                tell(self.number, _counts(share), share.trouble)
                return share
            tell(self.number, *content)

    def end(self) -> None:
        """Whatever it still does: a process whose result was read has nothing left but to exit."""
        self._process.kill()
        self._process.join()
        self.connection.close()


def _counts(result: ShareResult) -> tuple[int, ...]:
    surprises = result.surprises.total()
    return result.acked, result.refused.total(), result.unknown, result.handled, surprises


def _parts(plan: SimulationPlan) -> tuple[Any, ...] | None:
    """A broker's settings as plain values: they hold a password and are not pickled, but the
    processes of this command need it.
    """
    broker = plan.broker
    if broker is None:
        return None
    return (
        broker.host,
        broker.port,
        broker.ca,
        broker.username,
        broker.password,
        broker.protocol,
        broker.insecure,
    )


# --- in the spawned process -----------------------------------------------------------------------


def _work(
    connection: Connection,
    parent: int,
    share: Share,
    channels: int,
    address: str | None,
    insecure: bool,
    broker: tuple[Any, ...] | None,
) -> None:
    die_with_parent(parent)
    # this process is the simulator's own; a broker's trouble is told with the progress, once
    configure("warning", without=["mqtt"])
    try:
        result = _run(_serve(connection, share, channels, address, insecure, broker))
        connection.send(("result", result))
    except ShoalError as error:
        connection.send(("error", (error.kind, error.message)))
    except BaseExceptionGroup as group:
        cause = _innermost(group)
        text = (
            cause.message
            if isinstance(cause, ShoalError)
            else f"a simulated device failed: {type(cause).__name__}"
        )
        connection.send(
            ("error", (cause.kind if isinstance(cause, ShoalError) else Kind.INTERNAL, text))
        )
    connection.close()


def _innermost(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group


def _run(main: Any) -> ShareResult:
    """asyncio.run, on uvloop where a server extra installed it: the calls cost a sixth less."""
    try:
        import uvloop
    except ImportError:
        result: ShareResult = asyncio.run(main)
    else:
        result = uvloop.run(main)
    return result


async def _serve(
    connection: Connection,
    share: Share,
    channels: int,
    address: str | None,
    insecure: bool,
    broker: tuple[Any, ...] | None,
) -> ShareResult:
    reporter, prepare_cpu_s = Reporter(share), 0.0
    if share.prepare:
        before = time.process_time()
        reporter.prepare(lambda part: connection.send(("preparing", part)))
        prepare_cpu_s = time.process_time() - before
    # Values, conduct and encapsulations stay until the end: the collector need not walk over them
    # again and again.
    gc.freeze()
    transports = _transports(share, channels, address, insecure, broker)
    connection.send(("ready", None))
    start, arrivals = await asyncio.to_thread(connection.recv)
    share = replace(share, arrivals=arrivals)
    before = time.process_time()
    simulation = FleetSimulation(share, transports, start, reporter=reporter)
    work = asyncio.create_task(simulation.run())
    teller = asyncio.create_task(_tell(connection, simulation.result))
    try:
        with _when_told(
            connection, work.cancel
        ):  # the parent says one thing more, if anything: stop
            await asyncio.wait({work})
        if not work.cancelled():
            await work
        simulation.result.effort = SealingEffort(
            prepare_cpu_s, time.process_time() - before, peak_memory_bytes()
        )
        return simulation.result
    finally:
        teller.cancel()
        await asyncio.gather(teller, return_exceptions=True)
        await asyncio.gather(*(transport.close() for transport in transports))


@contextlib.contextmanager
def _when_told(connection: Connection, act: Callable[[], object]) -> Iterator[None]:
    """Call ``act`` when something comes from the other end. The connection stays one that waits
    until all is sent: uvloop makes what it watches non-blocking, and then a message larger than the
    pipe's buffer, a large share's result, would be cut off.
    """
    loop = asyncio.get_running_loop()
    loop.add_reader(connection.fileno(), act)
    os.set_blocking(connection.fileno(), True)
    try:
        yield
    finally:
        loop.remove_reader(connection.fileno())


def _transports(
    share: Share, channels: int, address: str | None, insecure: bool, broker: tuple[Any, ...] | None
) -> list[Transport]:
    task = _first_trusted(share.tasks, share.authorities)
    if share.way is Carrier.MQTT and broker is not None:
        # the library of the one carrier that is used
        from shoal.clients.transports.mqtt_transport import MqttTransport

        settings = BrokerSettings(*broker)
        return [MqttTransport(settings, task.shuffler_key) for _ in range(channels)]
    # as above
    from shoal.clients.transports.grpc_transport import GrpcTransport

    return [
        GrpcTransport(
            address or task.shuffler_address, task.shuffler_ca, insecure=insecure, private_pool=True
        )
        for _ in range(channels)
    ]


def _first_trusted(tasks: tuple[SimulatedTask, ...], authorities: frozenset[bytes]) -> Task:
    """Where to connect to is in a task, so one must verify. Raises what verification raises if none
    does.
    """
    failures: list[ShoalError] = []
    for simulated in tasks:
        try:
            return trust_task(simulated.signed_task, authorities).task
        except ShoalError as error:
            failures.append(error)
    raise failures[0]


async def _tell(connection: Connection, result: ShareResult) -> None:
    while True:
        await asyncio.sleep(_PROGRESS_S)
        connection.send(("progress", (_counts(result), result.trouble)))
