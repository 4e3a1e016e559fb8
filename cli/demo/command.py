"""``shoal demo``: keys, signed tasks, two services, one simulated device per survey row, three
certified releases.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from shoal.cli.demo import options as demo_options
from shoal.cli.demo import show, show_sums
from shoal.cli.demo.brief import brief, places
from shoal.cli.demo.brief_sums import brief_sums
from shoal.cli.demo.folders import make_folder, results_of, write_file
from shoal.cli.demo.left import check_ours, remove_ours
from shoal.cli.demo.made import Made
from shoal.cli.demo.near_central import TERMS, near_central_questions, side_by_side
from shoal.cli.demo.near_central import show as show_near_central
from shoal.cli.demo.page import look_around
from shoal.cli.demo.processes import cpu_count
from shoal.cli.demo.reports_run import run_reports
from shoal.cli.demo.survey import questions
from shoal.cli.demo.workspace import DEMO
from shoal.cli.extras import need
from shoal.cli.options import SettingOption
from shoal.cli.output import STDOUT, console, stderr
from shoal.errors import Kind, ShoalError

_ROWS = 20_190  # of the survey


def register(app: typer.Typer) -> None:
    """Add ``shoal demo``."""
    app.command("demo")(demo)


def demo(
    devices: demo_options.DemoDevicesOption = None,
    json_path: demo_options.JsonPathOption = None,
    keep: demo_options.KeepOption = None,
    out: demo_options.OutOption = Path("shoal-demo"),
    workers: demo_options.WorkersOption = None,
    secagg: demo_options.SecaggOption = False,
    near_central: demo_options.NearCentralOption = False,
    mechanism: demo_options.MechanismOption = "",
    setting: SettingOption = "",
    full: demo_options.FullOption = False,
    open_page: demo_options.OpenOption = False,
) -> None:
    """Run the whole pipeline on this machine, on real survey answers: devices, shuffler, analyzer,
    certified releases.

    With --secagg, devices mask vectors, 15 % of them are killed at every stage, and every sum is
    held against the exact integers.

    Nothing leaves the machine: the services are real processes that speak TLS on loopback
    addresses.

    Example: shoal demo --devices 100000 --json results.json

    With --near-central, counts three times at one epsilon: as a trusted curator would publish them,
    by several messages of each device, and by a single one.

    The categories by another mechanism: shoal demo --mechanism unary --setting p=0.97
    """
    need("server")
    _check_alone(mechanism or setting, secagg=secagg, near_central=near_central)
    asked = (
        near_central_questions(devices or _ROWS) if near_central else questions(mechanism, setting)
    )
    terms = TERMS if near_central else DEMO
    screen = stderr if json_path == STDOUT else console
    started = time.monotonic()
    check_ours(out)
    for folder in (out, *_folder_of(json_path)):
        make_folder(folder)  # now, not after a minute of work
    made = results_of(
        keep,
        lambda folder: (
            _secagg(folder, devices, screen)
            if secagg
            else run_reports(folder, asked, devices, workers or cpu_count(), screen, terms)
        ),
        len(asked) * (devices or _ROWS),
    )
    results = made.results
    if mechanism:
        results["chosen"] = next(one.name for one in asked if one.mechanism.name == mechanism)
    if near_central:
        results["near_central"] = side_by_side(results)
    _leave(out, json_path, made)
    seconds = time.monotonic() - started
    if full:
        _show_all(screen, results, secagg=secagg)
        _show_places(screen, seconds, out, keep)
    elif near_central:
        show_near_central(screen, results)
        _show_places(screen, seconds, out, keep)
    else:
        (brief_sums if secagg else brief)(screen, results, seconds, out, keep)
    if open_page:
        look_around(screen, out / "results.json", out / "tasks")
    if secagg:
        _check_summed(results)


def _check_alone(chosen: str, *, secagg: bool, near_central: bool) -> None:
    """Raises CONFIG for options that do not go together. ``chosen``: a mechanism, or a setting."""
    if near_central and (secagg or chosen):
        raise ShoalError(
            Kind.CONFIG,
            "--near-central asks questions of its own: leave --secagg, --mechanism and --setting "
            "out",
        )
    if secagg and chosen:
        raise ShoalError(
            Kind.CONFIG,
            "--mechanism and --setting are not for --secagg, where nothing is randomized: leave "
            "them out",
        )


def _folder_of(json_path: Path | None) -> list[Path]:
    return [] if json_path is None or json_path == STDOUT else [json_path.parent]


def _show_all(screen: Console, results: dict[str, Any], *, secagg: bool) -> None:
    """The long tables, and what they mean."""
    if secagg:
        show_sums.everything(screen, results)
        return
    show.tables(screen, results)
    for sentence in show.meaning(results):
        screen.print(sentence + "\n")


def _show_places(screen: Console, seconds: float, out: Path, keep: Path | None) -> None:
    """How long it took, and where everything lies."""
    screen.print(f"It took {seconds:.0f} s.")
    for line in places(out, keep):
        screen.print(line, markup=False, soft_wrap=True)


def _check_summed(results: dict[str, Any]) -> None:
    """Raises ABORTED if no sum came about: by chance or on a busy machine too few devices were in
    time, which is the right answer, and no demonstration.
    """
    if results["tasks"][0]["release"]["withheld"]:
        raise ShoalError(
            Kind.ABORTED,
            "no sum came about: this machine was too busy for the rounds' times; run it again, or "
            "with fewer --devices",
        )


async def _secagg(folder: Path, devices: int | None, screen: Any) -> Made:
    from shoal.cli.demo.secagg_run import run_secagg  # the other demo needs none of it

    return await run_secagg(folder, devices, screen)


def _leave(out: Path, json_path: Path | None, made: Made) -> None:
    """Page, results and tasks in ``out``; the results where else they were asked for."""
    text = json.dumps(made.results, indent=2) + "\n"
    remove_ours(out)
    write_file(out / "report.html", made.page.encode())
    write_file(out / "results.json", text.encode())
    make_folder(out / "tasks")
    for name, task in made.tasks.items():
        write_file(out / "tasks" / name, task)
    _leave_checkable(out / "releases", made.checkable)
    if json_path == STDOUT:
        typer.echo(text, nl=False)
    elif json_path is not None:
        write_file(json_path, text.encode())


def _leave_checkable(folder: Path, files: dict[str, bytes]) -> None:
    """Those of another run are gone: they had other keys, and other tasks."""
    if not files:
        if folder.is_dir():
            folder.rmdir()
        return
    make_folder(folder)
    for name, file in files.items():
        write_file(folder / name, file)
