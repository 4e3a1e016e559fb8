"""A share of a simulated fleet, inside one worker process: each device does what a real one does, with the same code.

Every device verifies the signed task and the signed key schedule itself, randomizes, seals, keeps its frame in an outbox of
its own and submits it until an answer is final. Shared are only channels, parsed values of identical bytes and the
event loop.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shoal import codec
from shoal.clients.core import Assignment, State, assign, identity_for, pause, randomize, seal, window_at
from shoal.clients.delivery import attempt, give_up, settle
from shoal.clients.outbox import Entry, MemoryOutbox, Record
from shoal.clients.transport import BatchTransport, Receipt
from shoal.crypto.envelope import verify_receipt
from shoal.crypto.signing import SigningContext, SigningKey, verify
from shoal.crypto.trust import trust_schedule, trust_task
from shoal.domain import Value
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from shoal.crypto.enrolment import DeviceIdentity
    from shoal.task import Task

ACKED = 0  # codes of the outcome history: 0, the number of the refusing kind, or 255
UNKNOWN = 255
_DRAWN = 256  # devices whose reports are drawn in one call
BATCH = 500  # frames per relayed call
_PAUSE_FIRST_S, _PAUSE_MOST_S = 0.1, 2.0  # a restarted shuffler is met quickly


@dataclass(frozen=True, slots=True)
class SimulatedTask:
    """What devices get (the signed bytes), and their values: ``values[i]`` is device i's. ``window``: None = by the clock."""

    signed_task: bytes
    signed_schedule: bytes
    values: Sequence[Value] = field(repr=False)
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """The devices of one process. ``rate``: reports per second over *all* shares; ``first`` and ``step`` place this one's devices."""

    tasks: tuple[SimulatedTask, ...]
    authorities: frozenset[bytes]
    first: int
    step: int
    in_flight: int
    relay: bool
    rate: float | None
    patience_s: float
    deadline_s: float
    enrolment_roots: tuple[bytes, ...] = field(default=(), repr=False)  # PEM; private keys, for simulations alone

    @property
    def devices(self) -> int:
        return len(self.tasks[0].values)


@dataclass(slots=True)
class ShareResult:
    """``codes[t][i]``: what became of device i's report for task t. ``latencies_ms``: per acknowledged report."""

    codes: tuple[bytearray, ...]
    latencies_ms: array[float] = field(default_factory=lambda: array("f"))
    acked: int = 0
    refused: Counter[int] = field(default_factory=Counter)
    unknown: int = 0
    reasons: dict[int, str] = field(default_factory=dict)  # one message per kind, for people


class Simulation:
    """Runs a share over ``transports`` (used in turn). ``start``: the time of the first report under a rate, as ``now`` tells it.

    now, sleep: for tests, which let time pass by hand.
    """

    def __init__(
        self,
        share: Share,
        transports: Sequence[BatchTransport],
        start: float = 0.0,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.share, self._transports, self._start, self._now, self._sleep = share, transports, start, now, sleep
        self.result = ShareResult(tuple(bytearray(share.devices) for _ in share.tasks))
        self._devices: Iterator[int] = iter(range(share.devices))
        self._draws: list[dict[int, NDArray[np.uint8]]] = [{} for _ in share.tasks]
        self._known: dict[int, tuple[Assignment, codec.Signed, codec.Signed]] = {}
        self._roots = {key.public: key for key in map(SigningKey.from_pem, share.enrolment_roots)}
        self._enrolled: tuple[int, dict[bytes, DeviceIdentity]] = (-1, {})  # a device, and who it is to each authority

    async def run(self) -> ShareResult:
        work = self._relay if self.share.relay else self._direct
        async with asyncio.TaskGroup() as group:
            for number in range(self.share.in_flight):
                group.create_task(work(self._transports[number % len(self._transports)]))
        return self.result

    # --- one device ---------------------------------------------------------------------------------------------------

    def _report(self, outbox: MemoryOutbox, task: int, device: int) -> Entry | None:
        """Verify, randomize, seal, queue. None: the device itself refused, and its outcome is recorded."""
        try:
            assignment = self._verified(task)
            outbox.pin(assignment.task_id, assignment.keys.digest)
            window = self.share.tasks[task].window
            if window is None:
                window = window_at(assignment.task.name, assignment.task.windows, time.time())
            identity = self._identity(assignment.task, device)
            report = self._drawn(assignment, task, device)
            outbox.claim(assignment.task_id, window, lambda: seal(assignment, window, report, identity=identity))
            return outbox.load(assignment.task_id, window)
        except ShoalError as error:
            self._refused(task, device, error)
            return None

    def _verified(self, task: int) -> Assignment:
        """The task as this device may act upon it: both signatures verified by this device over the bytes that it received.

        What parsing gives is a function of those bytes alone, and they are the same for all devices: it is done once.
        """
        simulated = self.share.tasks[task]
        known = self._known.get(task)
        if known is None:
            trusted = trust_task(simulated.signed_task, self.share.authorities)
            assignment = assign(trusted, trust_schedule(simulated.signed_schedule, trusted))
            signed = (codec.decode_signed_task(simulated.signed_task), codec.decode_signed_schedule(simulated.signed_schedule))
            self._known[task] = (assignment, *signed)
            return assignment
        assignment, signed_task, signed_schedule = known
        verify(signed_task.authority, SigningContext.TASK, signed_task.data, signed_task.signature)
        verify(signed_schedule.authority, SigningContext.KEY_SCHEDULE, signed_schedule.data, signed_schedule.signature)
        return assignment

    def _identity(self, task: Task, device: int) -> DeviceIdentity | None:
        """Enrolled on the spot, for as long as the task runs, and the same for all of a device's tasks of one authority.

        Raises CONFIG for a task of an authority whose key the simulation was not given.
        """
        root = self._roots.get(task.enrolment_key)
        if root is None:
            return identity_for(task, None, 0.0)
        from shoal.crypto.enrolment import enrol

        if self._enrolled[0] != device:
            self._enrolled = (device, {})
        known, plan = self._enrolled[1], task.windows
        if root.public not in known:
            known[root.public] = enrol(root, plan.start_s - plan.skew_s, plan.deadline_of(plan.count - 1))
        return known[root.public]

    def _drawn(self, assignment: Assignment, task: int, device: int) -> NDArray[np.uint8]:
        """This device's randomized report. Drawn with its neighbours' in one vectorised call, each draw taken once."""
        waiting = self._draws[task]
        if device not in waiting:
            first = device - device % _DRAWN
            values = self.share.tasks[task].values[first : first + _DRAWN]
            waiting.update(zip(range(first, first + len(values)), randomize(assignment, values), strict=True))
        return waiting.pop(device)

    def _due(self, task: int, device: int) -> float:
        """When this report should be sent. Latency counts from here, so a stalled server can't hide the waiting it causes."""
        rate = self.share.rate
        if rate is None:
            return 0.0
        place = (self.share.first + device * self.share.step) * len(self.share.tasks) + task
        return self._start + place / rate

    # --- each device for itself ---------------------------------------------------------------------------------------

    async def _direct(self, transport: BatchTransport) -> None:
        for device in self._devices:
            outbox = MemoryOutbox()
            for task in range(len(self.share.tasks)):
                due = self._due(task, device)
                entry = self._report(outbox, task, device)
                if entry is None:
                    continue
                if due and (ahead := due - self._now()) > 0:
                    await self._sleep(ahead)
                await self._deliver(outbox, entry, transport, task, device, due or self._now())

    async def _deliver(self, outbox: MemoryOutbox, entry: Entry, transport: BatchTransport, task: int, device: int, since: float) -> None:
        task_id, window = entry.record.task_id, entry.record.window
        end = self._now() + self.share.patience_s
        while True:
            error = await attempt(outbox, entry, transport, self.share.deadline_s)
            if error is None:
                return self._acked(task, device, since)
            held = outbox.load(task_id, window)
            if held is not None and self._now() > end:
                give_up(outbox, held, error.kind)
                held = None
            if held is None:
                return self._ended(task, device, outbox.find(task_id, window), error)
            entry = held
            await self._sleep(pause(entry.record.attempts, SYSTEM, _PAUSE_FIRST_S, _PAUSE_MOST_S))

    def _acked(self, task: int, device: int, since: float) -> None:
        self.result.codes[task][device] = ACKED
        self.result.acked += 1
        self.result.latencies_ms.append((self._now() - since) * 1000.0)

    def _ended(self, task: int, device: int, record: Record | None, error: ShoalError) -> None:
        """A final answer other than a receipt."""
        if record is not None and record.state is State.UNKNOWN:
            self.result.codes[task][device] = UNKNOWN
            self.result.unknown += 1
        else:
            self._refused(task, device, error)

    def _refused(self, task: int, device: int, error: ShoalError) -> None:
        code = error.kind.value
        self.result.codes[task][device] = code
        self.result.refused[code] += 1
        self.result.reasons.setdefault(code, error.message)

    # --- many devices behind one relay ----------------------------------------------------------------------------------

    async def _relay(self, transport: BatchTransport) -> None:
        while flights := await self._gather():
            if (due := flights[-1].since) and (ahead := due - self._now()) > 0:
                await self._sleep(ahead)
            now = self._now()
            for flight in flights:
                flight.since = flight.since or now
            await self._deliver_batch(flights, transport)

    async def _gather(self) -> list[Flight]:
        """Prepared reports of the next devices, as many as one call takes."""
        tasks = len(self.share.tasks)
        flights: list[Flight] = []
        size = 0
        while len(flights) + tasks <= max(BATCH, tasks) and size + tasks * (LIMITS.frame_sizes[-1] + 8) <= LIMITS.batch_bytes:
            device = next(self._devices, None)
            if device is None:
                break
            outbox = MemoryOutbox()
            for task in range(tasks):
                entry = self._report(outbox, task, device)
                if entry is not None:
                    flights.append(Flight(outbox, entry, task, device, self._due(task, device)))
                    size += len(entry.frame) + 8
            await asyncio.sleep(0)  # others have replies to read
        return flights

    async def _deliver_batch(self, flights: list[Flight], transport: BatchTransport) -> None:
        """One call after another until every frame has a final answer; only the unanswered ones are sent again, as they are."""
        end = self._now() + self.share.patience_s
        attempts = 0
        while flights:
            attempts += 1
            for flight in flights:
                flight.outbox.sending(flight.entry.record.task_id, flight.entry.record.window)
            frames, ack_keys = [flight.entry.frame for flight in flights], [flight.entry.ack_key for flight in flights]
            try:
                receipts = await transport.submit_batch(frames, ack_keys, self.share.deadline_s)
            except ShoalError as error:
                answers: list[ShoalError | None] = [error] * len(flights)
            else:
                answers = [_answer(flight.entry, receipt) for flight, receipt in zip(flights, receipts, strict=True)]
            late = self._now() > end
            flights = [flight for flight, answer in zip(flights, answers, strict=True) if self._again(flight, answer, late)]
            if flights:
                await self._sleep(pause(attempts, SYSTEM, _PAUSE_FIRST_S, _PAUSE_MOST_S))

    def _again(self, flight: Flight, error: ShoalError | None, late: bool) -> bool:
        """Record one frame's answer; True if the same bytes must be sent again."""
        outbox, record = flight.outbox, flight.entry.record
        if error is None:
            outbox.finish(record.task_id, record.window, State.ACKED)
            self._acked(flight.task, flight.device, flight.since)
            return False
        settle(outbox, flight.entry, error.kind, record.doubtful)
        held = outbox.load(record.task_id, record.window)
        if held is not None and late:
            give_up(outbox, held, error.kind)
            held = None
        if held is None:
            self._ended(flight.task, flight.device, outbox.find(record.task_id, record.window), error)
            return False
        flight.entry = held
        return True


@dataclass(slots=True)
class Flight:
    """A report on its way through a relay. ``since``: when it was due, on the monotonic clock; 0: not yet sent."""

    outbox: MemoryOutbox
    entry: Entry
    task: int
    device: int
    since: float


_KINDS = {kind.value: kind for kind in Kind}


def _answer(entry: Entry, receipt: Receipt) -> ShoalError | None:
    """None for a verified acknowledgement; otherwise the failure. A MAC that doesn't verify is believed in neither direction."""
    try:
        if receipt.mac or receipt.status == 0:
            verify_receipt(entry.ack_key, receipt.status, entry.frame, receipt.mac)
    except ShoalError as error:
        return error
    if receipt.status == 0:
        return None
    kind = _KINDS.get(receipt.status, Kind.INTERNAL)
    return ShoalError(kind, f"the shuffler refused a relayed frame: {kind.name}")
