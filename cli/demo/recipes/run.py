"""The course of ``shoal demo --recipe``: services up, and window after window every device answers
each way to ask, with a memory of its own; the windows close and are released.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import TaskID

from shoal.analyzer.planner.deployments.recipes import Sought
from shoal.analyzer.planner.deployments.ways import Ways, ways_of
from shoal.cli.demo.collect import windows_released
from shoal.cli.demo.made import Made
from shoal.cli.demo.processes import Process, progress_bars, running, until
from shoal.cli.demo.recipes.asked import AskedWay, ask
from shoal.cli.demo.recipes.deployments import MADE_UP, Deployment
from shoal.cli.demo.recipes.outcome import RecipeCourse, made_of
from shoal.cli.demo.recipes.sending import after, made_reports, send
from shoal.cli.demo.recipes.words_run import run_words
from shoal.cli.demo.workspace import Site, prepare
from shoal.cli.load.progress import Bars
from shoal.clients.fleet.remembering import RememberingDevices
from shoal.clients.fleet.share import SimulatedTask
from shoal.domain import Value


@dataclass(frozen=True, slots=True)
class _Fleet:
    """Who answers what. ``values``: lists of windows, each of devices."""

    site: Site
    asked: tuple[AskedWay, ...]
    devices: RememberingDevices
    values: list[list[Value]]
    workers: int


async def run_recipe(
    folder: Path,
    deployment: Deployment,
    devices: int | None,
    windows: int | None,
    workers: int,
    screen: Console,
    *,
    fresh: bool = False,
) -> Made:
    """Everything that is shown of it. ``fresh``: each device answers once. Raises INTERNAL if a
    report was lost or doubled, CONFIG for too few devices, UNAVAILABLE if a service can't be kept
    alive.
    """
    if isinstance(deployment.recipe.question, Sought):
        return await run_words(folder, deployment, devices, windows, workers, screen, fresh=fresh)
    count, turns = devices or deployment.devices, windows or deployment.windows
    ways = await asyncio.to_thread(ways_of, deployment.recipe, count, turns)
    site = await asyncio.to_thread(prepare, folder)
    fleet = await asyncio.to_thread(_fleet, site, deployment, ways, count, turns, workers)
    screen.print(
        f"{deployment.recipe.title}. {count:,} devices, {turns} windows of {deployment.window} "
        f"each, two ways to ask. {MADE_UP}",
        soft_wrap=True,
    )
    services = [
        Process("analyzer", site.analyzer_config, site.analyzer_admin),
        Process("shuffler", site.shuffler_config, site.shuffler_admin),
    ]
    course = RecipeCourse(deployment, ways, fleet.asked, fleet.values)
    async with running(services, screen.print) as guard:
        with progress_bars(screen) as progress:
            await until(guard, _windows(fleet, course, progress))
    course.ledgers = [fleet.devices.charged(one.assignment.task_id) for one in fleet.asked]
    return await asyncio.to_thread(made_of, site, course)


def _fleet(
    site: Site, deployment: Deployment, ways: Ways, devices: int, windows: int, workers: int
) -> _Fleet:
    asked = tuple(ask(site, deployment, way, devices, windows) for way in ways.both)
    values = deployment.values(devices, windows)
    return _Fleet(site, asked, RememberingDevices(devices), values, workers)


async def _windows(fleet: _Fleet, course: RecipeCourse, progress: Bars) -> None:
    """Each window in its turn, to its releases."""
    each = len(fleet.asked) * len(fleet.devices)
    made = progress.add_task("devices answer", total=each * len(fleet.values))
    bar = progress.add_task("windows are released", total=len(fleet.asked) * len(fleet.values))
    for window in range(len(fleet.values)):
        tasks = await _answer(fleet, window, progress, made)
        course.took(await send(tasks, fleet.site.authority.public, fleet.workers))
        wanted = [(one.assignment.task_id, window) for one in fleet.asked]
        tell = after(progress, bar, window * len(fleet.asked))
        course.releases.append(await windows_released(fleet.site.analyzer_data, wanted, tell))


async def _answer(fleet: _Fleet, window: int, progress: Bars, bar: TaskID) -> list[SimulatedTask]:
    """What every device sends in a window."""
    before = window * len(fleet.asked) * len(fleet.devices)
    return [
        await made_reports(
            one,
            window,
            fleet.devices,
            fleet.values[window],
            after(progress, bar, before + place * len(fleet.devices)),
        )
        for place, one in enumerate(fleet.asked)
    ]
