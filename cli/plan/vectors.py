"""``shoal plan vectors``: a mean of vectors, randomized by each device or summed in rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from rich.table import Table

from shoal.accounting.meaning import bound_text
from shoal.analyzer.planner.order import TellProgress
from shoal.analyzer.planner.vectors.asked import SUMS, VectorRequest, wrong
from shoal.analyzer.planner.vectors.choose import plan_vectors
from shoal.analyzer.planner.vectors.learning import (
    HIDDEN,
    ModelAsked,
    epsilon_by_round,
    follows,
    model_plan,
    of_rounds,
    takes,
    told_with,
)
from shoal.analyzer.planner.vectors.task_text import vectors_text
from shoal.analyzer.planner.vectors.way import VectorPlan, VectorWay
from shoal.cli.figures import counted, figure
from shoal.cli.output import emit_json, say, say_table
from shoal.cli.plan.request import devices, honest
from shoal.cli.plan.task import write_task
from shoal.cli.plan.told import Settings
from shoal.cli.plan.vector_options import LearntModelKind, VectorsTyped
from shoal.domain import Norm
from shoal.errors import ShoalError
from shoal.questions.learning import LearningPlan
from shoal.task import PPM

_DROP_OUT = 0.2


def vector_request(typed: VectorsTyped, given: Mapping[str, Any]) -> VectorRequest:
    """From the options of the command, of which ``given`` has all. Raises CONFIG."""
    names = tuple(name.strip() for name in (given["labels"] or "").split(",") if name.strip())
    if typed.dimension is None and not names:
        raise wrong("--dimension is wanted: how many numbers a vector has; or --labels A,B,...")
    if typed.dimension is not None and names and typed.dimension != len(names):
        raise wrong(f"--labels names {len(names)} numbers, --dimension says {typed.dimension}")
    if given["epsilon"] is None:
        raise wrong("--epsilon is wanted: the central guarantee of all windows together")
    drop_out = _DROP_OUT if typed.drop_out is None else typed.drop_out
    if not 0.0 <= drop_out < 1.0:
        raise wrong("--drop-out: at least 0 and below 1")
    most = given["max_epsilon0"]
    return VectorRequest(
        typed.dimension if typed.dimension is not None else len(names),
        1.0 if typed.clip is None else typed.clip,
        devices(given["n"], None),
        given["epsilon"],
        given["delta"],
        Norm.L2 if typed.norm is None else Norm[typed.norm.value.upper()],
        names,
        given["unit"],
        given["min_batch"] or 0,
        honest(given["honest_fraction"]),
        given["windows"],
        math.ceil(Fraction(repr(drop_out)) * PPM),
        not typed.not_enrolled,
        not typed.one_visit,
        math.inf if most is None else most,
        given["max_bytes"],
        tuple(given["mechanism"] or ()),
    )


def learning_of(typed: VectorsTyped, request: VectorRequest) -> LearningPlan | None:
    """The model that --learn asks for. Raises CONFIG."""
    if typed.learn is None:
        if typed.model is not None or typed.hidden is not None or typed.adaptive:
            raise wrong("--model, --hidden and --adaptive go with --learn STEP: add it")
        return None
    network = typed.model is LearntModelKind.network
    if typed.hidden is not None and not network:
        raise wrong("--hidden goes with --model network: add it, or leave --hidden out")
    if typed.hidden is not None and typed.hidden < 1:
        raise wrong("--hidden: 1 hidden unit or more")
    if request.norm is not Norm.L2:
        raise wrong("--learn goes with norm l2: leave --norm out")
    if not request.enrolled:
        raise wrong("--learn goes with sums, whose devices are enrolled: leave --not-enrolled out")
    if request.ways and not set(request.ways) & set(SUMS):
        raise wrong(f"--learn goes with sums: --mechanism {', '.join(SUMS)}; or leave it out")
    asked = ModelAsked(typed.learn, (typed.hidden or HIDDEN) * network, typed.adaptive)
    try:
        return model_plan(request, asked)
    except ShoalError as error:
        more = ", --hidden" if network else ""
        raise wrong(f"--learn STEP, --clip, --dimension{more}: {error}") from None


def show_vectors(
    request: VectorRequest,
    learning: LearningPlan | None,
    emit: Path | None,
    told: Settings,
    tell: TellProgress,
    *,
    as_json: bool,
) -> None:
    """Plan it, write the task file if it is wanted, and say what each way would err."""
    if learning is not None:
        request = of_rounds(request, learning)
        if emit is not None:
            if "question" not in told.texts:
                raise wrong(
                    "--question is wanted with --learn and --emit: the plan's words follow it"
                )
            told = told_with(told, learning)
    plan = plan_vectors(request, tell)
    written = None if emit is None else write_task(emit, vectors_text(plan, told))
    if as_json:
        more = (
            {}
            if learning is None
            else {"learning": learning.words, "epsilon_by_round": epsilon_by_round(plan)}
        )
        emit_json(plan.to_json() | more)
        return
    _say_plan(plan, learning)
    if learning is not None:
        say(f"{learning.words} Epsilon by round, of a device that answers in each:")
        say(", ".join(bound_text(one) for one in epsilon_by_round(plan)))
        for line in (follows(learning), takes(learning)):
            if line is not None:
                say(line)
    if written is not None:
        say(written)


def _say_plan(plan: VectorPlan, learning: LearningPlan | None) -> None:
    request = plan.request
    unit = f" {request.unit}" if request.unit else ""
    clip = "" if learning is None else f" of {learning.clip:g}" * (learning.rule is None)
    what = "vectors" if learning is None else f"gradients / their clip{clip}, each"
    say(
        f"The mean of {what} of {counted(request.dimension, 'number')}, "
        f"{request.norm.name.lower()} norm up to {request.clip:g}{unit}, of {request.n:,} devices "
        f"in {counted(request.windows, 'window')}: epsilon <= {request.epsilon:g} at delta = "
        f"{request.delta:g}."
    )
    table = Table()
    table.add_column("way")
    for column in ("error of a number", "report, bytes", "visits", "rounds", "to both", "each"):
        table.add_column(column, justify="right")
    impossible = []
    for way in (plan.chosen, *plan.others):
        if math.isnan(way.error):
            impossible.append(way)
        else:
            table.add_row(*_cells(way))
    say_table(table)
    say(
        "To both: what is left, about one window, if shuffler and analyzer work together "
        "(epsilon0). Each: the epsilon of one window. A sum sends some kilobytes beside its "
        "vector; the error is of one coordinate of the mean, of all devices."
    )
    for way in impossible:
        say(f"{way.title}, not possible: {way.reason}")
    for way in plan.others:
        if not way.possible and not math.isnan(way.error):
            say(f"{way.title}, over the limit: {way.reason}")
    say(_recommended(plan))


def _cells(way: VectorWay) -> tuple[str, ...]:
    return (
        way.title,
        figure(way.error),
        f"{way.report_bytes:,}",
        f"{way.visits}",
        f"{way.rounds:,}",
        bound_text(way.epsilon0) if math.isfinite(way.epsilon0) else "the vector",
        bound_text(way.epsilon),
    )


def _recommended(plan: VectorPlan) -> str:
    chosen = plan.chosen
    start = f"Recommended: {chosen.title}, with the least error that keeps what was asked."
    if chosen.plan is not None:
        return f"{start} Devices have to be enrolled (docs/SECAGG.md)."
    return f"{start} No enrolment, no rounds: a report may wait in a queue (docs/MECHANISMS.md)."
