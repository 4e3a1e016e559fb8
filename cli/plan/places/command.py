"""``shoal places``: where devices are, as a map, planned and played."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from shoal.cli import options as shared
from shoal.cli.output import check_new, emit_json, say, stderr

if TYPE_CHECKING:
    from shoal.analyzer.planner.frontier.maps import MapPlan, MapWay

places = typer.Typer(no_args_is_help=True, help="Where devices are, as a map.")
BoxOption = Annotated[
    str,
    typer.Option(metavar="S,W,N,E", help="The map in degrees: south, west, north, east."),
]
RowsOption = Annotated[int, typer.Option(help="Rows of cells, from south to north.")]
ColumnsOption = Annotated[int, typer.Option(help="Columns of cells, from west to east.")]
DevicesOption = Annotated[int, typer.Option("--n", help="Devices of a release, at least.")]
EpsilonOption = Annotated[float, typer.Option(help="Central epsilon of a release.")]
DeltaOption = Annotated[float, typer.Option(help="Between 0 and 1: 1e-6 or less is usual.")]
WindowsOption = Annotated[int, typer.Option(help="Windows in which the same devices are asked.")]
WayOption = Annotated[
    str | None, typer.Option(help="A mechanism of those that plan lists; else the best.")
]
SeedOption = Annotated[
    int | None,
    typer.Option(help="Of the simulation's randomness, to see the same again. Never for people."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs.")]


def register(app: typer.Typer) -> None:
    """Add ``shoal places``."""
    app.add_typer(places, name="places")


@places.command("plan")
def plan_command(
    box: BoxOption,
    n: DevicesOption,
    rows: RowsOption = 32,
    columns: ColumnsOption = 32,
    epsilon: EpsilonOption = 1.0,
    delta: DeltaOption = 1e-6,
    windows: WindowsOption = 1,
    honest_fraction: shared.HonestFractionOption = "1",
    way: WayOption = None,
    emit: shared.EmitOption = None,
    length: shared.LengthOption = None,
    as_json: JsonOption = False,
) -> None:
    """Which mechanism draws the best map, and how far cells and rectangles of cells will be off.

    Example: shoal places plan --box 48,11.3,48.3,11.8 --rows 32 --columns 32 --n 100000

    A task to sign: shoal places plan --box 48,11.3,48.3,11.8 --n 100000 --emit bikes.toml
    """
    from shoal.cli.plan.places.show import plan_json, say_plan, task_file
    from shoal.cli.plan.task import write_task
    from shoal.cli.plan.told import window_of

    seconds = window_of(length, emit)
    if emit is not None:
        check_new(emit)
    found = _planned(box, rows, columns, n, epsilon, delta, windows, honest_fraction)
    chosen = _way(found, way)
    written = None if emit is None else write_task(emit, task_file(chosen, seconds))
    if as_json:
        emit_json(plan_json(found))
        return
    say_plan(found, chosen)
    if written is not None:
        say(written)


@places.command("simulate")
def simulate_command(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A place on each line: 48.137, 11.575.")
    ],
    box: BoxOption,
    rows: RowsOption = 32,
    columns: ColumnsOption = 32,
    epsilon: EpsilonOption = 1.0,
    delta: DeltaOption = 1e-6,
    honest_fraction: shared.HonestFractionOption = "1",
    way: WayOption = None,
    seed: SeedOption = None,
    as_json: JsonOption = False,
) -> None:
    """Play one release on places of your own: one made-up device per line, every message drawn as
    real devices draw it; the map, and its errors beside what was predicted.

    Nothing leaves this machine, and no service is started.

    Example: shoal places simulate places.txt --box 48,11.3,48.3,11.8
    """
    from shoal.analyzer.planner.simulation.maps import play_map
    from shoal.cli.plan.places.read import box_of, read_places
    from shoal.cli.plan.places.show import done_json, plan_json, say_done, say_plan
    from shoal.entropy import SYSTEM, SeededEntropy

    cells = read_places(file, box_of(box, rows, columns))
    found = _planned(box, rows, columns, len(cells), epsilon, delta, 1, honest_fraction)
    chosen = _way(found, way)
    if not as_json:
        say_plan(found, chosen)
    entropy = SYSTEM if seed is None else SeededEntropy(seed)
    with _bar("devices", len(cells)) as tell:
        done = play_map(chosen, cells, entropy, tell=tell)
    if as_json:
        emit_json({"plan": plan_json(found), **done_json(done)})
    else:
        say_done(done)


def _planned(
    box: str,
    rows: int,
    columns: int,
    n: int,
    epsilon: float,
    delta: float,
    windows: int,
    honest_fraction: str,
) -> MapPlan:
    from shoal.accounting.certificate import check_honest
    from shoal.analyzer.planner.frontier.maps import WAYS, MapRequest, each_way, map_plan
    from shoal.cli.epsilon.laws import fraction
    from shoal.cli.plan.places.read import box_of

    honest = check_honest(fraction(honest_fraction))
    places = box_of(box, rows, columns)
    request = MapRequest(places, n, epsilon, delta, honest, windows)
    found = []
    with _bar("ways", len(WAYS)) as tell:
        for way in each_way(request):
            found.append(way)
            tell(1)
    return map_plan(request, found)


def _way(found: MapPlan, name: str | None) -> MapWay:
    from shoal.errors import Kind, ShoalError

    if name == "tree":
        raise ShoalError(Kind.CONFIG, "a tree has tasks of its own: shoal discover plan --places")
    try:
        return found.named(name)
    except ShoalError as error:
        raise ShoalError(Kind.CONFIG, f"--way: {error.message}") from None


@contextmanager
def _bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """On stderr, gone at its end; nothing where nobody looks at a terminal."""
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
        drawn = bar.add_task(what, total=total)
        yield lambda count: bar.advance(drawn, count)
