"""``shoal tables``: how several answers of one device go together, planned and played."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn

from shoal.cli import options as shared
from shoal.cli.output import check_new, emit_json, say, stderr
from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    from shoal.analyzer.tables.plan import TablesPlan, TablesWay

tables = typer.Typer(
    no_args_is_help=True, help="Several answers of one device together, as tables."
)
RowsArgument = Annotated[
    Path, typer.Argument(metavar="ROWS", help="CSV or Parquet: a row for each person.")
]
ColumnsOption = Annotated[
    str, typer.Option(help="Columns that are asked for, between commas: 2 to 12.")
]
TableOption = Annotated[
    list[str] | None,
    typer.Option(
        "--table", metavar="A,B", help="A table to ask for, again for more: else all pairs."
    ),
]
DevicesOption = Annotated[
    int | None, typer.Option("--n", help="Devices of a release; as many as rows, unless told.")
]
EpsilonOption = Annotated[float, typer.Option(help="Central epsilon of a release.")]
DeltaOption = Annotated[float, typer.Option(help="Between 0 and 1: 1e-6 or less is usual.")]
WayOption = Annotated[
    str | None,
    typer.Option(help="Mechanism to play, or to ask by, of those that plan lists; else the best."),
]
SeedOption = Annotated[
    int | None,
    typer.Option(help="Of the simulation's randomness, to see the same again. Never for people."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs.")]


def register(app: typer.Typer) -> None:
    """Add ``shoal tables``."""
    app.add_typer(tables, name="tables")


@tables.command("plan")
def plan_command(
    rows: RowsArgument,
    columns: ColumnsOption,
    table: TableOption = None,
    n: DevicesOption = None,
    epsilon: EpsilonOption = 1.0,
    delta: DeltaOption = 1e-6,
    honest_fraction: shared.HonestFractionOption = "1",
    way: WayOption = None,
    emit: shared.EmitOption = None,
    length: shared.LengthOption = None,
    as_json: JsonOption = False,
) -> None:
    """Which mechanism asks best how answers go together, and the error of each. Of ROWS only the
    answers that occur and their number are looked at.

    Example: shoal tables plan people.csv --columns age,sex,health --n 100000 --epsilon 1

    A task to sign: add --emit tables.toml, and --way krr for another than the best
    """
    from shoal.analyzer.tables.task_file import task_file
    from shoal.cli.plan.tables.show import plan_json, say_plan
    from shoal.cli.plan.task import write_task
    from shoal.cli.plan.told import window_of

    seconds = window_of(length, emit)
    if emit is not None:
        check_new(emit)
    elif way is not None:
        raise ShoalError(Kind.CONFIG, "--way chooses for the task file: add --emit FILE")
    found, _ = _planned(rows, columns, table, n, epsilon, delta, honest_fraction)
    written = None if emit is None else write_task(emit, task_file(_way(found, way), seconds))
    if as_json:
        emit_json(plan_json(found))
        return
    say_plan(found)
    if written is not None:
        say(written)


@tables.command("simulate")
def simulate_command(
    rows: RowsArgument,
    columns: ColumnsOption,
    table: TableOption = None,
    epsilon: EpsilonOption = 1.0,
    delta: DeltaOption = 1e-6,
    honest_fraction: shared.HonestFractionOption = "1",
    way: WayOption = None,
    seed: SeedOption = None,
    as_json: JsonOption = False,
) -> None:
    """Play one release on ROWS: every message drawn as devices draw it, the truth beside; then a
    synthetic table, and its error on tables of three that no fit saw.

    Nothing leaves this machine. Rows are wanted with the extra [tables]; without it only counts are
    compared.

    Example: shoal tables simulate people.csv --columns age,sex,health --epsilon 1
    """
    from shoal.analyzer.tables.played import play
    from shoal.cli.plan.tables.show import done_json, plan_json, say_done, say_plan
    from shoal.cli.plan.tables.truth import synthetic_errors
    from shoal.entropy import SYSTEM, SeededEntropy

    found, answers = _planned(rows, columns, table, None, epsilon, delta, honest_fraction)
    chosen = _way(found, way)
    if not as_json:
        say_plan(found)
    entropy = SYSTEM if seed is None else SeededEntropy(seed)
    with _bar("devices", len(answers)) as (bar, devices):
        done = play(chosen, answers, entropy, tell=lambda count: bar.advance(devices, count))
    with _bar("fitting", 1.0) as (bar, fitting):
        errors = synthetic_errors(
            done.released, answers, lambda share: bar.update(fitting, completed=share)
        )
    if as_json:
        emit_json({"plan": plan_json(found), **done_json(done, errors)})
    else:
        say_done(done, errors)


def _planned(
    rows: Path,
    columns: str,
    table: list[str] | None,
    n: int | None,
    epsilon: float,
    delta: float,
    honest_fraction: str,
) -> tuple[TablesPlan, Any]:
    from shoal.accounting.certificate import check_honest
    from shoal.analyzer.tables.plan import TablesRequest, plan_tables
    from shoal.cli.epsilon.laws import fraction
    from shoal.cli.plan.tables.rows import read_rows

    honest = check_honest(fraction(honest_fraction))
    record, answers = read_rows(rows, columns, table or [])
    devices = len(answers) if n is None else n
    return plan_tables(TablesRequest(record, devices, epsilon, delta, honest)), answers


def _way(found: TablesPlan, name: str | None) -> TablesWay:
    known = {way.name: way for way in found.ways}
    if name is None:
        return found.best
    if name not in known:
        raise ShoalError(Kind.CONFIG, f"--way {name}: one of {', '.join(known)}")
    return known[name]


@contextmanager
def _bar(what: str, total: float) -> Iterator[tuple[Progress, TaskID]]:
    """On stderr, gone at its end; nothing where nobody looks at a terminal."""
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
        yield bar, bar.add_task(what, total=total)
