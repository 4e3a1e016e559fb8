"""What the commands of ``shoal agent`` print: lines for people, in which nothing can steer a
terminal, and JSON for programs.
"""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.clients.agent import ReportOutcome, TaskStatus


def print_lines(text: str) -> None:
    """A line or more. Words of a task come from elsewhere: whatever could steer a terminal is shown
    as a question mark.
    """
    sys.stdout.write("".join(c if c.isprintable() or c == "\n" else "?" for c in text) + "\n")


def print_json(value: Any) -> None:
    """To stdout, as it is: no colours, no wrapping."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def tell(task: str, line: str) -> None:
    """Where a sum is, for an owner who waits minutes: on stderr, so that what stdout has stays one
    line, or JSON.
    """
    text = f"shoal: task {task}: {line}"
    print("".join(c if c.isprintable() else "?" for c in text), file=sys.stderr, flush=True)  # noqa: T201 - the command line's own output


def up(epsilon: float) -> str:
    """An upper bound, never shown too small."""
    from shoal.accounting.meaning import bound_text

    return bound_text(epsilon)


def down(epsilon: float) -> str:
    """What is left, never shown too large."""
    from shoal.accounting.meaning import bound_text

    return bound_text(epsilon, up=False)


# --- reports --------------------------------------------------------------------------------------


def outcome_line(outcome: ReportOutcome, *, reporting: bool = False) -> str:
    """One report's standing, for people."""
    from shoal.clients.core import ReportState

    reason = outcome.message or (
        outcome.kind.name.lower().replace("_", " ") if outcome.kind else ""
    )
    text = {
        ReportState.QUEUED: "queued"
        + (f", not sent yet ({reason})" if reason else ", will be sent"),
        ReportState.ACKED: outcome.message or "delivered, the shuffler has it on disk",
        ReportState.REFUSED: f"refused: {reason}",
        ReportState.UNKNOWN: f"its fate is unknown, it counts once or not at all: {reason}",
        ReportState.WITHDRAWN: "withdrawn: deleted, because its purpose is not agreed to any more"
        + (f" (an attempt before that may have arrived: {reason})" if reason else ""),
        ReportState.NOT_ASKED: f"nothing is sent: {reason}",
    }[outcome.state]
    answered = not outcome.fresh and outcome.state is not ReportState.NOT_ASKED
    ignored = "" if not answered or not reporting else "answered before, this value was ignored; "
    return f"task {outcome.task}, window {outcome.window}: {ignored}{text}"


def outcome_json(outcome: ReportOutcome) -> dict[str, Any]:
    """What became of one report, for programs."""
    return {
        "task": outcome.task,
        "task_id": outcome.task_id.hex,
        "window": outcome.window,
        "state": outcome.state.value,
        "fresh": outcome.fresh,
        "attempts": outcome.attempts,
        "kind": outcome.kind.name if outcome.kind else None,
        "message": outcome.message,
    }


# --- tasks ----------------------------------------------------------------------------------------


def task_lines(status: TaskStatus, rules: list[str], paid: bool) -> str:
    """``paid``: whether the budget pays for another window."""
    task = status.assignment.task
    window = (
        "no window is open"
        if status.window is None
        else f"window {status.window} of {task.windows.count} is open"
    )
    may = (
        "may be answered"
        if paid
        else "would send nothing: the budget does not pay for another window"
    )
    answer = f"would send nothing: {status.refusal}" if status.refusal else may
    lines = [
        f"task {task.name} ({status.assignment.task_id.short}): {task.question}",
        f"  purpose: {task.purpose}",
        f"  consent: {status.consent}; {answer}",
        f"  {_epsilons(status)}, batches of at least {task.min_batch}; {window}",
    ]
    return "\n".join((*lines, *(f"  rule: {rule}" for rule in rules)))


def _epsilons(status: TaskStatus) -> str:
    assignment = status.assignment
    together = up(assignment.epsilon0)
    if assignment.epsilon_apart is None:
        often = " per distinct value (memoized)" if assignment.task.memoized else " per report"
        often += (
            ""
            if assignment.epsilon_first is None
            else f", {up(assignment.epsilon_first)} of one report by itself"
        )
        return f"epsilon0 {together}{often}"
    epsilon_apart = up(assignment.epsilon_apart)
    if assignment.epsilon0 <= assignment.epsilon_apart:
        return f"epsilon {epsilon_apart} per sum, even if shuffler and analyzer work together"
    return (
        f"epsilon {epsilon_apart} per sum while shuffler and analyzer do not work together "
        f"({together} if "
        "they do)"
    )


def task_json(status: TaskStatus, rules: list[str]) -> dict[str, Any]:
    """One task of this device, for programs; an infinite epsilon is null. ``rules``: the owner's,
    in words.
    """
    task = status.assignment.task
    return {
        "task": task.name,
        "task_id": status.assignment.task_id.hex,
        "authority": status.assignment.trusted.authority.hex(),
        "question": task.question,
        "purpose": task.purpose,
        "consent": status.consent,
        "refusal": status.refusal or None,
        "window": status.window,
        "epsilon0": status.assignment.epsilon0
        if math.isfinite(status.assignment.epsilon0)
        else None,
        "epsilon_apart": status.assignment.epsilon_apart,
        "memoized": task.memoized,
        "min_batch": task.min_batch,
        "rules": rules,
    }
