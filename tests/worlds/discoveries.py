"""A discovery by real services: a task whose windows ask one level after another, the fleet that
follows it, and words that nobody listed.

The words are those of this project's own pages: real text, and its own licence.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from shoal.accounting.several_messages.of_domain import design_several
from shoal.analyzer.results.release_json import decode_release
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.cli.demo.workspace import Site
from shoal.clients.feeds.grpc_feed import GrpcFeed
from shoal.clients.fleet.misbehaviour import Carrier
from shoal.clients.fleet.plan import SimulationPlan
from shoal.clients.fleet.share import SimulatedTask
from shoal.clients.fleet.simulator import simulate
from shoal.crypto.discovery_steps import DiscoveryStep, trust_step
from shoal.domain import Discovery
from shoal.errors import ShoalError
from shoal.ids import TaskId
from shoal.mechanisms.several.registry import create, fewest_messages
from shoal.protos.release_pb2 import Release
from shoal.questions.spelling import shown, spell
from shoal.task import Task, WindowPlan

PPM = 1_000_000
DELTA = 1e-8
_LOOK_S = 0.2
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
        self.steps: dict[int, tuple[DiscoveryStep, bytes]] = {}
        self._feed = GrpcFeed(
            self.site.shuffler_address,
            self.site.ca,
            lambda *_: None,
            every_s=60.0,
            step=self._take,
        )

    def _take(self, data: bytes) -> None:
        step = trust_step(data, self.asked.task, self.asked.task_id).step
        self.steps[step.window] = (step, data)

    async def after(self, window: int) -> tuple[DiscoveryStep, bytes]:
        """The first step for a later window, once there is one."""
        while True:
            try:
                await self._feed.once(10.0)
            except ShoalError:  # a service that is being started again
                await asyncio.sleep(_LOOK_S)
            later = [number for number in self.steps if number > window]
            if later:
                return self.steps[min(later)]
            await asyncio.sleep(_LOOK_S)


async def answer(
    site: Site, asked: Asked, words: tuple[str, ...], window: int, signed_step: bytes
) -> None:
    """One report of every device, once the window has begun. Raises RuntimeError unless all were
    acknowledged.
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
    if (result.acked, result.refused, result.unknown) != (plan.reports, {}, 0):
        raise RuntimeError(f"{result.acked} of {plan.reports} acknowledged: {result.refused}")


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
    """Answer level after level until the discovery is over. Returns the windows that were
    answered.
    """
    heard = Heard(site, asked)
    window, signed_step, answered = 0, b"", list[int]()
    while True:
        await answer(site, asked, words, window, signed_step)
        answered.append(window)
        step, signed_step = await heard.after(window)
        if step.is_over:
            return answered
        window = step.window


def with_known(discovery: Discovery, words: tuple[str, ...]) -> Discovery:
    """The same, with these words left out."""
    return replace(discovery, known=tuple(spell(word, discovery.longest) for word in words))
