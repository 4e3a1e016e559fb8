"""``shoal agent``: the device's side. argparse and plain print, because a device installs no command-line library."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.clients.agent import Agent, Outcome, TaskStatus

_EXAMPLES = """examples:
  shoal agent report --config agent.toml visits 3        answer the task "visits" in its current window
  echo 3 | shoal agent report --config agent.toml visits -   the same, with the value out of sight of other processes
  shoal agent report --config agent.toml moments '[1.5, 2]'  take part in a sum: waits, often minutes, until the round is over
  shoal agent report --config agent.toml visits --no-answer  take part without an answer
  shoal agent flush --config agent.toml                  send what waits
  shoal agent status --config agent.toml --json          tasks, the owner's consent, and every report's standing

Exit status: 0 ok (a report that waits for the network is ok), 1 the work failed, 2 the request was wrong.
"""


def main(argv: list[str]) -> int:
    """Run one command. Raises ShoalError, and SystemExit for wrong arguments."""
    arguments = _parser().parse_args(argv)
    result: int = asyncio.run(arguments.run(arguments))
    return result


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="shoal agent",
        description="Answer tasks under the policy of this device's owner. Every report is randomized here, once per window, and sealed.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    report = _command(commands, "report", _report, "answer a task in its current window")
    report.add_argument("task", metavar="TASK", help="its name, or 8 or more hex digits of its id")
    value = 'the true answer: text, a number, or a list of numbers as [1.5, 0]; "-" reads it from standard input'
    report.add_argument("value", metavar="VALUE", nargs="?", help=value)
    report.add_argument("--no-answer", action="store_true", help="take part without an answer")
    report.add_argument("--queue", action="store_true", help="only queue it; send later with flush")

    _command(commands, "flush", _flush, "try every report that waits once, now")
    _command(commands, "status", _status, "tasks, consent and reports; nothing is sent")
    return parser


def _command(commands: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text, epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="agent.toml")
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.set_defaults(run=run)
    return parser


def _agent(arguments: argparse.Namespace) -> Agent:
    from shoal.clients.agent import Agent
    from shoal.clients.config import AgentConfig

    return Agent(AgentConfig.load(arguments.config), background=False)


async def _report(arguments: argparse.Namespace) -> int:
    from shoal.clients.core import State
    from shoal.errors import Kind, ShoalError

    value: str | None = arguments.value
    if (value is None) != arguments.no_answer:
        raise ShoalError(Kind.CONFIG, 'give either a VALUE ("-" reads it from standard input) or --no-answer')
    if value == "-":
        value = sys.stdin.readline().strip()
    async with _agent(arguments) as agent:
        outcome = await agent.report(arguments.task, value, send=not arguments.queue, tell=lambda line: _tell(arguments.task, line))
    if arguments.json:
        _print_json(_json(outcome))
    else:
        _print(_line(outcome, reporting=True))
    return 0 if outcome.state in {State.ACKED, State.QUEUED} else 1


async def _flush(arguments: argparse.Namespace) -> int:
    from shoal.clients.core import State

    async with _agent(arguments) as agent:
        outcomes = await agent.flush()
    if arguments.json:
        _print_json([_json(outcome) for outcome in outcomes])
    else:
        for outcome in outcomes:
            _print(_line(outcome))
        if not outcomes:
            _print("nothing waits to be sent")
    return 0 if all(outcome.state is State.ACKED for outcome in outcomes) else 1


async def _status(arguments: argparse.Namespace) -> int:
    async with _agent(arguments) as agent:
        tasks, outcomes, problems = agent.status(), await agent.outcomes(), agent.tasks.problems
    if arguments.json:
        _print_json(
            {
                "tasks": [_task_json(task) for task in tasks],
                "reports": [_json(outcome) for outcome in outcomes],
                "problems": {name: error.message for name, error in problems.items()},
            }
        )
        return 0
    for task in tasks:
        _print(_task_lines(task))
    for outcome in outcomes:
        _print(_line(outcome))
    for error in problems.values():
        _print(f"problem: {error.message}")
    if not (tasks or outcomes or problems):
        _print("no tasks and no reports")
    return 0


def _line(outcome: Outcome, *, reporting: bool = False) -> str:
    """One report's standing, for people."""
    from shoal.clients.core import State

    reason = outcome.message or (outcome.kind.name.lower().replace("_", " ") if outcome.kind else "")
    text = {
        State.QUEUED: "queued" + (f", not sent yet ({reason})" if reason else ", will be sent"),
        State.ACKED: outcome.message or "delivered, the shuffler has it on disk",
        State.REFUSED: f"refused: {reason}",
        State.UNKNOWN: f"its fate is unknown, it counts once or not at all: {reason}",
    }[outcome.state]
    ignored = "" if outcome.fresh or not reporting else "answered before, this value was ignored; "
    return f"task {outcome.task}, window {outcome.window}: {ignored}{text}"


def _json(outcome: Outcome) -> dict[str, Any]:
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


def _task_lines(status: TaskStatus) -> str:
    task = status.assignment.task
    window = "no window is open" if status.window is None else f"window {status.window} of {task.windows.count} is open"
    answer = f"would send nothing: {status.refusal}" if status.refusal else "may be answered"
    return "\n".join(
        (
            f"task {task.name} ({status.assignment.task_id.short}): {task.question}",
            f"  purpose: {task.purpose}",
            f"  consent: {status.consent}; {answer}",
            f"  {_epsilons(status)}, batches of at least {task.min_batch}; {window}",
        )
    )


def _epsilons(status: TaskStatus) -> str:
    from shoal.accounting.meaning import bound_text

    one = status.assignment
    together = bound_text(one.epsilon0)
    if one.apart is None:
        return f"epsilon0 {together} per report"
    apart = bound_text(one.apart)
    if one.epsilon0 <= one.apart:
        return f"epsilon {apart} per sum, even if shuffler and analyzer work together"
    return f"epsilon {apart} per sum while shuffler and analyzer do not work together ({together} if they do)"


def _task_json(status: TaskStatus) -> dict[str, Any]:
    task = status.assignment.task
    return {
        "task": task.name,
        "task_id": status.assignment.task_id.hex,
        "question": task.question,
        "purpose": task.purpose,
        "consent": status.consent,
        "refusal": status.refusal or None,
        "window": status.window,
        "epsilon0": status.assignment.epsilon0 if math.isfinite(status.assignment.epsilon0) else None,
        "epsilon_apart": status.assignment.apart,
        "min_batch": task.min_batch,
    }


def _print(text: str) -> None:
    """A line or more. Words of a task come from elsewhere: whatever could steer a terminal is shown as a question mark."""
    sys.stdout.write("".join(c if c.isprintable() or c == "\n" else "?" for c in text) + "\n")


def _tell(task: str, line: str) -> None:
    """Where a sum is, for an owner who waits minutes: on stderr, so that what stdout has stays one line, or JSON."""
    text = f"shoal: task {task}: {line}"
    print("".join(c if c.isprintable() else "?" for c in text), file=sys.stderr, flush=True)  # noqa: T201 - the command line's own output


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
