"""The options of ``shoal audit``: what --help says of them."""

from __future__ import annotations

from typing import Annotated

import typer

from shoal.mechanisms import REGISTRY
from shoal.mechanisms.several.names import NAMES
from shoal.mechanisms.vectors.registry import NAMES as VECTOR_NAMES

REPORTS, DEVICES = 100, 5  # of a batch, by default

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="MECHANISM",
        help=f"The randomizer to attack: {', '.join(sorted(REGISTRY))}; of vectors "
        f"{', '.join(VECTOR_NAMES)}; or one of several messages: {', '.join(NAMES)}.",
    ),
]
MechanismOption = Annotated[str, typer.Option(metavar="NAME", help="The same, as an option.")]
AuditEpsilon0Option = Annotated[
    float | None, typer.Option(help="Local epsilon that it is built for, above 0.")
]
AuditTargetOption = Annotated[
    float | None,
    typer.Option(
        metavar="EPS", help="Of several messages: the central epsilon that noise is built for."
    ),
]
AuditColludingOption = Annotated[
    float | None,
    typer.Option(
        "--epsilon0-if-colluding",
        help="Of several messages: epsilon0 of a true message that is randomized too.",
    ),
]
AuditKOption = Annotated[
    int | None,
    typer.Option(
        "--k",
        help="Cells, that of no answer included: 2 or more, of a number's levels 3 or more.",
    ),
]
AuditNOption = Annotated[
    int | None,
    typer.Option(
        "--n",
        help="Devices of the shuffled batch, at least 1; a small batch shows more. Default: "
        f"{REPORTS}, and {DEVICES} of several messages or vectors.",
    ),
]
TrialsOption = Annotated[
    int, typer.Option(help="Batches per answer, half of them to choose the event.")
]
AuditDeltaOption = Annotated[
    float, typer.Option(help="Of the shuffled batch; an audit can see 1e-3, hardly 1e-6.")
]
SeedOption = Annotated[
    int | None, typer.Option(help="Repeat one run exactly; by default fresh randomness.")
]
AuditJsonOption = Annotated[bool, typer.Option("--json", help="The results as JSON.")]
