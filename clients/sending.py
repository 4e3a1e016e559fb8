"""How an agent's reports leave the device: attempts one at a time for each, pauses between them,
and nothing without consent.

Whether a report may leave is asked again for every attempt, in the memory that all processes of the
device share, inside the gate of its purpose (``gate``). While attempts are under way the answers
are looked at again and again: who takes a consent back in another program has them broken off here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from shoal.clients.core import ACTION_OF, Action, Assignment, State, pause
from shoal.clients.delivery import deliver, give_up, on
from shoal.clients.feeds.known_tasks import TaskBook
from shoal.clients.memory.device_memory import Memory
from shoal.clients.memory.outbox import Entry, Record
from shoal.clients.owner.consent import not_agreed
from shoal.clients.owner.gate import Gates
from shoal.clients.owner.policy import Policy, check
from shoal.clients.timetable import first_send
from shoal.clients.transports.transport import Transport
from shoal.clocks.clock import DeviceClock
from shoal.entropy import Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.log import get_log
from shoal.task import Task

if TYPE_CHECKING:
    from shoal.clients.config import AgentConfig

log = get_log("agent")
T = TypeVar("T")
TransportFactory = Callable[[Task, bool], Transport]  # task, insecure
Claim = Callable[[], tuple[Record, bool]]  # as Outbox.claim
Key = tuple[TaskId, int]  # of a report: task, window
_NO_HURRY = 60  # as if after so many attempts: the longest pause
_SENDERS = 4  # attempts under way at once
_LOOK_S = 0.25  # between two looks at the answers while something is under way
_SPARE_ATTEMPTS = 3  # of a window's time are kept for the first attempt and the ones after it
_SLACK_S = 15.0  # beyond an attempt's own time limit, until it has surely ended
_ALLOWED = "allowed"


class Permit:
    """Whether a task may have an answer, by the owner's policy and the answers in the device's
    memory.
    """

    def __init__(self, policy: Policy, memory: Memory) -> None:
        self.policy, self._memory = policy, memory

    def check(self, assignment: Assignment) -> None:
        """Raises REFUSED; MISMATCH while the device's memory was set back and its owner has not
        confirmed it. Blocks for the disk.
        """
        self._memory.check()
        book = self._memory.book
        accepted = book.accepted(assignment.task_id)
        check(
            self.policy,
            assignment.trusted,
            assignment.epsilon0,
            assignment.apart,
            consents=book.consents(),
            accepted=accepted,
        )

    def consent(self, purpose: str) -> str:
        """allowed, denied or "not asked". Blocks for the disk."""
        return self.policy.consent(purpose, self._memory.book.consents())


@dataclass(slots=True)
class _Turn:
    """Whose turn it is with a report. ``users``: who has it, and who waits for it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


@dataclass(frozen=True, slots=True)
class _Begun:
    """An attempt that is on record. ``record``: the report's standing before it, None: there is
    none. ``fresh``: it was made just now.

    ``entry``: what to send, None: nothing, because the report has its end, or because nothing can
    be sent now.
    """

    record: Record | None
    fresh: bool
    entry: Entry | None


class Sender:
    """Sends what waits. For one event loop. ``gap_s``: mean seconds between the first attempts of
    two reports, 0: at once.
    """

    def __init__(
        self,
        config: AgentConfig,
        memory: Memory,
        tasks: TaskBook,
        permit: Permit,
        transports: TransportFactory,
        clock: DeviceClock,
        entropy: Entropy,
        gap_s: float = 0.0,
    ) -> None:
        """Raises CONFIG, OVERLOADED if the gates can't be made."""
        self._config, self._memory, self._tasks, self._permit = config, memory, tasks, permit
        self._make_transport, self._clock, self._entropy, self._gap_s = (
            transports,
            clock,
            entropy,
            gap_s,
        )
        self._gates = Gates(config.outbox.with_name(config.outbox.name + ".gates"))
        self._transports: dict[tuple[str, bytes, bytes], Transport] = {}
        self._due: dict[Key, float] = {}  # event loop time of the next attempt
        self._last_send = 0.0  # Unix seconds of the first attempt that was scheduled last
        self._turns: dict[Key, _Turn] = {}
        self._under_way: dict[asyncio.Task[Any], str] = {}  # purposes
        # of these, the ones that lost their consent
        self._broken_off: set[asyncio.Task[Any]] = set()
        self._wake = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self._stopping = False
        self._failing: set[TaskId] = set()  # tasks of which the log said that reports don't arrive

    def wake(self) -> None:
        """There may be something to send."""
        self._wake.set()

    # --- what may be broken off -------------------------------------------------------------------

    async def guarded(
        self, assignment: Assignment, work: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        """Run work that sends something of a task: only if it is allowed, and no longer than that.
        Raises REFUSED.
        """
        async with self._gates.attempt(assignment.task.purpose):
            await on(self._memory.outbox, lambda: self._permit.check(assignment))
            return await self._breakable(assignment, work())

    async def _breakable(self, assignment: Assignment, work: Coroutine[Any, Any, T]) -> T:
        """Run work, inside the gate, until it ends, its purpose is denied (REFUSED), or this
        program ends (UNAVAILABLE).
        """
        child = asyncio.create_task(work)
        self._under_way[child] = assignment.task.purpose
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._watch())
        try:
            return await child
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            if child in self._broken_off:
                raise ShoalError(
                    Kind.REFUSED,
                    f"task {assignment.task.name}: its purpose is denied: sending was broken off",
                ) from None
            raise ShoalError(
                Kind.UNAVAILABLE, "this program ends: what waits is sent at its next start"
            ) from None
        finally:
            self._under_way.pop(child, None)
            self._broken_off.discard(child)

    async def _watch(self) -> None:
        """Break off what the owner does not allow any more, whichever program he told."""
        while self._under_way:
            await asyncio.sleep(_LOOK_S)
            try:
                answers = await on(self._memory.outbox, self._memory.book.consents)
            except ShoalError:  # a disk that is busy: the next look
                continue
            for child, purpose in self._under_way.items():
                if self._permit.policy.consent(purpose, answers) != _ALLOWED:
                    self._break_off(child)

    def _break_off(self, child: asyncio.Task[Any]) -> None:
        self._broken_off.add(child)
        child.cancel()

    async def clear(self, purpose: str) -> bool:
        """Break off what is under way for a purpose here, and wait for other programs; False if one
        of them takes too long.
        """
        mine = [child for child, known in self._under_way.items() if known == purpose]
        for child in mine:
            self._break_off(child)
        if mine:
            await asyncio.wait(mine)
        return await self._gates.clear(purpose, self._config.deadline_s + _SLACK_S)

    # --- attempts ---------------------------------------------------------------------------------

    async def first(
        self, assignment: Assignment, window: int, claim: Claim
    ) -> tuple[Record, bool, ShoalError | None]:
        """Claim a window's report and make one attempt for it, the beginning of which is in the
        same commit as the report itself.

        Returns its standing afterwards, whether it is new, and the failure; None: acknowledged, now
        or before. It is kept also where nothing can be sent. Raises what ``claim`` raises, and
        REFUSED: then nothing is kept.
        """
        key, held = (assignment.task_id, window), None
        try:
            async with self._turn(key):
                begun, held, failure = await self._attempt(assignment, window, claim)
                held = await self._settled(assignment, key, held, failure, begun.entry is not None)
        finally:
            if held is None or held.state is State.QUEUED:
                self.wake()
        if held is None:
            raise ShoalError(Kind.INTERNAL, "a report that was claimed is gone")
        return held, begun.fresh, failure

    async def attempt(self, record: Record) -> tuple[Record, ShoalError | None]:
        """One attempt for one report, one at a time for each. Returns its standing, and the
        failure; None: acknowledged, now or before.
        """
        key, sent = (record.task_id, record.window), False
        held: Record | None = None
        failure: ShoalError | None
        async with self._turn(key):
            assignment = self._tasks.get(record.task_id)
            if assignment is None:
                gone = (
                    f"the task of this report (id {record.task_id.short}) left the tasks folder: "
                    "put it back"
                )
                failure = ShoalError(Kind.UNKNOWN_TASK, gone)
            else:
                try:
                    begun, held, failure = await self._attempt(assignment, record.window)
                    sent = begun.entry is not None
                except ShoalError as error:
                    failure = error
            held = await self._settled(assignment, key, held, failure, sent)
        return held or record, failure

    @asynccontextmanager
    async def _turn(self, key: Key) -> AsyncIterator[None]:
        """With one report, one at a time."""
        turn = self._turns.setdefault(key, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[key]

    async def _attempt(
        self, assignment: Assignment, window: int, claim: Claim | None = None
    ) -> tuple[_Begun, Record | None, ShoalError | None]:
        """The report's standing afterwards, None: to be looked up; and the failure. Raises where
        nothing was put on record.
        """
        transport: Transport | None = None
        unable: ShoalError | None = None
        async with contextlib.AsyncExitStack() as inside:
            try:
                transport = self._transport(assignment.task)
                await inside.enter_async_context(self._gates.attempt(assignment.task.purpose))
            except ShoalError as error:
                unable = error
            begun = await on(
                self._memory.outbox, lambda: self._begin(assignment, window, claim, unable is None)
            )
            if begun.entry is None or transport is None:
                waits = begun.record is not None and begun.record.state is State.QUEUED
                return begun, begun.record, unable if waits else None
            sending = deliver(self._memory.outbox, begun.entry, transport, self._config.deadline_s)
            try:
                return begun, *await self._breakable(assignment, sending)
            except ShoalError as error:
                return begun, None, error

    def _begin(
        self, assignment: Assignment, window: int, claim: Claim | None, sends: bool
    ) -> _Begun:
        """One commit, inside the gate: what was withdrawn before is not sent, and what is withdrawn
        afterwards has been begun.
        """
        outbox, task_id = self._memory.outbox, assignment.task_id
        with self._memory.transaction():
            # another program may have taken the consent back this very moment
            self._permit.check(assignment)
            record, fresh = (outbox.find(task_id, window), False) if claim is None else claim()
            entry = outbox.load(task_id, window) if sends else None
            if entry is not None:
                outbox.sending(task_id, window)
        return _Begun(record, fresh, entry)

    async def _settled(
        self,
        assignment: Assignment | None,
        key: Key,
        held: Record | None,
        failure: ShoalError | None,
        sent: bool,
    ) -> Record | None:
        """What a failure leads to: the end of the report, fresher tasks, or a later time. Returns
        the report's standing then.

        ``held``: the standing that the attempt left, None: to be looked up. ``sent``: whether it
        was an attempt at all.
        """
        outbox = self._memory.outbox
        if failure is None:
            return held
        if held is None and failure.kind is Kind.REFUSED and assignment is not None:
            self._due.pop(key, None)
            return await on(outbox, lambda: self._refused(assignment, key))
        held = held or await on(outbox, lambda: outbox.find(*key))
        if held is None or held.state is not State.QUEUED:
            self._due.pop(key, None)
            return held
        if (
            self._clock.now() >= held.expires_s
            and await on(outbox, self._clock.over) >= held.expires_s
        ):
            self._due.pop(key, None)
            return await on(outbox, lambda: self._given_up(key, Kind.WINDOW_CLOSED))
        if ACTION_OF[failure.kind] is Action.REFRESH:
            with contextlib.suppress(
                ShoalError
            ):  # a folder that is gone for a moment changes nothing
                await asyncio.to_thread(self._tasks.refresh)
        # An attempt that did not come about is trouble on this device: no hurry.
        wait = self._pause(held.attempts if sent else _NO_HURRY, failure.retry_after_s)
        self._due[key] = asyncio.get_running_loop().time() + wait
        return held

    def _refused(self, assignment: Assignment, key: Key) -> Record | None:
        """The owner does not stand behind the task any more: without consent everything of it goes,
        else this report ends.
        """
        consent = self._permit.consent(assignment.task.purpose)
        if consent == _ALLOWED:
            return self._given_up(key, Kind.REFUSED)
        if not_agreed(consent, self._memory.book.consents()):
            self._memory.retract(assignment.task.purpose, [assignment.task_id])
        return self._memory.outbox.find(*key)

    def _given_up(self, key: Key, kind: Kind) -> Record | None:
        held = self._memory.outbox.load(*key)
        if held is not None:
            give_up(self._memory.outbox, held, kind)
        return self._memory.outbox.find(*key)

    def _pause(self, attempts: int, asked_s: float = 0.0) -> float:
        return pause(
            max(attempts, 1),
            self._entropy,
            self._config.retry_first_s,
            self._config.retry_most_s,
            asked_s,
        )

    def _transport(self, task: Task) -> Transport:
        # All tasks of a shuffler share a connection. Over a broker its key says which shuffler is
        # meant, otherwise its address.
        way = (
            ("", b"", task.shuffler_key)
            if self._config.uplink
            else (task.shuffler_address, task.shuffler_ca, b"")
        )
        if way not in self._transports:
            self._transports[way] = self._make_transport(task, self._config.insecure)
        return self._transports[way]

    # --- in the background ------------------------------------------------------------------------

    async def flush(self) -> list[tuple[Record, ShoalError | None]]:
        """Try every report that waits once, now."""
        waiting = await on(self._memory.outbox, lambda: self._memory.outbox.records(queued=True))
        gate = asyncio.Semaphore(_SENDERS)

        async def one(record: Record) -> tuple[Record, ShoalError | None]:
            async with gate:
                return await self.attempt(record)

        results = await asyncio.gather(*(one(record) for record in waiting))
        self.wake()
        return list(results)

    async def run(self) -> None:
        """Whatever waits and is due, then sleep until something is. Ends after ``stop``."""
        loop = asyncio.get_running_loop()
        gate = asyncio.Semaphore(_SENDERS)
        failing = False

        async def one(record: Record) -> None:
            async with gate:
                if not self._stopping:
                    self._tell(*await self.attempt(record))

        while not self._stopping:
            self._wake.clear()
            try:
                waiting = await on(
                    self._memory.outbox, lambda: self._memory.outbox.records(queued=True)
                )
                keys = {(record.task_id, record.window): record for record in waiting}
                self._schedule(keys, loop.time())
                now = loop.time()
                ready = [
                    record
                    for key, record in keys.items()
                    if self._due[key] <= now and key not in self._turns
                ]
                await asyncio.gather(*(one(record) for record in ready))
                rest = [
                    self._due[key] for key in keys if key in self._due and key not in self._turns
                ]
                failing = False
            except ShoalError as error:
                if not failing:
                    log.warning("outbox failed", kind=error.kind)
                ready, rest, failing = [], [loop.time() + self._config.retry_most_s], True
            if not ready and not self._stopping:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(min(rest, default=None)):
                        await self._wake.wait()

    def _tell(self, record: Record, failure: ShoalError | None) -> None:
        """A line when a task's reports begin to fail, and one when they arrive again; not one per
        try. ``record``: its standing now.
        """
        if failure is not None:
            if (
                record.task_id not in self._failing
                and failure.kind is not Kind.REFUSED
                and not self._stopping
            ):
                self._failing.add(record.task_id)
                log.warning("reports are not delivered", task=record.task_id, error=failure)
        elif record.task_id in self._failing and record.state is State.ACKED:
            self._failing.remove(record.task_id)
            log.info("reports are delivered again", task=record.task_id)

    def _schedule(self, waiting: dict[Key, Record], now: float) -> None:
        """Give every report that waits the time of its next attempt."""
        self._due = {key: due for key, due in self._due.items() if key in waiting}
        for key, record in waiting.items():
            if key in self._due:
                continue
            # tried before this start: come back spread out, not all devices at once after an outage
            if record.attempts:
                self._due[key] = now + self._pause(record.attempts)
            else:
                self._due[key] = now + self._first(record)

    def _first(self, record: Record) -> float:
        """Seconds until a report's first attempt."""
        assignment = self._tasks.get(record.task_id)
        if self._gap_s == 0.0 or assignment is None:
            return 0.0
        plan, clock = assignment.task.windows, self._clock.now()
        spare = plan.skew_s + _SPARE_ATTEMPTS * self._config.deadline_s
        at = first_send(
            clock,
            self._last_send,
            self._gap_s,
            plan.deadline_of(record.window),
            spare,
            self._entropy,
        )
        self._last_send = at
        return at - clock

    # --- the end ----------------------------------------------------------------------------------

    def stop(self) -> None:
        """Begin no further attempt in the background."""
        self._stopping = True
        self._wake.set()

    async def close(self, drain_s: float = 0.0) -> None:
        """Attempts under way get ``drain_s`` seconds; what is still under way then stays queued,
        doubtful. Closes the transports.
        """
        self.stop()
        if self._under_way and drain_s > 0.0:
            await asyncio.wait(list(self._under_way), timeout=drain_s)
        left = [*self._under_way, *([self._watcher] if self._watcher is not None else [])]
        for one in left:
            one.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for transport in self._transports.values():
            await transport.close()
