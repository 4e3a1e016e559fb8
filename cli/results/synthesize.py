"""``shoal results synthesize``: a table of made-up records, fitted to a release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from shoal.cli.extras import need
from shoal.cli.output import check_new, emit_json, plain_table, say, say_table, stderr, write_new
from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    from shoal.analyzer.tables.synthesis import Synthesis

_SUFFIXES = ".csv", ".parquet"
_ErrorsOption = Annotated[
    bool,
    typer.Option(
        "--errors",
        help="Also say how far the fit's counts are from the truth: by 20 releases that are "
        "played and fitted: some four times the time. --json has an interval for each count.",
    ),
]


def synthesize_command(
    task: Annotated[
        str, typer.Argument(help="TASK or TASK:WINDOW: of several answers together (a record).")
    ],
    out: Annotated[
        Path, typer.Option(help="New file for the rows: NAME.csv or NAME.parquet, by its ending.")
    ],
    rows: Annotated[
        int | None, typer.Option(help="Rows to draw; as many as there were reports, unless told.")
    ] = None,
    release: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="A file or folder of shoal results export --format json, instead of a store.",
        ),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="The analyzer's data_dir.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="The analyzer's configuration file, instead of --data.")
    ] = None,
    test: Annotated[
        bool,
        typer.Option(
            help="Also fit to four tables in five, and compare that with the fifth: twice the time."
        ),
    ] = True,
    errors: _ErrorsOption = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="For programs: all but the rows, which are in --out.")
    ] = False,
) -> None:
    """Rows that no device sent, whose tables are those of a release as nearly as its noise allows.
    Made of the release alone, so it costs no privacy. Says what the rows can't answer.

    Example: shoal results synthesize household:0 --out household.csv --data
    /var/lib/shoal/analyzer
    """
    from shoal.analyzer.tables.of_release import tables_of
    from shoal.analyzer.tables.synthesis import synthesize

    if out.suffix not in _SUFFIXES:
        raise ShoalError(Kind.CONFIG, f"--out {out}: give a name that ends in .csv or .parquet")
    need("tables")
    if out.suffix == ".parquet":
        need("parquet")
    check_new(out)
    released = tables_of(_one_release(task, release, data, config))
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
        fitting = bar.add_task("fitting", total=1.0)
        made = synthesize(
            released,
            rows=rows,
            test=test,
            errors=errors,
            progress=lambda share: bar.update(fitting, completed=share),
        )
    write_new(out, _file_of(made, out))
    if as_json:
        emit_json(made.to_json() | {"file": str(out)})
    else:
        _show(made, out)


def _one_release(
    task: str, release: Path | None, data: Path | None, config: Path | None
) -> dict[str, Any]:
    from shoal.analyzer.results.reading import check_damage, read_releases, select
    from shoal.analyzer.results.release_files import read_release_files

    if release is None:
        releases = read_releases(data, config)
    elif data is not None or config is not None:
        raise ShoalError(Kind.CONFIG, "say where the releases are once: --from, --data or --config")
    else:
        releases = list(read_release_files(release).releases)
    chosen = select(releases, task)
    if release is None:
        check_damage(data, config, chosen[0]["task_id"] + "".join(task.partition(":")[1:]))
    if len(chosen) > 1:
        windows = ", ".join(str(one["window"]) for one in chosen)
        raise ShoalError(
            Kind.CONFIG, f"{task} has several windows ({windows}): give one, as {task}:0"
        )
    return chosen[0]


def _file_of(made: Synthesis, out: Path) -> bytes:
    from shoal.analyzer.tables.rows_file import csv_of, parquet_rows

    return csv_of(made) if out.suffix == ".csv" else parquet_rows(made)


def _show(made: Synthesis, out: Path) -> None:
    released = made.tables.released
    say(
        f"{len(made.rows):,} rows of {len(made.columns)} attributes written to {out}: drawn from a "
        f"law ({made.fitted.law.form}) that was fitted to {len(released.marginals)} tables of "
        f"{released.n:,} devices"
    )
    near = "as near as their noise allows" if made.explains else "farther off than noise explains"
    say(f"the released tables are {near} (misfit {made.fitted.misfit:.2f}, noise alone: about 1)")
    if made.errors is not None:
        say(
            f"counts of that law are expected to be off by {made.errors.error:,.3g} devices (root "
            "mean square over all cells of the released tables)"
        )
    if made.tested:
        say("tables that a second fit did not see; half the sum of differences, of all devices:")
        table = plain_table("table", "from the fit", "noise alone", "if independent")
        for one in made.tested:
            table.add_row(
                " x ".join(one.names),
                *(f"{share:.2%}" for share in (one.difference, one.noise, one.independent)),
            )
        say_table(table)
    say("it can't answer:")
    for line in made.unanswered:
        say(f"  - {line}")
