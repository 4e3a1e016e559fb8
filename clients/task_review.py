"""What a device thinks of the tasks that it knows, and what the ledger says of that."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from shoal.clients.core import Assignment, prover_for, window_at
from shoal.clients.feeds.known_tasks import KnownTasks
from shoal.clients.memory.device_memory import ACCEPTED, Memory
from shoal.clients.owner.consent import not_agreed
from shoal.clients.reports.outcomes import TaskStatus
from shoal.clients.reports.permit import Permit
from shoal.clocks.clock import DeviceClock
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest, TaskId
from shoal.log import get_log

if TYPE_CHECKING:
    from shoal.crypto.admission.enrolment import DeviceIdentity

log = get_log("agent")


class TaskReview:
    """Of one device. Every method blocks for the disk."""

    def __init__(
        self,
        memory: Memory,
        tasks: KnownTasks,
        permit: Permit,
        identity: DeviceIdentity | None,
        clock: DeviceClock,
    ) -> None:
        self._memory, self._tasks, self._permit = memory, tasks, permit
        self._identity, self._clock = identity, clock
        self._unpaid = set[tuple[TaskId, int]]()  # windows whose refusal was entered

    def look(self) -> None:
        """Read the folders of tasks anew; enter in the ledger what changed; delete what has lost
        its consent.

        Raises CONFIG if the folder is missing. A full disk changes nothing about what may be sent:
        it is entered later.
        """
        self._tasks.refresh()
        memory = self._memory
        try:
            if memory.forgetful() is not None:  # what it thinks of tasks now says nothing
                self._retract()
                return
            for assignment in self._tasks.all():
                memory.review(assignment.trusted, assignment.epsilon0, self._verdict(assignment))
            for bad in self._tasks.unusable:
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
        task, now = assignment.task, self._clock.now()
        try:
            self._permit.check(assignment)
            prover_for(task, self._identity, now)
            if now >= task.windows.deadline_of(task.windows.count - 1):
                window_at(task.name, task.windows, now)
        except ShoalError as error:
            return error.message
        return ACCEPTED

    def _retract(self) -> None:
        """Whatever waits for purposes that are not allowed any more, whoever said so and
        wherever.
        """
        policy, answers = self._permit.policy, self._memory.commitments.consents()
        known = {
            *answers,
            *policy.purposes,
            *(assignment.task.purpose for assignment in self._tasks.all()),
        }
        for purpose in sorted(known):
            if not_agreed(policy.consent(purpose, answers), answers):
                self._memory.retract(purpose)

    def status(self) -> list[TaskStatus]:
        """Every known task: the owner's answer, why it would be refused, the window that the clock
        names.
        """
        return [self._status(assignment) for assignment in self._tasks.all()]

    def _status(self, assignment: Assignment) -> TaskStatus:
        task, now, refusal = assignment.task, self._clock.now(), ""
        try:
            self._permit.check(assignment)
            prover_for(task, self._identity, now)
            self._tasks.check_open(assignment, now)
        except ShoalError as error:
            refusal = error.message
        return TaskStatus(
            assignment, self._permit.consent(task.purpose), refusal, task.windows.current(now)
        )

    def enter_refusal(self, assignment: Assignment, window: int | None, error: ShoalError) -> None:
        """Why nothing was sent: the task's own verdict if that changed, else that of this one
        answer, once for each window. ``window`` None: the current one.
        """
        with contextlib.suppress(ShoalError):  # a full disk: the refusal itself stands
            verdict = self._verdict(assignment)
            self._memory.review(assignment.trusted, assignment.epsilon0, verdict)
            current = (
                assignment.task.windows.current(self._clock.now()) if window is None else window
            )
            key = (assignment.task_id, -1 if current is None else current)
            if verdict == ACCEPTED and key not in self._unpaid:
                self._memory.refused(assignment, current, error)
                self._unpaid.add(key)

    def enter_offer(self, data: bytes, origin: str, error: ShoalError) -> None:
        """That a feed brought something that was not taken. A full disk is no failure."""
        with contextlib.suppress(ShoalError):
            self._memory.problem(None, Digest.of(data), origin, error)
