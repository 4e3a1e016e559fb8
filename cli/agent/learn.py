"""``shoal agent learn``: what this device would answer to a task that learns a model; and, with
``--send``, that answer.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from shoal.cli.agent.output import outcome_json, outcome_line, print_json, print_lines, tell
from shoal.clients.agent import Agent
from shoal.clients.core import ReportState, window_at
from shoal.clients.rounds.trial import OwnerRow, TriedAnswer, model_so_far, row_names, try_answer
from shoal.domain import Vector
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from shoal.clients.core import Assignment
    from shoal.clients.reports.outcomes import ReportOutcome
    from shoal.clients.settings.config import AgentConfig
    from shoal.questions.learning import LearningPlan
    from shoal.task import Task

_MOST_SHOWN = 12  # numbers of a vector
_MOST_TYPED = 64 << 20  # characters of a row that is read from standard input


async def learn(arguments: argparse.Namespace, config: AgentConfig) -> int:
    """Show it, and send it where that is asked. Raises CONFIG, INVALID, MISMATCH."""
    text = sys.stdin.read(_MOST_TYPED + 1) if arguments.row == "-" else arguments.row
    row = OwnerRow.read(text)
    async with Agent(config, background=False) as agent:
        shown = await tried(
            agent, arguments.task, row, list(arguments.releases), send=arguments.send
        )
    if arguments.json:
        print_json(_json(*shown))
    else:
        print_lines("\n".join(_lines(*shown)))
    outcome = shown[-1]
    fine = outcome is None or outcome.state in {ReportState.ACKED, ReportState.NOT_ASKED}
    return 0 if fine else 1


async def tried(
    agent: Agent, name: str, row: OwnerRow, releases: list[Path], *, send: bool
) -> tuple[Assignment, TriedAnswer, ReportOutcome | None]:
    """The task, what this device would answer to it, and what became of it if it was sent. Raises
    UNKNOWN_TASK; CONFIG where another round is open than the one to ``send`` to.
    """
    now = agent.clock.now()
    assignment = agent.tasks.find(name, now)
    task = assignment.task
    state = await asyncio.to_thread(model_so_far, task, assignment.task_id, releases)
    if send:
        _check_open(assignment, now, state.done)
    found = await asyncio.to_thread(try_answer, task, state, row, None if send else SYSTEM)
    del state  # as long as the answer is
    if not send:
        return assignment, found, None
    outcome = await agent.report(
        name, found.vector, tell=lambda line: tell(name, line), window=found.window
    )
    return assignment, found, outcome


def _check_open(assignment: Assignment, now: float, done: int) -> None:
    """Raises CONFIG where another round is open than the one that would be answered."""
    task = assignment.task
    window = window_at(task.name, task.windows, now)
    if window > done:
        raise ShoalError(
            Kind.CONFIG,
            f"task {task.name}: window {window} is open, and is asked at the model after the "
            f"releases of all windows before; --releases has {done or 'none'} of them: give the "
            "others too, or leave --send out",
        )
    if window < done:
        raise ShoalError(
            Kind.CONFIG,
            f"task {task.name}: window {window} is open, and --releases goes on to window "
            f"{done - 1}: give those before window {window} alone, or leave --send out",
        )


def _lines(assignment: Assignment, found: TriedAnswer, outcome: ReportOutcome | None) -> list[str]:
    task, plan = assignment.task, found.plan
    length = f"its length is {found.length:.4g}"
    cut = (
        f"longer than the clip of {found.clip:.4g}: shortened to it"
        if found.shortened
        else f"within the clip of {found.clip:.4g}: kept"
    )
    names = _names(task.domain, found.vector.size)
    width = max(map(len, names))
    columns = [("before noise", found.vector)]
    if found.example is not None:
        columns.append(("a draw of it", found.example))
    rows = [
        f"  {name:<{width}}" + "".join(f"  {numbers[at]:>12.5g}" for _, numbers in columns)
        for at, name in enumerate(names)
    ]
    more = found.vector.size - len(names)
    return [
        f"task {task.name}, window {found.window}: round {found.window + 1} of {plan.rounds}",
        *_row(task, plan),
        f"  the gradient of this row at the model so far: {length}, {cut}; then divided by the "
        "clip",
        f"  the noise of a number has a standard deviation of {found.own_noise:.4g} by this device "
        f"alone, and of {found.all_noise:.4g} or more in the sum",
        f"  {'number':<{width}}" + "".join(f"  {title:>12}" for title, _ in columns),
        *rows,
        *([f"  and {more:,} numbers more (--json has all)"] if more > 0 else []),
        "nothing was sent; what would be sent is drawn anew, and masked"
        if outcome is None
        else outcome_line(outcome, reporting=True),
    ]


def _row(task: Task, plan: LearningPlan) -> list[str]:
    """What the numbers of a row are, where the task says it and they are few."""
    names = row_names(task, plan)
    return [f"  the row: {', '.join(names)}"] if 0 < len(names) <= _MOST_SHOWN else []


def _names(domain: Any, size: int) -> list[str]:
    names = list(domain.names[:_MOST_SHOWN]) if isinstance(domain, Vector) else []
    return names or [f"number {at + 1}" for at in range(min(size, _MOST_SHOWN))]


def _json(
    assignment: Assignment, found: TriedAnswer, outcome: ReportOutcome | None
) -> dict[str, Any]:
    return {
        "task": assignment.task.name,
        "task_id": assignment.task_id.hex,
        "learning": found.plan.words,
        "window": found.window,
        "clip": found.clip,
        "gradient_length": found.length,
        "shortened": found.shortened,
        "vector": found.vector.tolist(),
        "example": None if found.example is None else found.example.tolist(),
        "own_noise": found.own_noise,
        "noise_of_sum": found.all_noise,
        "sent": None if outcome is None else outcome_json(outcome),
    }
