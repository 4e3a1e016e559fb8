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
        help="Instead of --epsilon: a word of so many devices of all is to be found with 95 %, and "
        "the least epsilon for that is looked for. It holds while a level has room: no more "
        "beginnings than --most reach the threshold.",
    ),
]
DeltaOption = Annotated[float, typer.Option(help="Between 0 and 1: 1e-8 is usual.")]
FreshOption = Annotated[
    bool,
    typer.Option(
        "--fresh",
        help="Every device answers in one window alone, drawn by itself, not at every level: it "
        "sends one report and has all of the epsilon for it, and words must be more frequent to be "
        "found. --honest-fraction is a share of the devices then, for one that lies may answer in "
        "every window.",
    ),
]
FirstOption = Annotated[
    int | None,
    typer.Option(
        help="Symbols that level 0 asks for. Of a word 1 to 3 (default: 2), of a place as many as "
        "make 64 rows, or as many as a device has messages for."
    ),
]
LongestOption = Annotated[
    int | None,
    typer.Option(
        help="Symbols of a word in all, its end among them; longer words are cut. Default: 11."
    ),
]
PlacesOption = Annotated[
    str | None,
    typer.Option(
        "--places",
        metavar="SOUTH,WEST,NORTH,EAST",
        help="Places instead of words: the box of the map, in degrees.",
    ),
]
CellOption = Annotated[
    float | None,
    typer.Option(
        "--cell", metavar="METRES", help="With --places: how large the smallest cells may be."
    ),
]
AcrossOption = Annotated[
    int | None,
    typer.Option(
        help="With --places: each part is cut into 2 x 2 or 4 x 4. Default: what finds more."
    ),
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
        "epsilon, or with --fresh a part of the devices. With --emit usually 2.",
    ),
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
        "device without a word. With --places: LATITUDE,LONGITUDE, or with a COUNT behind it.",
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
