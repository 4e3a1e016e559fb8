"""Pictures of every page of the console, light, dark and 390 px wide, of a deployment that runs.

    PYTHONPATH=. .venv/bin/python tools/screenshots.py [--docs]

A shuffler and an analyzer are started as the demo starts them, simulated devices report to them,
and Chromium looks at ``shoal console`` beside them, and at ``shoal agent console`` of a device that
answered too (screenshots_owner.py). The pictures go to build/screenshots; with
``--docs`` those that pages of the documentation show are written to docs/images too.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import screenshots_owner as owner
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from shoal.cli.demo.processes import Process, running
from shoal.cli.demo.survey import Question, load_visits, questions
from shoal.cli.demo.workspace import Site, prepare, task_of
from shoal.clients.fleet.misbehaviour import Shares
from shoal.clients.fleet.plan import SimulationPlan
from shoal.clients.fleet.share import SimulatedTask
from shoal.clients.fleet.simulator import simulate
from shoal.domain import Numeric, YesNo
from shoal.mechanisms import design
from shoal.task import WindowPlan
from tests.worlds.browser import browser, page_of
from tests.worlds.consoles import console, signing_in
from tests.worlds.provider import Person, provider

ROOT = Path(__file__).parents[1]
OUT, IMAGES = ROOT / "build" / "screenshots", ROOT / "docs" / "images"
_DEVICES, _LENGTH_S, _WINDOWS, _WITHHELD = 3_000, 10, 6, 3
_SETTLED_S = 6.0  # after the last window, until it is delivered and released
_LOOKS = {"light": (1200, False), "dark": (1200, True), "narrow": (390, False)}
# name of the picture -> its path; SLEEP is the question with windows
PAGES = {
    "releases": "/releases",
    "question": "/releases/visit-groups",
    "mean": "/releases/mean-visits",
    "distribution": "/releases/hours-of-sleep",
    "windows": "/releases/slept-well",
    "not-released": f"/releases/slept-well/{_WITHHELD}",
    "promise": "/promise?task=visit-groups",
    "promise-wrong": "/promise?task=slept-well&held=much",
    "planner": "/planner",
    "planner-wrong": "/planner?n=many&off=70",
    "running": "/running",
    "budget": "/budget",
    "budget-limit": "/budget?limit=2",
    "refused": "/releases/nothing",
}
# of a console where people sign in: the first leads to the provider, which lets everybody in
SIGNED_IN = {
    "sign-in": "/budget",
    "signed-in": "/sign-in?to=/budget?limit=2",
    "download": "/download/slept-well/0.json",
    "audit": "/audit",
}
_STATUS = {"refused": 404, "not-released": 404, "sign-in": 401}  # of HTTP; else 200
# what the documentation shows: its picture, the look of it, and how much of its height
IN_DOCS = {
    "releases": ("light", 980),
    "windows": ("dark", 1080),
    "promise": ("light", 1000),
    "running": ("light", 780),
    "owner-questions": ("light", 900),
    "owner-ledger": ("dark", 900),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A task that the services have, as devices get it."""

    question: Question
    signed_task: bytes
    signed_schedule: bytes


def main() -> None:
    """See the module."""
    options = argparse.ArgumentParser(description="pictures of the console's pages")
    options.add_argument("--docs", action="store_true", help="write docs/images too")
    docs = options.parse_args().docs
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="shoal-screens-") as folder:
        asyncio.run(_show(Path(folder), docs))
    print(f"{len(list(OUT.glob('*.png')))} pictures in {OUT.relative_to(ROOT)}")


async def _show(folder: Path, docs: bool) -> None:
    site = prepare(folder)
    asked = [_ask(site, question, _DEVICES) for question in (*questions(), _hours())]
    services = [
        Process("analyzer", site.analyzer_config, site.analyzer_admin),
        Process("shuffler", site.shuffler_config, site.shuffler_admin),
    ]
    slept = Question(
        "slept-well", "Did you sleep well last night?", YesNo(), design("binary_rr", YesNo(), 2.0)
    )
    plan = WindowPlan(int(time.time()) + 30, _LENGTH_S, _WINDOWS, 2, 4)
    nightly = _ask(site, slept, 800, plan)
    to_come = Question(
        "steps",
        "How many steps did you take today, in thousands?",
        _STEPS,
        design("kmean", _STEPS, 2.0),
    )
    _ask(site, to_come, 5_000, WindowPlan(int(time.time()) - 3_600, 7 * 86_400, 26, 86_400, 3_600))
    async with running(services, print):
        device = owner.Device(site)
        device.agrees()
        await _sleep_windows(site, nightly, plan, device)
        await asyncio.to_thread(device.answers_surveys)
        await _report(site, asked, Shares(duplicates=0.02, malformed=0.01, hostile=0.01))
        await asyncio.to_thread(device.run, "status")
        await asyncio.sleep(max(0.0, plan.deadline_of(_WINDOWS - 1) + _SETTLED_S - time.time()))
        with console(*_sources(site)) as url:
            await asyncio.to_thread(_take, url, PAGES, docs)
        with (
            provider() as peer,
            signing_in(folder, peer.issuer, *_sources(site)) as url,
        ):
            peer.person = Person(email="ada@people.example")
            await asyncio.to_thread(_take, url, SIGNED_IN, docs)
        shoot = partial(_shoot, axe=Axe(), docs=docs)
        await asyncio.to_thread(owner.take, device, _LOOKS, shoot)


_STEPS = Numeric(0.0, 30.0, 31, clip=True, unit="thousand steps")


def _hours() -> Question:
    domain = Numeric(0.0, 12.0, 25, clip=True, unit="hours")
    return Question(
        "hours-of-sleep",
        "How many hours did you sleep last night?",
        domain,
        design("square_wave", domain, 3.0),
    )


def _ask(site: Site, question: Question, devices: int, plan: WindowPlan | None = None) -> Asked:
    task = replace(task_of(question, devices, site), min_batch=devices * 9 // 10)
    if plan is not None:
        task = replace(task, windows=plan, max_batch=0, retention_s=30 * 86_400)
    return Asked(question, *site.add(task)[1:])


async def _report(site: Site, asked: list[Asked], shares: Shares) -> None:
    """Every device answers each question once; some misbehave, and more stand by for them."""
    visits = load_visits(int(_DEVICES * 1.05))
    drawn = np.random.default_rng(1)
    for one in asked:
        values = one.question.values(visits)
        if one.question.name == "hours-of-sleep":
            values = np.clip(drawn.normal(7.2, 1.1, len(visits)), 0, 12).tolist()
        await _simulate(site, one, values, None, shares)


async def _simulate(
    site: Site, one: Asked, values: list[int], window: int | None, shares: Shares
) -> None:
    task = SimulatedTask(one.signed_task, one.signed_schedule, values, window)
    plan = SimulationPlan(
        (task,), frozenset({site.authority.public}), processes=2, shares=shares, patience_s=5.0
    )
    await simulate(plan)


async def _sleep_windows(
    site: Site, nightly: Asked, plan: WindowPlan, device: owner.Device
) -> None:
    """A share that rises from window to window; too few answer in one of them. The owner's device
    answers in each.
    """
    for window in range(_WINDOWS):
        await asyncio.sleep(max(0.0, plan.start_of(window) + 0.3 - time.time()))
        n = 120 if window == _WITHHELD else 1_000 + 40 * window
        values = [int(100 * one < (55 + 5 * window) * n) for one in range(n)]
        await asyncio.gather(
            _simulate(site, nightly, values, window, Shares()),
            asyncio.to_thread(device.run, "report", "slept-well", "yes"),
        )


def _sources(site: Site) -> tuple[str, ...]:
    return "--analyzer", str(site.analyzer_config), "--shuffler", str(site.shuffler_config)


def _look_over(page: Page, axe: Axe, where: str, width: int) -> None:
    """What axe knows to be wrong, and what is wider than the window, ends this."""
    wrong = [
        f"{each['id']}: {each['nodes'][0]['html']}" for each in axe.run(page).response["violations"]
    ]
    if page.evaluate("document.documentElement.scrollWidth") > width:
        wrong.append("it scrolls sideways")
    if wrong:
        raise SystemExit(f"{where}: " + "; ".join(wrong))


def _shoot(page: Page, name: str, look: str, *, axe: Axe, docs: bool) -> None:
    """One picture, looked over; with ``docs`` as the documentation shows it, too."""
    width = _LOOKS[look][0]
    _look_over(page, axe, f"{name}, {look}", width)
    page.screenshot(path=OUT / f"{name}-{look}.png", full_page=True)
    if docs and IN_DOCS.get(name, ("", 0))[0] == look:
        page.set_viewport_size({"width": width, "height": IN_DOCS[name][1]})
        page.screenshot(path=IMAGES / f"console-{name}.png")
        page.set_viewport_size({"width": width, "height": 844})


def _take(url: str, pages: dict[str, str], docs: bool) -> None:
    axe = Axe()
    with browser() as running_browser:
        for look, (width, dark) in _LOOKS.items():
            with page_of(running_browser, width=width, dark=dark) as page:
                for name, path in pages.items():
                    if path.startswith("/download/"):  # an entry of the audit, and no page
                        page.request.get(f"{url}{path}")
                        continue
                    answer = page.goto(f"{url}{path}")
                    if answer is None or answer.status != _STATUS.get(name, 200):
                        raise SystemExit(f"{path}: not what it was to show: is the machine busy?")
                    _shoot(page, name, look, axe=axe, docs=docs)


if __name__ == "__main__":
    main()
