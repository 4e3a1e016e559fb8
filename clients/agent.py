"""The device's agent: answers tasks under its owner's policy, keeps every report until the shuffler has it.

::

    async with Agent(AgentConfig.load(path)) as agent:
        outcome = await agent.report("visits", 3)

``report`` works without a network: the report is on disk when it returns, and the background sender, a later ``flush`` or the
next start delivers it, with the same bytes each time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from shoal.clients.config import AgentConfig
from shoal.clients.core import ACTION_OF, Action, Assignment, State, identity_for, pause, prepare, window_at
from shoal.clients.delivery import attempt, give_up, on
from shoal.clients.outbox import Entry, Outbox, Record
from shoal.clients.policy import check
from shoal.clients.taskbook import TaskBook
from shoal.clients.transport import Transport
from shoal.clock import Clock, SystemClock
from shoal.domain import Value
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.log import get_log
from shoal.task import Task

if TYPE_CHECKING:
    from shoal.clients.rounds_agent import RoundsAgent, VectorValue
    from shoal.clients.rounds_ledger import Answered
    from shoal.crypto.enrolment import DeviceIdentity

log = get_log("agent")
_NO_HURRY = 60  # as if after so many attempts: the longest pause
_SENDERS = 4  # attempts under way at once
TransportFactory = Callable[[Task, bool], Transport]  # task, insecure
RoundsFactory = Callable[[AgentConfig, Clock, Entropy], "RoundsAgent"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where a report stands. ``fresh``: this call made it; False: the window already had one, and the value was ignored.

    ``kind`` and ``message``: the last failure, None and "" if there was none.
    """

    task: str
    task_id: TaskId
    window: int
    state: State
    fresh: bool
    attempts: int
    kind: Kind | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """What the agent would do with a task now. ``refusal``: why it would send nothing, or "". ``window``: None outside the plan."""

    assignment: Assignment
    consent: str
    refusal: str
    window: int | None


def grpc_transport(task: Task, insecure: bool) -> Transport:
    """The default way to a task's shuffler. gRPC is imported with the first report that is sent."""
    from shoal.clients.grpc_transport import GrpcTransport

    return GrpcTransport(task.shuffler_address, task.shuffler_ca, insecure=insecure)


def open_outbox(config: AgentConfig) -> Outbox:
    from shoal.clients.outbox_sqlite import SqliteOutbox

    return SqliteOutbox(config.outbox, config.outbox_rows)


def open_rounds(config: AgentConfig, clock: Clock, entropy: Entropy) -> RoundsAgent:
    """The default way to take part in rounds. numpy and gRPC are imported with the first vector."""
    from shoal.clients.rounds_agent import RoundsAgent

    return RoundsAgent(config, clock, entropy)


class Agent:
    """One device. Use as an async context manager; every method is for the event loop that entered it.

    ``background``: send what waits without being asked, pausing after failures. clock, entropy, transports, rounds: for tests
    and for other transports.
    """

    def __init__(
        self,
        config: AgentConfig,
        *,
        background: bool = True,
        clock: Clock | None = None,
        entropy: Entropy = SYSTEM,
        transports: TransportFactory = grpc_transport,
        rounds: RoundsFactory = open_rounds,
    ) -> None:
        self._config, self._background = config, background
        self._clock, self._entropy, self._make_transport = clock or SystemClock(), entropy, transports
        self._transports: dict[tuple[str, bytes], Transport] = {}
        self._due: dict[tuple[TaskId, int], float] = {}  # event loop time of the next attempt
        self._under_way: dict[tuple[TaskId, int], asyncio.Lock] = {}
        self._wake = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None
        self._outbox: Outbox | None = None
        self._identity: DeviceIdentity | None = None
        self._make_rounds = rounds
        self._rounds: RoundsAgent | None = None
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Read the device's identity, open the outbox, read the tasks, start sending. Raises CONFIG, KEY_FILE."""
        if self._config.enrolment is not None:
            self._identity = await asyncio.to_thread(self._config.enrolment.load)
        self._outbox = await asyncio.to_thread(open_outbox, self._config)
        self.tasks = TaskBook(self._config.tasks, self._config.policy, self._outbox)
        try:
            await asyncio.to_thread(self.tasks.refresh)
        except ShoalError:
            self._outbox.close()
            raise
        if self._background:
            self._wake.set()
            self._sender = asyncio.create_task(self._send_on())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop sending (an attempt under way is given up and stays queued, doubtful), close channels and outbox."""
        if self._sender is not None:
            self._sender.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sender
        for transport in self._transports.values():
            await transport.close()
        if self._rounds is not None:
            await self._rounds.close()
        await asyncio.to_thread(self._box.close)

    @property
    def _box(self) -> Outbox:
        if self._outbox is None:
            raise ShoalError(Kind.CONFIG, "an agent is used inside `async with Agent(config) as agent:`")
        return self._outbox

    # --- reporting ----------------------------------------------------------------------------------------------------

    async def report(self, name: str, value: VectorValue, *, send: bool = True, tell: Callable[[str], None] | None = None) -> Outcome:
        """Answer a task in its current window, durably, and (``send``) make one attempt to deliver it.

        A window is answered once: a second call in it, even after a restart, ignores its value and returns the standing
        of the first. Raises UNKNOWN_TASK or what is wrong with the task's files; REFUSED by the owner's policy; CONFIG if the
        task wants an enrolled device and this one is not; TOO_EARLY, WINDOW_CLOSED by the clock; OVERLOADED when the outbox
        or the disk is full. Nothing is stored or sent then.

        A task that is summed in rounds wants a vector, and this device until the round has ended: the call returns then, and ``tell``
        gets a line for people at every stage, each once. A window without enough devices keeps the call waiting until it is over.
        """
        assignment = self.tasks.find(name)
        check(self._config.policy, assignment.trusted, assignment.epsilon0, assignment.apart)
        now = self._clock.now()
        identity = identity_for(assignment.task, self._identity, now)
        if assignment.task.pairwise is not None and identity is not None:
            return await self._take_part(assignment, identity, value, send, tell)
        if value is not None and not isinstance(value, bool | int | float | str):
            raise ShoalError(Kind.INVALID, f"task {assignment.task.name} asks for one answer, not for a vector")
        answer: Value = value
        window = window_at(assignment.task.name, assignment.task.windows, now)
        task_id = assignment.task_id

        def claim() -> tuple[Record, bool]:
            return self._box.claim(task_id, window, lambda: prepare(assignment, window, answer, self._entropy, identity))

        record, fresh = await asyncio.to_thread(claim)
        failure: ShoalError | None = None
        if send and record.state is State.QUEUED:
            failure = await self._attempt(record)
            record = await self._find(record)
        self._wake.set()
        return _outcome(assignment.task.name, record, fresh, failure)

    async def _take_part(
        self, assignment: Assignment, identity: DeviceIdentity, value: VectorValue, send: bool, tell: Callable[[str], None] | None
    ) -> Outcome:
        from shoal.clients.rounds_agent import nobody, standing_of

        if not send:
            raise ShoalError(Kind.CONFIG, f"task {assignment.task.name} is summed in rounds: a vector can't wait in a queue, send it now")
        rounds = await self._sums()
        window, one, fresh = await rounds.report(assignment, identity, value, tell or nobody)
        state, kind, message = standing_of(one)
        return Outcome(assignment.task.name, assignment.task_id, window, state, fresh, int(fresh), kind, message)

    async def _sums(self) -> RoundsAgent:
        """Made with the first vector: most devices have none."""
        async with self._opening:
            if self._rounds is None:
                self._rounds = await asyncio.to_thread(self._make_rounds, self._config, self._clock, self._entropy)
            return self._rounds

    async def flush(self) -> list[Outcome]:
        """Try every report that waits once, now; the standing of each. Never raises for a report that could not be sent."""
        waiting = await asyncio.to_thread(lambda: self._box.records(queued=True))
        gate = asyncio.Semaphore(_SENDERS)

        async def one(record: Record) -> Outcome:
            async with gate:
                failure = await self._attempt(record)
            return _outcome(self._name(record), await self._find(record), False, failure)

        outcomes = await asyncio.gather(*(one(record) for record in waiting))
        self._wake.set()
        return list(outcomes)

    async def outcomes(self) -> list[Outcome]:
        """The standing of every report that this device ever made, and of every window that it answered with a vector."""
        records = await asyncio.to_thread(self._box.records)
        reports = [_outcome(self._name(record), record, False, None) for record in records]
        if self._rounds is None and not self._config.ledger.is_file():
            return reports
        from shoal.clients.rounds_agent import standing_of

        answers = await (await self._sums()).answers()
        shown = [(one, *standing_of(one)) for one in answers]
        vectors = [Outcome(self._name(one), one.task_id, one.window, state, False, 1, kind, message) for one, state, kind, message in shown]
        return [*reports, *vectors]

    def status(self) -> list[TaskStatus]:
        """Every known task: the owner's answer, why it would be refused, the window that the clock names."""
        return [self._status(one) for one in self.tasks.all()]

    def _status(self, assignment: Assignment) -> TaskStatus:
        policy, task = self._config.policy, assignment.task
        refusal = ""
        try:
            check(policy, assignment.trusted, assignment.epsilon0, assignment.apart)
            identity_for(task, self._identity, self._clock.now())
        except ShoalError as error:
            refusal = error.message
        return TaskStatus(assignment, policy.consent(task.purpose), refusal, task.windows.current(self._clock.now()))

    def _name(self, record: Record | Answered) -> str:
        known = self.tasks.get(record.task_id)
        return known.task.name if known else record.task_id.short

    async def _find(self, record: Record) -> Record:
        return await asyncio.to_thread(self._box.find, record.task_id, record.window) or record

    # --- sending --------------------------------------------------------------------------------------------------------

    async def _attempt(self, record: Record) -> ShoalError | None:
        """One attempt for one report, one at a time for each. None: acknowledged, now or before."""
        key = (record.task_id, record.window)
        lock = self._under_way.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                entry = await on(self._box, lambda: self._box.load(*key))
                if entry is None:
                    return None
                failure = await self._submit(entry)
                if failure is not None:
                    await self._after(entry, failure)
                return failure
        finally:
            self._under_way.pop(key, None)

    async def _submit(self, entry: Entry) -> ShoalError | None:
        """Send the bytes, if task and owner still stand behind them."""
        assignment = self.tasks.get(entry.record.task_id)
        if assignment is None:
            name = entry.record.task_id.short
            return ShoalError(Kind.UNKNOWN_TASK, f"the task of this report (id {name}) left the tasks folder: put it back")
        try:
            check(self._config.policy, assignment.trusted, assignment.epsilon0, assignment.apart)  # consent may have been withdrawn since
            transport = self._transport(assignment.task)
        except ShoalError as error:
            return error
        return await attempt(self._box, entry, transport, self._config.deadline_s)

    async def _after(self, entry: Entry, failure: ShoalError) -> None:
        """What a failed attempt leads to: the end of the report, fresher tasks, or a later time."""
        key = (entry.record.task_id, entry.record.window)
        held = await on(self._box, lambda: self._box.load(*key))
        if held is None:
            self._due.pop(key, None)
            return
        over = self._clock.now() >= held.record.expires_s
        if over or failure.kind is Kind.REFUSED:
            await on(self._box, lambda: give_up(self._box, held, Kind.WINDOW_CLOSED if over else Kind.REFUSED))
            self._due.pop(key, None)
            return
        if ACTION_OF[failure.kind] is Action.REFRESH:
            with contextlib.suppress(ShoalError):  # a folder that is gone for a moment changes nothing
                await asyncio.to_thread(self.tasks.refresh)
        sent = held.record.attempts > entry.record.attempts  # otherwise the trouble is on this device: no hurry
        self._due[key] = asyncio.get_running_loop().time() + self._pause(held.record.attempts if sent else _NO_HURRY)

    def _pause(self, attempts: int) -> float:
        return pause(max(attempts, 1), self._entropy, self._config.retry_first_s, self._config.retry_most_s)

    def _transport(self, task: Task) -> Transport:
        way = (task.shuffler_address, task.shuffler_ca)
        if way not in self._transports:
            self._transports[way] = self._make_transport(task, self._config.insecure)
        return self._transports[way]

    async def _send_on(self) -> None:
        """The background sender: whatever waits and is due, then sleep until something is."""
        loop = asyncio.get_running_loop()
        gate = asyncio.Semaphore(_SENDERS)

        async def one(record: Record) -> None:
            async with gate:
                await self._attempt(record)

        while True:
            self._wake.clear()
            try:
                waiting = await asyncio.to_thread(lambda: self._box.records(queued=True))
                for record in waiting:
                    # Tried before this start: come back spread out, not all devices at once after an outage.
                    first = loop.time() + (self._pause(record.attempts) if record.attempts else 0.0)
                    self._due.setdefault((record.task_id, record.window), first)
                now = loop.time()
                keys = {(record.task_id, record.window): record for record in waiting}
                ready = [record for key, record in keys.items() if self._due[key] <= now and key not in self._under_way]
                await asyncio.gather(*(one(record) for record in ready))
                rest = [self._due[key] for key in keys if key in self._due and key not in self._under_way]
            except ShoalError as error:
                log.warning("outbox failed", kind=error.kind)
                ready, rest = [], [loop.time() + self._config.retry_most_s]
            if not ready:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(min(rest, default=None)):
                        await self._wake.wait()


def _outcome(name: str, record: Record, fresh: bool, failure: ShoalError | None) -> Outcome:
    kind = failure.kind if failure and record.state is not State.ACKED else record.kind
    message = failure.message if failure and record.state is not State.ACKED else ""
    return Outcome(name, record.task_id, record.window, record.state, fresh, record.attempts, kind, message)
