"""The options of ``shoal plan --emit``: what a plan can't know of a task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_PANEL = "Of the task that --emit writes"
_KEY = "public key, 64 hex digits; or a file that holds it, or its signing key."


TextOption = Annotated[
    str | None,
    typer.Option(
        "--question",
        metavar="TEXT",
        rich_help_panel=_PANEL,
        help="What devices' owners are asked, in plain words.",
    ),
]
NameOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=_PANEL,
        help="Lower case letters, digits and - (default: from --question).",
    ),
]
PurposeOption = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        rich_help_panel=_PANEL,
        help="Owners consent per purpose (default: that question alone).",
    ),
]
StartOption = Annotated[
    str | None,
    typer.Option(
        metavar="DATE[THH:MM]",
        rich_help_panel=_PANEL,
        help="When the first window begins, UTC unless a zone is given (default: today).",
    ),
]
LengthOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        rich_help_panel=_PANEL,
        help="Length of a window: 7d (the default), 12h, 30m, 90s.",
    ),
]
MaxBatchOption = Annotated[
    int | None,
    typer.Option(
        rich_help_panel=_PANEL,
        help="Reports at which a window closes early (default: when its time is over).",
    ),
]
ShufflerOption = Annotated[
    str | None,
    typer.Option(
        "--shuffler",
        metavar="HOST:PORT",
        rich_help_panel=_PANEL,
        help="Where devices submit.",
    ),
]
CaOption = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        metavar="FILE.pem",
        rich_help_panel=_PANEL,
        help="What the shuffler's certificate chains to; shoal keys ca makes one.",
    ),
]
AuthorityOption = Annotated[
    str | None,
    typer.Option(
        "--authority",
        metavar="KEY",
        rich_help_panel=_PANEL,
        help=f"The authority's {_KEY}",
    ),
]
ShufflerKeyOption = Annotated[
    str | None,
    typer.Option(metavar="KEY", rich_help_panel=_PANEL, help=f"The shuffler's {_KEY}"),
]
AnalyzerKeyOption = Annotated[
    str | None,
    typer.Option(metavar="KEY", rich_help_panel=_PANEL, help=f"The analyzer's {_KEY}"),
]
EnrolmentKeyOption = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        rich_help_panel=_PANEL,
        help=f"Whose certificates devices show, for enrolled devices alone: the {_KEY}",
    ),
]
