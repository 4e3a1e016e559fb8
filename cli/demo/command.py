"""``shoal demo``: keys, signed tasks, two services, one simulated device per survey row, three
certified releases.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import Progress

from shoal.analyzer.results.report_page import render_report
from shoal.cli.demo import options as demo_options
from shoal.cli.demo import show, show_sums
from shoal.cli.demo.collect import released, shredded
from shoal.cli.demo.processes import Process, cpu_count, progress_bars, running, until
from shoal.cli.demo.survey import Question, load_visits, questions
from shoal.cli.demo.workspace import Workspace, build
from shoal.cli.extras import need
from shoal.cli.options import SettingOption
from shoal.cli.output import STDOUT, console, stderr
from shoal.clients.fleet.plan import SimulationPlan, SimulationResult
from shoal.clients.fleet.share import SimulatedTask
from shoal.clients.fleet.simulator import simulate
from shoal.errors import Kind, ShoalError

_Results = tuple[dict[str, Any], str]  # the demo's JSON, and the report page


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
    mechanism: demo_options.MechanismOption = "",
    setting: SettingOption = "",
) -> None:
    """Run the whole pipeline on this machine, on real survey answers: devices, shuffler, analyzer,
    certified releases.

    With --secagg, devices mask vectors, 15 % of them are killed at every stage, and every sum is
    held against the exact integers.

    Nothing leaves the machine: the services are real processes that speak TLS on loopback
    addresses.

    Example: shoal demo --devices 100000 --json results.json

    The categories by another mechanism: shoal demo --mechanism unary --setting p=0.97
    """
    need("server")
    if secagg and (mechanism or setting):
        raise ShoalError(
            Kind.CONFIG,
            "--mechanism and --setting are not for --secagg, where nothing is randomized: leave "
            "them out",
        )
    asked = questions(mechanism, setting)
    screen = stderr if json_path == STDOUT else console
    started = time.monotonic()
    for folder in (out, *_folder_of(json_path)):
        _make(folder)  # now, not after a minute of work
    results, page = _results_of(
        keep,
        lambda folder: (
            _secagg(folder, devices, screen)
            if secagg
            else _run(folder, asked, devices, workers or cpu_count(), screen)
        ),
    )
    if mechanism:
        results["chosen"] = next(
            choice.name for choice in asked if choice.mechanism.name == mechanism
        )
    _leave(out, json_path, json.dumps(results, indent=2) + "\n", page)
    _show(screen, results, secagg=secagg)
    _show_places(screen, time.monotonic() - started, out, keep)
    if secagg:
        _check_summed(results)


def _folder_of(json_path: Path | None) -> list[Path]:
    return [] if json_path is None or json_path == STDOUT else [json_path.parent]


def _results_of(
    keep: Path | None, work: Callable[[Path], Coroutine[None, None, _Results]]
) -> _Results:
    """What ``work`` makes in a folder: a temporary one, unless ``keep`` names it."""
    folder = _folder(keep)
    try:
        return asyncio.run(_stopped_by_sigterm(work(folder)))
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def _show(screen: Console, results: dict[str, Any], *, secagg: bool) -> None:
    """The tables, and what they mean."""
    if secagg:
        show_sums.everything(screen, results)
        return
    show.tables(screen, results)
    for sentence in show.meaning(results):
        screen.print(sentence + "\n")


def _show_places(screen: Console, seconds: float, out: Path, keep: Path | None) -> None:
    """How long it took, and where everything lies."""
    screen.print(
        f"{seconds:.0f} s. Report: {out / 'report.html'}   Results: {out / 'results.json'}",
        soft_wrap=True,
    )
    if keep is not None:
        screen.print(f"Kept: {keep}", soft_wrap=True)


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


async def _secagg(folder: Path, devices: int | None, screen: Any) -> _Results:
    from shoal.cli.demo.secagg_run import run_secagg  # the other demo needs none of it

    return await run_secagg(folder, devices, screen)


def _leave(out: Path, json_path: Path | None, text: str, page: str) -> None:
    """The report page and the results, where they were asked for."""
    _write(out / "report.html", page)
    _write(out / "results.json", text)
    if json_path == STDOUT:
        typer.echo(text, nl=False)
    elif json_path is not None:
        _write(json_path, text)


def _folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="shoal-demo-"))
    try:
        keep.mkdir(parents=True, mode=0o700)
    except FileExistsError:
        raise ShoalError(Kind.CONFIG, f"{keep} exists: --keep wants a new folder") from None
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot make {keep}: {error.strerror or 'unwritable'}"
        ) from None
    return keep.resolve()


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot make the folder {folder}: {error.strerror or 'unwritable'}"
        ) from None


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot write {path}: {error.strerror or 'unwritable'}"
        ) from None


async def _stopped_by_sigterm(work: Coroutine[None, None, _Results]) -> _Results:
    """SIGTERM ends the demo as Ctrl-C does: services stopped, folder removed."""
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _run(
    folder: Path, asked: tuple[Question, ...], devices: int | None, workers: int, screen: Any
) -> _Results:
    visits = await asyncio.to_thread(load_visits, devices)
    workspace = await asyncio.to_thread(build, folder, asked, len(visits))
    services = [
        Process("analyzer", workspace.analyzer_config, workspace.analyzer_admin),
        Process("shuffler", workspace.shuffler_config, workspace.shuffler_admin),
    ]
    screen.print(
        f"{len(visits):,} devices, {len(workspace.pairs)} tasks; shuffler and analyzer are "
        "starting ...",
        soft_wrap=True,
    )
    async with running(services, screen.print) as guard:
        with progress_bars(screen) as progress:
            outcome = await until(guard, _simulate(workspace, visits, workers, progress))
            releases = await until(
                guard, released(workspace.analyzer_data, workspace.campaigns(), progress)
            )
            await until(guard, shredded(services[1], len(workspace.pairs)))
    return _results(workspace, visits, releases, outcome)


async def _simulate(
    workspace: Workspace, visits: Any, workers: int, progress: Progress
) -> SimulationResult:
    """Every device reports to every task; returns when each report has an outcome."""
    total = len(visits) * len(workspace.pairs)
    bar = progress.add_task("devices report", total=total)
    plan = SimulationPlan(
        authorities=frozenset({workspace.authority}),
        tasks=tuple(
            SimulatedTask(pair.signed_task, pair.signed_schedule, pair.question.values(visits))
            for pair in workspace.pairs
        ),
        processes=workers,
        in_flight=128,
        channels=1,
    )
    return await simulate(plan, lambda now: progress.update(bar, completed=now.done))


def _results(
    workspace: Workspace, visits: Any, releases: list[dict[str, Any]], outcome: SimulationResult
) -> _Results:
    """The demo's JSON (docs: DESIGN of the release) and the report page. Raises INTERNAL if a
    report was lost or doubled.
    """
    reports = sum(release["n"] for release in releases)
    if not outcome.acked <= reports <= outcome.acked + outcome.unknown:
        raise ShoalError(
            Kind.INTERNAL,
            f"{outcome.acked} reports were acknowledged, {reports} were counted: a report was lost "
            "or doubled",
        )
    tasks = []
    for pair, release in zip(workspace.pairs, releases, strict=True):
        question = pair.question
        spec = {
            "name": question.mechanism.name,
            "parameters": dict(question.mechanism.parameters),
            "report_bytes": pair.task.report_size,
        }
        truth = question.truth(visits)
        tasks.append(
            {
                "name": question.name,
                "question": question.question,
                "mechanism": spec,
                "truth": truth,
                "release": release,
            }
        )
    last = max(releases, key=lambda release: release["privacy"]["tasks_composed"])["privacy"]
    composed = {
        "epsilon_upper": last["epsilon_cumulative_upper"],
        "delta": last["delta_cumulative"],
        "tasks": last["tasks_composed"],
    }
    page = render_report(
        releases, {pair.task_id.hex: pair.question.truth(visits) for pair in workspace.pairs}
    )
    refused = {kind.name: count for kind, count in outcome.refused.items()}
    results = {
        "tasks": tasks,
        "composed": composed,
        "devices": len(visits),
        "reports": {
            "acknowledged": outcome.acked,
            "counted": reports,
            "unknown": outcome.unknown,
            "refused": refused,
        },
    }
    return results, page
