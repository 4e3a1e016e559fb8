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
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress

from shoal.analyzer.results.report_page import render_report
from shoal.cli.demo import show, show_sums
from shoal.cli.demo.collect import released, shredded
from shoal.cli.demo.processes import Process, cpu_count, progress_bars, running, until
from shoal.cli.demo.survey import Question, load_visits, questions
from shoal.cli.demo.workspace import Workspace, build
from shoal.cli.extras import need
from shoal.cli.output import console, stderr
from shoal.clients.fleet.plan import SimulationPlan, SimulationResult
from shoal.clients.fleet.share import SimulatedTask
from shoal.clients.fleet.simulator import simulate
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY

_FEWEST = 50


def register(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(
    devices: Annotated[
        int | None,
        typer.Option(
            min=_FEWEST,
            max=5_000_000,
            help=(
                "Simulated devices; rows are drawn with replacement. Default: one per row, 20,190."
            ),
        ),
    ] = None,
    json_path: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="PATH",
            help="Also write the results here (- for stdout, then nothing else is printed there).",
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Keep everything (keys, tasks, databases, logs) in this new folder."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for report.html and results.json.")
    ] = Path("shoal-demo"),
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="Processes that simulate devices. Default: one per core."),
    ] = None,
    secagg: Annotated[
        bool,
        typer.Option(
            "--secagg",
            help=(
                "Sum a vector per device by secure aggregation instead; default 200 devices, at "
                "most 2,000."
            ),
        ),
    ] = False,
    mechanism: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=(
                "Randomize the question that fits with this mechanism: "
                f"{', '.join(sorted(REGISTRY))}."
            ),
        ),
    ] = "",
    setting: Annotated[
        str,
        typer.Option(
            help='A way to choose its integers, such as "oue" or "g=16". Default: its first.'
        ),
    ] = "",
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
    screen = stderr if json_path is not None and str(json_path) == "-" else console
    started = time.monotonic()
    for place in (
        out,
        *([json_path.parent] if json_path is not None and str(json_path) != "-" else ()),
    ):
        _make(place)  # now, not after a minute of work
    folder = _folder(keep)
    try:
        work = (
            _secagg(folder, devices, screen)
            if secagg
            else _run(folder, asked, devices, workers or cpu_count(), screen)
        )
        results, page = asyncio.run(_stopped_by_sigterm(work))
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    if mechanism:
        results["chosen"] = next(one.name for one in asked if one.mechanism.name == mechanism)
    text = json.dumps(results, indent=2) + "\n"
    _leave(out, json_path, text, page)
    if secagg:
        show_sums.everything(screen, results)
    else:
        show.tables(screen, results)
        for sentence in show.meaning(results):
            screen.print(sentence + "\n")
    screen.print(
        f"{time.monotonic() - started:.0f} s. Report: {out / 'report.html'}   Results: "
        f"{out / 'results.json'}",
        soft_wrap=True,
    )
    if keep is not None:
        screen.print(f"Kept: {keep}", soft_wrap=True)
    if secagg and results["tasks"][0]["release"]["withheld"]:
        # By chance or on a busy machine too few devices were in time: no sum is the right answer,
        # and no demonstration.
        raise ShoalError(
            Kind.ABORTED,
            "no sum came about: this machine was too busy for the rounds' times; run it again, or "
            "with fewer --devices",
        )


async def _secagg(folder: Path, devices: int | None, screen: Any) -> tuple[dict[str, Any], str]:
    from shoal.cli.demo.secagg_run import run_secagg  # the other demo needs none of it

    return await run_secagg(folder, devices, screen)


def _leave(out: Path, json_path: Path | None, text: str, page: str) -> None:
    """The report page and the results, where they were asked for."""
    _write(out / "report.html", page)
    _write(out / "results.json", text)
    if json_path is not None and str(json_path) == "-":
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


async def _stopped_by_sigterm(work: Any) -> Any:
    """SIGTERM ends the demo as Ctrl-C does: services stopped, folder removed."""
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _run(
    folder: Path, asked: tuple[Question, ...], devices: int | None, workers: int, screen: Any
) -> tuple[dict[str, Any], str]:
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
                guard,
                released(
                    workspace.analyzer_data, [pair.task_id for pair in workspace.pairs], progress
                ),
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
) -> tuple[dict[str, Any], str]:
    """The demo's JSON (docs: DESIGN of the release) and the report page. Raises INTERNAL if a
    report was lost or doubled.
    """
    counted = sum(release["n"] for release in releases)
    if not outcome.acked <= counted <= outcome.acked + outcome.unknown:
        raise ShoalError(
            Kind.INTERNAL,
            f"{outcome.acked} reports were acknowledged, {counted} were counted: a report was lost "
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
            "counted": counted,
            "unknown": outcome.unknown,
            "refused": refused,
        },
    }
    return results, page
