"""``shoal agent``: the device's side. argparse and plain print, because a running agent carries no
command-line library. What one command alone wants is imported in it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from shoal.cli.agent.light import forget, import_later
from shoal.cli.agent.output import (
    outcome_json,
    outcome_line,
    print_json,
    print_lines,
    task_json,
    task_lines,
    tell,
)
from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from shoal.clients.agent import Agent
    from shoal.clients.core import Assignment
    from shoal.clients.memory.commitments import Commitments
    from shoal.clients.settings.config import AgentConfig
    from shoal.task import Task

_PATIENCE_S = 5.0  # before an owner is told that nobody answers
_SLOW = (
    "not delivered yet; once it is drawn it is kept on disk, so that Ctrl-C loses nothing: shoal "
    "agent flush sends it, and shoal agent status says whether it waits"
)


def main(argv: list[str]) -> int:
    """Run one command. Raises ShoalError, and SystemExit for wrong arguments."""
    before = frozenset(sys.modules)
    from shoal.cli.agent.parser import parse

    arguments = parse(argv)
    if arguments.command == "console":  # it runs a loop of its own
        from shoal.cli.agent.console import console

        return console(arguments)
    if arguments.command == "run":  # it reads the file itself, and again on SIGHUP
        config, once = arguments.config, arguments.once
        del arguments, parse
        forget(before)
        import_later()
        return asyncio.run(_run(config, once))
    from shoal.clients.settings.config import AgentConfig
    from shoal.log import configure

    configure("warning", without=["mqtt"])  # what a link logs is told with each report
    return asyncio.run(_COMMANDS[arguments.command](arguments, AgentConfig.load(arguments.config)))


def _agent(config: AgentConfig) -> Agent:
    from shoal.clients.agent import Agent

    return Agent(config, background=False)


async def _run(config: Path, once: bool) -> int:
    from shoal.clients.service.runner import run

    outcomes = await run(config, once=once)
    if once:
        for outcome in outcomes:
            print_lines(outcome_line(outcome))
        if not outcomes:
            nothing = (
                "nothing to send: no task that may be answered has a source and an open window "
                "without a report (shoal agent status)"
            )
            print_lines("\n".join((nothing, *await _idle(config))))
    return 0


async def _idle(file: Path) -> list[str]:
    """Why each task that this device knows gets nothing now, a line each."""
    from shoal.clients.service.measuring import source_of
    from shoal.clients.settings.config import AgentConfig

    lines = []
    async with _agent(await asyncio.to_thread(AgentConfig.load, file)) as agent:
        for status in agent.status():
            task, name = status.assignment.task, status.assignment.task.name
            if source_of(agent, status.assignment) is None:
                why = f"no [sources.{name}] in {file.name} says where its value is"
            elif status.refusal:
                why = status.refusal.removeprefix(f"task {name}: ")
            elif status.window is None:
                why = "no window is open"
            elif task.pairwise is not None:
                why = "it is summed in rounds, which want an agent that runs: leave out --once"
            else:
                why = f"window {status.window} has its answer"
            lines.append(f"  {name}: {why}")
    return lines


async def _report(arguments: argparse.Namespace, config: AgentConfig) -> int:
    from shoal.clients.core import ReportState

    value: str | None = arguments.value
    if (value is None) != arguments.no_answer:
        raise ShoalError(
            Kind.CONFIG, 'give either a VALUE ("-" reads it from standard input) or --no-answer'
        )
    if value == "-":
        value = sys.stdin.readline().strip()
    slow = asyncio.get_running_loop().call_later(_PATIENCE_S, tell, arguments.task, _SLOW)

    def told(line: str) -> None:  # of a round: it says by itself what it waits for
        slow.cancel()
        tell(arguments.task, line)

    try:
        async with _agent(config) as agent:
            outcome = await agent.report(arguments.task, value, send=not arguments.queue, tell=told)
    finally:
        slow.cancel()
    if arguments.json:
        print_json(outcome_json(outcome))
    else:
        print_lines(outcome_line(outcome, reporting=True))
    fine = {ReportState.ACKED, ReportState.QUEUED, ReportState.NOT_ASKED}
    return 0 if outcome.state in fine else 1


async def _flush(arguments: argparse.Namespace, config: AgentConfig) -> int:
    from shoal.clients.core import ReportState

    async with _agent(config) as agent:
        outcomes = await agent.flush()
    if arguments.json:
        print_json([outcome_json(outcome) for outcome in outcomes])
    else:
        for outcome in outcomes:
            print_lines(outcome_line(outcome))
        if not outcomes:
            print_lines("nothing waits to be sent")
    missed = sum(outcome.state is not ReportState.ACKED for outcome in outcomes)
    if missed:
        count = (
            f"{missed:,} of {len(outcomes):,} reports"
            if len(outcomes) > 1
            else "the report that waited"
        )
        print(  # noqa: T201
            f"shoal: not delivered: {count}; what still waits is tried again by the next flush",
            file=sys.stderr,
        )
    return 1 if missed else 0


async def _status(arguments: argparse.Namespace, config: AgentConfig) -> int:
    from shoal.cli.agent.memory import budget_line
    from shoal.clients.owner.book import budget_json, found_damaged, memory
    from shoal.clients.service.measuring import unmatched, waiting

    async with _agent(config) as agent:
        tasks, outcomes, problems = agent.status(), await agent.outcomes(), agent.tasks.problems
        doubt = await asyncio.to_thread(agent.clock.doubt)
        notes = [*([doubt] if doubt else []), *unmatched(agent).values(), *config.notes]
        notes += await waiting(agent, tasks)
    with memory(config) as commitments:
        budget = budget_json(config, commitments)
        paid = {
            status.assignment.task_id: _paid(config, commitments, status.assignment)
            for status in tasks
        }
        notes += found_damaged(commitments)
    if arguments.json:
        print_json(
            {
                "tasks": [
                    task_json(status, _rules(config, status.assignment.task)) for status in tasks
                ],
                "reports": [outcome_json(outcome) for outcome in outcomes],
                "problems": {name: error.message for name, error in problems.items()},
                "budget": {key: budget[key] for key in ("limit", "spent", "left")},
                "notes": notes,
            }
        )
        return 0
    for status in tasks:
        print_lines(
            task_lines(
                status, _rules(config, status.assignment.task), paid[status.assignment.task_id]
            )
        )
    for outcome in outcomes:
        print_lines(outcome_line(outcome))
    for error in problems.values():
        print_lines(f"problem: {error.message}")
    if not (tasks or outcomes or problems):
        print_lines("no tasks and no reports")
    print_lines(budget_line(budget))
    for note in notes:
        print_lines(note)
    return 0


def _rules(config: AgentConfig, task: Task) -> list[str]:
    from shoal.clients.owner.rules import describe

    return [describe(rule) for rule in config.rules if rule.concerns(task)]


def _paid(config: AgentConfig, commitments: Commitments | None, assignment: Assignment) -> bool:
    from shoal.clients.owner.explain_cost import pays

    if commitments is None:
        return pays(assignment, config.effective_policy, 0, kept=False)

    try:
        return pays(
            assignment,
            config.effective_policy,
            commitments.spent(),
            kept=commitments.latest(assignment.task_id) is not None,
        )
    except ShoalError:  # damaged: said beside
        return False


async def _explain(arguments: argparse.Namespace, config: AgentConfig) -> int:
    async with _agent(config) as agent:
        assignment = agent.tasks.find(arguments.task, agent.clock.now())
        lines = await agent.explain(arguments.task)
        status = next(
            status for status in agent.status() if status.assignment.task_id == assignment.task_id
        )
    if arguments.json:
        print_json({**task_json(status, _rules(config, assignment.task)), "explanation": lines})
    else:
        print_lines("\n".join(lines))
    return 0


async def _learn(arguments: argparse.Namespace, config: AgentConfig) -> int:
    from shoal.cli.agent.learn import learn

    return await learn(arguments, config)


async def _consent(arguments: argparse.Namespace, config: AgentConfig) -> int:
    from shoal.cli.agent.consent import consent

    return await consent(arguments, config)


async def _ledger(arguments: argparse.Namespace, config: AgentConfig) -> int:
    from shoal.cli.agent.memory import ledger

    return ledger(arguments, config)


async def _budget(arguments: argparse.Namespace, config: AgentConfig) -> int:
    from shoal.cli.agent.memory import budget

    return budget(arguments, config)


async def _memory(arguments: argparse.Namespace, config: AgentConfig) -> int:
    from shoal.cli.agent.setback import memory

    return memory(arguments, config)


_COMMANDS: dict[str, Callable[[argparse.Namespace, AgentConfig], Coroutine[None, None, int]]] = {
    "report": _report,
    "flush": _flush,
    "status": _status,
    "explain": _explain,
    "learn": _learn,
    "consent": _consent,
    "ledger": _ledger,
    "budget": _budget,
    "memory": _memory,
}
