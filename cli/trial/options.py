"""The options of ``shoal trial``: what they are called, and what --help says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_OF_COLUMN = "With several columns: COLUMN=..., and once for each."
_ASKED = "What is asked"

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="CSV with a header, or Parquet: one row per person.")
]
ColumnOption = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="NAME",
        help="What is asked of each person; repeat it for several questions of the same people.",
    ),
]
TrialEpsilonOption = Annotated[
    float, typer.Option(help="The central guarantee, of all questions together.")
]
TrialDeltaOption = Annotated[float, typer.Option(help="Of that guarantee, of all together too.")]
TrialDevicesOption = Annotated[
    int | None,
    typer.Option(
        min=2,
        max=5_000_000,
        help="Ask so many: a sample of the rows; beyond their number rows are drawn again and "
        "again. Default: one device per row.",
    ),
]
KindOption = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        metavar="[COLUMN=]KIND",
        rich_help_panel=_ASKED,
        help="yes_no, categories, whole (numbers, each counted), mean or quantiles, instead of "
        f"what the data look like. {_OF_COLUMN}",
    ),
]
RangeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--range",
        metavar="[COLUMN=]LOW:HIGH",
        rich_help_panel=_ASKED,
        help="The range of a number; what lies beyond counts as its end.",
    ),
]
TrialLabelsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--labels",
        metavar="[COLUMN=]A,B,...",
        rich_help_panel=_ASKED,
        help="The categories by name; every row must hold one of them, or nothing.",
    ),
]
WordsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--words",
        metavar="[COLUMN=]A,B,...",
        rich_help_panel=_ASKED,
        help='Texts to count where there are many; every other one counts as "other".',
    ),
]
MissingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--missing",
        metavar="TEXT",
        rich_help_panel=_ASKED,
        help="A text that stands for an empty cell, as NaN or n/a; repeat it for several.",
    ),
]
TrialOutOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Leave results.json, report.html, releases to verify and a task to sign there.",
    ),
]
TrialOpenOption = Annotated[
    bool,
    typer.Option(
        "--open",
        help="At the end, look around in the results: `shoal console` on what --out keeps.",
    ),
]
TrialJsonOption = Annotated[bool, typer.Option("--json", help="The results as JSON.")]
