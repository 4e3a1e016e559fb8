"""``shoal trial``: one's own data through the whole pipeline on this machine, the truth beside the
estimates.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from shoal.analyzer.planner import Plan
from shoal.arrays import np
from shoal.cli.demo.folders import make_folder, results_of
from shoal.cli.demo.left import RESULTS, check_ours, remove_ours, write_private
from shoal.cli.demo.made import Made
from shoal.cli.demo.page import look_around
from shoal.cli.demo.processes import cpu_count, progress_bars
from shoal.cli.demo.reports_run import SimulatedAnswers, run_answers
from shoal.cli.demo.survey import Question
from shoal.cli.demo.workspace import TaskTerms
from shoal.cli.extras import need
from shoal.cli.load.table import read_columns
from shoal.cli.output import console, emit_json, stderr
from shoal.cli.plan.task import task_text
from shoal.cli.plan.told import Settings, name_of
from shoal.cli.trial import options as trial_options
from shoal.cli.trial.asked import AskedColumn
from shoal.cli.trial.infer import asked_of
from shoal.cli.trial.overruled import said_of
from shoal.cli.trial.planning import HONEST, TrialTerms, plans_of
from shoal.cli.trial.show import announce, predict, show
from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.parts.sampling import uniform_below
from shoal.task import PPM, one_line

_PRIVATE = 0o700  # of a folder: the truth is in it
_PURPOSE = "a trial of one's own data"
HELP = """Try the whole pipeline on your own data: one simulated device per row, real services on
this machine, throw-away keys; at the end the truth stands beside the estimates.

What a column asks (yes or no, categories, whole numbers, a number with a range) is looked up in the
data, and said: options overrule it. Empty cells are devices that don't answer. Several columns are
several questions of the same people, and --epsilon is for all of them together. Nothing leaves the
machine.

Looking up what to ask reveals something of the data. For a trial of your own that is no harm;
before real devices are asked, fix it by what is known without the data.

Example: shoal trial answers.csv --column income --epsilon 1

A range that is known beforehand, and a second question: shoal trial answers.csv --column income
--column owns_car --range income=0:100000 --out trial
"""


def register(app: typer.Typer) -> None:
    """Add ``shoal trial``."""
    app.command("trial", help=HELP)(trial)


def trial(
    file: trial_options.FileArgument,
    column: trial_options.ColumnOption = None,
    epsilon: trial_options.TrialEpsilonOption = 1.0,
    delta: trial_options.TrialDeltaOption = 1e-8,
    devices: trial_options.TrialDevicesOption = None,
    kind: trial_options.KindOption = None,
    ends: trial_options.RangeOption = None,
    labels: trial_options.TrialLabelsOption = None,
    words: trial_options.WordsOption = None,
    missing: trial_options.MissingOption = None,
    out: trial_options.TrialOutOption = None,
    open_pages: trial_options.TrialOpenOption = False,
    as_json: trial_options.TrialJsonOption = False,
) -> None:
    """See ``HELP``."""
    need("server")
    started, screen = time.monotonic(), stderr if as_json else console
    names = column or []
    _check(names, epsilon, delta)
    if out is not None:
        check_ours(out)
    if open_pages and out is None:
        raise ShoalError(Kind.CONFIG, "--open shows what --out keeps: give --out FOLDER too")
    said = said_of(names, kind or [], ends or [], labels or [], words or [])
    columns, notes = read_columns(file, names, missing or [])
    if out is not None:
        make_folder(out, _PRIVATE)  # now, not after a minute of work
    # what is asked is looked up in all rows; a sample of them is asked
    asked = [asked_of(one, said[one.name]) for one in columns]
    announce(screen, asked, notes)
    rows = _rows(len(columns[0].cells), devices)
    terms = TrialTerms(epsilon, delta, len(rows))
    plans = _plans(asked, terms, screen)
    predict(screen, asked, plans)
    tasks = _names(asked)
    answers = [
        _answers(one, plan, name, rows) for one, plan, name in zip(asked, plans, tasks, strict=True)
    ]
    request = plans[0].request
    task_terms = TaskTerms(
        _PURPOSE, math.floor(HONEST * PPM), request.delta, request.epsilon or epsilon
    )
    made = results_of(
        None, lambda folder: run_answers(folder, answers, task_terms, cpu_count(), screen)
    )
    results = _described(made.results, asked, plans, file, len(columns[0].cells))
    if out is not None:
        _leave(out, results, made, plans, tasks)
    if as_json:
        emit_json(results)
    else:
        show(screen, asked, results, time.monotonic() - started, out, made.authority())
    if open_pages and out is not None:
        look_around(screen, out / RESULTS, out / "tasks")


def _check(columns: Sequence[str], epsilon: float, delta: float) -> None:
    if len(set(columns)) != len(columns):
        raise ShoalError(Kind.CONFIG, "--column: the same column is there twice: leave one out")
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ShoalError(Kind.CONFIG, f"--epsilon is a number above 0, got {epsilon:g}: 1 is usual")
    if not 1e-100 <= delta < 1:
        raise ShoalError(Kind.CONFIG, f"--delta lies between 0 and 1, got {delta:g}: 1e-8 is usual")


def _rows(count: int, devices: int | None) -> list[int]:
    """Which row each device answers with."""
    if devices is None or devices == count:
        return list(range(count))
    if devices > count:
        drawn: list[int] = uniform_below(count, devices, SYSTEM).tolist()
        return drawn
    keys = np.array(SYSTEM.words(count), dtype=np.uint64)
    sample: list[int] = np.sort(np.argsort(keys, kind="stable")[:devices]).tolist()
    return sample


def _plans(asked: Sequence[AskedColumn], terms: TrialTerms, screen: Console) -> list[Plan]:
    with progress_bars(screen) as progress:
        bar = progress.add_task("plans are compared", total=None)

        def tell(done: int, total: int, _: str) -> None:
            progress.update(bar, total=total)
            progress.tell(bar, done)

        plans = plans_of(asked, terms, tell)
        progress.update(bar, visible=False)
        return plans


def _names(asked: Sequence[AskedColumn]) -> list[str]:
    """A task's name for each column, all different."""
    names: list[str] = []
    for number, one in enumerate(asked, 1):
        name = name_of(one.column) or f"question-{number}"
        names.append(name if name not in names else f"{name}-{number}")
    return names


def _answers(asked: AskedColumn, plan: Plan, name: str, rows: Sequence[int]) -> SimulatedAnswers:
    spec, domain = plan.choice.spec, plan.choice.candidate.domain
    if spec is None:
        raise TypeError("a choice has its integers")
    text = "".join(letter if one_line(letter) else " " for letter in asked.column).strip()
    values = [asked.values[row] for row in rows]
    return SimulatedAnswers(
        Question(name, text or name, domain, spec), values, asked.truth(domain, values)
    )


def _described(
    results: dict[str, Any],
    asked: Sequence[AskedColumn],
    plans: Sequence[Plan],
    file: Path,
    rows: int,
) -> dict[str, Any]:
    """With what was asked, and how far off the plan said that estimates would be."""
    for one, plan, task in zip(asked, plans, results["tasks"], strict=True):
        errors = plan.choice.errors
        task |= {
            "column": one.column,
            "kind": one.sort.value,
            "says": one.says,
            "from_the_data": one.inferred,
            "beyond_the_range": one.beyond,
            "predicted_stderr": None if errors is None else errors.ranked,
        }
    return results | {"file": file.name, "rows": rows}


def _leave(
    out: Path, results: dict[str, Any], made: Made, plans: Sequence[Plan], names: Sequence[str]
) -> None:
    """Results, releases, signed tasks, and each plan as a task for a deployment to come."""
    remove_ours(out)
    write_private(out / RESULTS, (json.dumps(results, indent=2) + "\n").encode())
    write_private(out / "report.html", made.page.encode())
    for folder, files in (("tasks", made.tasks), ("releases", made.checkable)):
        make_folder(out / folder, _PRIVATE)
        for name, data in files.items():
            write_private(out / folder / name, data)
    for name, plan in zip(names, plans, strict=True):
        text = task_text(plan, told=Settings({"name": name}, {}, {}, {}))
        write_private(out / f"{name}.toml", text.encode())
