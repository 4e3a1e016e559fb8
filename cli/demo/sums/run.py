"""The course of ``shoal demo --secagg``: services up, devices through their rounds, the window's
release, everything compared.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from shoal.analyzer.results.report_page import render_report
from shoal.cli.demo.collect import released
from shoal.cli.demo.made import Made
from shoal.cli.demo.processes import Process, progress_bars, running, until
from shoal.cli.demo.sums.devices import DEVICES, compare, make_devices, make_task, play, read_sums
from shoal.cli.demo.survey import load_visits
from shoal.cli.demo.workspace import prepare
from shoal.crypto.trust import TASK_SUFFIX


async def run_secagg(folder: Path, devices: int | None, screen: Any) -> Made:
    """Everything that is shown of it. Raises INTERNAL if a sum is not exactly that of its
    devices, CONFIG for too few devices.
    """
    visits = await asyncio.to_thread(load_visits, devices or DEVICES)
    site = await asyncio.to_thread(prepare, folder)
    sum_task = await asyncio.to_thread(make_task, site, len(visits))
    services = [
        Process("analyzer", site.analyzer_config, site.analyzer_admin),
        Process("shuffler", site.shuffler_config, site.shuffler_admin),
    ]
    screen.print(
        f"{len(visits):,} devices, in rounds of at most {sum_task.plan.cohort_max}; 15 % of those "
        "left "
        "are killed at every stage; "
        "shuffler and analyzer are starting ...",
        soft_wrap=True,
    )
    people = await asyncio.to_thread(make_devices, sum_task, visits)
    async with running(services, screen.print) as guard:
        with progress_bars(screen) as progress:
            bar = progress.add_task("devices take part, or die", total=len(people))
            await until(
                guard,
                play(sum_task, people, lambda through: progress.tell(bar, through)),
            )
            (release,) = await until(
                guard, released(site.analyzer_data, [sum_task.assignment.campaign], progress)
            )
    sums = await asyncio.to_thread(read_sums, site, sum_task)
    results = compare(sum_task, people, sums, release)
    page = render_report([release], {sum_task.task_id.hex: results["tasks"][0]["truth"]})
    name = f"{sum_task.assignment.task.name}{TASK_SUFFIX}"
    return Made(results, page, {name: (site.folder / "tasks" / name).read_bytes()})
