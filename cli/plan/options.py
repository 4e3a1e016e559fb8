"""The options of ``shoal plan``, one name each: what they are called, and what --help says of
them.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Asked(StrEnum):
    """What people want to know; the values are what they type."""

    yes_no = "yes_no"
    categories = "categories"
    mean = "mean"
    sum = "sum"
    quantiles = "quantiles"
    words = "words"
    vectors = "vectors"


class Data(StrEnum):
    """What the answers are assumed to look like; the values are what people type."""

    uniform = "uniform"
    zipf = "zipf"


QuestionOption = Annotated[
    Asked | None,
    typer.Argument(
        metavar="yes_no|categories|mean|sum|quantiles|words|vectors",
        help="What is asked; not with --recipe.",
    ),
]
RecipeOption = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        metavar="NAME",
        help=(
            "A deployment that people cite, what its claim means and what shuffling changes; or "
            "list."
        ),
    ),
]
PlanNOption = Annotated[
    int | None,
    typer.Option("--n", help="Devices expected in a batch (default: the sum of --counts)."),
]
PlanDeltaOption = Annotated[
    float, typer.Option(help="Of the central guarantee, between 0 and 1: 1e-6 or less is usual.")
]
EpsilonOption = Annotated[
    float | None,
    typer.Option(
        help=(
            "Target: the central epsilon, of all --windows and --tasks together; the error is "
            "what is looked for."
        )
    ),
]
ErrorOption = Annotated[
    float | None,
    typer.Option(
        help=(
            "Target: a standard error, in devices or in the unit of the number; the smallest "
            "epsilon is looked for."
        )
    ),
]
PlanKOption = Annotated[
    int | None,
    typer.Option("--k", help="Cells of categories, that of no answer included: 3 or more."),
]
LabelsOption = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...",
        help="The categories by name, instead of --k; the numbers of a vector.",
    ),
]
CountsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help=(
            "Devices per category, a line each: LABEL,COUNT or COUNT. Errors are ranked, and "
            "simulated, there."
        ),
    ),
]
ShareOption = Annotated[
    float | None,
    typer.Option(
        help=(
            "Of the devices: in the heavy cell that is shown (default 0.5); of yes_no, how many "
            "say yes."
        )
    ),
]
LowOption = Annotated[float, typer.Option(help="Smallest value of the number.")]
HighOption = Annotated[float, typer.Option(help="Largest value of the number.")]
UnitOption = Annotated[str, typer.Option(help="Unit of the number, for the task.")]
LevelsOption = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...",
        help="Numbers of levels to try (default: 2 to 256; for quantiles 4 to 128).",
    ),
]
QuantilesOption = Annotated[
    str | None,
    typer.Option(metavar="A,B,...", help="Which quantiles (default: 0.25,0.5,0.75,0.9)."),
]
ShapeOfOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE",
        help="How the numbers are spread while errors of quantiles are predicted: uniform, bell "
        "(the default), skewed; or a file of "
        "numbers, one per line, with ,COUNT or without. It shows in the plan: public or made-up "
        "numbers, never private ones.",
    ),
]
HeapsOption = Annotated[
    str | None,
    typer.Option(
        metavar="X[=SHARE],...",
        help=(
            "Numbers that many answers are: 40,50 (half of all devices together) or "
            "40=0.47,50=0.09. Levels that hit them are tried."
        ),
    ),
]
ValueOption = Annotated[
    float | None,
    typer.Option(
        help="Rank the errors of a mean or sum beside this value, instead of over the whole range."
    ),
]
WorstOption = Annotated[
    bool,
    typer.Option(
        "--worst",
        help=(
            "Rank the errors of a mean or sum at the worst value; of counts at the worst cell, "
            "with at most --share of the devices in one."
        ),
    ),
]
MinBatchOption = Annotated[
    int | None,
    typer.Option(help="The smallest batch that is released, and certified (default: n)."),
]
MechanismNamesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--mechanism",
        help="Choose among these alone, in all their settings; repeat for several. Of vectors: "
        "privunit, default, strict, helper.",
    ),
]
MaxBytesOption = Annotated[
    int | None, typer.Option(help="Largest report, all its messages together, before it is sealed.")
]
MaxMessagesOption = Annotated[int | None, typer.Option(help="Most messages of a report.")]
MaxEpsilon0Option = Annotated[
    float | None, typer.Option(help="Largest local epsilon, as devices' policies accept it.")
]
WindowsOption = Annotated[int, typer.Option(help="How often the same devices are asked.")]
TasksOption = Annotated[int, typer.Option(help="How many tasks like this one share the target.")]
PerWindowOption = Annotated[
    bool, typer.Option("--per-window", help="--epsilon is of one window, not of all together.")
]
ChangesOption = Annotated[
    int, typer.Option(help="How often a device's value changes over all windows, at most.")
]
PlanMemoizedOption = Annotated[
    bool, typer.Option("--memoized", help="They repeat one permanent report per value.")
]
SeveralOption = Annotated[
    bool,
    typer.Option(
        "--several-messages",
        help="Choose among several messages per device too, for less error: owners may be asked "
        "to agree by name to tasks without epsilon0.",
    ),
]
IfColludingOption = Annotated[
    float | None,
    typer.Option(
        "--epsilon0-if-colluding",
        help="Of several messages: show too what it costs to keep this much against shuffler and "
        "analyzer together.",
    ),
]
AllOption = Annotated[
    bool, typer.Option("--all", help="Show every alternative, not the best ones alone.")
]
EmitOption = Annotated[
    Path | None,
    typer.Option(
        "--emit",
        metavar="TASK.toml",
        help="Write a task to fill in, lint and sign; never overwrites.",
    ),
]
PlanPlotOption = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        metavar="FILE.svg",
        help="Draw the error against epsilon, also without shuffling; replaces it. With "
        "--several-messages what is recommended too.",
    ),
]
SimulateOption = Annotated[
    int | None,
    typer.Option(
        "--simulate",
        metavar="RUNS",
        help="Run the production code so often on made-up devices; below 30 tell little. With "
        "--several-messages what is recommended too.",
    ),
]
SimulatedDataOption = Annotated[
    Data | None,
    typer.Option("--data", help="Shares of the cells in the simulation (default: as ranked)."),
]
SeedOption = Annotated[
    int | None, typer.Option(help="Repeat one simulation exactly; by default fresh randomness.")
]
ProcessesOption = Annotated[
    int | None,
    typer.Option(
        min=1, max=256, help="Processes that simulate (default: one per CPU, if it takes long)."
    ),
]
EngineOption = Annotated[
    Path | None,
    typer.Option(
        "--engine",
        metavar="ANALYZER.toml",
        help="Simulate with the workers on other machines of its [opening].",
    ),
]
PlanJsonOption = Annotated[
    bool, typer.Option("--json", help="Plan, certificate and alternatives as JSON.")
]
