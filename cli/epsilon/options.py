"""The options of ``shoal epsilon``, one name each: what they are called, and what --help says of
them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.epsilon.laws import REGISTERED
from shoal.cli.epsilon.request import Solved
from shoal.mechanisms.several.names import NAMES as SEVERAL_NAMES
from shoal.mechanisms.vectors.registry import NAMES as VECTOR_NAMES

MechanismNameOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="any: every epsilon0-LDP randomizer; rr: binary randomized response; krr, kmean: over "
        "k values or levels; sue, oue: unary encodings; hash: local hashing; subset: subset "
        "selection; hadamard: one Hadamard bit; "
        "gaussian: Gaussian noise on a number; dummies, bucket-dummies: true values among dummies; "
        f"registered ones, with --k and --setting: {', '.join(REGISTERED)}; of vectors, with "
        f"--setting: {', '.join(VECTOR_NAMES)}; and those of several "
        f"messages, with --k and --target or --parameters: {', '.join(SEVERAL_NAMES)}.",
    ),
]
Epsilon0Option = Annotated[
    float | None,
    typer.Option(help="Local epsilon of one report, above 0 (not for gaussian and dummies)."),
]
EpsilonNOption = Annotated[
    int | None, typer.Option("--n", help="Shuffled reports in the batch, at least 1.")
]
EpsilonDeltaOption = Annotated[
    float | None, typer.Option(help="Between 0 and 1: 1e-6 or less is usual.")
]
EpsilonKOption = Annotated[
    int | None, typer.Option("--k", help="Values or levels, at least 2 (krr, kmean, subset).")
]
ParametersOption = Annotated[
    str | None,
    typer.Option(
        "--parameters",
        metavar="NAME=INTEGER,...",
        help="The integers of a task whose devices send several messages.",
    ),
]
IfColludingOption = Annotated[
    float | None,
    typer.Option(
        "--epsilon0-if-colluding",
        help="Of several messages: the true one is randomized, so that this much is kept against "
        "shuffler and analyzer together.",
    ),
]
GOption = Annotated[int | None, typer.Option("--g", help="Hash values, at least 2 (hash).")]
SubsetSizeOption = Annotated[
    int | None, typer.Option(help="Values in a report, 1 to k - 1 (subset).")
]
RegisteredSettingOption = Annotated[
    str | None,
    typer.Option(
        help='Of a mechanism by its registered name, such as "p=0.97". Default: its first.'
    ),
]
SigmaOption = Annotated[
    float | None, typer.Option(help="Standard deviation of the noise (gaussian).")
]
SensitivityOption = Annotated[
    float | None, typer.Option(help="How far two values can lie apart (gaussian).")
]
BucketsOption = Annotated[
    int | None, typer.Option(help="Number of values, at least 2 (dummies, bucket-dummies).")
]
PerDeviceOption = Annotated[
    int | None, typer.Option(help="Dummies that each device adds (dummies).")
]
ProbabilityOption = Annotated[
    str | None,
    typer.Option(
        metavar="FLOAT",
        help="That of a dummy, for each bucket and device; also 1/100 (bucket-dummies).",
    ),
]
RoundsOption = Annotated[
    int | None,
    typer.Option(
        help="So many batches of the same devices together, --delta being for all of them."
    ),
]
GroupOption = Annotated[
    int | None,
    typer.Option(
        metavar="G",
        help="So many devices of one person (2 to 1000), all in the same batches: their answers "
        "together.",
    ),
]
EpsilonMemoizedOption = Annotated[
    bool,
    typer.Option(
        "--memoized", help="The rounds repeat one permanent report: refused, with the reason."
    ),
]
SolveOption = Annotated[
    Solved | None, typer.Option(help="Which number to find, for the central epsilon of --target.")
]
TargetOption = Annotated[
    float | None,
    typer.Option(
        metavar="EPS",
        help="The central epsilon wanted, above 0 (with --solve; several messages are designed for "
        "it).",
    ),
]
CompareOption = Annotated[
    bool,
    typer.Option(
        "--compare", help="Every route and every published bound: value, and why it applies."
    ),
]
EpsilonPlotOption = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE.svg", help="Draw epsilon against n; replaces the file."),
]
EpsilonJsonOption = Annotated[bool, typer.Option("--json", help="The certificate as JSON.")]
