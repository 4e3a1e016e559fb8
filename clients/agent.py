"""The device's agent: answers tasks under its owner's policy, keeps every report until the shuffler
has it, and a ledger of it all.

::

    async with Agent(AgentConfig.load(path)) as agent:
        outcome = await agent.report("visits", 3)

``report`` works without a network: the report is on disk when it returns, and the background
sender, a later ``flush`` or the next start delivers it, with the same bytes each time. ``shoal
agent run`` (shoal.clients.service.runner) is the same as a service.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from shoal.clients.answering import Terms, answer, charge_sum, check_affordable, forgotten
from shoal.clients.config import AgentConfig
from shoal.clients.core import Assignment, State, chosen_window, identity_for, window_at
from shoal.clients.device_clock import OwnClock
from shoal.clients.feeds.known_tasks import TaskBook
from shoal.clients.feeds.pauses import Pauses
from shoal.clients.memory.commitments import Answer
from shoal.clients.memory.device_memory import ACCEPTED, Budget, Memory
from shoal.clients.memory.ledger import Head, Stored
from shoal.clients.memory.outbox import Record
from shoal.clients.owner.consent import not_agreed
from shoal.clients.owner.guarantees import Guarantees
from shoal.clients.owner.rules import settle
from shoal.clients.sending import Permit, Sender, TransportFactory
from shoal.clients.transports.configured import RoundsFactory, open_rounds, way_to_shuffler
from shoal.clocks.clock import DeviceClock
from shoal.domain import Value
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.log import get_log

if TYPE_CHECKING:
    from shoal.clients.memory.rounds_ledger import Answered
    from shoal.clients.rounds.agent import RoundsAgent, VectorValue
    from shoal.crypto.admission.enrolment import DeviceIdentity

log = get_log("agent")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where a report stands. ``fresh``: this call made it; False: the window already had one, and
    the value was ignored.

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
    """What the agent would do with a task now. ``refusal``: why it would send nothing, or "".
    ``window``: None outside the plan.
    """

    assignment: Assignment
    consent: str
    refusal: str
    window: int | None


class Agent:
    """One device. Use as an async context manager; every method is for the event loop that entered
    it.

    ``background``: send what waits without being asked, pausing after failures. ``gap_s``: mean
    seconds between the first attempts of two reports in the background, 0: at once. clock, entropy,
    transports, rounds: for tests and for other transports.
    """

    def __init__(
        self,
        config: AgentConfig,
        *,
        background: bool = True,
        gap_s: float = 0.0,
        clock: DeviceClock | None = None,
        entropy: Entropy = SYSTEM,
        transports: TransportFactory | None = None,
        rounds: RoundsFactory = open_rounds,
    ) -> None:
        self.config, self._policy = config, config.effective_policy
        self._background, self._gap_s = background, gap_s
        self.clock, self._entropy = clock or OwnClock(config.outbox), entropy
        self._make_transport = transports or way_to_shuffler(config, entropy)
        self._asks = transports is None and not config.uplink
        self._running: asyncio.Task[None] | None = None
        self._open: tuple[Memory, Permit, Sender] | None = None
        self._identity: DeviceIdentity | None = None
        self._make_rounds = rounds
        self._rounds: RoundsAgent | None = None
        self._opening, self._guarantees = asyncio.Lock(), Guarantees(config.certificates)
        self._unpaid: set[tuple[TaskId, int]] = set()  # windows whose refusal was entered

    async def __aenter__(self) -> Self:
        """Read the device's identity, open its memory, read the tasks, start sending. Raises
        CONFIG, KEY_FILE, OVERLOADED.
        """
        if self.config.enrolment is not None:
            self._identity = await asyncio.to_thread(self.config.enrolment.load)
        memory = await asyncio.to_thread(Memory, self.config, self.clock, self._entropy)
        try:
            self.tasks = TaskBook(self.config.tasks, self._policy, memory.outbox, self.config.shelf)
            permit = Permit(self._policy, memory)
            self.pauses = Pauses(
                self.config, memory, self.tasks, self._able, self.clock, asks=self._asks
            )
            sender = Sender(
                self.config,
                memory,
                self.tasks,
                permit,
                self._make_transport,
                self.clock,
                self._entropy,
                self._gap_s,
            )
            self._open = memory, permit, sender
            if (forgetful := await memory.run(memory.forgetful)) is not None:
                log.error("this memory was set back: nothing is answered", error=forgetful)
            await asyncio.to_thread(self.look)
        except BaseException:
            memory.close()
            raise
        if self._background:
            sender.wake()
            self._running = asyncio.create_task(sender.run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop sending (an attempt under way is given up and stays queued, doubtful), close
        channels and memory.
        """
        self._guarantees.close()
        await self.drain(0.0)
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
        if self._rounds is not None:
            await self._rounds.close()
        await self.memory.run(self.memory.close)

    async def drain(self, seconds: float) -> None:
        """Begin no more attempts in the background, give those under way ``seconds``, close the
        channels. Then only leaving is of use.
        """
        await self._sender.close(seconds)

    def _parts(self) -> tuple[Memory, Permit, Sender]:
        if self._open is None:
            raise ShoalError(
                Kind.CONFIG, "an agent is used inside `async with Agent(config) as agent:`"
            )
        return self._open

    @property
    def memory(self) -> Memory:
        """Outbox, book and ledger of this device. Its methods block for the disk."""
        return self._parts()[0]

    @property
    def _permit(self) -> Permit:
        return self._parts()[1]

    @property
    def _sender(self) -> Sender:
        return self._parts()[2]

    # --- tasks ------------------------------------------------------------------------------------

    def look(self) -> None:
        """Read the folders of tasks anew; enter in the ledger what changed; delete what has lost
        its consent. Blocks for the disk.

        Raises CONFIG if the folder is missing. A full disk changes nothing about what may be sent:
        it is entered later.
        """
        self.tasks.refresh()
        memory = self.memory
        try:
            if memory.forgetful() is not None:  # what it thinks of tasks now says nothing
                self._retract()
                return
            for one in self.tasks.all():
                memory.review(one.trusted, one.epsilon0, self._verdict(one))
            for bad in self.tasks.unusable:
                if bad.trusted is not None:
                    memory.review(bad.trusted, None, bad.error.message)
                else:
                    memory.problem(bad, bad.digest, "folder", bad.error)
            self._retract()
            memory.settle()
        except ShoalError as error:
            if error.kind is not Kind.OVERLOADED:
                raise
            log.warning("outbox failed", kind=error.kind)

    def _verdict(self, assignment: Assignment) -> str:
        """``ACCEPTED`` or why nothing would be sent for a task."""
        task, now = assignment.task, self.clock.now()
        try:
            self._permit.check(assignment)
            identity_for(task, self._identity, now)
            if now >= task.windows.deadline_of(task.windows.count - 1):
                window_at(task.name, task.windows, now)
        except ShoalError as error:
            return error.message
        return ACCEPTED

    def _retract(self) -> None:
        """Whatever waits for purposes that are not allowed any more, whoever said so and
        wherever.
        """
        answers = self.memory.book.consents()
        known = {*answers, *self._policy.purposes, *(one.task.purpose for one in self.tasks.all())}
        for purpose in sorted(known):
            if not_agreed(self._policy.consent(purpose, answers), answers):
                self.memory.retract(purpose)

    def status(self) -> list[TaskStatus]:
        """Every known task: the owner's answer, why it would be refused, the window that the clock
        names. Reads the disk.
        """
        return [self._status(one) for one in self.tasks.all()]

    def _status(self, assignment: Assignment) -> TaskStatus:
        task, now, refusal = assignment.task, self.clock.now(), ""
        try:
            self._permit.check(assignment)
            identity_for(task, self._identity, now)
            self.tasks.check_open(assignment, now)
        except ShoalError as error:
            refusal = error.message
        return TaskStatus(
            assignment, self._permit.consent(task.purpose), refusal, task.windows.current(now)
        )

    def answered(self, task_id: TaskId, window: int) -> bool:
        """Whether a window has its report, its vector was charged, or either may be so in what was
        lost. Blocks for the disk.
        """
        book, known = self.memory.book, self.tasks.get(task_id)
        if (
            self.memory.outbox.find(task_id, window) is not None
            or book.charged(task_id, window) is not None
        ):
            return True
        return known is not None and forgotten(known, window, book)

    # --- reporting --------------------------------------------------------------------------------

    async def report(
        self,
        name: str,
        value: VectorValue,
        *,
        send: bool = True,
        tell: Callable[[str], None] | None = None,
        window: int | None = None,
        source: str = "given",
        otherwise: str | None = None,
    ) -> Outcome:
        """Answer a task in its current window, durably, and (``send``) make one attempt to deliver
        it.

        A window is answered once: a second call in it, even after a restart, ignores its value and
        returns the standing of the first. Raises INVALID for a value that is no answer to the
        question, unless ``otherwise`` says what it then is (NO_ANSWER, or a text that is an answer;
        a program that measures by itself gives one, so that no value keeps it away); UNKNOWN_TASK
        or what is wrong with the task's files; REFUSED by the owner's policy or budget; CONFIG if
        the task wants an enrolled device and this one is not; CONFLICT for a task with two
        schedules; UNAVAILABLE while the task's shuffler says that it can't take the window;
        TOO_EARLY, WINDOW_CLOSED by the clock; OVERLOADED when the outbox or the disk is full.
        Nothing is stored or sent then, and a refusal is in the ledger.

        A task that is summed in rounds wants a vector, and this device until the round has ended:
        the call returns then, and ``tell`` gets a line for people at every stage, each once. A
        window without enough devices keeps the call waiting until it is over.

        ``window``: the one that the value was measured in, if it may have ended meanwhile (not for
        sums). ``source``: where the value came from, in a word for the ledger.
        """
        assignment = self.tasks.find(name)
        try:
            return await self._report(assignment, value, send, tell, window, source, otherwise)
        except ShoalError as error:
            if error.kind in {Kind.REFUSED, Kind.CONFLICT}:
                await self.memory.run(partial(self._enter_refusal, assignment, window, error))
            raise

    async def _report(
        self,
        assignment: Assignment,
        value: VectorValue,
        send: bool,
        tell: Callable[[str], None] | None,
        window: int | None,
        source: str,
        otherwise: str | None,
    ) -> Outcome:
        task, task_id, memory = assignment.task, assignment.task_id, self.memory
        if task.pairwise is not None:
            await self._ask(assignment)
            identity = identity_for(task, self._identity, self.clock.now())
            if identity is not None:
                return await self._take_part(assignment, identity, value, send, tell, source)
        try:
            now = self.clock.now()
            identity = identity_for(task, self._identity, now)
            if value is not None and not isinstance(value, bool | int | float | str):
                raise ShoalError(
                    Kind.INVALID, f"task {task.name} asks for one answer, not for a vector"
                )
            ruled: Value = settle(self.config.rules, task, value, otherwise)
            chosen = chosen_window(task.name, task.windows, now, window)
        except ShoalError:
            await self._ask(assignment)  # the owner's refusal is named before any other
            raise
        terms = await self._terms(assignment, source)
        try:
            await self.pauses.check(assignment, chosen, self.answered, ask=send)
        except (
            asyncio.CancelledError
        ):  # who gives up waiting for the network has answered all the same
            await self._report(assignment, value, False, tell, window, source, otherwise)
            raise

        def claim() -> tuple[Record, bool]:
            return memory.outbox.claim(
                task_id,
                chosen,
                lambda: answer(
                    assignment, chosen, ruled, memory.book, self._entropy, identity, terms, now
                ),
            )

        def queue() -> tuple[Record, bool]:
            with memory.transaction():
                # another program may have taken the consent back this very moment
                self._permit.check(assignment)
                return claim()

        if send:
            return _outcome(task.name, *await self._sender.first(assignment, chosen, claim))
        try:
            record, fresh = await memory.run(queue)
        finally:
            # also where the caller gave up: the step comes to its end all the same
            self._sender.wake()
        return _outcome(task.name, record, fresh, None)

    async def _ask(self, assignment: Assignment) -> None:
        """Raises REFUSED where the owner does not stand behind a task."""
        await self.memory.run(lambda: self._permit.check(assignment))

    async def _able(self, assignment: Assignment, window: int | None = None) -> None:
        """Raises REFUSED where the owner or the budget does not stand behind an answer, whatever
        its value: nothing is charged.
        """
        await self._ask(assignment)
        terms = await self._terms(assignment, "")
        await self.memory.run(lambda: check_affordable(assignment, window, self.memory.book, terms))

    async def _terms(self, assignment: Assignment, source: str) -> Terms:
        """Under which this device answers. The certificate is looked up once per task, which may
        take seconds: with consent alone.
        """
        if assignment.task_id not in self._guarantees:
            await self._ask(assignment)
            await asyncio.to_thread(self._guarantees.epsilon, assignment)
        central, policy = self._guarantees.epsilon(assignment), self._policy
        exact = None if central is None else lambda: central
        return Terms(
            policy.limit_nano,
            self.config.keep_values,
            source,
            exact,
            policy.max_epsilon0,
            policy.sums_if_apart,
        )

    def _enter_refusal(self, assignment: Assignment, window: int | None, error: ShoalError) -> None:
        """Why nothing was sent: the task's own verdict if that changed, else that of this one
        answer, once for each window.
        """
        with contextlib.suppress(ShoalError):  # a full disk: the refusal itself stands
            verdict = self._verdict(assignment)
            self.memory.review(assignment.trusted, assignment.epsilon0, verdict)
            current = (
                assignment.task.windows.current(self.clock.now()) if window is None else window
            )
            key = (assignment.task_id, -1 if current is None else current)
            if verdict == ACCEPTED and key not in self._unpaid:
                self.memory.refused(assignment, current, error)
                self._unpaid.add(key)

    async def _take_part(
        self,
        assignment: Assignment,
        identity: DeviceIdentity,
        value: VectorValue,
        send: bool,
        tell: Callable[[str], None] | None,
        source: str,
    ) -> Outcome:
        from shoal.clients.rounds.agent import nobody, standing_of

        task, book, now = assignment.task, self.memory.book, self.clock.now
        if not send:
            raise ShoalError(
                Kind.CONFIG,
                f"task {task.name} is summed in rounds: a vector can't wait in a queue, send it "
                "now",
            )
        told = tell or nobody
        if self.config.uplink:
            told("rounds need the shuffler itself: this goes over gRPC, not through the broker")
        if any(rule.concerns(task) for rule in self.config.rules):
            value = None  # no rule can be followed for a vector, and none may be passed by
        # now, not after hours of waiting for a round
        await self._able(assignment, task.windows.current(now()))
        terms = await self._terms(assignment, source)
        rounds = await self._sums()
        window, one, fresh = await self._sender.guarded(
            assignment,
            lambda: rounds.report(
                assignment,
                identity,
                value,
                lambda window: charge_sum(assignment, window, book, terms, now()),
                told,
                lambda window: book.charged(assignment.task_id, window) is not None,
            ),
        )
        state, kind, message = standing_of(one)
        return Outcome(
            task.name, assignment.task_id, window, state, fresh, int(fresh), kind, message
        )

    async def _sums(self) -> RoundsAgent:
        """Made with the first vector: most devices have none."""
        async with self._opening:
            if self._rounds is None:
                self._rounds = await asyncio.to_thread(
                    self._make_rounds, self.config, self.clock, self._entropy
                )
            return self._rounds

    async def flush(self) -> list[Outcome]:
        """Try every report that waits once, now; the standing of each. Never raises for a report
        that could not be sent.
        """
        return [
            _outcome(self._name(record), record, False, failure)
            for record, failure in await self._sender.flush()
        ]

    async def outcomes(self) -> list[Outcome]:
        """The standing of every report that this device ever made, and of every window that it
        answered with a vector.
        """
        records = await self.memory.run(self.memory.outbox.records)
        reports = await self.memory.run(
            lambda: [_outcome(self._name(record), record, False, None) for record in records]
        )
        if self._rounds is None and not self.config.ledger.is_file():
            return reports
        from shoal.clients.rounds.agent import standing_of

        answers = await (await self._sums()).answers()
        shown = [(one, *standing_of(one)) for one in answers]
        vectors = [
            Outcome(self._name(one), one.task_id, one.window, state, False, 1, kind, message)
            for one, state, kind, message in shown
        ]
        return [*reports, *vectors]

    def _name(self, record: Record | Answered) -> str:
        known = self.tasks.get(record.task_id)
        if known is not None:
            return known.task.name
        seen = self.memory.book.seen(record.task_id)
        return seen.name if seen is not None else record.task_id.short

    # --- the owner's word -------------------------------------------------------------------------

    async def consent(self, purpose: str, given: Answer | None) -> list[Outcome]:
        """Keep the owner's answer for a purpose, by its exact words; None takes it back. What is
        not allowed any more is withdrawn.

        When it returns no attempt for such a purpose is under way in this program or another, and
        none will be. What had left by then, or over gRPC had been handed to the system, may still
        arrive: ``doubtful`` entries of the ledger say for which reports. Returns those that waited
        and were deleted. Raises DEADLINE if another program was sending one and did not end in
        time; the answer is kept.
        """
        after = {**await self.memory.run(self.memory.book.consents), purpose: given}
        allowed = (
            self._policy.consent(
                purpose, {name: word for name, word in after.items() if word is not None}
            )
            == "allowed"
        )
        records = await self.memory.run(lambda: self.memory.answer(purpose, given, allowed))
        if not allowed and not await self._sender.clear(purpose):
            raise ShoalError(
                Kind.DEADLINE,
                "the consent is taken back, but another program of this device was sending for it "
                "and did not end in time: stop it",
            )
        await asyncio.to_thread(self.look)
        return [_outcome(self._name(record), record, False, None) for record in records]

    async def withdraw(self, purpose: str) -> list[Outcome]:
        """Deny a purpose: its queued reports and memoized answers are deleted, attempts under way
        broken off. See ``consent``.
        """
        return await self.consent(purpose, "denied")

    async def accept(
        self, name: str, epsilon0: float | None = None, *, back: bool = False
    ) -> float | None:
        """The owner's explicit yes to the local epsilon of this very task, up to ``epsilon0``
        (None: the task's own, even infinite).

        ``back``: takes it back. Returns what is accepted now. Raises UNKNOWN_TASK, INVALID.
        """
        assignment = self.tasks.find(name)
        chosen = None if back else assignment.epsilon0 if epsilon0 is None else epsilon0
        await self.memory.run(lambda: self.memory.accept(assignment, chosen))
        await asyncio.to_thread(self.look)
        return chosen

    # --- what the owner can read ------------------------------------------------------------------

    async def ledger(self, after: int = 0, most: int | None = None) -> list[Stored]:
        """The ledger's entries with numbers above ``after``, oldest first."""
        return await self.memory.run(lambda: self.memory.book.entries(after, most))

    async def verify(self) -> Head:
        """Check the ledger's whole chain. Raises MISMATCH naming the first bad entry."""
        return await self.memory.run(self.memory.book.verify)

    async def budget(self) -> Budget:
        """What was spent over everything that this device ever answered, and the limit."""
        return Budget(self._policy.limit_nano, await self.memory.run(self.memory.book.spent))

    async def explain(self, name: str) -> list[str]:
        """A task in plain words, a line each. Raises UNKNOWN_TASK."""
        from shoal.clients.explain import explain

        assignment = self.tasks.find(name)

        def lines() -> list[str]:
            book, tally = self.memory.book, self.memory.book.tally(assignment.task_id)
            return explain(
                assignment,
                self.config,
                consents=book.consents(),
                accepted=book.accepted(assignment.task_id),
                spent=book.spent(),
                charged=tally.nano,
                answered=tally.windows,
                kept=book.latest(assignment.task_id) is not None,
            )

        return await self.memory.run(lines)

    def offered(self, data: bytes, origin: str, error: ShoalError) -> None:
        """Enter that a feed brought something that was not taken. Blocks for the disk; a full one
        is no failure.
        """
        with contextlib.suppress(ShoalError):
            self.memory.problem(None, Digest.of(data), origin, error)


def _outcome(name: str, record: Record, fresh: bool, failure: ShoalError | None) -> Outcome:
    final = record.state in {State.ACKED, State.WITHDRAWN}
    kind = failure.kind if failure and not final else record.kind
    message = failure.message if failure and not final else ""
    return Outcome(
        name, record.task_id, record.window, record.state, fresh, record.attempts, kind, message
    )
