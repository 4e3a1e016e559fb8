"""``shoal results``: what an analyzer released, as a table, JSON, CSV, Parquet or a page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.analyzer.results.files.exports import ARRAYS, Format, file_of
from shoal.analyzer.results.reading import array_of, check_damage, only, read_releases, select
from shoal.cli.extras import need
from shoal.cli.output import (
    check_new,
    emit_json,
    give,
    named,
    plain_table,
    say,
    say_table,
    write_new,
)
from shoal.cli.results.model import model_command
from shoal.cli.results.synthesize import synthesize_command
from shoal.cli.results.terminal import show_release, up
from shoal.errors import Kind, ShoalError

results = typer.Typer(no_args_is_help=True, help="What an analyzer released.")

ResultsDataOption = Annotated[Path | None, typer.Option(help="The analyzer's data_dir.")]
ResultsConfigOption = Annotated[
    Path | None, typer.Option(help="The analyzer's configuration file, instead of --data.")
]
ResultsJsonOption = Annotated[bool, typer.Option("--json", help="For programs.")]

results.command("synthesize")(synthesize_command)
results.command("model")(model_command)
EMPTY = "nothing has been released yet"
_EDGE = "Degrees, an edge of a cell; without it the edge of the map."


def register(app: typer.Typer) -> None:
    """Add ``shoal results``."""
    app.add_typer(results, name="results")


@results.command("list")
def list_command(
    data: ResultsDataOption = None,
    config: ResultsConfigOption = None,
    as_json: ResultsJsonOption = False,
) -> None:
    """Every release, one line each; --json: everything in them.

    Example: shoal results list --data /var/lib/shoal/analyzer
    """
    releases = read_releases(data, config)
    if as_json:
        emit_json(releases)
    elif not releases:
        say(EMPTY)
    else:
        _list(releases)
    check_damage(data, config)


def _list(releases: list[dict[str, Any]]) -> None:
    table = plain_table(
        "task", "id", "window", "reports", "rejected", "epsilon ≤", "epsilon0", "outcome"
    )
    for release in releases:
        privacy = release["privacy"]
        table.add_row(
            release["name"],
            release["task_id"][:8],
            str(release["window"]),
            f"{release['n']:,}",
            f"{sum(release['rejected'].values()):,}",
            up(_overall(privacy, releases, release["task_id"])),
            up(privacy["epsilon0"]),
            "withheld" if release["withheld"] else "released",
        )
    say_table(table)


def _overall(privacy: dict[str, Any], releases: list[dict[str, Any]], task_id: str) -> float:
    """The epsilon to show of a release in one number: of a memoized task with several windows
    opened, what is left of all of them.
    """
    memoized = [
        release["privacy"]["memoized"]
        for release in releases
        if release["task_id"] == task_id and "memoized" in release["privacy"]
    ]
    alone: float = privacy["epsilon_upper"]
    return (
        max([alone, *(privacy_of_task["lifetime_epsilon"] for privacy_of_task in memoized)])
        if len(memoized) > 1
        else alone
    )


@results.command()
def show(
    task: Annotated[
        str,
        typer.Argument(
            help="TASK or TASK:WINDOW: a task's name, or its id or the beginning of it."
        ),
    ],
    data: ResultsDataOption = None,
    config: ResultsConfigOption = None,
    as_json: ResultsJsonOption = False,
) -> None:
    """The estimates and the certificate of a task's releases.

    Example: shoal results show outpatient-visit:0 --data /var/lib/shoal/analyzer
    """
    releases = read_releases(data, config)
    try:
        releases = select(releases, task)
    except ShoalError:
        check_damage(data, config)  # it may be the one that can't be read
        raise
    if as_json:
        emit_json(releases)
    else:
        for release in releases:
            show_release(release)
    check_damage(data, config, releases[0]["task_id"] + "".join(task.partition(":")[1:]))


@results.command("range")
def range_command(
    task: Annotated[str, typer.Argument(help="TASK:WINDOW, or TASK where it has one window.")],
    low: Annotated[float, typer.Argument(help="Where the range begins: a cell of the release.")],
    high: Annotated[
        float | None,
        typer.Argument(
            help="Where it ends: the beginning of the next bin, or the last level in it; without "
            "it, at the end of all."
        ),
    ] = None,
    data: ResultsDataOption = None,
    config: ResultsConfigOption = None,
    as_json: ResultsJsonOption = False,
) -> None:
    """How many devices have a value in a range, of a task with the mechanism ranges: with the
    standard error and the 95 % interval of the whole range.

    Example: shoal results range commute:0 15 30 --data /var/lib/shoal/analyzer
    """
    from shoal.analyzer.results.ranges import range_of
    from shoal.cli.results.terminal import show_range

    release = only(select(read_releases(data, config), task), task)
    counted = range_of(release, low, high)
    if as_json:
        emit_json(
            {"name": release["name"], "window": release["window"], "n": release["n"]}
            | counted.to_json()
        )
    else:
        show_range(release, counted)
    check_damage(data, config, release["task_id"] + f":{release['window']}")


@results.command("rectangle")
def rectangle_command(
    task: Annotated[str, typer.Argument(help="TASK:WINDOW, or TASK where it has one window.")],
    south: Annotated[float | None, typer.Option(help=_EDGE)] = None,
    west: Annotated[float | None, typer.Option(help=_EDGE)] = None,
    north: Annotated[float | None, typer.Option(help=_EDGE)] = None,
    east: Annotated[float | None, typer.Option(help=_EDGE)] = None,
    data: ResultsDataOption = None,
    config: ResultsConfigOption = None,
    as_json: ResultsJsonOption = False,
) -> None:
    """How many devices are in a rectangle of a map: with the standard error and the 95 % interval
    of the whole rectangle. Bounds are edges of cells; of a discovery of places, whose windows count
    together, any that lie on the map.

    Example: shoal results rectangle bikes:0 --south 48.1125 --north 48.20625 --data /var/lib/shoal
    """
    from shoal.analyzer.results.maps.parted import PartedCount, is_parted, parted_rectangle
    from shoal.analyzer.results.maps.released import RectangleCount, rectangle_of
    from shoal.cli.results.terminal import show_parted, show_rectangle

    every = read_releases(data, config)
    chosen = select(every, task.partition(":")[0])
    counted: RectangleCount
    if is_parted(chosen):
        counted = parted_rectangle(chosen, south, west, north, east)
        release = max(chosen, key=lambda one: int(one["window"]))
    else:
        release = only(select(every, task), task)
        counted = rectangle_of(release, south, west, north, east)
    if as_json:
        emit_json(
            {"name": release["name"], "window": release["window"], "n": release["n"]}
            | counted.to_json()
        )
    else:
        show_rectangle(release, counted)
        if isinstance(counted, PartedCount):
            show_parted(counted)
    check_damage(data, config, release["task_id"] + f":{release['window']}")


@results.command()
def spent(
    data: ResultsDataOption = None,
    config: ResultsConfigOption = None,
    as_json: ResultsJsonOption = False,
) -> None:
    """What all releases of each question gave away together, over all versions of its task, and
    what all questions did: of a device that answered every one of them.

    Example: shoal results spent --data /var/lib/shoal/analyzer
    """
    from shoal.analyzer.results.reading import read_spent

    rows = read_spent(data, config)
    if as_json:
        emit_json(rows)
    elif not rows:
        say(EMPTY)
    else:
        table = plain_table("question", "versions", "windows", "epsilon ≤", "delta")
        for row in rows:
            epsilon = row["epsilon_upper"]
            table.add_row(
                row["question"],
                str(row["versions"]),
                str(row["windows"]),
                "no promise" if epsilon is None else up(epsilon),
                f"{row['delta']:.3g}",
            )
        say_table(table)
    check_damage(data, config)


@results.command()
def export(
    out: Annotated[
        Path,
        typer.Option(
            help="File to write (a folder for --format release), which must not exist yet; - for "
            "stdout."
        ),
    ],
    kind: Annotated[
        Format,
        typer.Option(
            "--format",
            help="json, csv or parquet (one line per estimate and quantile), html (a page with "
            "plots), release (a folder of files for shoal verify; wants --config), npy or arrow "
            "(the totals of one long vector; want --task), npz (the same by its named arrays).",
        ),
    ] = Format.json,
    task: Annotated[str | None, typer.Option(help="Only TASK or TASK:WINDOW.")] = None,
    data: ResultsDataOption = None,
    config: ResultsConfigOption = None,
) -> None:
    """Write releases to a file, or to stdout.

    Example: shoal results export --format html --out report.html --data /var/lib/shoal/analyzer

    The arrays of a long vector: shoal results export --format npz --task weights:0 --out w.npz
    --data /var/lib/shoal/analyzer
    """
    if kind is Format.html:
        need("plot")
    if kind is Format.parquet:
        need("parquet")
        named(out)
    if kind in ARRAYS:
        _export_array(out, kind, data, config, task)
        return
    if kind is Format.release:
        _export_checkable(out, config, task)
        return
    releases = read_releases(data, config)
    releases = releases if task is None else select(releases, task)
    count = f"{len(releases)} release{'' if len(releases) == 1 else 's'} written to {out}"
    give(
        out,
        file_of(releases, kind),
        count if releases else f"{EMPTY}: {out} is empty of releases",
    )
    check_damage(data, config)


def _export_array(
    out: Path, kind: Format, data: Path | None, config: Path | None, task: str | None
) -> None:
    """The array of one release, every segment of it checked against what was signed."""
    from shoal.analyzer.results.totals import copy_checked, write_arrow, write_npz

    if task is None:
        raise ShoalError(
            Kind.CONFIG, f"--format {kind} writes one array: say whose, with --task TASK:WINDOW"
        )
    if kind is Format.arrow:
        need("parquet")
    release = only(select(read_releases(data, config), task), task)
    source, told = array_of(data, config, release), release.get("array", {})
    check_new(out)
    with _writing(out):
        if kind is Format.npy:
            copy_checked(source, out)
        elif kind is Format.npz:
            write_npz(source, out, told)
        else:
            about = {name: str(release[name]) for name in ("task_id", "name", "window", "n")}
            write_arrow(source, out, told, about)
    say(
        f"{told['length']:,} totals written to {out}"
        + (f": in steps of {told['clip'] / told['grid']:.17g}" if kind is Format.npy else "")
    )
    check_damage(data, config, f"{release['task_id']}:{release['window']}")


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    """Raises CONFIG where a file can't be written."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        yield
        out.chmod(0o644)
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot write {out}: {error.strerror or 'unwritable'}"
        ) from None


def _export_checkable(out: Path, config: Path | None, task: str | None) -> None:
    """A folder with a file for each release; nothing is left of it where one can't be made."""
    if config is None:
        raise ShoalError(
            Kind.CONFIG,
            "--format release wants --config analyzer.toml: the signed tasks go into the files",
        )
    from shoal.analyzer.config import AnalyzerConfig
    from shoal.analyzer.results.checkable import checkable
    from shoal.analyzer.results.totals import copy_checked
    from shoal.services.settings import load_settings

    releases = read_releases(None, config)
    chosen = releases if task is None else select(releases, task)
    check_new(out)
    wanted = {(one["task_id"], one["window"]) for one in chosen}
    files = list(checkable(load_settings(AnalyzerConfig, config), wanted))
    try:
        out.mkdir(parents=True)
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot make {out}: {error.strerror or 'unreadable'}"
        ) from None
    for name, text in files:
        write_new(out / name, text)
    for release in chosen:
        if "array" in release:
            with _writing(path := out / release["array"]["file"]):
                copy_checked(array_of(None, config, release), path)
    many = "s" if len(files) != 1 else ""
    named(out)
    say(f"{len(files)} release{many} written into {out}: check with shoal verify {out}")
    check_damage(None, config)
