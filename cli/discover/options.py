"""The options of ``shoal discover``: what they are called, and what --help says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DevicesOption = Annotated[int, typer.Option("--n", help="Devices that take part, in all.")]
EpsilonOption = Annotated[
    float, typer.Option(help="Central epsilon of one device, for all levels together.")
]
PlanEpsilonOption = Annotated[
    float | None,
    typer.Option(
        help="Central epsilon of one device, for all levels together; 1 if nothing is said."
    ),
]
FoundFromOption = Annotated[
    int | None,
    typer.Option(
        "--found-from",
        metavar="DEVICES",
        help="Instead of --epsilon: a word of so many devices is to be found with 95 %; the least "
        "epsilon is looked for.",
    ),
]
DeltaOption = Annotated[float, typer.Option(help="Between 0 and 1: 1e-8 is usual.")]
FreshOption = Annotated[
    bool,
    typer.Option(
        "--fresh",
        help="Every device answers at one level alone, not at every level: fewer messages, and "
        "words must be more frequent to be found.",
    ),
]
FirstOption = Annotated[int, typer.Option(help="Symbols of a word that level 0 asks for, 1 to 3.")]
LongestOption = Annotated[
    int, typer.Option(help="Symbols of a word in all, its end among them; longer words are cut.")
]
MostOption = Annotated[
    int | None,
    typer.Option(
        help="Beginnings that are followed from one level to the next, at most. Default: 512, or "
        "as many as a device has messages for."
    ),
]
KnownOption = Annotated[
    Path | None,
    typer.Option(
        "--leave-out", metavar="FILE", help="Words that are not looked for, one in a line."
    ),
]
SpareOption = Annotated[
    int,
    typer.Option(
        min=0,
        help="Windows beyond one for each level, for those that are lost: each costs a part of the "
        "epsilon. With --emit usually 2.",
    ),
]
EmitOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write a task file, to fill in, check and sign."),
]
LengthOption = Annotated[
    str, typer.Option(metavar="LENGTH", help="Of a window, with --emit: 7d, 12h, 30m.")
]
TaskArgument = Annotated[
    str, typer.Argument(help="A task's name, or its id or the beginning of it.")
]
WatchOption = Annotated[
    bool,
    typer.Option(
        "--watch", help="Go on until nothing is left to follow, the windows ran out, or Ctrl-C."
    ),
]
WordsArgument = Annotated[
    Path,
    typer.Argument(
        metavar="WORDS",
        help="A word in a line; or WORD,COUNT: how many devices have it. A line of nothing is a "
        "device without a word.",
    ),
]
SeedOption = Annotated[
    int | None,
    typer.Option(help="Of the simulation's randomness, to see the same again. Never for people."),
]
ProcessesOption = Annotated[
    int | None, typer.Option(min=1, max=256, help="Default: one for each core.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs.")]
