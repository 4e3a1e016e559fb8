"""The options of ``shoal demo``: what they are called, and what --help says of them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from shoal.mechanisms import REGISTRY

_FEWEST = 50  # devices


class Learnt(StrEnum):
    """What --federated learns."""

    LOGISTIC = "logistic"
    NETWORK = "network"


DemoDevicesOption = Annotated[
    int | None,
    typer.Option(
        min=_FEWEST,
        max=5_000_000,
        help=("Simulated devices; rows are drawn with replacement. Default: one per row, 20,190."),
    ),
]
JsonPathOption = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="PATH",
        help="Also write the results here (- for stdout, then nothing else is printed there).",
    ),
]
KeepOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Keep everything (keys, tasks, databases, logs) in this new folder."
    ),
]
OutOption = Annotated[
    Path, typer.Option(metavar="DIR", help="Folder for report.html, results.json and tasks.")
]
WorkersOption = Annotated[
    int | None,
    typer.Option(min=1, max=64, help="Processes that simulate devices. Default: one per core."),
]
SecaggOption = Annotated[
    bool,
    typer.Option(
        "--secagg",
        help=(
            "Sum a vector per device by secure aggregation instead; default 200 devices, at "
            "most 2,000."
        ),
    ),
]
NearCentralOption = Annotated[
    bool,
    typer.Option(
        "--near-central",
        help=(
            "Counts by several messages of each device, beside a trusted curator's and those of a "
            "single message, at one epsilon."
        ),
    ),
]
FederatedOption = Annotated[
    bool,
    typer.Option(
        "--federated",
        help=(
            "Learn a model from gradients that are summed by secure aggregation, beside a "
            "curator's; default and at most 455 devices."
        ),
    ),
]
RoundsOption = Annotated[
    int | None,
    typer.Option(min=1, max=50, help="Rounds of learning of --federated. Default: 6."),
]
ModelOption = Annotated[
    Learnt | None,
    typer.Option(
        "--model",
        help=(
            "What --federated learns: logistic regression, or a network of one hidden layer "
            "(wants the extra [network], PyTorch). Default: logistic."
        ),
    ),
]
AdaptiveOption = Annotated[
    bool,
    typer.Option(
        "--adaptive", help="Let the clip of --federated follow the gradients, at a charge."
    ),
]
RecipeOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=(
            "Run a deployment that people cite, with made-up devices: what it claims beside what "
            "it costs; list names them."
        ),
    ),
]
WindowsOption = Annotated[
    int | None,
    typer.Option(min=1, max=60, help="Windows of --recipe. Default: the recipe's, a few."),
]
FreshOption = Annotated[
    bool,
    typer.Option(
        "--fresh",
        help=(
            "Of --recipe new-words: every device answers in one window alone, drawn by itself, not "
            "at every level. Default: 6,000 devices."
        ),
    ),
]
FullOption = Annotated[
    bool, typer.Option("--full", help="End with the long tables, as they are in the results.")
]
OpenOption = Annotated[
    bool,
    typer.Option("--open", help="At the end, look around in the results: `shoal console` on them."),
]
MechanismOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help=(
            f"Randomize the question that fits with this mechanism: {', '.join(sorted(REGISTRY))}."
        ),
    ),
]
