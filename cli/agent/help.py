"""Help and errors of ``shoal agent`` in the form that all other commands have: argparse reads, rich
draws.

An agent that runs must not carry a command-line library, so its commands are argparse's. A person
should not see that: help has the same sections, and a wrong command line is one line, as
everywhere. rich is loaded for help alone; without it, help is plain.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any, NoReturn

from shoal.errors import Kind, ShoalError


class Parser(argparse.ArgumentParser):
    """No abbreviations of options, as elsewhere: a new option must not change what an old script
    means.
    """

    def __init__(self, **settings: Any) -> None:
        # argparse makes a formatter for each argument. One that asks how wide the terminal is loads
        # shutil, and with it three libraries that compress: half a megabyte of an agent that waits.
        narrow = partial(argparse.RawDescriptionHelpFormatter, width=80)
        super().__init__(**settings, formatter_class=narrow, allow_abbrev=False, add_help=False)
        self.add_argument("--help", "-h", action="help", help="Show this message and exit.")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Without any arguments where a command is wanted: help, and exit status 2, as
        elsewhere.
        """
        if not args and any(_commands_of(action) for action in self._actions):
            self.print_help()
            self.exit(2)
        return super().parse_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Raises CONFIG: one line that says where help is."""
        raise ShoalError(Kind.CONFIG, f"{message}: see {self.prog} --help")

    def print_help(self, file: Any = None) -> None:
        """Help in the look of the other commands where rich is installed, in argparse's own
        otherwise. ``file``: None is stdout.
        """
        try:
            from rich.console import Console
        except ImportError:
            self.formatter_class = argparse.RawDescriptionHelpFormatter
            super().print_help(file)
            return
        console = Console(file=file or sys.stdout, highlight=False)
        console.print(
            f"\n [bold]Usage:[/] {self._usage()}\n\n [not "
            f"bold]{_first_upper(self.description)}[/]\n",
            markup=True,
        )
        named = [
            action
            for action in self._actions
            if not action.option_strings and not _commands_of(action)
        ]
        options = [action for action in self._actions if action.option_strings]
        commands = [command for action in self._actions for command in _commands_of(action)]
        _panel(
            console,
            "Arguments",
            [
                (str(action.metavar or action.dest), "", action.help, action.nargs != "?")
                for action in named
            ],
        )
        _panel(console, "Options", [_option(action) for action in options])
        _panel(
            console, "Commands", [(command.dest, "", command.help, False) for command in commands]
        )
        if self.epilog:
            console.print(f"\n{self.epilog}", markup=False, soft_wrap=True, end="")

    def _usage(self) -> str:
        names = [
            str(action.metavar or action.dest)
            for action in self._actions
            if not action.option_strings
        ]
        optional = {
            str(action.metavar or action.dest) for action in self._actions if action.nargs == "?"
        }
        shown = [f"[{name}]" if name in optional else name for name in names]
        return " ".join((self.prog, "[OPTIONS]", *shown)).replace("[", "\\[")


def _option(action: argparse.Action) -> tuple[str, str, str | None, bool]:
    metavar = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
    return action.option_strings[0], metavar, action.help, action.required


def _commands_of(action: argparse.Action) -> list[argparse.Action]:
    return list(action._get_subactions()) if isinstance(action, argparse._SubParsersAction) else []


def _panel(console: Any, title: str, rows: list[tuple[str, str, str | None, bool]]) -> None:
    """(name, what its value is called, help, whether it must be given) in a box, as typer draws
    them; nothing for no rows.
    """
    from rich.panel import Panel
    from rich.table import Table

    if not rows:
        return
    table = Table(box=None, show_header=False, padding=(0, 1), expand=True)
    table.add_column(no_wrap=True, width=1, style="red")
    table.add_column(no_wrap=True, style="bold cyan")
    table.add_column(no_wrap=True, style="bold yellow")
    table.add_column(ratio=1)
    for name, metavar, text, required in rows:
        shown = (_first_upper(text) + (" [required]" if required else "")).replace("[", "\\[")
        table.add_row("*" if required else "", name, metavar, shown)
    console.print(Panel(table, title=title, title_align="left", border_style="dim"))


def _first_upper(text: str | None) -> str:
    """As a sentence, but for one that begins with the name of a file."""
    word = (text or "").partition(" ")[0]
    return (text or "") if "." in word else (text or "")[:1].upper() + (text or "")[1:]
