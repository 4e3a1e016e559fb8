"""``shoal discover``: words that many devices hold, found letter by letter, and places where many
are, found part by part.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from shoal.analyzer.discovery.plan import DiscoveryPlan
from shoal.analyzer.discovery.played import (
    LevelDone,
    Population,
    check_words,
    simulate_discovery,
)
from shoal.analyzer.discovery.task_file import task_file
from shoal.analyzer.planner.simulation.processes import Processes
from shoal.analyzer.planner.simulation.simulate import Tell
from shoal.cli import options as shared
from shoal.cli.discover import options
from shoal.cli.discover.asked import DiscoveryOptions
from shoal.cli.discover.show import (
    done_json,
    level_line,
    plan_json,
    say_found,
    say_plan,
)
from shoal.cli.discover.words import read_held, read_places
from shoal.cli.output import check_new, emit_json, say, stderr
from shoal.cli.plan.task import write_task
from shoal.cli.plan.told import window_of
from shoal.cli.results.command import ResultsConfigOption, ResultsDataOption
from shoal.entropy import SYSTEM, SeededEntropy
from shoal.errors import Kind, ShoalError

discover = typer.Typer(
    no_args_is_help=True,
    help="Find words that many devices hold, or places where many are, without a list.",
)
_PATIENCE = "the noise of all levels is looked for"


def register(app: typer.Typer) -> None:
    """Add ``shoal discover``."""
    app.add_typer(discover, name="discover")


@discover.command("plan")
def plan(
    n: options.DevicesOption,
    epsilon: options.PlanEpsilonOption = None,
    found_from: options.FoundFromOption = None,
    delta: options.DeltaOption = 1e-8,
    fresh: options.FreshOption = False,
    honest_fraction: shared.HonestFractionOption = "1",
    first: options.FirstOption = None,
    longest: options.LongestOption = None,
    most: options.MostOption = None,
    leave_out: options.KnownOption = None,
    places: options.PlacesOption = None,
    cell: options.CellOption = None,
    across: options.AcrossOption = None,
    spare: options.SpareOption = 0,
    emit: shared.EmitOption = None,
    length: shared.LengthOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Say what would be found, before anybody is asked: how frequent a word must be, or how many
    devices at a place, and what it costs a device.

    Devices answer letter by letter: level 0 asks for the first two, each later level for the next
    one after beginnings that many devices have. With --places they answer part by part of a map:
    each level asks for the parts of those parts where many devices are. All levels of a device have
    one epsilon together.

    Example: shoal discover plan --n 650000 --epsilon 1

    Places: shoal discover plan --n 200000 --places 48.06,11.36,48.25,11.72 --cell 50

    Words of 200 devices: shoal discover plan --n 650000 --found-from 200

    A task to sign: shoal discover plan --n 650000 --epsilon 1 --spare 2 --emit words.toml
    """
    seconds = window_of(length, emit)
    if emit is not None:
        check_new(emit)
    asked = DiscoveryOptions(
        epsilon,
        delta,
        fresh,
        honest_fraction,
        first,
        longest,
        most,
        leave_out,
        places,
        cell,
        across,
        found_from,
    )
    made = asked.planned(n, spare)
    written = None if emit is None else write_task(emit, task_file(made, seconds))
    if as_json:
        emit_json(plan_json(made))
        return
    say_plan(made)
    if written is not None:
        say(written)


@discover.command("simulate")
def simulate(
    words: options.WordsArgument,
    epsilon: options.EpsilonOption = 1.0,
    delta: options.DeltaOption = 1e-8,
    fresh: options.FreshOption = False,
    honest_fraction: shared.HonestFractionOption = "1",
    first: options.FirstOption = None,
    longest: options.LongestOption = None,
    most: options.MostOption = None,
    leave_out: options.KnownOption = None,
    places: options.PlacesOption = None,
    cell: options.CellOption = None,
    across: options.AcrossOption = None,
    seed: options.SeedOption = None,
    processes: options.ProcessesOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Play a discovery on words or places of your own: one made-up device for each, every message
    drawn as real devices draw it; the truth stands beside what is found.

    Nothing leaves this machine, and no service is started.

    Example: shoal discover simulate words.txt --epsilon 1

    Places: shoal discover simulate places.csv --places 48.06,11.36,48.25,11.72 --cell 50
    """
    asked = DiscoveryOptions(
        epsilon,
        delta,
        fresh,
        honest_fraction,
        first,
        longest,
        most,
        leave_out,
        places,
        cell,
        across,
    )
    held = read_held(words) if places is None else read_places(words)
    if not held.total():
        raise ShoalError(Kind.CONFIG, f"{words} has no line: a device is a line, or WORD,COUNT")
    made = asked.planned(held.total())
    population = Population.of(made.discovery, held)
    check_words(made, population)
    entropy = SYSTEM if seed is None else SeededEntropy(seed)
    cores = min(len(os.sched_getaffinity(0)), 256)
    engine = Processes(processes or cores, ready=processes is not None)
    if not as_json:
        say_plan(made)
    with _bar(held.total(), made) as (progress, tell):

        def grown(level: LevelDone) -> None:
            progress.console.print(level_line(level), markup=False, soft_wrap=True)

        done = simulate_discovery(made, population, entropy, tell=tell, shown=grown, engine=engine)
    if as_json:
        emit_json({"plan": plan_json(made), **done_json(made, population, done)})
    else:
        say_found(made, population, done)


@discover.command("show")
def show(
    task: options.TaskArgument,
    data: ResultsDataOption = None,
    config: ResultsConfigOption = None,
    watch: options.WatchOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Show what a running discovery found so far, as a tree or a map: from the analyzer's releases.

    With --config it also says what is waited for, and ends when the task's windows ran out.

    Example: shoal discover show words --config analyzer.toml --watch
    """
    from shoal.cli.discover.follow import show_tree, watch_tree

    if watch and as_json:
        raise ShoalError(Kind.CONFIG, "--watch is for people: leave it or --json out")
    if watch:
        watch_tree(task, data, config)
    else:
        show_tree(task, data, config, as_json=as_json)


@contextmanager
def _bar(n: int, made: DiscoveryPlan) -> Iterator[tuple[Progress, Tell]]:
    """A bar on standard error, and a line above it for every level that is done."""
    columns = (TextColumn("devices answer"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=stderr, transient=True) as progress:
        bar = progress.add_task("", total=n * made.together)

        def tell(done: int) -> None:
            progress.advance(bar, done)

        yield progress, tell
