"""The options of ``shoal plan``, one name each: what they are called, and what --help says of
them.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Asked(StrEnum):
    yes_no = "yes_no"
    categories = "categories"
    mean = "mean"
    sum = "sum"
    quantiles = "quantiles"


class Data(StrEnum):
    uniform = "uniform"
    zipf = "zipf"


Question = Annotated[
    Asked | None,
    typer.Argument(
        metavar="yes_no|categories|mean|sum|quantiles", help="What is asked; not with --recipe."
    ),
]
Recipe = Annotated[
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
N = Annotated[
    int | None,
    typer.Option("--n", help="Devices expected in a batch (default: the sum of --counts)."),
]
Delta = Annotated[
    float, typer.Option(help="Of the central guarantee, between 0 and 1: 1e-6 or less is usual.")
]
Epsilon = Annotated[
    float | None,
    typer.Option(
        help=(
            "Target: the central epsilon, of all --windows and --tasks together; the error is "
            "what is looked for."
        )
    ),
]
Error = Annotated[
    float | None,
    typer.Option(
        help=(
            "Target: a standard error, in devices or in the unit of the number; the smallest "
            "epsilon is looked for."
        )
    ),
]
K = Annotated[
    int | None,
    typer.Option("--k", help="Cells of categories, that of no answer included: 3 or more."),
]
Labels = Annotated[
    str | None, typer.Option(metavar="A,B,...", help="The categories by name, instead of --k.")
]
Counts = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help=(
            "Devices per category, a line each: LABEL,COUNT or COUNT. Errors are ranked, and "
            "simulated, there."
        ),
    ),
]
Share = Annotated[
    float | None,
    typer.Option(
        help=(
            "Of the devices: in the heavy cell that is shown (default 0.5); of yes_no, how many "
            "say yes."
        )
    ),
]
Low = Annotated[float, typer.Option(help="Smallest value of the number.")]
High = Annotated[float, typer.Option(help="Largest value of the number.")]
Unit = Annotated[str, typer.Option(help="Unit of the number, for the task.")]
Levels = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...",
        help="Numbers of levels to try (default: 2 to 256; for quantiles 4 to 128).",
    ),
]
Quantiles = Annotated[
    str | None,
    typer.Option(metavar="A,B,...", help="Which quantiles (default: 0.25,0.5,0.75,0.9)."),
]
ShapeOf = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE",
        help="How the numbers are spread while errors of quantiles are predicted: uniform, bell "
        "(the default), skewed; or a file of "
        "numbers, one per line, with ,COUNT or without. It shows in the plan: public or made-up "
        "numbers, never private ones.",
    ),
]
Heaps = Annotated[
    str | None,
    typer.Option(
        metavar="X[=SHARE],...",
        help=(
            "Numbers that many answers are: 40,50 (half of all devices together) or "
            "40=0.47,50=0.09. Levels that hit them are tried."
        ),
    ),
]
Value = Annotated[
    float | None,
    typer.Option(
        help="Rank the errors of a mean or sum beside this value, instead of over the whole range."
    ),
]
Worst = Annotated[
    bool, typer.Option("--worst", help="Rank the errors of a mean or sum at the worst value.")
]
MinBatch = Annotated[
    int | None,
    typer.Option(help="The smallest batch that is released, and certified (default: n)."),
]
HonestFraction = Annotated[
    str,
    typer.Option(
        metavar="FLOAT",
        help="Share of the reports that is assumed honest, above 0, at most 1; also 9/10.",
    ),
]
MechanismNames = Annotated[
    list[str] | None,
    typer.Option(
        "--mechanism", help="Choose among these alone, in all their settings; repeat for several."
    ),
]
MaxBytes = Annotated[
    int | None, typer.Option(help="Largest report, all its messages together, before it is sealed.")
]
MaxMessages = Annotated[int | None, typer.Option(help="Most messages of a report.")]
MaxEpsilon0 = Annotated[
    float | None, typer.Option(help="Largest local epsilon, as devices' policies accept it.")
]
Windows = Annotated[int, typer.Option(help="How often the same devices are asked.")]
Tasks = Annotated[int, typer.Option(help="How many tasks like this one share the target.")]
PerWindow = Annotated[
    bool, typer.Option("--per-window", help="--epsilon is of one window, not of all together.")
]
Changes = Annotated[
    int, typer.Option(help="How often a device's value changes over all windows, at most.")
]
Memoized = Annotated[
    bool, typer.Option("--memoized", help="They repeat one permanent report per value.")
]
All = Annotated[
    bool, typer.Option("--all", help="Show every alternative, not the best ones alone.")
]
Emit = Annotated[
    Path | None,
    typer.Option(
        "--emit",
        metavar="TASK.toml",
        help="Write a task to fill in, lint and sign; never overwrites.",
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        metavar="FILE.svg",
        help="Draw the error against epsilon, also without shuffling; replaces it.",
    ),
]
Simulate = Annotated[
    int | None,
    typer.Option(
        "--simulate",
        metavar="RUNS",
        help="Run the production code so often on made-up devices; below 30 tell little.",
    ),
]
SimulatedData = Annotated[
    Data | None,
    typer.Option("--data", help="Shares of the cells in the simulation (default: as ranked)."),
]
Seed = Annotated[
    int | None, typer.Option(help="Repeat one simulation exactly; by default fresh randomness.")
]
Json = Annotated[bool, typer.Option("--json", help="Plan, certificate and alternatives as JSON.")]
