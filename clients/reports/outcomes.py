"""What an agent tells its owner: where a report stands, and what it thinks of a task."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.clients.core import Assignment, ReportState
from shoal.clients.memory.outbox import Record
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId


@dataclass(frozen=True, slots=True)
class ReportOutcome:
    """Where a report stands. ``fresh``: this call made it; False: the window already had one, and
    the value was ignored.

    ``kind`` and ``message``: the last failure, None and "" if there was none.
    """

    task: str
    task_id: TaskId
    window: int
    state: ReportState
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


def outcome_of(name: str, record: Record, fresh: bool, failure: ShoalError | None) -> ReportOutcome:
    """A report's standing, and the failure of its last attempt unless it has arrived or was
    withdrawn. ``name``: of its task.
    """
    final = record.state in {ReportState.ACKED, ReportState.WITHDRAWN}
    kind = failure.kind if failure and not final else record.kind
    message = failure.message if failure and not final else ""
    return ReportOutcome(
        name, record.task_id, record.window, record.state, fresh, record.attempts, kind, message
    )
