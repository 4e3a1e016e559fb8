"""``shoal plan``: which mechanism, with which integers, for the guarantee that holds after
shuffling; and what the others would cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from shoal.analyzer.planner import Plan, Request, Simulation, plan
from shoal.analyzer.planner.order import TellProgress
from shoal.cli.options import HonestFractionOption
from shoal.cli.output import check_new, emit_json, say, stderr
from shoal.cli.pictures.writing import check_plot
from shoal.cli.plan import options as plan_options
from shoal.cli.plan import task_options, vector_options, word_options
from shoal.cli.plan.options import Asked
from shoal.cli.plan.output import show_plan, simulated
from shoal.cli.plan.request import Given, devices, honest, limited
from shoal.cli.plan.several import Beside, Look
from shoal.cli.plan.simulating import Runs
from shoal.cli.plan.told import Settings, Told
from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    from shoal.analyzer.planner.frontier.option import SeveralOption

HELP = """Choose a mechanism and its integers for a central guarantee, and predict the errors.

Every setting of every registered mechanism is compared at its own largest epsilon0 that keeps
the target after shuffling.

Example: shoal plan categories --k 16 --n 100000 --epsilon 1 --delta 1e-6

A yes/no question, 90 % honest reports, a batch of 10,000 at least: shoal plan yes_no --n 50000
--min-batch 10000 --honest-fraction 0.9 --epsilon 0.5

The mean of a number, checked by simulation: shoal plan mean --low 0 --high 24 --unit hours --n
100000 --epsilon 1 --simulate 1000

A fleet of 1e8, simulated on all cores: shoal plan yes_no --n 100000000 --epsilon 1 --mechanism
binary_rr --simulate 30

The same on other machines: shoal plan yes_no --n 100000000 --epsilon 1 --mechanism binary_rr
--simulate 30 --engine analyzer.toml

The smallest epsilon for an error of 50 devices: shoal plan categories --k 16 --n 100000 --error
50

The best of one message or several per device, where owners may be asked for that: shoal plan
categories --k 16 --n 100000 --epsilon 1 --several-messages --simulate 200

The same for an error, with the least epsilon: shoal plan categories --k 16 --n 100000 --error 5
--several-messages

A budget for a year of weeks, in each of which the same devices are asked: shoal plan yes_no --n
20000 --epsilon 1 --windows 52

The sum, and quantiles, asked in twelve windows: shoal plan sum --high 50 --unit kWh --n 100000
--epsilon 1; shoal plan quantiles --high 96 --unit minutes --quantiles 0.5,0.9 --n 100000
--epsilon 1 --windows 12 --changes 2

Words that nobody has listed, found letter by letter (shoal discover says more of them): shoal plan
words --n 650000 --epsilon 1 --spare 2; shoal plan words --n 650000 --found-from 200

The mean of vectors, randomized whole by each device or summed in rounds: shoal plan vectors
--dimension 64 --n 10000 --epsilon 1 --one-visit --not-enrolled

A model learnt in six rounds: shoal plan vectors --labels age,dose --n 600 --epsilon 1 --delta 1e-6
--windows 6 --learn 8 --clip 0.5

A network, whose clip follows the gradients: shoal plan vectors --dimension 30 --n 600 --epsilon 2
--delta 1e-5 --windows 10 --learn 8 --clip 4 --model network --hidden 16 --adaptive

What a well-known deployment's number means: shoal plan --recipe list; shoal plan --recipe
emoji-popularity

A task to sign, and a picture: shoal plan yes_no --n 20000 --epsilon 0.5 --plot error.svg --emit
sleep.toml --question "Did you sleep well?" --shuffler localhost:7443 --ca tls/ca.pem --authority
authority.key --shuffler-key shuffler/signing.key --analyzer-key analyzer/signing.key
"""


def register(app: typer.Typer) -> None:
    """Add ``shoal plan``."""
    app.command("plan", help=HELP)(command)


def command(
    context: typer.Context,
    question: plan_options.QuestionOption = None,
    n: plan_options.PlanNOption = None,
    delta: plan_options.PlanDeltaOption = 1e-8,
    epsilon: plan_options.EpsilonOption = None,
    error: plan_options.ErrorOption = None,
    k: plan_options.PlanKOption = None,
    labels: plan_options.LabelsOption = None,
    counts: plan_options.CountsOption = None,
    share: plan_options.ShareOption = None,
    low: plan_options.LowOption = 0.0, high: plan_options.HighOption = 1.0,
    unit: plan_options.UnitOption = "",
    levels: plan_options.LevelsOption = None,
    value: plan_options.ValueOption = None,
    worst: plan_options.WorstOption = False,
    quantiles: plan_options.QuantilesOption = None, shape: plan_options.ShapeOfOption = None,
    heaps: plan_options.HeapsOption = None,
    longest: word_options.LongestOption = None,
    most: word_options.MostOption = None,
    spare: word_options.SpareOption = None,
    leave_out: word_options.LeaveOutOption = None,
    found_from: word_options.FoundFromOption = None,
    dimension: vector_options.DimensionOption = None,
    clip: vector_options.ClipOption = None,
    norm: vector_options.NormOption = None,
    drop_out: vector_options.DropOutOption = None,
    not_enrolled: vector_options.NotEnrolledOption = False,
    one_visit: vector_options.OneVisitOption = False,
    fresh: word_options.FreshOption = False,
    learn: vector_options.LearnOption = None, adaptive: vector_options.AdaptiveOption = False,
    model: vector_options.LearntOption = None, hidden: vector_options.HiddenOption = None,
    min_batch: plan_options.MinBatchOption = None,
    honest_fraction: HonestFractionOption = "1",
    mechanism: plan_options.MechanismNamesOption = None,
    max_bytes: plan_options.MaxBytesOption = None,
    max_messages: plan_options.MaxMessagesOption = None,
    max_epsilon0: plan_options.MaxEpsilon0Option = None,
    windows: plan_options.WindowsOption = 1,
    changes: plan_options.ChangesOption = 0,
    memoized: plan_options.PlanMemoizedOption = False,
    tasks: plan_options.TasksOption = 1,
    per_window: plan_options.PerWindowOption = False,
    recipe: plan_options.RecipeOption = None,
    several: plan_options.SeveralOption = False,
    colluding: plan_options.IfColludingOption = None,
    everything: plan_options.AllOption = False,
    emit: plan_options.EmitOption = None,
    text: task_options.TextOption = None,
    name: task_options.NameOption = None,
    purpose: task_options.PurposeOption = None,
    start: task_options.StartOption = None,
    length: task_options.LengthOption = None,
    max_batch: task_options.MaxBatchOption = None,
    shuffler: task_options.ShufflerOption = None,
    ca: task_options.CaOption = None,
    authority: task_options.AuthorityOption = None,
    shuffler_key: task_options.ShufflerKeyOption = None,
    analyzer_key: task_options.AnalyzerKeyOption = None,
    enrolment_key: task_options.EnrolmentKeyOption = None,
    picture: plan_options.PlanPlotOption = None,
    runs: plan_options.SimulateOption = None,
    data: plan_options.SimulatedDataOption = None,
    seed: plan_options.SeedOption = None,
    processes: plan_options.ProcessesOption = None,
    engine: plan_options.EngineOption = None,
    as_json: plan_options.PlanJsonOption = False,
) -> None:  # fmt: skip  # see HELP
    _answer(context, dict(locals()))


def _answer(context: typer.Context, given: Mapping[str, Any]) -> None:
    shown = _Shown(told=Told.of(given), **{name: given[name] for name in _SHOWN})
    question = given["question"]
    if given["recipe"] is not None:
        return _recipe(context, given["recipe"], given["n"], shown)
    if question is Asked.words:
        return _words(context, given, shown)
    if question is Asked.vectors:
        return _vectors(context, given, shown)
    return _others(context, given, shown)


_SHOWN = ("everything", "several", "colluding", "emit", "picture", "as_json")


@dataclass(frozen=True, slots=True)
class _Shown:
    everything: bool
    several: bool
    colluding: float | None
    emit: Path | None
    picture: Path | None
    as_json: bool
    told: Told

    def settings(self, min_batch: int | None) -> Settings:
        """Of the task to write; before anything is computed: raises CONFIG."""
        if self.picture is not None:
            check_plot(self.picture)
        if self.emit is not None:
            check_new(self.emit)
            if self.picture is not None and self.picture.absolute() == self.emit.absolute():
                raise ShoalError(
                    Kind.CONFIG,
                    "--emit and --plot name one file: the picture would take the task's place",
                )
        return self.told.settings(self.emit, min_batch)


@dataclass(frozen=True, slots=True)
class _Numbers:
    n: int | None
    delta: float
    epsilon: float | None
    error: float | None
    min_batch: int | None
    honest_fraction: str
    windows: int
    memoized: bool
    changes: int
    tasks: int
    per_window: bool


@dataclass(frozen=True, slots=True)
class _Limits:
    size: int | None
    messages: int | None
    epsilon0: float | None
    mechanisms: list[str] | None


def _known(question: Asked | None) -> Asked:
    if question is None:
        raise ShoalError(
            Kind.CONFIG,
            "what is asked? Give yes_no, categories, mean, sum, quantiles, words or vectors; or "
            "--recipe NAME",
        )
    return question


def _words(context: typer.Context, given: Mapping[str, Any], shown: _Shown) -> None:
    """A discovery: ``shoal discover plan`` by another name, with the words of the task."""
    from shoal.cli.plan.words import show_words

    word_options.check_words(context)
    told = shown.settings(None)
    show_words(
        word_options.WordsTyped(**_named(word_options.WordsTyped, given)),
        devices(given["n"], None),
        given["epsilon"],
        given["delta"],
        given["honest_fraction"],
        shown.emit,
        told,
        as_json=shown.as_json,
    )


def _vectors(context: typer.Context, given: Mapping[str, Any], shown: _Shown) -> None:
    from shoal.cli.plan.vectors import learning_of, show_vectors, vector_request

    vector_options.check_vectors(context)
    typed = vector_options.VectorsTyped(**_named(vector_options.VectorsTyped, given))
    request = vector_request(typed, given)
    learning = learning_of(typed, request)
    told = shown.settings(request.smallest_batch)
    with _bar() as tell:
        show_vectors(request, learning, shown.emit, told, tell, as_json=shown.as_json)


def _others(context: typer.Context, given: Mapping[str, Any], shown: _Shown) -> None:
    word_options.check_others(context)
    vector_options.check_no_vectors(context)
    asked = Given(**_named(Given, {**given, "asked": _known(given["question"])}))
    numbers = _Numbers(**_named(_Numbers, given))
    limits = _Limits(*(given[name] for name in _LIMITS))
    _plan(asked, numbers, limits, Runs(*(given[name] for name in _RUNS)), shown)


_LIMITS = ("max_bytes", "max_messages", "max_epsilon0", "mechanism")
_RUNS = ("runs", "data", "seed", "processes", "engine")


def _named(kind: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of the command that a dataclass has fields for."""
    return {field.name: given[field.name] for field in fields(kind)}


def _recipe(context: typer.Context, name: str, n: int | None, shown: _Shown) -> None:
    from shoal.cli.plan.recipe import show_recipe

    _only_recipe(context)
    if shown.emit is not None:
        check_new(shown.emit)
    told = shown.told.settings(shown.emit, None)
    with _bar() as tell:
        show_recipe(name, n, shown.emit, told, tell, as_json=shown.as_json)


def _plan(given: Given, numbers: _Numbers, limits: _Limits, runs: Runs, shown: _Shown) -> None:
    asked, total = given.question()
    runs.check(asked)
    if numbers.min_batch == 0:
        raise ShoalError(Kind.CONFIG, "--min-batch is at least 2 reports: leave it out for n")
    plain = Request(
        asked,
        devices(numbers.n, total),
        numbers.delta,
        numbers.epsilon,
        numbers.error,
        numbers.min_batch or 0,
        honest(numbers.honest_fraction),
        windows=numbers.windows,
        memoized=numbers.memoized,
        changes=numbers.changes,
        tasks=numbers.tasks,
        together=not numbers.per_window,
    )
    told = shown.settings(plain.min_batch)
    request = limited(plain, limits.size, limits.messages, limits.epsilon0, limits.mechanisms)
    if shown.colluding is not None and not shown.several:
        raise ShoalError(Kind.CONFIG, "--epsilon0-if-colluding goes with --several-messages")
    look = Look.of(request, shown.colluding, compare=shown.several)
    with _bar() as tell:
        chosen_plan = plan(request, tell)
    both = look.beside(chosen_plan)
    runs.check_several(both.several, request.n)
    result = runs.simulate(chosen_plan)
    of_several = runs.simulate_several(chosen_plan, both.several)
    written = _write(chosen_plan, both.several, shown.emit, told, shown.picture)
    if shown.as_json:
        emit_json(
            chosen_plan.to_json()
            | both.to_json()
            | ({} if result is None else {"simulation": result.to_json()})
            | ({} if of_several is None else {"simulation_recommended": of_several.to_json()})
        )
        return
    show_plan(chosen_plan, everything=shown.everything)
    both.show()
    for line in _simulated(chosen_plan, both, result, of_several) + written:
        say(line)


def _simulated(
    plan: Plan, both: Beside, single: Simulation | None, several: Simulation | None
) -> list[str]:
    """A line for each that was simulated: by name, where there are two."""
    if single is None:
        return []
    n = plan.request.n
    if several is None or both.several is None:
        return [simulated(single, n)]
    return [
        simulated(several, n, both.several.title),
        simulated(single, n, plan.choice.candidate.title),
    ]


_OF_RECIPES = {"recipe", "n", "emit", "as_json", "text"} | {field.name for field in fields(Told)}
_OF_RECIPES -= {"question"}  # what is asked, not its words


def _only_recipe(context: typer.Context) -> None:
    """Raises CONFIG for everything else that was typed: what a recipe would leave out of account
    must not look as if it counted.
    """
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in _OF_RECIPES or source is None or source.name != "COMMANDLINE":
            continue
        what = "a question" if parameter.name == "question" else parameter.opts[0]
        raise ShoalError(
            Kind.CONFIG,
            f"a recipe has its own question, epsilon and delta: leave out {what}, or --recipe",
        )


def _write(
    chosen_plan: Plan,
    several: SeveralOption | None,
    emit: Path | None,
    told: Settings,
    picture: Path | None,
) -> list[str]:
    """Write what was asked for, of ``several`` messages where those are recommended; what to say of
    it. A plan alone loads neither what writes files nor what draws.
    """
    sentences = []
    if emit is not None:
        from shoal.cli.plan.task import task_text, write_task

        sentences.append(write_task(emit, task_text(chosen_plan, told=told, several=several)))
    if picture is not None:
        from shoal.cli.plan.plot import plot

        plot(picture, chosen_plan, several)
        sentences.append(f"error against epsilon: {picture}")
    return sentences


@contextmanager
def _bar() -> Iterator[TellProgress]:
    """A bar on standard error while candidates are compared."""
    columns = (
        TextColumn("planning: {task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=stderr, transient=True, disable=not stderr.is_terminal
    ) as progress:
        bar = progress.add_task("", total=None)

        def tell(done: int, total: int, title: str) -> None:
            progress.update(bar, completed=done, total=total, description=title)

        yield tell
