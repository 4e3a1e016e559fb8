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

from shoal.clients.core import chosen_window, enrolled_identity, prover_for
from shoal.clients.device_clock import OwnClock
from shoal.clients.feeds.known_tasks import KnownTasks
from shoal.clients.feeds.pauses import Pauses
from shoal.clients.memory.commitments import ConsentAnswer
from shoal.clients.memory.device_memory import Budget, Memory
from shoal.clients.memory.ledger import Head, Stored
from shoal.clients.owner.gate import Gates
from shoal.clients.owner.guarantees import Guarantees
from shoal.clients.owner.policy import check_acceptable
from shoal.clients.owner.under_way import UnderWay
from shoal.clients.reports.answering import AnswerRequest, charge_sum, is_answered
from shoal.clients.reports.attempts import Attempted, Attempts
from shoal.clients.reports.outcomes import ReportOutcome, TaskStatus, outcome_of
from shoal.clients.reports.passing import OwnWindows
from shoal.clients.reports.permit import Permit
from shoal.clients.reports.ruled import ruled_value
from shoal.clients.reports.sending import Sender
from shoal.clients.settings.config import AgentConfig
from shoal.clients.task_review import TaskReview
from shoal.clients.transports.configured import RoundsFactory, open_rounds, transport_factory
from shoal.clocks.clock import DeviceClock
from shoal.entropy import SYSTEM, Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.log import get_log

if TYPE_CHECKING:
    from shoal.clients.core import Assignment
    from shoal.clients.memory.outbox import Record
    from shoal.clients.memory.rounds_ledger import Answered
    from shoal.clients.rounds.agent import RoundsAgent
    from shoal.clients.transports.transport import TransportFactory
    from shoal.clients.vectors import VectorValue
    from shoal.crypto.admission.enrolment import DeviceIdentity

__all__ = ["Agent", "ReportOutcome", "TaskStatus"]
log = get_log("agent")
_ATTEMPT_SLACK_S = 15.0  # beyond an attempt's own time limit, until it has surely ended


@dataclass(frozen=True, slots=True)
class _Parts:
    """What an agent is made of while it is open, in the order in which one stands on another."""

    memory: Memory
    permit: Permit
    review: TaskReview
    under_way: UnderWay
    attempts: Attempts
    sender: Sender


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
        self._make_transport = transports or transport_factory(config, entropy)
        self._asks = transports is None and not config.uplink
        self._running: asyncio.Task[None] | None = None
        self._open: _Parts | None = None
        self._identity: DeviceIdentity | None = None
        self._make_rounds = rounds
        self._rounds: RoundsAgent | None = None
        self._opening, self._guarantees = asyncio.Lock(), Guarantees(config.certificates)

    async def __aenter__(self) -> Self:
        """Read the device's identity, open its memory, read the tasks, start sending. Raises
        CONFIG, KEY_FILE, OVERLOADED.
        """
        if self.config.enrolment is not None:
            self._identity = await asyncio.to_thread(self.config.enrolment.load)
        memory = await asyncio.to_thread(Memory, self.config, self.clock, self._entropy)
        try:
            self._open = parts = self._assembled(memory)
            if (forgetful := await memory.run(memory.forgetful)) is not None:
                log.error("this memory was set back: nothing is answered", error=forgetful)
            await asyncio.to_thread(self.look)
        except BaseException:
            memory.close()
            raise
        if self._background:
            parts.sender.wake()
            self._running = asyncio.create_task(parts.sender.run())
        return self

    def _assembled(self, memory: Memory) -> _Parts:
        """Raises CONFIG, OVERLOADED."""
        config, clock, entropy = self.config, self.clock, self._entropy
        self.tasks = KnownTasks(config.tasks, self._policy, memory.outbox, config.learnt_folder)
        permit = Permit(config, memory, self._guarantees)
        self.pauses = Pauses(config, memory, self.tasks, permit, clock, asks=self._asks)
        self.own = OwnWindows(memory, permit, clock, entropy, self._identity)
        gates = Gates(config.outbox.with_name(config.outbox.name + ".gates"))
        under_way = UnderWay(gates, memory, self._policy)
        attempts = Attempts(
            config, memory, self.tasks, permit, under_way, self._make_transport, clock, entropy
        )
        return _Parts(
            memory,
            permit,
            TaskReview(memory, self.tasks, permit, self._identity, clock),
            under_way,
            attempts,
            Sender(config, memory, self.tasks, attempts, clock, entropy, self._gap_s),
        )

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
        parts = self._parts
        parts.sender.stop()
        await parts.under_way.close(seconds)
        await parts.attempts.close()

    @property
    def _parts(self) -> _Parts:
        if self._open is None:
            raise ShoalError(
                Kind.CONFIG, "an agent is used inside `async with Agent(config) as agent:`"
            )
        return self._open

    @property
    def memory(self) -> Memory:
        """Outbox, book and ledger of this device. Its methods block for the disk."""
        return self._parts.memory

    # --- tasks ------------------------------------------------------------------------------------

    def look(self) -> None:
        """Read the folders of tasks anew; enter in the ledger what changed; delete what has lost
        its consent. Blocks for the disk.

        Raises CONFIG if the folder is missing. A full disk changes nothing about what may be sent:
        it is entered later.
        """
        self._parts.review.look()

    def status(self) -> list[TaskStatus]:
        """Every known task: the owner's answer, why it would be refused, the window that the clock
        names. Reads the disk.
        """
        return self._parts.review.status()

    def answered(self, task_id: TaskId, window: int) -> bool:
        """Whether a window has its report, its vector was charged, either may be so in what was
        lost, or it is not asked of this device. Blocks for the disk.
        """
        memory = self.memory
        return is_answered(
            task_id, window, self.tasks.get(task_id), memory.outbox, memory.commitments
        )

    def offered(self, data: bytes, origin: str, error: ShoalError) -> None:
        """Enter that a feed brought something that was not taken. Blocks for the disk; a full one
        is no failure.
        """
        self._parts.review.enter_offer(data, origin, error)

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
    ) -> ReportOutcome:
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

        NOT_ASKED, and no error: this device answers another window of the task (``own_window``).

        A task that is summed in rounds wants a vector, and this device until the round has ended:
        the call returns then, and ``tell`` gets a line for people at every stage, each once. A
        window without enough devices keeps the call waiting until it is over.

        ``window``: the one that the value was measured in, if it may have ended meanwhile; a sum is
        answered in no other one: WINDOW_CLOSED if it is over. ``source``: where the value came
        from, in a word for the ledger.
        """
        assignment = self.tasks.find(name, self.clock.now())
        try:
            if assignment.task.pairwise is not None:
                return await self._take_part(assignment, value, send, tell, window, source)
            passed = await self.own.passed(assignment, window)
            if passed is not None:
                return passed
            request = await self._request(assignment, value, window, source, otherwise)
            attempted = await self._answer(request, send)
            return outcome_of(
                assignment.task.name, attempted.record, attempted.fresh, attempted.failure
            )
        except ShoalError as error:
            if error.kind in {Kind.REFUSED, Kind.CONFLICT}:
                await self.memory.run(
                    partial(self._parts.review.enter_refusal, assignment, window, error)
                )
            raise

    async def _request(
        self,
        assignment: Assignment,
        value: VectorValue,
        window: int | None,
        source: str,
        otherwise: str | None,
    ) -> AnswerRequest:
        """What is to be answered: by the owner's rules, in a window that takes answers now."""
        task, permit = assignment.task, self._parts.permit
        try:
            now = self.clock.now()
            prover = prover_for(task, self._identity, now)
            ruled = ruled_value(assignment, self.config.rules, value, otherwise)
            chosen = chosen_window(task.name, task.windows, now, window)
        except ShoalError:
            await permit.ask(assignment)  # the owner's refusal is named before any other
            raise
        terms = await permit.terms(assignment, source)
        return AnswerRequest(assignment, chosen, ruled, prover, terms, now)

    async def _answer(self, request: AnswerRequest, send: bool) -> Attempted:
        sender, pauses = self._parts.sender, self.pauses
        try:
            await pauses.check(request.assignment, request.window, ask=send)
        except asyncio.CancelledError:
            # who gives up waiting for the network has answered all the same
            await pauses.check(request.assignment, request.window, ask=False)
            await sender.queue(request)
            raise
        return await (sender.report(request) if send else sender.queue(request))

    async def _take_part(
        self,
        assignment: Assignment,
        value: VectorValue,
        send: bool,
        tell: Callable[[str], None] | None,
        only: int | None,
        source: str,
    ) -> ReportOutcome:
        # numpy: only for who is asked for vectors
        from shoal.clients.rounds.agent import nobody, standing_of

        task, commitments, now, parts = (
            assignment.task,
            self.memory.commitments,
            self.clock.now,
            self._parts,
        )
        await parts.permit.ask(assignment)
        identity = enrolled_identity(task, self._identity, now())
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
        await parts.permit.ask_affordable(assignment, task.windows.current(now()))
        terms = await parts.permit.terms(assignment, source)
        rounds = await self._sums()
        async with parts.under_way.gate(task.purpose):
            await parts.permit.ask(assignment)
            window, outcome, fresh = await parts.under_way.run(
                assignment,
                rounds.report(
                    assignment,
                    identity,
                    value,
                    lambda window: charge_sum(assignment, window, commitments, terms, now()),
                    told,
                    lambda window: commitments.charged(assignment.task_id, window) is not None,
                    only,
                ),
            )
        state, kind, message = standing_of(outcome)
        return ReportOutcome(
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

    async def flush(self) -> list[ReportOutcome]:
        """Try every report that waits once, now; the standing of each. Never raises for a report
        that could not be sent.
        """
        return [
            outcome_of(self._name(attempt.record), attempt.record, False, attempt.failure)
            for attempt in await self._parts.sender.flush()
        ]

    async def outcomes(self) -> list[ReportOutcome]:
        """The standing of every report that this device ever made, and of every window that it
        answered with a vector.
        """
        records = await self.memory.run(self.memory.outbox.records)
        reports = await self.memory.run(
            lambda: [outcome_of(self._name(record), record, False, None) for record in records]
        )
        if self._rounds is None and not self.config.ledger.is_file():
            return reports
        # numpy: only for who has answered with vectors
        from shoal.clients.rounds.agent import standing_of

        answers = await (await self._sums()).answers()
        shown = [(answer, *standing_of(answer)) for answer in answers]
        vectors = [
            ReportOutcome(
                self._name(answer), answer.task_id, answer.window, state, False, 1, kind, message
            )
            for answer, state, kind, message in shown
        ]
        return [*reports, *vectors]

    def _name(self, record: Record | Answered) -> str:
        known = self.tasks.get(record.task_id)
        if known is not None:
            return known.task.name
        seen = self.memory.commitments.seen(record.task_id)
        return seen.name if seen is not None else record.task_id.short

    # --- the owner's word -------------------------------------------------------------------------

    async def consent(self, purpose: str, given: ConsentAnswer | None) -> list[ReportOutcome]:
        """Keep the owner's answer for a purpose, by its exact words; None takes it back. What is
        not allowed any more is withdrawn.

        When it returns no attempt for such a purpose is under way in this program or another, and
        none will be. What had left by then, or over gRPC had been handed to the system, may still
        arrive: ``doubtful`` entries of the ledger say for which reports. Returns those that waited
        and were deleted. Raises DEADLINE if another program was sending one and did not end in
        time; the answer is kept.
        """
        after = {**await self.memory.run(self.memory.commitments.consents), purpose: given}
        allowed = (
            self._policy.consent(
                purpose, {name: word for name, word in after.items() if word is not None}
            )
            == "allowed"
        )
        records = await self.memory.run(lambda: self.memory.answer(purpose, given, allowed))
        limit_s = self.config.deadline_s + _ATTEMPT_SLACK_S
        if not allowed and not await self._parts.under_way.clear(purpose, limit_s):
            raise ShoalError(
                Kind.DEADLINE,
                "the consent is taken back, but another program of this device was sending for it "
                "and did not end in time: stop it",
            )
        await asyncio.to_thread(self.look)
        return [outcome_of(self._name(record), record, False, None) for record in records]

    async def withdraw(self, purpose: str) -> list[ReportOutcome]:
        """Deny a purpose: its queued reports and memoized answers are deleted, attempts under way
        broken off. See ``consent``.
        """
        return await self.consent(purpose, "denied")

    async def accept(
        self, name: str, epsilon0: float | None = None, *, back: bool = False
    ) -> float | None:
        """The owner's explicit yes to the local epsilon of this very task, and of its whole
        campaign, up to ``epsilon0`` (None: the task's own, even infinite).

        ``back``: takes it back. Returns what is accepted now. Raises UNKNOWN_TASK, INVALID; REFUSED
        where the policy allows nobody to accept it.
        """
        assignment = self.tasks.find(name)
        if not back:
            check_acceptable(self._policy, assignment)
        chosen = None if back else assignment.epsilon0 if epsilon0 is None else epsilon0
        await self.memory.run(lambda: self.memory.accept(assignment, chosen))
        await asyncio.to_thread(self.look)
        return chosen

    # --- what the owner can read ------------------------------------------------------------------

    async def ledger(self, after: int = 0, most: int | None = None) -> list[Stored]:
        """The ledger's entries with numbers above ``after``, oldest first."""
        return await self.memory.run(lambda: self.memory.commitments.entries(after, most))

    async def verify(self) -> Head:
        """Check the ledger's whole chain. Raises MISMATCH naming the first bad entry."""
        return await self.memory.run(self.memory.commitments.verify)

    async def budget(self) -> Budget:
        """What was spent over everything that this device ever answered, and the limit."""
        return Budget(self._policy.limit_nano, await self.memory.run(self.memory.commitments.spent))

    async def explain(self, name: str) -> list[str]:
        """A task in plain words, a line each. Raises UNKNOWN_TASK."""
        # the accountant: only for an owner who asks
        from shoal.clients.owner.explain import explain

        assignment = self.tasks.find(name, self.clock.now())

        def lines() -> list[str]:
            commitments = self.memory.commitments
            tally = commitments.tally(assignment.task_id)
            return explain(
                assignment,
                self.config,
                consents=commitments.consents(),
                accepted=commitments.accepted(assignment.campaign.promise),
                spent=commitments.spent(),
                charged=tally.nano,
                answered=tally.windows,
                kept=commitments.latest(assignment.task_id) is not None,
            )

        return await self.memory.run(lines)
