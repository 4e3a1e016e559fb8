"""``shoal agent``: the device's side. argparse and plain print, because a running agent carries no
command-line library.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.cli.agent.help import Parser
from shoal.clients.owner.consent import WORDS

if TYPE_CHECKING:
    from shoal.clients.agent import Agent
    from shoal.clients.config import AgentConfig
    from shoal.clients.core import Assignment
    from shoal.clients.memory.commitments import Book
    from shoal.task import Task

_EXAMPLES = """Examples:
  shoal agent run --config agent.toml                    answer tasks from local sources, in every window, until stopped
  shoal agent report --config agent.toml visits 3        answer the task "visits" in its current window
  echo 3 | shoal agent report --config agent.toml visits -   the same, with the value out of sight of other processes
  shoal agent report --config agent.toml moments '[1.5, 2]'  take part in a sum: waits, often minutes, until the round is over
  shoal agent report --config agent.toml visits --no-answer  take part without an answer
  shoal agent flush --config agent.toml                  send what waits
  shoal agent status --config agent.toml --json          tasks, the owner's consent, and every report's standing
  shoal agent explain --config agent.toml visits         what a task learns, what is promised, and what is not
  shoal agent consent --config agent.toml visits allow   agree to the purpose of a task; without names: list all
  shoal agent ledger --config agent.toml                 everything that this device was asked, answered, sent and charged
  shoal agent budget --config agent.toml                 what answers may cost, have cost, and what is left
  shoal agent memory --config agent.toml                 whether what this device remembers is whole, and not an older copy

Exit status: 0 ok, 1 the work failed, 2 the request was wrong. A report that waits for the network is ok, but for flush, whose work is to
send: it ends with 1 unless everything that waited was delivered.
"""
_RUN = """Examples:
  shoal agent run --config agent.toml           until SIGTERM or Ctrl-C; SIGHUP reads agent.toml again
  shoal agent run --config agent.toml --once    measure what is due in the current windows, send once, end

A task is answered if its purpose is agreed to and [sources.TASK] in agent.toml says where its value is. One line is logged whenever
something changes. systemd unit: deploy/systemd/shoal-agent.service
"""
_EXPLAIN = """Examples:
  shoal agent explain --config agent.toml visits
  shoal agent explain --config agent.toml 0a1b2c3d --json    by the first digits of its id
"""
_CONSENT = """Examples:
  shoal agent consent --config agent.toml                           list every purpose: allowed, denied or not asked
  shoal agent consent --config agent.toml visits allow              agree to the purpose of the task "visits"
  shoal agent consent --config agent.toml visits deny               deny it: what waits is deleted, memoized answers are forgotten
  shoal agent consent --config agent.toml visits ask                take the answer back: as if never asked, nothing is sent
  shoal agent consent --config agent.toml "Planning of clinics" deny    by the purpose's exact words
  shoal agent consent --config agent.toml visits --accept-epsilon0  agree to this very task, though it asks for more than max_epsilon0
  shoal agent consent --config agent.toml visits ask --accept-epsilon0    take that back

What policy.purposes in agent.toml, or a fleet's file, denies stays denied. A running agent heeds the answer at its next step.
"""
_LEDGER = """Examples:
  shoal agent ledger --config agent.toml
  shoal agent ledger --config agent.toml --task visits --since 120
  shoal agent ledger --config agent.toml --json                 {"entries": [...], "head": {...}, "verified": true, "budget": {...}}
  shoal agent ledger --config agent.toml --verify 120:5e88...   that the ledger still has the 120 entries of a head noted before

The whole chain of hashes is verified first. An entry that was altered, left out or moved: exit status 1, and one line that names it.
Note the head that is shown last somewhere else: only that shows a chain that was computed anew.
"""
_BUDGET = """Examples:
  shoal agent budget --config agent.toml
  shoal agent budget --config agent.toml --json     {"limit": 100.0, "spent": 12.0, "left": 88.0, "tasks": [...]}; limit null: none is set
"""


_MEMORY = """examples:
  shoal agent memory --config agent.toml
  shoal agent memory --config agent.toml --confirm-set-back         say what is lost, ask, then go on without it
  shoal agent memory --config agent.toml --confirm-damage           say what is damaged, ask, then put what is safe in its place
  shoal agent memory --config agent.toml --confirm-set-back --yes   without asking

Of what the disk damaged only the tasks concerned get no answer. What is put in its place never gives budget back.
A memory that is older than the head beside it (restored, replaced, cut, or removed) answers and sends nothing until its owner confirms.
Exit status: 0 it is whole, or confirmed now; 1 it is damaged or was set back, or its ledger does not hold.
"""


def main(argv: list[str]) -> int:
    """Run one command. Raises ShoalError, and SystemExit for wrong arguments."""
    parser = _parser()
    _in_order(argv, parser.get_default("names"))
    arguments = parser.parse_args(argv)
    runs: bool = arguments.run is _run
    if runs:  # it reads the file itself, and again on SIGHUP
        return asyncio.run(_run(arguments))
    from shoal.clients.config import AgentConfig
    from shoal.log import configure

    configure("warning", without=["mqtt"])  # what a link logs is told with each report
    result: int = asyncio.run(arguments.run(arguments, AgentConfig.load(arguments.config)))
    return result


def _in_order(argv: list[str], commands: Collection[str]) -> None:
    """An option before its command reads to argparse as if its value were the command. Raises
    CONFIG saying where it belongs.
    """
    if not argv or not argv[0].startswith("-") or argv[0] in {"--help", "-h"}:
        return
    from shoal.errors import Kind, ShoalError

    command = next((word for word in argv if word in commands), "COMMAND")
    shown = "".join(c if c.isprintable() else "?" for c in argv[0].split("=")[0])[:64]
    raise ShoalError(
        Kind.CONFIG, f"{shown} goes after the command: shoal agent {command} --config FILE ..."
    )


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="shoal agent",
        description=(
            "Answer tasks under the policy of this device's owner. Every report is randomized "
            "here, once per window, and sealed."
        ),
        epilog=_EXAMPLES,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    named = "its name, or 8 or more hex digits of its id"

    run = _command(
        commands,
        "run",
        _run,
        "answer tasks from local sources, window after window, until stopped",
        _RUN,
        as_json=False,
    )
    run.add_argument("--once", action="store_true", help="measure once, send once, end")

    report = _command(commands, "report", _report, "answer a task in its current window")
    report.add_argument("task", metavar="TASK", help=named)
    value = (
        'the true answer: text, a number, or a list of numbers as [1.5, 0]; "-" reads it from '
        "standard input"
    )
    report.add_argument("value", metavar="VALUE", nargs="?", help=value)
    report.add_argument("--no-answer", action="store_true", help="take part without an answer")
    report.add_argument("--queue", action="store_true", help="only queue it; send later with flush")

    _command(
        commands,
        "flush",
        _flush,
        "try every report that waits once, now; exit status 1 unless all were delivered",
    )
    _command(commands, "status", _status, "tasks, consent and reports; nothing is sent")

    explain = _command(
        commands,
        "explain",
        _explain,
        "a task in plain words: what it learns, promises, does not promise, and costs",
        _EXPLAIN,
    )
    explain.add_argument("task", metavar="TASK", help=named)

    consent = _command(
        commands,
        "consent",
        _consent,
        "list the owner's answers, or answer for a purpose or a task",
        _CONSENT,
    )
    consent.add_argument(
        "name",
        metavar="PURPOSE|TASK",
        nargs="?",
        help="a purpose's exact words, or a task, which stands for its purpose",
    )
    consent.add_argument(
        "answer",
        metavar="|".join(WORDS),
        nargs="?",
        choices=WORDS,
        help="ask: take the answer back",
    )
    consent.add_argument(
        "--accept-epsilon0",
        action="store_true",
        help="accept the local epsilon of this very task, above max_epsilon0 or not",
    )
    consent.add_argument(
        "--purpose",
        action="store_true",
        help="the name is a purpose, even if nobody asked for it yet",
    )

    ledger = _command(
        commands,
        "ledger",
        _ledger,
        "everything that this device was asked, answered, sent and charged; verified",
        _LEDGER,
    )
    ledger.add_argument("--task", metavar="TASK", help=f"entries about one task: {named}")
    ledger.add_argument(
        "--since", metavar="N", type=_number, default=0, help="entries after number N"
    )
    ledger.add_argument(
        "--verify",
        metavar="COUNT:HEX",
        help="a head that was shown before: check that the ledger still begins with it",
    )

    _command(
        commands, "budget", _budget, "what answers may cost, have cost, and what is left", _BUDGET
    )

    memory = _command(
        commands,
        "memory",
        _memory,
        "whether what this device remembers is whole; the owner's word if it is not",
        _MEMORY,
    )
    memory.add_argument(
        "--confirm-set-back",
        action="store_true",
        help="go on with a memory that was set back: over-counts what is lost",
    )
    memory.add_argument(
        "--confirm-damage",
        action="store_true",
        help="put what is safe in the place of what the disk damaged",
    )
    memory.add_argument("--yes", action="store_true", help="with either of them: don't ask")
    parser.set_defaults(names=list(commands.choices))
    return parser


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise argparse.ArgumentTypeError("the number of an entry, 0 or more")
    return int(text)


def _command(
    commands: Any, name: str, run: Any, text: str, epilog: str = _EXAMPLES, *, as_json: bool = True
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text, epilog=epilog
    )
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="agent.toml")
    if as_json:
        parser.add_argument("--json", action="store_true", help="for machines")
    parser.set_defaults(run=run)
    return parser


def _agent(config: AgentConfig) -> Agent:
    from shoal.clients.agent import Agent

    return Agent(config, background=False)


async def _run(arguments: argparse.Namespace) -> int:
    from shoal.clients.service.runner import run

    outcomes = await run(arguments.config, once=arguments.once)
    if arguments.once:
        from shoal.cli.agent.output import outcome_line, print_lines

        for outcome in outcomes:
            print_lines(outcome_line(outcome))
        if not outcomes:
            print_lines(
                "nothing to send: no task that may be answered has a source and an open window "
                "without a report (shoal agent status)"
            )
    return 0


async def _report(arguments: argparse.Namespace, config: AgentConfig) -> int:
    from shoal.cli.agent.output import outcome_json, outcome_line, print_json, print_lines, tell
    from shoal.clients.core import State
    from shoal.errors import Kind, ShoalError

    value: str | None = arguments.value
    if (value is None) != arguments.no_answer:
        raise ShoalError(
            Kind.CONFIG, 'give either a VALUE ("-" reads it from standard input) or --no-answer'
        )
    if value == "-":
        value = sys.stdin.readline().strip()
    async with _agent(config) as agent:
        outcome = await agent.report(
            arguments.task,
            value,
            send=not arguments.queue,
            tell=lambda line: tell(arguments.task, line),
        )
    if arguments.json:
        print_json(outcome_json(outcome))
    else:
        print_lines(outcome_line(outcome, reporting=True))
    return 0 if outcome.state in {State.ACKED, State.QUEUED} else 1


async def _flush(arguments: argparse.Namespace, config: AgentConfig) -> int:
    from shoal.cli.agent.output import outcome_json, outcome_line, print_json, print_lines
    from shoal.clients.core import State

    async with _agent(config) as agent:
        outcomes = await agent.flush()
    if arguments.json:
        print_json([outcome_json(outcome) for outcome in outcomes])
    else:
        for outcome in outcomes:
            print_lines(outcome_line(outcome))
        if not outcomes:
            print_lines("nothing waits to be sent")
    missed = sum(outcome.state is not State.ACKED for outcome in outcomes)
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
    from shoal.cli.agent.memory import budget_json, budget_line, found_damaged, memory
    from shoal.cli.agent.output import (
        outcome_json,
        outcome_line,
        print_json,
        print_lines,
        task_json,
        task_lines,
    )
    from shoal.clients.service.measuring import unmatched

    async with _agent(config) as agent:
        tasks, outcomes, problems = agent.status(), await agent.outcomes(), agent.tasks.problems
        doubt = await asyncio.to_thread(agent.clock.doubt)
        notes = [*([doubt] if doubt else []), *unmatched(agent).values(), *config.notes]
    with memory(config) as book:
        budget = budget_json(config, book)
        paid = {one.assignment.task_id: _paid(config, book, one.assignment) for one in tasks}
        notes += found_damaged(book)
    if arguments.json:
        print_json(
            {
                "tasks": [task_json(one, _rules(config, one.assignment.task)) for one in tasks],
                "reports": [outcome_json(outcome) for outcome in outcomes],
                "problems": {name: error.message for name, error in problems.items()},
                "budget": {key: budget[key] for key in ("limit", "spent", "left")},
                "notes": notes,
            }
        )
        return 0
    for one in tasks:
        print_lines(
            task_lines(one, _rules(config, one.assignment.task), paid[one.assignment.task_id])
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


def _paid(config: AgentConfig, book: Book | None, assignment: Assignment) -> bool:
    from shoal.clients.explain import pays

    if book is None:
        return pays(assignment, config.effective_policy, 0, kept=False)
    from shoal.errors import ShoalError

    try:
        return pays(
            assignment,
            config.effective_policy,
            book.spent(),
            kept=book.latest(assignment.task_id) is not None,
        )
    except ShoalError:  # damaged: said beside
        return False


async def _explain(arguments: argparse.Namespace, config: AgentConfig) -> int:
    from shoal.cli.agent.output import print_json, print_lines, task_json

    async with _agent(config) as agent:
        found = agent.tasks.find(arguments.task)
        lines = await agent.explain(arguments.task)
        status = next(one for one in agent.status() if one.assignment.task_id == found.task_id)
    if arguments.json:
        print_json({**task_json(status, _rules(config, found.task)), "explanation": lines})
    else:
        print_lines("\n".join(lines))
    return 0


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
