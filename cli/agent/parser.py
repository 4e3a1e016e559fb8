"""The command line of ``shoal agent``: its commands, their arguments and options."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from shoal.cli.agent import examples
from shoal.cli.agent.help import Parser
from shoal.clients.owner.consent import WORDS
from shoal.errors import Kind, ShoalError

_TASK = "its name, or 8 or more hex digits of its id"


def parse(argv: list[str]) -> argparse.Namespace:
    """``command``, its name, ``config``, and what else that command takes.

    Raises CONFIG for a wrong command line, and SystemExit after help.
    """
    parser = build_parser()
    _refuse_options_before_command(argv, parser)
    arguments: argparse.Namespace = parser.parse_args(argv)
    return arguments


def build_parser() -> Parser:
    """The parser of all commands."""
    parser = Parser(
        prog="shoal agent",
        description=(
            "Answer tasks under the policy of this device's owner. Every report is randomized "
            "here, once per window, and sealed."
        ),
        epilog=examples.ALL,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_run(commands)
    _add_report(commands)
    _add(
        commands,
        "flush",
        "try every report that waits once, now; exit status 1 unless all were delivered",
    )
    _add(commands, "status", "tasks, consent and reports; nothing is sent")
    _add_explain(commands)
    _add_learn(commands)
    _add_consent(commands)
    _add_ledger(commands)
    _add(
        commands,
        "budget",
        "what answers may cost, have cost, and what is left",
        examples.BUDGET,
    )
    _add_memory(commands)
    _add_console(commands)
    parser.set_defaults(names=tuple(commands.choices))
    return parser


def _refuse_options_before_command(argv: list[str], parser: Parser) -> None:
    """An option before its command reads to argparse as if its value were the command. Raises
    CONFIG saying where it belongs.
    """
    if not argv or not argv[0].startswith("-") or argv[0] in {"--help", "-h"}:
        return
    names = parser.get_default("names")
    command = next((word for word in argv if word in names), "COMMAND")
    shown = "".join(c if c.isprintable() else "?" for c in argv[0].split("=")[0])[:64]
    raise ShoalError(
        Kind.CONFIG, f"{shown} goes after the command: shoal agent {command} --config FILE ..."
    )


def _add(
    commands: Any, name: str, text: str, epilog: str = examples.ALL, *, as_json: bool = True
) -> argparse.ArgumentParser:
    """A command with --config and, with ``as_json``, --json."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text, epilog=epilog
    )
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="agent.toml")
    if as_json:
        parser.add_argument("--json", action="store_true", help="for machines")
    parser.set_defaults(command=name)
    return parser


def _add_run(commands: Any) -> None:
    run = _add(
        commands,
        "run",
        "answer tasks from local sources, window after window, until stopped",
        examples.RUN,
        as_json=False,
    )
    run.add_argument("--once", action="store_true", help="measure once, send once, end")


def _add_report(commands: Any) -> None:
    report = _add(commands, "report", "answer a task in its current window")
    report.add_argument("task", metavar="TASK", help=_TASK)
    value = (
        "the true answer: text, a number, a list of numbers as [1.5, 0], or several answers as "
        '{"age": 41}; "-" reads it from standard input'
    )
    report.add_argument("value", metavar="VALUE", nargs="?", help=value)
    report.add_argument("--no-answer", action="store_true", help="take part without an answer")
    report.add_argument("--queue", action="store_true", help="only queue it; send later with flush")


def _add_explain(commands: Any) -> None:
    explain = _add(
        commands,
        "explain",
        "a task in plain words: what it learns, promises, does not promise, and costs",
        examples.EXPLAIN,
    )
    explain.add_argument("task", metavar="TASK", help=_TASK)


def _add_learn(commands: Any) -> None:
    learn = _add(
        commands,
        "learn",
        "what this device would answer to a task that learns a model; nothing is sent without "
        "--send",
        examples.LEARN,
    )
    learn.add_argument("task", metavar="TASK", help=_TASK)
    row = (
        'this device\'s own row as {"row": [63, 0.5], "yes": true}; "-" reads it from standard '
        "input, out of sight of other processes"
    )
    learn.add_argument("row", metavar="ROW", help=row)
    learn.add_argument(
        "--releases",
        type=Path,
        nargs="+",
        metavar="PATH",
        default=[],
        help="releases of the rounds before: files of shoal results export --format release, or "
        "folders of them",
    )
    learn.add_argument(
        "--send", action="store_true", help="answer the window that is open: takes part in a round"
    )


def _add_consent(commands: Any) -> None:
    consent = _add(
        commands,
        "consent",
        "list the owner's answers, or answer for a purpose or a task",
        examples.CONSENT,
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


def _add_ledger(commands: Any) -> None:
    ledger = _add(
        commands,
        "ledger",
        "everything that this device was asked, answered, sent and charged; verified",
        examples.LEDGER,
    )
    ledger.add_argument("--task", metavar="TASK", help=f"entries about one task: {_TASK}")
    ledger.add_argument(
        "--since", metavar="N", type=_entry_number, default=0, help="entries after number N"
    )
    ledger.add_argument(
        "--verify",
        metavar="COUNT:HEX",
        help="a head that was shown before: check that the ledger still begins with it",
    )


def _entry_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise argparse.ArgumentTypeError("the number of an entry, 0 or more")
    return int(text)


def _add_memory(commands: Any) -> None:
    memory = _add(
        commands,
        "memory",
        "whether what this device remembers is whole; the owner's word if it is not",
        examples.MEMORY,
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


def _add_console(commands: Any) -> None:
    console = _add(
        commands,
        "console",
        "this device's questions, answers, budget and ledger, in the browser of this machine",
        examples.CONSOLE,
    )
    console.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default="127.0.0.1:0",
        help="a loopback address; port 0, which is the default, takes any that is free",
    )
    console.add_argument("--open", action="store_true", help="open the browser")
