"""``shoal demo``: keys, signed tasks, two services, one simulated device per survey row, three
certified releases.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from shoal.cli.demo import options as demo_options
from shoal.cli.demo import show
from shoal.cli.demo.brief import brief, places
from shoal.cli.demo.folders import make_folder, results_of, write_file
from shoal.cli.demo.left import check_ours, remove_ours
from shoal.cli.demo.made import AUTHORITY, Made
from shoal.cli.demo.near_central import TERMS, near_central_questions, side_by_side
from shoal.cli.demo.near_central import show as show_near_central
from shoal.cli.demo.page import look_around
from shoal.cli.demo.processes import cpu_count
from shoal.cli.demo.recipes.deployments import LIST, WORDS, deployment
from shoal.cli.demo.recipes.listed import show_list
from shoal.cli.demo.reports_run import run_reports
from shoal.cli.demo.sums import show as show_sums
from shoal.cli.demo.sums.brief import brief_sums
from shoal.cli.demo.survey import Question, questions
from shoal.cli.demo.workspace import DEMO, TaskTerms
from shoal.cli.extras import need
from shoal.cli.options import SettingOption
from shoal.cli.output import STDOUT, console, stderr
from shoal.errors import Kind, ShoalError

_ROWS = 20_190  # of the survey
_FEW = 60_570  # reports that room is asked for where there are vectors instead
Work = Callable[[Path], Coroutine[None, None, Made]]  # in a folder of its own
Ending = Callable[[Console, dict[str, Any], float, Path, Path | None], None]


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
    federated: demo_options.FederatedOption = False,
    rounds: demo_options.RoundsOption = None,
    adaptive: demo_options.AdaptiveOption = False,
    model: demo_options.ModelOption = None,
    recipe: demo_options.RecipeOption = None,
    windows: demo_options.WindowsOption = None,
    fresh: demo_options.FreshOption = False,
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

    With --federated, learns a model over rounds of clipped, noised and masked gradients of real
    patients' rows, beside a curator's at the same epsilon; with --model network a small network.

    With --recipe, runs a deployment that people cite as it is claimed, and as Shoal would ask:
    shoal demo --recipe emoji-popularity, or: shoal demo --recipe new-words --fresh

    The categories by another mechanism: shoal demo --mechanism unary --setting p=0.97
    """
    need("server")
    _check_alone(mechanism or setting, secagg=secagg, near_central=near_central)
    others = mechanism or setting or secagg or near_central
    learning = _Learning(rounds, adaptive, model)
    _check_federated(others, learning, federated=federated)
    _check_recipe(others or federated, windows, recipe, fresh=fresh)
    if recipe == LIST:
        show_list(json_path)
        return
    screen, started = stderr if json_path == STDOUT else console, time.monotonic()
    asked = () if recipe else _asked(devices, mechanism, setting, near_central=near_central)
    if recipe is not None:
        kind = _recipe(recipe, devices, windows, workers, screen, full=full, fresh=fresh)
    elif secagg or federated:
        kind = _vectors(devices, screen, learning, secagg=secagg, full=full)
    else:
        terms = TERMS if near_central else DEMO
        kind = _reports(asked, devices, workers, screen, terms, long=full or near_central)
    _make_room(out, json_path)
    made = results_of(keep, kind.work, kind.reports)
    results = made.results
    results |= _more_of(results, asked, mechanism, near_central=near_central)
    _leave(out, json_path, made)
    kind.end(screen, results, time.monotonic() - started, out, keep)
    if open_page:
        look_around(screen, out / "results.json", out / "tasks")
    _check_summed(results, secagg=secagg)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A demo: what runs it, how many ``reports`` it makes, and what it says at its end."""

    work: Work
    reports: int
    end: Ending


@dataclass(frozen=True, slots=True)
class _Learning:
    """How --federated learns, and what, as it was asked for."""

    rounds: int | None
    adaptive: bool
    model: demo_options.Learnt | None


def _asked(
    devices: int | None, mechanism: str, setting: str, *, near_central: bool
) -> tuple[Question, ...]:
    return (
        near_central_questions(devices or _ROWS) if near_central else questions(mechanism, setting)
    )


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


def _check_federated(others: object, only: _Learning, *, federated: bool) -> None:
    """Raises CONFIG for options that do not go together. ``others``: questions of another demo;
    ``only``: what --federated alone has.
    """
    if federated and others:
        raise ShoalError(
            Kind.CONFIG,
            "--federated asks a question of its own: leave --secagg, --near-central, --mechanism "
            "and --setting out",
        )
    if only != _Learning(None, False, None) and not federated:
        raise ShoalError(
            Kind.CONFIG,
            "--rounds, --adaptive and --model go with --federated: add it, or leave them out",
        )


def _check_recipe(others: object, only: object, recipe: str | None, *, fresh: bool) -> None:
    """Raises CONFIG for options that do not go together. ``others``: what another demo has;
    ``only``: what --recipe alone has; ``fresh``: what one recipe alone has.
    """
    if recipe is not None and others:
        raise ShoalError(
            Kind.CONFIG,
            "--recipe asks questions of its own: leave --secagg, --near-central, --federated, "
            "--mechanism and --setting out",
        )
    if only and recipe is None:
        raise ShoalError(Kind.CONFIG, "--windows goes with --recipe: add it, or leave it out")
    if fresh and recipe != WORDS:
        raise ShoalError(
            Kind.CONFIG,
            f"--fresh is of the recipe that looks for words: add --recipe {WORDS}, or leave it out",
        )


def _more_of(
    results: dict[str, Any], asked: tuple[Question, ...], mechanism: str, *, near_central: bool
) -> dict[str, Any]:
    """What a question by a chosen mechanism, or counts beside a curator's, add to the results."""
    more: dict[str, Any] = {}
    if mechanism:
        more["chosen"] = next(one.name for one in asked if one.mechanism.name == mechanism)
    if near_central:
        more["near_central"] = side_by_side(results)
    return more


def _make_room(out: Path, json_path: Path | None) -> None:
    """The folders that are written to, now and not after a minute of work. Raises CONFIG."""
    check_ours(out)
    if json_path is not None and json_path.is_dir():
        raise ShoalError(Kind.CONFIG, f"--json {json_path} is a folder: give a file in it")
    for folder in (out, *_folder_of(json_path)):
        make_folder(folder)


def _folder_of(json_path: Path | None) -> list[Path]:
    return [] if json_path is None or json_path == STDOUT else [json_path.parent]


def _end_long(
    screen: Console, results: dict[str, Any], seconds: float, out: Path, keep: Path | None
) -> None:
    """The long tables, and what they mean."""
    if "near_central" in results:
        show_near_central(screen, results)
    elif "rounds" in results:
        show_sums.everything(screen, results)
    else:
        show.tables(screen, results)
        for sentence in show.meaning(results):
            screen.print(sentence + "\n")
    _show_places(screen, seconds, out, keep)


def _show_places(screen: Console, seconds: float, out: Path, keep: Path | None) -> None:
    """How long it took, and where everything lies."""
    screen.print(f"It took {seconds:.0f} s.")
    for line in places(out, keep):
        screen.print(line, markup=False, soft_wrap=True)


def _check_summed(results: dict[str, Any], *, secagg: bool) -> None:
    """Raises ABORTED if no sum came about: by chance or on a busy machine too few devices were in
    time, which is the right answer, and no demonstration.
    """
    if secagg and results["tasks"][0]["release"]["withheld"]:
        raise ShoalError(
            Kind.ABORTED,
            "no sum came about: this machine was too busy for the rounds' times; run it again, or "
            "with fewer --devices",
        )


def _reports(
    asked: tuple[Question, ...],
    devices: int | None,
    workers: int | None,
    screen: Console,
    terms: TaskTerms,
    *,
    long: bool,
) -> _Kind:
    async def work(folder: Path) -> Made:
        return await run_reports(folder, asked, devices, workers or cpu_count(), screen, terms)

    return _Kind(work, len(asked) * (devices or _ROWS), _end_long if long else brief)


def _vectors(
    devices: int | None,
    screen: Console,
    learning: _Learning,
    *,
    secagg: bool,
    full: bool,
) -> _Kind:
    """By secure aggregation: sums, or a model. Raises CONFIG where what learns is not installed."""
    if learning.model is demo_options.Learnt.NETWORK:
        need("network")

    async def sums(folder: Path) -> Made:
        from shoal.cli.demo.sums.run import run_secagg  # the other demos need none of it

        return await run_secagg(folder, devices, screen)

    async def learn(folder: Path) -> Made:
        from shoal.cli.demo.federated.asked import ROUNDS  # as above
        from shoal.cli.demo.federated.run import run_federated

        rounds, learnt = learning.rounds or ROUNDS, learning.model or demo_options.Learnt.LOGISTIC
        return await run_federated(
            folder, devices, rounds, screen, adaptive=learning.adaptive, learnt=learnt
        )

    def ending(*told: Any) -> None:
        from shoal.cli.demo.federated.show import ending as end_learning

        end_learning(*told)

    if secagg:
        return _Kind(sums, _FEW, _end_long if full else brief_sums)
    return _Kind(learn, _FEW, ending)


def _recipe(
    name: str,
    devices: int | None,
    windows: int | None,
    workers: int | None,
    screen: Console,
    *,
    full: bool,
    fresh: bool,
) -> _Kind:
    known = deployment(name)

    async def work(folder: Path) -> Made:
        from shoal.cli.demo.recipes.run import run_recipe  # as above

        processes = workers or cpu_count()
        return await run_recipe(folder, known, devices, windows, processes, screen, fresh=fresh)

    def ending(*told: Any) -> None:
        from shoal.cli.demo.recipes.show import ending as end_recipe

        end_recipe(*told, full=full)

    return _Kind(work, known.reports(devices, windows), ending)


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
    if made.checkable:
        write_file(out / AUTHORITY, f"{made.authority()}\n".encode())
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
