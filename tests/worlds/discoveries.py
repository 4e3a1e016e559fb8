"""A discovery by real services: a task whose windows ask one level after another, the fleet that
follows it, and words that nobody listed.

The words are those of this project's own pages: real text, and its own licence.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from shoal.accounting.several_messages.of_domain import design_several
from shoal.analyzer.results.release_json import decode_release
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.cli.demo.processes import Process
from shoal.cli.demo.recipes.hearing import HeardSteps
from shoal.cli.demo.workspace import Site
from shoal.clients.fleet.misbehaviour import Carrier
from shoal.clients.fleet.plan import SimulationPlan
from shoal.clients.fleet.share import SimulatedTask
from shoal.clients.fleet.simulator import simulate
from shoal.crypto.discovery_steps import DiscoveryStep, SignedStep
from shoal.domain import Discovery
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.mechanisms.several.registry import create, fewest_messages
from shoal.protos.release_pb2 import Release
from shoal.questions.spelling import shown, spell
from shoal.task import Task, WindowPlan

PPM = 1_000_000
DELTA = 1e-8
_LOOK_S = 0.2
_START_S = 4.0  # that services usually take to start
_PATIENCE = 600  # looks
_WORD = re.compile(r"[a-z]{2,}")
_PAGES = Path(__file__).parents[2] / "docs"


def words_of_pages(devices: int) -> tuple[str, ...]:
    """One word for each device, in the proportions in which the pages have them: the same words
    for the same number of devices, as long as the pages stay as they are.
    """
    text = " ".join(page.read_text() for page in sorted(_PAGES.glob("*.md"))).lower()
    found = _WORD.findall(text)
    step = max(1, len(found) // devices)
    taken = found[::step] or ["word"]
    return tuple(taken[device % len(taken)] for device in range(devices))


@dataclass(frozen=True)
class Asked:
    """The task, as its files have it."""

    task: Task
    task_id: TaskId
    signed_task: bytes
    signed_schedule: bytes

    @property
    def discovery(self) -> Discovery:
        """What is looked for."""
        assert isinstance(self.task.domain, Discovery)
        return self.task.domain

    def truth(self, words: tuple[str, ...], depth: int) -> Counter[str]:
        """How many devices have each word, as it is shown when ``depth`` symbols are told."""
        return Counter(shown(spell(word, depth)) for word in words)


def ask(
    site: Site,
    discovery: Discovery,
    devices: int,
    *,
    windows: int,
    length_s: int,
    epsilon: float,
    room: int | None = 0,
) -> Asked:
    """A discovery of which window 0 begins now, and every window closes with so many ``devices``,
    and ``room`` more; None: when it is over. ``epsilon``: of one window.
    """
    spec = design_several("dummies", discovery, devices, epsilon, DELTA, windows=windows)
    made = create(spec, discovery)
    task = Task(
        salt=os.urandom(16),
        name="words",
        purpose="tests",
        question="Which word do you use?",
        domain=discovery,
        mechanism=spec,
        windows=WindowPlan(
            start_s=int(time.time()) - 1, length_s=length_s, count=windows, grace_s=0, skew_s=0
        ),
        min_batch=devices,
        max_batch=0 if room is None else devices + room,
        honest_fraction_ppm=PPM,
        delta=DELTA,
        target_epsilon=epsilon,
        key_authority=site.authority.public,
        shuffler_key=site.shuffler,
        analyzer_key=site.analyzer,
        shuffler_address=site.shuffler_address,
        shuffler_ca=site.ca,
        retention_s=(windows + 1) * length_s + 3_600,
        report_size=made.report_size,
        messages=made.messages,
        fewest_messages=fewest_messages(made),
    )
    return Asked(task, *site.add(task))


@dataclass
class Heard:
    """What the shuffler's catalogue says, read as devices read it: by the feed of an agent."""

    site: Site
    asked: Asked

    def __post_init__(self) -> None:
        self._heard = HeardSteps(self.asked.task, self.asked.task_id)

    @property
    def steps(self) -> dict[int, SignedStep]:
        """By window."""
        return self._heard.steps

    async def after(self, window: int) -> tuple[DiscoveryStep, bytes]:
        """The first step for a later window, once there is one. Raises RuntimeError where there
        will be none.
        """
        step = await self._heard.after(window)
        if step is None:
            raise RuntimeError(f"no window after {window} of {self.asked.task.windows.count} asks")
        return step.step, step.data


@asynccontextmanager
async def asking(
    site: Site, make: Callable[[float], Asked]
) -> AsyncIterator[tuple[Asked, Process, Process]]:
    """The task, made once the services run, and (shuffler, analyzer), ready: so window 0 is not
    over before anybody serves it. ``make`` gets how many times as long as usual this machine takes
    for what it does now, 1 or more: windows are as much longer.
    """
    services = [
        Process("shuffler", site.shuffler_config, site.shuffler_admin),
        Process("analyzer", site.analyzer_config, site.analyzer_admin),
    ]
    (site.folder / "analyzer" / "keys").mkdir(mode=0o700, exist_ok=True)
    began = time.monotonic()
    try:
        for one in services:
            one.start()
        for one in services:
            await _answers(one)
        asked = make(max(1.0, (time.monotonic() - began) / _START_S))
        for one in services:
            assert one.pid is not None
            os.kill(one.pid, signal.SIGHUP)  # look at the tasks folder
        for one in services:
            await one.ready()
        yield asked, services[0], services[1]
    finally:
        for one in services:
            one.stop()


async def _answers(process: Process) -> None:
    """Until it says how it is: not ready, for there is no task."""
    for _ in range(_PATIENCE):
        try:
            await process.status()
        except ShoalError:
            process.revive()
            await asyncio.sleep(_LOOK_S)
        else:
            return
    raise RuntimeError(f"the {process.role} does not start")


async def answer(
    site: Site, asked: Asked, words: tuple[str, ...], window: int, signed_step: bytes
) -> int:
    """One report of every device, once the window has begun: how many were acknowledged, all but
    those that came when the window was over. Raises RuntimeError where others were not.
    """
    await asyncio.sleep(max(0.0, asked.task.windows.start_of(window) - time.time()))
    simulated = SimulatedTask(asked.signed_task, asked.signed_schedule, words, window, signed_step)
    plan = SimulationPlan(
        (simulated,),
        authorities=frozenset({site.authority.public}),
        processes=1,
        way=Carrier.RELAY,
    )
    result = await simulate(plan)
    if result.refused.keys() - {Kind.WINDOW_CLOSED} or result.unknown:
        raise RuntimeError(
            f"window {window}: {result.acked} of {plan.reports} acknowledged, {result.unknown} "
            f"unknown: {result.refused} {result.reasons} {result.trouble}"
        )
    return result.acked


async def answer_in_time(
    heard: Heard, words: tuple[str, ...], window: int, signed_step: bytes
) -> int:
    """The same until no device comes too late, in a later window that asks the same level: which
    one it was.
    """
    while await answer(heard.site, heard.asked, words, window, signed_step) < len(words):
        step, signed_step = await heard.after(window)
        window = step.window
    return window


@asynccontextmanager
async def reading(site: Site) -> AsyncIterator[AnalyzerStore]:
    """The analyzer's store beside the running service."""
    store = AnalyzerStore(site.analyzer_data / FILE_NAME, read_only=True)
    try:
        yield store
    finally:
        store.close()


async def releases_of(site: Site, asked: Asked) -> dict[int, Release]:
    """By window, as far as there are any."""
    async with reading(site) as store:
        return {
            one.window: decode_release(one.release)
            for one in store.releases()
            if one.task_id == asked.task_id
        }


async def follow(site: Site, asked: Asked, words: tuple[str, ...]) -> list[int]:
    """Answer level after level until the discovery is over. Returns the windows that every device
    answered in time.
    """
    heard = Heard(site, asked)
    window, signed_step, answered = 0, b"", list[int]()
    while True:
        if await answer(site, asked, words, window, signed_step) == len(words):
            answered.append(window)
        step, signed_step = await heard.after(window)
        if step.is_over:
            return answered
        window = step.window


def with_known(discovery: Discovery, words: tuple[str, ...]) -> Discovery:
    """The same, with these words left out."""
    return replace(discovery, known=tuple(spell(word, discovery.longest) for word in words))
