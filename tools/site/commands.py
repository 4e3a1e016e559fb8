"""The page of all commands, from their own help: what ``--help`` prints, as Markdown."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer

from shoal.cli.agent.parser import build_parser
from shoal.cli.main import build

HEAD = """# Commands

Every command, from its own help. `--help` after any of them prints the same in a terminal. The exit
status is 0 if all went well, 1 if the work failed, 2 if the request was wrong (one line says how
to mend it), 130 after Ctrl-C.
"""


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its full name, its help, and (names, help) of each argument and option."""

    name: str
    help: str
    options: tuple[tuple[str, str], ...]


def commands() -> Iterator[Command]:
    """All of them, in the order of the help; those of the agent last."""
    yield from _of_typer(typer.main.get_command(build()), "shoal")
    yield from _of_argparse(build_parser(), "shoal agent")


def page() -> str:
    """The Markdown."""
    return HEAD + "".join(map(_section, commands()))


def _of_typer(command: Any, name: str) -> Iterator[Command]:
    if hasattr(command, "commands"):
        for part, child in command.commands.items():
            if f"{name} {part}" != "shoal agent":  # which has a parser of its own
                yield from _of_typer(child, f"{name} {part}")
        return
    options = []
    for one in command.params:
        if one.param_type_name == "argument":
            names = one.metavar or str(one.name).upper()
        else:
            names = ", ".join([*one.opts, *one.secondary_opts])
        text = getattr(one, "help", None) or ""
        default = getattr(one, "default", None)
        if isinstance(default, str | int | float) and not isinstance(default, bool) and default:
            text += f" [default: {default}]"
        if one.name != "help":
            options.append((names, text))
    yield Command(name, inspect.cleandoc(command.help or ""), tuple(options))


def _of_argparse(parser: argparse.ArgumentParser, name: str) -> Iterator[Command]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {one.dest: one.help or "" for one in action._choices_actions}
            for part, child in action.choices.items():
                told = child.description or helps.get(part, "")
                example = f"\n\nExample: {child.epilog}" if child.epilog else ""
                options = tuple(_options(child))
                yield Command(f"{name} {part}", f"{told}{example}", options)


def _options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for one in parser._actions:
        if one.dest != "help":
            names = ", ".join(one.option_strings) or str(one.metavar or one.dest)
            yield names, one.help or ""


def _section(command: Command) -> str:
    rows = "".join(f"| `{names}` | {_cell(text)} |\n" for names, text in command.options)
    table = f"\n| option | is |\n|---|---|\n{rows}" if rows else ""
    return f"\n## {command.name}\n\n{_paragraphs(command.help)}\n{table}"


def _paragraphs(text: str) -> str:
    """Examples as code; < and > as they are."""
    out = []
    for part in text.split("\n\n"):
        told, found, example = part.partition("Example: ")
        out.append(_escape(told.strip()))
        if found:
            out.append(f"    {' '.join(example.split())}")
    return "\n\n".join(one for one in out if one)


def _cell(text: str) -> str:
    return _escape(" ".join(text.split())).replace("|", "\\|")


def _escape(text: str) -> str:
    return text.replace("<", "&lt;").replace(">", "&gt;").replace("*", "\\*")
