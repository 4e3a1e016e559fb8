"""Options that several commands have: what they are called, and what --help says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SettingOption = Annotated[
    str,
    typer.Option(
        help='A way to choose its integers, such as "oue" or "g=16". Default: its first.',
    ),
]
HonestFractionOption = Annotated[
    str,
    typer.Option(
        metavar="FLOAT",
        help="Share of the reports that is assumed honest, above 0, at most 1; also 9/10.",
    ),
]
EmitOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write a task file, to fill in, check and sign."),
]
LengthOption = Annotated[
    str | None,
    typer.Option(
        metavar="LENGTH", help="Of a window, with --emit: 7d (the default), 12h, 30m, 90s."
    ),
]
