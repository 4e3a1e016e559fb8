"""``shoal results``: what an analyzer released, as a table, JSON, CSV or a page with plots."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from shoal.cli.extras import need
from shoal.cli.output import emit_json, give, say, say_table
from shoal.errors import Kind, ShoalError

results = typer.Typer(no_args_is_help=True, help="What an analyzer released.")

ResultsDataOption = Annotated[Path | None, typer.Option(help="The analyzer's data_dir.")]
ResultsConfigOption = Annotated[
    Path | None, typer.Option(help="The analyzer's configuration file, instead of --data.")
]
ResultsJsonOption = Annotated[bool, typer.Option("--json", help="For programs.")]

EMPTY = "nothing has been released yet"
MOST_ROWS = 1_000  # of one table on a terminal
COLUMNS = (
    *(
        "task_id",
        "name",
        "window",
        "n",
        "rejected",
        "withheld",
        "label",
        "value",
        "stderr",
        "ci_low",
        "ci_high",
        "epsilon0",
    ),
    *(
        "epsilon_upper",
        "epsilon_lower",
        "delta",
        "n_certified",
        "epsilon_at_received_n",
        "epsilon_cumulative_upper",
        "delta_cumulative",
    ),
    "manifest_hash",
    "lifetime_epsilon",  # of memoized tasks alone
    "processed",  # for readers: sums are made of value
    "damaged",  # reports that a service's disk lost
)


class Format(StrEnum):
    """What ``--format`` takes."""

    json = "json"
    csv = "csv"
    html = "html"


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
            _up(_overall(privacy, releases, release["task_id"])),
            _up(privacy["epsilon0"]),
            "withheld" if release["withheld"] else "released",
        )
    say_table(table)


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
            _show(release)
    check_damage(data, config, releases[0]["task_id"] + "".join(task.partition(":")[1:]))


@results.command()
def export(
    out: Annotated[
        Path, typer.Option(help="File to write, which must not exist yet; - for stdout.")
    ],
    kind: Annotated[
        Format,
        typer.Option(
            "--format",
            help="json, csv (one line per estimate and quantile) or html (a page with plots).",
        ),
    ] = Format.json,
    task: Annotated[str | None, typer.Option(help="Only TASK or TASK:WINDOW.")] = None,
    data: ResultsDataOption = None,
    config: ResultsConfigOption = None,
) -> None:
    """Write releases to a file, or to stdout.

    Example: shoal results export --format html --out report.html --data /var/lib/shoal/analyzer
    """
    if kind is Format.html:
        need("plot")
    releases = read_releases(data, config)
    releases = releases if task is None else select(releases, task)
    count = f"{len(releases)} release{'' if len(releases) == 1 else 's'} written to {out}"
    give(
        out,
        render(releases, kind).encode(),
        count if releases else f"{EMPTY}: {out} is empty of releases",
    )
    check_damage(data, config)


def read_releases(data: Path | None, config: Path | None) -> list[dict[str, Any]]:
    """All releases of a store that are what was signed, in the shape of ``release.to_json``, by
    name and window.

    Raises CONFIG, NOT_FOUND.
    """
    from shoal.analyzer.results.release import decode_release, to_json  # not for shoal --help
    from shoal.analyzer.store import FILE_NAME, AnalyzerStore

    store = AnalyzerStore(_data_dir(data, config) / FILE_NAME, read_only=True)
    try:
        releases = [to_json(decode_release(stored.release)) for stored in store.releases()]
    finally:
        store.close()
    return sorted(
        releases, key=lambda release: (release["name"], release["task_id"], release["window"])
    )


def check_damage(data: Path | None, config: Path | None, task: str | None = None) -> None:
    """Raises MISMATCH, exit status 1, if a release of the store (of ``task``) is not what was
    signed, or some are gone.
    """
    from shoal.analyzer.store import FILE_NAME, AnalyzerStore

    path = _data_dir(data, config) / FILE_NAME
    store = AnalyzerStore(path, read_only=True)
    try:
        damaged, lost = store.damaged_releases(), store.lost
    finally:
        store.close()
    if task is not None:
        name, colon, window = task.partition(":")
        damaged = [
            condition
            for condition in damaged
            if condition[0].startswith(name.lower())
            and (not colon or condition[0].endswith(f":{window}"))
        ]
    elif lost:
        raise ShoalError(
            Kind.MISMATCH, f"{path}: {lost} releases are missing: restore the file from a copy"
        )
    if damaged:
        more = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
        raise ShoalError(Kind.MISMATCH, damaged[0][1] + more)


def _data_dir(data: Path | None, config: Path | None) -> Path:
    if (data is None) == (config is None):
        raise ShoalError(
            Kind.CONFIG, "say where the releases are: either --data DIR or --config analyzer.toml"
        )
    if data is not None:
        return data
    from shoal.analyzer.config import AnalyzerConfig
    from shoal.services.settings import load_settings

    return load_settings(AnalyzerConfig, config or Path()).data_dir


def select(releases: list[dict[str, Any]], task: str) -> list[dict[str, Any]]:
    """The releases of TASK or TASK:WINDOW. Raises NOT_FOUND; CONFIG for a window that is no number
    or a task that is several.
    """
    name, colon, window = task.partition(":")
    if colon and not window.isdecimal():
        raise ShoalError(
            Kind.CONFIG, f"{task}: TASK:WINDOW wants a number after the colon, for example {name}:0"
        )
    chosen = [
        release
        for release in releases
        if name and (release["name"] == name or release["task_id"].startswith(name.lower()))
    ]
    if len({release["task_id"] for release in chosen}) > 1:
        raise ShoalError(
            Kind.CONFIG,
            f"{name}: several tasks are meant: give more of the task's id (shoal results list "
            "--json shows it)",
        )
    chosen = [release for release in chosen if not colon or release["window"] == int(window)]
    if not chosen:
        raise ShoalError(
            Kind.NOT_FOUND, f"{task}: no such release; `shoal results list` shows what there is"
        )
    return chosen


def render(releases: list[dict[str, Any]], kind: Format) -> str:
    """The releases as the text of a file."""
    if kind is Format.json:
        return json.dumps(releases, indent=2) + "\n"
    if kind is Format.csv:
        return _csv(releases)
    from shoal.analyzer.results.report_page import render_report

    return render_report(releases)


def _csv(releases: list[dict[str, Any]]) -> str:
    """One line per estimate, then one per quantile (without a standard error); a withheld release
    is one line without one.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for release in releases:
        whole: dict[str, Any] = {
            **release["privacy"].get("memoized", {}),
            **release["privacy"],
            **release,
            "rejected": sum(release["rejected"].values()),
            "withheld": release["withheld"] or "",
        }
        estimates: list[dict[str, Any]] = release["estimates"] or [{}]
        counts = release.get("processed", {}).get("counts", [""] * len(estimates))
        for estimate, count in zip(estimates, counts, strict=True):
            writer.writerow(
                {
                    name: _cell(value)
                    for name, value in {**whole, **estimate, "processed": count}.items()
                }
            )
        for row in release.get("quantiles", ()):
            writer.writerow(
                {
                    name: _cell(value)
                    for name, value in {
                        **whole,
                        **row,
                        "label": f"quantile {row['share']:g}",
                    }.items()
                }
            )
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Labels come from tasks: one that a spreadsheet would take for a formula is quoted."""
    return (
        f"'{value}"
        if isinstance(value, str) and value[:1] in {"=", "+", "-", "@", "\t", "\r"}
        else value
    )


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


def _show(release: dict[str, Any]) -> None:
    from shoal.accounting.composition.memoized import sentences as memoized_sentences

    privacy = release["privacy"]
    say(f"{release['name']}, window {release['window']} (task {release['task_id']})")
    rejected = ", ".join(f"{count:,} {reason}" for reason, count in release["rejected"].items())
    rounds = release.get("rounds")
    what, honest, received = ("valid, distinct reports", "honest reports", "at the received n")
    if rounds is not None:
        what, honest, received = (
            "devices in the sums",
            "honest devices of each round",
            "with the devices of the smallest round that came",
        )
    say(f"{release['n']:,} {what}; rejected: {rejected or 'none'}")
    if release["damaged"]:
        say(
            f"damaged: {release['damaged']:,} acknowledged reports were lost on a service's disk "
            "and are not in it"
        )
    if release["withheld"]:
        say(f"withheld: {release['withheld']}")
    else:
        _show_estimates(release, release.get("processed"))
        if "quantiles" in release:
            _show_quantiles(release["quantiles"])
        if "distribution" in release:
            _show_distribution(release["distribution"], shown="quantiles" in release)
    memoized = privacy.get("memoized")
    alone = "" if memoized is None else "seen alone: "
    say(
        f"{alone}central epsilon <= {_up(privacy['epsilon_upper'])} (and >= "
        f"{_down(privacy['epsilon_lower'])}) at delta ="
        f" {privacy['delta']:g}, guaranteed for {privacy['n_certified']:,} {honest}; epsilon0 = "
        f"{_up(privacy['epsilon0'])}"
    )
    say(f"{received}: {_up(privacy['epsilon_at_received_n'])} (not guaranteed)")
    say(
        f"together with all that was opened before (windows: {privacy['windows_composed']}, tasks: "
        f"{privacy['tasks_composed']}):"
        f" epsilon <= {_up(privacy['epsilon_cumulative_upper'])} at delta = "
        f"{privacy['delta_cumulative']:g}"
    )
    if memoized is not None:
        for line in memoized_sentences(
            memoized["lifetime_epsilon"], memoized["windows"], privacy["epsilon0"]
        ):
            say(line)
    if rounds is not None:
        _show_rounds(rounds, released=not release["withheld"])
    say("this stands on:")
    for line in privacy["assumptions"]:
        say(f"  - {line}")
    say("")


def _show_estimates(release: dict[str, Any], processed: dict[str, Any] | None) -> None:
    from shoal.analyzer.results.processed import beside, readable_note

    rows: Sequence[dict[str, Any]] = release["estimates"]
    table = plain_table(
        "answer",
        "estimate",
        "standard error",
        "95 % interval from",
        "to",
        *(() if processed is None else ("processed",)),
    )
    for at, row in enumerate(rows[:MOST_ROWS]):
        count = [] if processed is None else [f"{processed['counts'][at]:,}"]
        table.add_row(
            escape(row["label"]),
            *(f"{row[key]:,.6g}" for key in ("value", "stderr", "ci_low", "ci_high")),
            *count,
        )
    say_table(table)
    if len(rows) > MOST_ROWS:
        say(f"and {len(rows) - MOST_ROWS:,} more: shoal results export --format csv has them all")
    for line in beside(release):
        say(line)
    if processed is not None:
        say(f"processed ({processed['method']}): {readable_note(processed)}")


def _show_quantiles(rows: Sequence[dict[str, Any]]) -> None:
    """Of the numbers themselves: what rounding to levels leaves open is in the intervals."""
    from shoal.analyzer.results.processed import OUTSIDE

    table = plain_table("of those that answered", "at or below", "95 % interval from", "to")
    for row in rows:
        high = "no end" if row["ci_high"] is None else f"{row['ci_high']:,.6g}"
        table.add_row(f"{row['share']:.0%}", f"{row['value']:,.6g}", f"{row['ci_low']:,.6g}", high)
    say_table(table)
    say(OUTSIDE)


def _show_distribution(distribution: dict[str, Any], *, shown: bool) -> None:
    from shoal.analyzer.results.processed import readable_note

    shares = distribution["quantiles"].items()
    texts = (f"{float(share):.0%} <= {value:,.6g}" for share, value in shares)
    quantiles = "" if shown else f": {', '.join(texts)}"
    answered = (
        ""
        if distribution["answered"] is None
        else f" of an estimated {distribution['answered']:.1%} of the devices, those that answered"
    )
    say(f"distribution ({distribution['method']}){answered}{quantiles}")
    say(f"  {readable_note(distribution)}; every bin: shoal results export")


def _show_rounds(rounds: dict[str, Any], *, released: bool) -> None:
    aborted = (
        ", ".join(f"{count} {reason}" for reason, count in rounds["aborted"].items()) or "none"
    )
    together = (
        "nothing is promised"
        if rounds["epsilon_together"] is None
        else f"epsilon <= {_up(rounds['epsilon_together'])}"
    )
    say(
        f"secure aggregation, mode {rounds['mode']}: {_rounds(rounds['rounds'])} added; ended "
        f"without a sum: {aborted}"
    )
    if released:
        say(
            f"standard error of each total: {rounds['noise_stderr']:.4g} of the noise (one round "
            "of all devices would have "
            f"{rounds['one_round_noise_stderr']:.4g}), at most {rounds['rounding_stderr']:.4g} of "
            "rounding"
        )
    say(
        f"against the analyzer alone: epsilon <= {_up(rounds['epsilon_analyzer'])}; shuffler and "
        f"analyzer together: {together}"
    )


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count} rounds"


def plain_table(first: str, *others: str) -> Table:
    """Fits 80 columns: only the first column folds."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, no_wrap=True)
    return table


def _up(epsilon: float | None) -> str:
    from shoal.accounting.meaning import bound_text

    return bound_text(epsilon)


def _down(epsilon: float) -> str:
    from shoal.accounting.meaning import bound_text

    return bound_text(epsilon, up=False)
