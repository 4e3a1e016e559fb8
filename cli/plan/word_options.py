"""The options of ``shoal plan words``: what they are called, and which others go with them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.plan.told import Told
from shoal.errors import Kind, ShoalError

_PANEL = "Of words"
LongestOption = Annotated[
    int | None,
    typer.Option(
        rich_help_panel=_PANEL,
        help="Symbols of a word in all, its end among them; longer words are cut (default: 11).",
    ),
]
MostOption = Annotated[
    int | None,
    typer.Option(
        rich_help_panel=_PANEL,
        help="Beginnings that are followed from one level to the next, at most (default: 512, or "
        "as many as a device has messages for).",
    ),
]
SpareOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        rich_help_panel=_PANEL,
        help="Windows beyond one for each level, for those that are lost (default: 2).",
    ),
]
LeaveOutOption = Annotated[
    Path | None,
    typer.Option(
        "--leave-out",
        metavar="FILE",
        rich_help_panel=_PANEL,
        help="Words that are not looked for, one in a line.",
    ),
]
FoundFromOption = Annotated[
    int | None,
    typer.Option(
        "--found-from",
        metavar="DEVICES",
        rich_help_panel=_PANEL,
        help="Instead of --epsilon: a word of so many devices is to be found with 95 %; the least "
        "epsilon is looked for.",
    ),
]


FreshOption = Annotated[
    bool,
    typer.Option(
        "--fresh",
        rich_help_panel=_PANEL,
        help="Every device answers in one window alone, drawn by itself: it sends one report, and "
        "words must be more frequent to be found.",
    ),
]


@dataclass(frozen=True, slots=True)
class WordsTyped:
    """As they were typed; None for what was left out."""

    longest: int | None
    most: int | None
    spare: int | None
    leave_out: Path | None
    found_from: int | None
    fresh: bool = False


_OWN = {field.name for field in fields(WordsTyped)}
_SHARED = {"n", "epsilon", "delta", "honest_fraction", "emit", "as_json", "text"}
_OF_WORDS = _OWN | _SHARED | {field.name for field in fields(Told)}


def check_words(context: typer.Context) -> None:
    """Raises CONFIG for an option that words have nothing to do with."""
    for name, option in typed(context):
        if name == "error":
            raise ShoalError(
                Kind.CONFIG,
                "words are found or not, and --error has no place in it: --found-from says of how "
                "many devices",
            )
        if name == "windows":
            raise ShoalError(
                Kind.CONFIG,
                "a discovery of words has a window for each letter: leave out --windows, --spare "
                "says how many more",
            )
        if name not in _OF_WORDS:
            raise ShoalError(Kind.CONFIG, f"words are planned without {option}: leave it out")


def check_others(context: typer.Context) -> None:
    """Raises CONFIG for an option of words, where something else is asked."""
    check_none_of(context, _OWN, "words")


def check_none_of(context: typer.Context, own: Collection[str], whose: str) -> None:
    """Raises CONFIG for an option of ``own``, which are of ``whose`` question alone."""
    for name, option in typed(context):
        if name in own:
            raise ShoalError(Kind.CONFIG, f"{option} is of {whose} alone: leave it out")


def typed(context: typer.Context) -> list[tuple[str, str]]:
    """(name, option) of everything on the command line."""
    found = []
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            found.append((parameter.name or "", parameter.opts[0]))
    return found
