"""A share of a simulated fleet, inside one worker process: each device does what a real one does,
with the same code.

Every device makes its report by itself (``Reporter``), keeps it in an outbox of its own and submits
it until an answer is final. Those that misbehave (``Conduct``) send what they should not, and the
answer is held against the one that they must get. Shared are only channels, parsed values of
identical bytes, behind a relay also what verifying these bytes gave, and the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from shoal.clients.core import ReportState, pause
from shoal.clients.fleet.flight import Flight, FlightRole, Tracker
from shoal.clients.fleet.misbehaviour import REPORTING, Carrier, Conduct, mute
from shoal.clients.fleet.reporter import Reporter
from shoal.clients.fleet.share import Share, ShareResult, blank
from shoal.clients.memory.outbox import MemoryOutbox
from shoal.clients.reports.delivery import attempt, settle
from shoal.clients.transports.transport import BatchTransport, Receipt, Transport
from shoal.crypto.envelope import verify_receipt
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS

if TYPE_CHECKING:
    from shoal.clients.core import Assignment

BATCH = 500  # frames per relayed call
_ALONE = 64  # devices under way at a time beside the relays
_FRAME_EXTRA = 8  # bytes that a frame takes in a call beside its own, at most
_PAUSE_FIRST_S, _PAUSE_MOST_S = 0.1, 2.0  # a restarted shuffler is met quickly
# that frames are made for before others get a turn: one for each frame would cost a tenth of making
# it
_TURN_S = 0.002
_SILENCE_S = 3.0  # how long a frame that must not be answered waits for an answer, or ...
_SILENCES = 3.0  # ... so many times as long as the slowest answer took, if that is longer


class FleetSimulation:
    """Runs a share over ``transports`` (used in turn). ``start``: the time of the first report
    under a rate, as ``now`` tells it.

    now, sleep: for tests, which let time pass by hand.
    """

    def __init__(
        self,
        share: Share,
        transports: Sequence[Transport],
        start: float = 0.0,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        reporter: Reporter | None = None,
    ) -> None:
        self.share, self._transports, self._start, self._now, self._sleep = (
            share,
            transports,
            start,
            now,
            sleep,
        )
        self._slowest_s = 0.0  # of the answers that came
        self._reporter = reporter or Reporter(share)
        self.result = blank(share)
        self._tracker = Tracker(self.result, share.way, now)

    async def run(self) -> ShareResult:
        """Send everything and count what becomes of it, until all is answered or its time is
        over.
        """
        share = self.share
        if share.way is Carrier.RELAY:
            parts = [
                (self._direct, iter(range(share.alone)), min(_ALONE, share.alone)),
                (self._relay, iter(range(share.alone, share.devices)), share.in_flight),
            ]
        else:
            parts = [(self._direct, iter(range(share.devices)), share.in_flight)]
        async with asyncio.TaskGroup() as group:
            for work, devices, count in parts:
                for number in range(count):
                    transport = self._transports[number % len(self._transports)]
                    group.create_task(work(transport, devices))
        return self.result

    # --- one device -------------------------------------------------------------------------------

    def _first_frames(
        self, task: int, device: int, verified: Assignment | None = None
    ) -> list[Flight]:
        """The frames that a device sends at first: one, or two equal ones. None: it refused by
        itself, and that is recorded. ``verified``: behind a relay, once for many devices.
        """
        conduct, since = self.share.conduct_of(device), self._due(task, device)
        try:
            if conduct not in REPORTING:
                crafted = self._reporter.crafted(conduct, task, device)
                return [
                    Flight(
                        FlightRole.BREACH,
                        conduct,
                        crafted.frame,
                        crafted.ack_key,
                        task,
                        device,
                        since,
                    )
                ]
            assignment = verified or self._reporter.assignment(task)
            outbox = MemoryOutbox()
            outbox.pin(assignment.task_id, assignment.keys.digest)
            window = self._reporter.window(task)
            outbox.add(self._reporter.report(assignment, window, task, device))
            entry = outbox.load(assignment.task_id, window)
        except ShoalError as error:
            self._tracker.refused_itself(task, device, error)
            return []
        assert entry is not None  # noqa: S101 - it was claimed just now
        own = Flight(
            FlightRole.OWN, conduct, entry.frame, entry.ack_key, task, device, since, outbox, entry
        )
        return [own, self._copy(own)] if conduct is Conduct.DUPLICATE else [own]

    def _second(self, own: Flight) -> list[Flight]:
        """What a device sends once its own report has its answer."""
        if own.role is not FlightRole.OWN:
            return []
        if own.conduct is Conduct.DUPLICATE:
            return [self._copy(own)]
        if own.conduct is not Conduct.SECOND:
            return []
        crafted = self._reporter.crafted(Conduct.SECOND, own.task, own.device)
        return [
            Flight(
                FlightRole.BREACH,
                Conduct.SECOND,
                crafted.frame,
                crafted.ack_key,
                own.task,
                own.device,
                self._now(),
            )
        ]

    def _copy(self, own: Flight) -> Flight:
        return Flight(
            FlightRole.COPY, own.conduct, own.frame, own.ack_key, own.task, own.device, own.since
        )

    def _due(self, task: int, device: int) -> float:
        """When this report should be sent. Latency counts from here, so a stalled server can't hide
        the waiting it causes.
        """
        share = self.share
        if share.arrivals is None:
            return 0.0
        return self._start + share.arrivals.at(
            (share.first + device * share.step) * len(share.tasks) + task
        )

    async def _until(self, due: float) -> None:
        if due and (ahead := due - self._now()) > 0:
            await self._sleep(ahead)

    # --- each device for itself -------------------------------------------------------------------

    async def _direct(self, transport: Transport, devices: Iterator[int]) -> None:
        for device in devices:
            for task in range(len(self.share.tasks)):
                flights = self._first_frames(task, device)
                if not flights:
                    continue
                await self._until(flights[0].since)
                if len(flights) == 1:
                    await self._fly(flights[0], transport)
                else:
                    async with asyncio.TaskGroup() as together:
                        for flight in flights:
                            together.create_task(self._fly(flight, transport))
                for flight in self._second(flights[0]):
                    await self._fly(flight, transport)
            self._reporter.done(device)

    async def _fly(self, flight: Flight, transport: Transport) -> None:
        """Send one frame until its answer is final."""
        flight.since = flight.since or self._now()
        end = self._now() + self.share.patience_s
        while True:
            self._tracker.begin(flight)
            answer = await self._try(flight, transport)
            if not self._tracker.settle(flight, answer, self._now() > end):
                return
            asked = answer.retry_after_s if answer is not None else 0.0
            await self._pause(flight.attempts, asked, end)

    async def _pause(self, attempts: int, asked_s: float, end: float) -> None:
        """Before the next attempt; not beyond the end of patience, after which there is one
        more.
        """
        wait = pause(attempts, SYSTEM, _PAUSE_FIRST_S, _PAUSE_MOST_S, asked_s)
        await self._sleep(min(wait, max(end - self._now(), _PAUSE_MOST_S)))

    async def _try(self, flight: Flight, transport: Transport) -> ShoalError | None:
        if flight.outbox is not None and flight.entry is not None:
            began = self._now()
            answer = await attempt(flight.outbox, flight.entry, transport, self.share.deadline_s)
            if answer is None:
                self._slowest_s = max(self._slowest_s, self._now() - began)
            return answer
        silent = mute(flight.conduct, self.share.way)
        patience = (
            min(self.share.deadline_s, max(_SILENCE_S, _SILENCES * self._slowest_s))
            if silent
            else self.share.deadline_s
        )
        try:
            mac = await transport.submit(flight.frame, flight.ack_key, patience)
        except ShoalError as error:
            return error
        return None if flight.believes_unverified else _unverified(flight, 0, mac)

    # --- many devices behind one relay ------------------------------------------------------------

    async def _relay(self, transport: Transport, devices: Iterator[int]) -> None:
        # the plan gives a relay's transports
        relay: BatchTransport = transport  # type: ignore[assignment]
        while flights := await self._gather(devices):
            await self._until(flights[-1].since)
            for call in _calls(flights):
                await self._fly_together(call, relay)
            for call in _calls([second for flight in flights for second in self._second(flight)]):
                await self._fly_together(call, relay)
            for flight in flights:
                self._reporter.done(flight.device)

    def _verified(self, task: int) -> Assignment | None:
        """The task that a relay handed to its devices. None: it doesn't verify, and each of them
        finds that out, and refuses, by itself.
        """
        try:
            return self._reporter.assignment(task)
        except ShoalError:
            return None

    async def _gather(self, devices: Iterator[int]) -> list[Flight]:
        """Frames of the next devices, whole devices: at least one, and about as many as one call
        takes, since under a rate the first waits for the last. Empty: no more are left.
        """
        verified = [self._verified(task) for task in range(len(self.share.tasks))]
        tasks = len(verified)
        # what one more device may add
        most = tasks * (2 if Conduct.DUPLICATE in self.share.conduct else 1)
        flights: list[Flight] = []
        # bytes, of all and of the device that had most
        size, largest, turn = 0, 0, time.perf_counter()
        while not flights or (
            len(flights) + most <= BATCH and size + largest <= LIMITS.batch_bytes
        ):
            device = next(devices, None)
            if device is None:
                break
            own = [
                flight
                for task, known in enumerate(verified)
                for flight in self._first_frames(task, device, known)
            ]
            flights += own
            took = sum(len(flight.frame) + _FRAME_EXTRA for flight in own)
            size, largest = size + took, max(largest, took)
            if time.perf_counter() - turn > _TURN_S:
                await asyncio.sleep(0)  # others have replies to read
                turn = time.perf_counter()
        return flights

    async def _fly_together(self, flights: list[Flight], transport: BatchTransport) -> None:
        """One call after another until every frame has a final answer; only the unanswered ones are
        sent again, as they are.
        """
        now = self._now()
        for flight in flights:
            flight.since = flight.since or now
        end = now + self.share.patience_s
        while flights:
            for flight in flights:
                self._tracker.begin(flight)
                if flight.outbox is not None and flight.entry is not None:
                    flight.outbox.sending(flight.entry.record.task_id, flight.entry.record.window)
            frames, ack_keys = (
                [flight.frame for flight in flights],
                [flight.ack_key for flight in flights],
            )
            try:
                receipts = await transport.submit_batch(frames, ack_keys, self.share.deadline_s)
            except ShoalError as error:
                answers: list[ShoalError | None] = [error] * len(flights)
            else:
                answers = [
                    _answer(flight, receipt)
                    for flight, receipt in zip(flights, receipts, strict=True)
                ]
            late = self._now() > end
            flights = [
                flight
                for flight, answer in zip(flights, answers, strict=True)
                if self._record(flight, answer) and self._tracker.settle(flight, answer, late)
            ]
            if flights:
                asked = max(
                    (answer.retry_after_s for answer in answers if answer is not None), default=0.0
                )
                await self._pause(flights[0].attempts, asked, end)

    def _record(self, flight: Flight, answer: ShoalError | None) -> bool:
        """In the outbox, as ``delivery.attempt`` does for a frame by itself. Always True."""
        if flight.outbox is not None and flight.entry is not None:
            record = flight.entry.record
            if answer is None:
                flight.outbox.finish(record.task_id, record.window, ReportState.ACKED)
            else:
                settle(flight.outbox, flight.entry, answer.kind, record.doubtful)
        return True


def _calls(flights: list[Flight]) -> Iterator[list[Flight]]:
    """The frames in their order, in calls that keep the limits of number and of bytes. A device may
    have more tasks than one call takes.
    """
    call: list[Flight] = []
    size = 0
    for flight in flights:
        own = len(flight.frame) + _FRAME_EXTRA
        if call and (len(call) == BATCH or size + own > LIMITS.batch_bytes):
            yield call
            call, size = [], 0
        call.append(flight)
        size += own
    if call:
        yield call


_KINDS = {kind.value: kind for kind in Kind}


def _answer(flight: Flight, receipt: Receipt) -> ShoalError | None:
    """None for an acknowledgement; otherwise the failure. A MAC that doesn't verify is believed in
    neither direction.
    """
    if receipt.status == 0 and flight.believes_unverified:
        return None
    if receipt.mac or receipt.status == 0:
        error = _unverified(flight, receipt.status, receipt.mac)
        if error is not None:
            return error
    if receipt.status == 0:
        return None
    kind = _KINDS.get(receipt.status, Kind.INTERNAL)
    return ShoalError(kind, f"the shuffler refused a relayed frame: {kind.name}")


def _unverified(flight: Flight, status: int, mac: bytes) -> ShoalError | None:
    try:
        verify_receipt(flight.ack_key, status, flight.frame, mac)
    except ShoalError as error:
        return error
    return None
