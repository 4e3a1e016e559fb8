"""The options of ``shoal plan vectors``: what they are called, and which others go with them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Annotated

import typer

from shoal.cli.plan.told import Told
from shoal.cli.plan.word_options import check_none_of, typed
from shoal.errors import Kind, ShoalError

_PANEL = "Of vectors"


class AskedNorm(StrEnum):
    """In which sense a vector is bounded; the values are what people type."""

    l1 = "l1"
    l2 = "l2"
    coordinate = "coordinate"


class LearntModelKind(StrEnum):
    """What ``--learn`` learns; the values are what people type."""

    logistic = "logistic"
    network = "network"


DimensionOption = Annotated[
    int | None,
    typer.Option(rich_help_panel=_PANEL, help="Numbers of a vector; or --labels names them."),
]
ClipOption = Annotated[
    float | None,
    typer.Option(
        rich_help_panel=_PANEL,
        help="Largest norm of one device's vector; longer ones are shortened to it (default: 1).",
    ),
]
NormOption = Annotated[
    AskedNorm | None,
    typer.Option(rich_help_panel=_PANEL, help="Of the clip (default: l2)."),
]
DropOutOption = Annotated[
    float | None,
    typer.Option(
        "--drop-out",
        rich_help_panel=_PANEL,
        help="Share of a round's devices that may be lost in it (default: 0.2).",
    ),
]
NotEnrolledOption = Annotated[
    bool,
    typer.Option(
        "--not-enrolled",
        rich_help_panel=_PANEL,
        help="Devices can't be enrolled, which rules sums out.",
    ),
]
OneVisitOption = Annotated[
    bool,
    typer.Option(
        "--one-visit",
        rich_help_panel=_PANEL,
        help="A device comes once, and can't stay for a round of some minutes.",
    ),
]


LearnOption = Annotated[
    float | None,
    typer.Option(
        "--learn",
        metavar="STEP",
        rich_help_panel=_PANEL,
        help="Learn a model over these numbers with this step, a round in each of --windows; "
        "--clip is that of a gradient.",
    ),
]
LearntOption = Annotated[
    LearntModelKind | None,
    typer.Option(
        "--model",
        rich_help_panel=_PANEL,
        help="Of --learn: logistic regression (default), or a network of one hidden layer, whose "
        "devices need PyTorch.",
    ),
]
HiddenOption = Annotated[
    int | None,
    typer.Option(rich_help_panel=_PANEL, help="Of --model network: hidden units (default: 16)."),
]
AdaptiveOption = Annotated[
    bool,
    typer.Option(
        "--adaptive",
        rich_help_panel=_PANEL,
        help="Of --learn: --clip is that of the first round, and follows the gradients then, at a "
        "charge.",
    ),
]


@dataclass(frozen=True, slots=True)
class VectorsTyped:
    """As they were typed; None (or False) for what was left out."""

    dimension: int | None
    clip: float | None
    norm: AskedNorm | None
    drop_out: float | None
    not_enrolled: bool
    one_visit: bool
    learn: float | None = None
    model: LearntModelKind | None = None
    hidden: int | None = None
    adaptive: bool = False


_OWN = {field.name for field in fields(VectorsTyped)}
_SHARED = {
    "question", "n", "labels", "unit", "epsilon", "delta", "honest_fraction", "min_batch",
    "windows", "max_epsilon0", "max_bytes", "mechanism", "emit", "as_json", "text",
}  # fmt: skip
_OF_VECTORS = _OWN | _SHARED | {field.name for field in fields(Told)}


def check_vectors(context: typer.Context) -> None:
    """Raises CONFIG for an option that vectors have nothing to do with."""
    for name, option in typed(context):
        if name == "error":
            raise ShoalError(
                Kind.CONFIG,
                "vectors are planned for an epsilon, and their error is what is said: give "
                "--epsilon instead of --error",
            )
        if name not in _OF_VECTORS:
            raise ShoalError(Kind.CONFIG, f"vectors are planned without {option}: leave it out")


def check_no_vectors(context: typer.Context) -> None:
    """Raises CONFIG for an option of vectors, where something else is asked."""
    check_none_of(context, _OWN, "vectors")
