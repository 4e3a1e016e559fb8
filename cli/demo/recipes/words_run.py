"""The course of ``shoal demo --recipe new-words``: words that nobody listed, found level by level.

The analyzer releases a level and signs what the next one asks; the devices hear of it from the
shuffler's catalogue, verify it, and answer. Each has its memory and its ledger, as in ``run``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from shoal.analyzer.planner.deployments.recipes import Sought
from shoal.analyzer.planner.deployments.ways import ways_to_find
from shoal.cli.demo.collect import windows_released
from shoal.cli.demo.made import Made
from shoal.cli.demo.processes import Process, progress_bars, running, until
from shoal.cli.demo.recipes.asked import AskedWay, ask_words
from shoal.cli.demo.recipes.deployments import MADE_UP, Deployment, known_words
from shoal.cli.demo.recipes.hearing import HeardSteps
from shoal.cli.demo.recipes.outcome import RecipeCourse, made_of
from shoal.cli.demo.recipes.sending import after, made_reports, send
from shoal.cli.demo.workspace import Site, prepare
from shoal.cli.load.progress import Bars
from shoal.clients.fleet.remembering import RememberingDevices
from shoal.domain import Discovery, Value
from shoal.errors import Kind, ShoalError
from shoal.protos.release_pb2 import Release
from shoal.task import Task

# Seconds of a window: what services take to start and to release, and for each message that all
# devices together send, made, sent and opened, on a busy machine of two cores.
_LEAST_S, _MESSAGE_S = 10.0, 0.0002
# of devices that answer once: their windows close at their end, and what the next one asks must be
# there before half of it has passed
_FRESH_LEAST_S, _FRESH_DEVICES, _SPARE = 30.0, 6_000, 2
_NAMED = 8  # beginnings in the line of a level


async def run_words(
    folder: Path,
    deployment: Deployment,
    devices: int | None,
    windows: int | None,
    workers: int,
    screen: Console,
    *,
    fresh: bool = False,
) -> Made:
    """As ``run_recipe``. ``fresh``: each device answers in one window alone. Raises CONFIG for
    ``windows``: there are as many as there are levels.
    """
    sought = deployment.recipe.question
    if windows is not None or not isinstance(sought, Sought):
        raise ShoalError(
            Kind.CONFIG,
            f"--windows is not for {deployment.name}, which has one for each level: leave it out",
        )
    count = devices or (_FRESH_DEVICES if fresh else deployment.devices)
    screen.print(f"{deployment.recipe.title}: planning for {count:,} devices ...", soft_wrap=True)
    known = known_words(sought.longest)
    spare = _SPARE if fresh else None
    ways, plan = await asyncio.to_thread(ways_to_find, deployment.recipe, count, known, spare)
    site = await asyncio.to_thread(prepare, folder)
    sent = plan.request.crowd * plan.messages(plan.discovery.size)
    length_s = round((_FRESH_LEAST_S if fresh else _LEAST_S) + _MESSAGE_S * sent)
    once = f", each in one of {plan.request.asked_windows} windows" if fresh else ""
    screen.print(
        f"{count:,} devices{once}, {plan.discovery.levels} levels in windows of {length_s} s each. "
        f"{MADE_UP}",
        soft_wrap=True,
    )
    services = [
        Process("analyzer", site.analyzer_config, site.analyzer_admin),
        Process("shuffler", site.shuffler_config, site.shuffler_admin),
    ]
    one = await asyncio.to_thread(ask_words, site, deployment, ways.planned, plan.request, length_s)
    course = RecipeCourse(deployment, ways, (one,), [], discovery=plan, fleet=count)
    words = deployment.values(count, 1)[0]
    people = RememberingDevices(count)
    async with running(services, screen.print) as guard:
        with progress_bars(screen) as progress:
            await until(guard, _levels(site, course, people, words, workers, progress))
    course.words, course.ledgers = words, [people.charged(one.assignment.task_id)]
    return await asyncio.to_thread(made_of, site, course)


async def _levels(
    site: Site,
    course: RecipeCourse,
    people: RememberingDevices,
    words: Sequence[Value],
    workers: int,
    progress: Bars,
) -> None:
    """Level after level, until nothing is left to follow. Raises UNAVAILABLE where the task's
    windows run out before.
    """
    (one,), plan = course.asked, course.discovery
    if plan is None:
        raise TypeError("words are looked for by a discovery")
    levels, each = plan.discovery.levels, len(people)
    if not plan.request.same:
        each //= plan.request.asked_windows  # about so many draw a window
    bar = progress.add_task("devices answer", total=levels * each)
    found = progress.add_task("levels are released", total=levels)
    heard, window, sent = HeardSteps(one.task, one.assignment.task_id), 0, 0
    asked = list[int]()  # the level of each window
    while True:
        done = len(course.releases)
        level = _level(one, window)
        again = level in asked
        asked.append(level)
        total = windows_expected(asked, levels)
        here = len(people.asked(one.assignment, window, time.time()))
        progress.expect(bar, sent + here + (total - done - 1) * each)
        progress.expect(found, total)
        await asyncio.sleep(max(0.0, one.task.windows.start_of(window) - time.time()))
        tell = after(progress, bar, sent)
        made = await made_reports(one, window, people, words, tell)
        sent += here
        course.took(await send([made], site.authority.public, workers))
        wanted = [(one.assignment.task_id, window)]
        course.releases.append(
            await windows_released(site.analyzer_data, wanted, after(progress, found, done))
        )
        course.values.append(list(made.values))
        release = course.releases[-1][0]
        progress.console.print(_line(release, level, again), markup=False, soft_wrap=True)
        if _is_last(one.task, release):
            return  # the analyzer may have no window left to say so
        step = await heard.after(window)
        if step is None:
            raise ShoalError(
                Kind.UNAVAILABLE,
                f"the task's {one.task.windows.count} windows are over before all levels were "
                "asked: this machine is too busy, so try again later or with fewer --devices",
            )
        if step.step.is_over:
            return
        window = step.step.window
        one.assignment.steps[window] = step


def windows_expected(asked: Sequence[int], levels: int) -> int:
    """In all: those that were ``asked``, each with its level, and one for each level after. More
    than ``levels`` where a level is asked again, as its release was late or withheld.
    """
    return len(asked) + levels - 1 - asked[-1]


def _level(one: AskedWay, window: int) -> int:
    level = one.assignment.level(window)
    if level is None:
        raise TypeError("words are looked for by a discovery")
    return level.number


def _is_last(task: Task, release: Release) -> bool:
    """Whether what was released leaves nothing to ask."""
    told = release.discovered
    if not isinstance(task.domain, Discovery) or release.withheld:
        return False
    return task.domain.after(told.level, tuple(told.beginnings)) is None


def _line(release: Release, level: int, again: bool) -> str:
    """What a window found at a level, from 0, those of most devices first. ``again``: an earlier
    window asked that level, too.
    """
    what = f"level {level + 1}{', asked again' if again else ''}"
    if release.withheld:
        return f"{what}: withheld, {release.withheld}"
    told = sorted(release.estimates[:-1], key=lambda row: -row.value)
    names = ", ".join(row.label for row in told[:_NAMED])
    more = f" and {len(told) - _NAMED} more" if len(told) > _NAMED else ""
    return f"{what}: {names or 'nothing'}{more}"
