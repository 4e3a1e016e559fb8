"""The device's leg of a report, from the claim of its window to its receipt::

    claim the window -> answer it -> begin an attempt     one transaction, one step of the memory
    deliver the frame -> verify the receipt               the network
    keep what came of it                                  a second transaction

Whether a report may leave is asked again for every attempt, in the memory that all processes of the
device share, inside the gate of its purpose (``shoal.clients.owner.gate``). Of one report there is
one attempt at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from shoal.clients.core import ACTION_OF, Action, Assignment, ReportState, pause
from shoal.clients.memory.outbox import Entry, Record
from shoal.clients.owner.consent import ALLOWED, not_agreed
from shoal.clients.reports.answering import AnswerRequest, answer_window
from shoal.clients.reports.delivery import deliver, give_up
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId

if TYPE_CHECKING:
    from shoal.clients.feeds.known_tasks import KnownTasks
    from shoal.clients.memory.device_memory import Memory
    from shoal.clients.owner.under_way import UnderWay
    from shoal.clients.reports.permit import Permit
    from shoal.clients.settings.config import AgentConfig
    from shoal.clients.transports.transport import Transport, TransportFactory
    from shoal.clocks.clock import DeviceClock
    from shoal.entropy import Entropy
    from shoal.task import Task

ReportKey = tuple[TaskId, int]  # of a report: task, window
_NO_HURRY = 60  # as if after so many attempts: the longest pause


@dataclass(frozen=True, slots=True)
class Attempted:
    """What one attempt came to. ``record``: the report's standing afterwards; ``fresh``: it was
    made just now; ``failure`` None: acknowledged, now or before.
    """

    record: Record
    fresh: bool
    failure: ShoalError | None


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


class Attempts:
    """Of one device, for one event loop. ``retry_at``: when reports that failed are due again, in
    event loop time; a report without an entry is due at once, or finished.
    """

    def __init__(
        self,
        config: AgentConfig,
        memory: Memory,
        tasks: KnownTasks,
        permit: Permit,
        under_way: UnderWay,
        transports: TransportFactory,
        clock: DeviceClock,
        entropy: Entropy,
    ) -> None:
        self._config, self._memory, self._tasks, self._permit = config, memory, tasks, permit
        self._under_way, self._make_transport = under_way, transports
        self._clock, self._entropy = clock, entropy
        self._transports: dict[tuple[str, bytes, bytes], Transport] = {}
        self._turns: dict[ReportKey, _Turn] = {}
        self.retry_at: dict[ReportKey, float] = {}

    def busy(self, key: ReportKey) -> bool:
        """Whether an attempt for the report is under way, or waits for its turn."""
        return key in self._turns

    async def close(self) -> None:
        """Close the transports, once nothing is under way."""
        for transport in self._transports.values():
            await transport.close()

    # --- the leg ----------------------------------------------------------------------------------

    async def report(self, request: AnswerRequest) -> Attempted:
        """Claim a window, answer it and make one attempt to deliver the report, the beginning of
        which is in the same commit as the report itself.

        A report is kept also where nothing can be sent. Raises what ``answer_window`` raises, and
        REFUSED by the owner's policy: then nothing is kept.
        """
        assignment = request.assignment
        key = (assignment.task_id, request.window)
        async with self._turn(key):
            begun, record, failure = await self._attempt(assignment, request.window, request)
            record = await self._after(assignment, key, record, failure, begun.entry is not None)
        if record is None:
            raise ShoalError(Kind.INTERNAL, "a report that was claimed is gone")
        return Attempted(record, begun.fresh, failure)

    async def resend(self, known: Record) -> Attempted:
        """One attempt for a report that waits."""
        key, sent = (known.task_id, known.window), False
        record: Record | None = None
        failure: ShoalError | None
        async with self._turn(key):
            assignment = self._tasks.get(known.task_id)
            if assignment is None:
                gone = (
                    f"the task of this report (id {known.task_id.short}) left the tasks folder: "
                    "put it back"
                )
                failure = ShoalError(Kind.UNKNOWN_TASK, gone)
            else:
                try:
                    begun, record, failure = await self._attempt(assignment, known.window, None)
                    sent = begun.entry is not None
                except ShoalError as error:
                    failure = error
            record = await self._after(assignment, key, record, failure, sent)
        return Attempted(record or known, False, failure)

    async def queue(self, request: AnswerRequest) -> tuple[Record, bool]:
        """Claim a window and answer it, and send nothing yet. Returns the report's standing, and
        whether it is new. Raises as ``report``.
        """
        begun = await self._memory.run(
            partial(self._begin, request.assignment, request.window, request, sends=False)
        )
        if begun.record is None:
            raise ShoalError(Kind.INTERNAL, "a report that was claimed is gone")
        return begun.record, begun.fresh

    async def _attempt(
        self, assignment: Assignment, window: int, request: AnswerRequest | None
    ) -> tuple[_Begun, Record | None, ShoalError | None]:
        """The report's standing afterwards, None: to be looked up; and the failure. ``request``: of
        a window that is answered first. Raises where nothing was put on record.
        """
        async with AsyncExitStack() as inside:
            transport, unable = await self._enter(assignment.task, inside)
            begun = await self._memory.run(
                partial(self._begin, assignment, window, request, sends=unable is None)
            )
            if begun.entry is None or transport is None:
                waits = begun.record is not None and begun.record.state is ReportState.QUEUED
                return begun, begun.record, unable if waits else None
            sending = deliver(self._memory.outbox, begun.entry, transport, self._config.deadline_s)
            try:
                return begun, *await self._under_way.run(assignment, sending)
            except ShoalError as error:
                return begun, None, error

    async def _enter(
        self, task: Task, inside: AsyncExitStack
    ) -> tuple[Transport | None, ShoalError | None]:
        """The way to the task's shuffler, through the gate of its purpose, which is held until
        ``inside`` ends; or why nothing can be sent.
        """
        try:
            transport = self._transport(task)
            await inside.enter_async_context(self._under_way.gate(task.purpose))
        except ShoalError as error:
            return None, error
        return transport, None

    def _begin(
        self, assignment: Assignment, window: int, request: AnswerRequest | None, *, sends: bool
    ) -> _Begun:
        """One commit, inside the gate if it ``sends``: what was withdrawn before is not sent, and
        what is withdrawn afterwards has been begun.
        """
        outbox, task_id = self._memory.outbox, assignment.task_id
        with self._memory.transaction():
            # another program may have taken the consent back this very moment
            self._permit.check(assignment)
            if request is None:
                record, made = outbox.find(task_id, window), None
            else:
                record, made = answer_window(
                    request, outbox, self._memory.commitments, self._entropy, sending=sends
                )
            if made is not None and record is not None:
                entry = Entry(record, made.frame, made.ack_key) if sends else None
            elif (entry := outbox.load(task_id, window) if sends else None) is not None:
                outbox.sending(task_id, window)
        return _Begun(record, made is not None, entry)

    @asynccontextmanager
    async def _turn(self, key: ReportKey) -> AsyncIterator[None]:
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

    def _transport(self, task: Task) -> Transport:
        # All tasks of a shuffler share a connection. Over a broker its key says which shuffler is
        # meant, otherwise its address.
        place = (
            ("", b"", task.shuffler_key)
            if self._config.uplink
            else (task.shuffler_address, task.shuffler_ca, b"")
        )
        if place not in self._transports:
            self._transports[place] = self._make_transport(task, self._config.insecure)
        return self._transports[place]

    # --- what a failure leads to ------------------------------------------------------------------

    async def _after(
        self,
        assignment: Assignment | None,
        key: ReportKey,
        record: Record | None,
        failure: ShoalError | None,
        sent: bool,
    ) -> Record | None:
        """The end of the report, fresher tasks, or a later time. Returns the report's standing
        then.

        ``record``: the standing that the attempt left, None: to be looked up. ``sent``: whether it
        was an attempt at all.
        """
        memory = self._memory
        if failure is None:
            return record
        if record is None and failure.kind is Kind.REFUSED and assignment is not None:
            self.retry_at.pop(key, None)
            return await memory.run(partial(self._refused, assignment, key))
        record = record or await memory.run(partial(memory.outbox.find, *key))
        if record is None or record.state is not ReportState.QUEUED:
            self.retry_at.pop(key, None)
            return record
        if (
            self._clock.now() >= record.expires_s
            and await memory.run(self._clock.over) >= record.expires_s
        ):
            self.retry_at.pop(key, None)
            return await memory.run(partial(self._give_up, key, Kind.WINDOW_CLOSED))
        if ACTION_OF[failure.kind] is Action.REFRESH:
            # a folder that is gone for a moment changes nothing
            with contextlib.suppress(ShoalError):
                await asyncio.to_thread(self._tasks.refresh)
        # An attempt that did not come about is trouble on this device: no hurry.
        wait = self.pause_s(record.attempts if sent else _NO_HURRY, failure.retry_after_s)
        self.retry_at[key] = asyncio.get_running_loop().time() + wait
        return record

    def _refused(self, assignment: Assignment, key: ReportKey) -> Record | None:
        """The owner does not stand behind the task any more: without consent everything of it goes,
        else this report ends.
        """
        consent = self._permit.consent(assignment.task.purpose)
        if consent == ALLOWED:
            return self._give_up(key, Kind.REFUSED)
        if not_agreed(consent, self._memory.commitments.consents()):
            self._memory.retract(assignment.task.purpose, [assignment.task_id])
        return self._memory.outbox.find(*key)

    def _give_up(self, key: ReportKey, kind: Kind) -> Record | None:
        entry = self._memory.outbox.load(*key)
        if entry is not None:
            give_up(self._memory.outbox, entry, kind)
        return self._memory.outbox.find(*key)

    def pause_s(self, attempts: int, asked_s: float = 0.0) -> float:
        """Seconds until the next attempt after so many. ``asked_s``: what the failure asked for."""
        return pause(
            max(attempts, 1),
            self._entropy,
            self._config.retry_first_s,
            self._config.retry_most_s,
            asked_s,
        )
