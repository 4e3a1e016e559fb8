"""A discovery at two real shufflers of one database: whichever is told first what a window asks,
both tell devices that one step, take reports for it alone, and deliver one batch that names it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from shoal.clients.feeds.grpc_feed import GrpcFeed
from shoal.clocks.clock import FakeClock
from shoal.crypto.discovery_steps import DiscoveryStep, SignedStep, sign_step
from shoal.crypto.envelope import seal_frame
from shoal.errors import Kind
from shoal.ids import Digest
from shoal.services.settings import load_settings
from shoal.shuffler import core
from shoal.shuffler.config import ShufflerConfig
from shoal.shuffler.core import WindowId
from shoal.shuffler.service import Shuffler
from tests.integration.services.test_replicas import send
from tests.worlds import postgres
from tests.worlds.services import shuffler as shuffler_world
from tests.worlds.services.replicas import write_replica
from tests.worlds.services.shuffler import AnalyzerEnd, Published, World
from tests.worlds.words import SMALL, words_world

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)


@dataclass
class Pair:
    """Two shufflers, each with an analyzer of its own that has the task's key: so it may tell them
    different things.
    """

    published: Published
    ends: tuple[AnalyzerEnd, AnalyzerEnd]
    starts: tuple[Callable[[], Awaitable[Shuffler]], Callable[[], Awaitable[Shuffler]]]
    clock: FakeClock
    dsn: str

    def step(self, window: int, *followed: bytes) -> SignedStep:
        """Signed by the analyzer of both."""
        level = SMALL.level(window, followed)
        made = DiscoveryStep(self.published.task_id, window, level, Digest.of(b"a release"))
        return sign_step(made, SMALL, self.ends[0].world.analyzer)

    def frames(self, name: SignedStep, count: int) -> list[bytes]:
        """To window 1, as answers to that step."""
        task, size = self.published.task, core.row_size(self.published.task)
        found = []
        for _ in range(count):
            sealed = tuple(secrets.token_bytes(size) for _ in range(task.messages))
            content = replace(self.published.content(window=1, task_id=name.name), sealed=sealed)
            found.append(seal_frame(self.published.hop.config, content, messages=task.messages))
        return found


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    (tmp_path / "site").mkdir()
    world, clock = World(tmp_path / "site"), FakeClock(shuffler_world.START + 10.0)
    own = world.task(count=4)
    published = world.publish(
        replace(
            words_world().task,
            windows=own.windows,
            key_authority=own.key_authority,
            shuffler_key=own.shuffler_key,
            analyzer_key=own.analyzer_key,
            shuffler_ca=own.shuffler_ca,
            retention_s=own.retention_s,
            min_batch=2,
        )
    )
    dsn = postgres.shared().database()
    async with AsyncExitStack() as stack:
        ends = AnalyzerEnd(world), AnalyzerEnd(world)

        async def starting(name: str, end: AnalyzerEnd) -> Callable[[], Awaitable[Shuffler]]:
            at = await end.start()
            stack.push_async_callback(end.stop)
            folder, _ = write_replica(world, name, dsn, at, 2, commit_ms=1.0)
            config = load_settings(ShufflerConfig, folder / "shuffler.toml")

            async def start() -> Shuffler:
                return await stack.enter_async_context(Shuffler(config, clock=clock))

            return start

        starts = await starting("one", ends[0]), await starting("two", ends[1])
        yield Pair(published, ends, starts, clock, dsn)


def at(shuffler: Shuffler) -> str:
    return f"127.0.0.1:{shuffler.port}"


async def heard(shuffler: Shuffler) -> list[bytes]:
    """What a device is told that asks this one."""
    steps = list[bytes]()
    feed = GrpcFeed(
        at(shuffler),
        shuffler_world.CA.cert_pem,
        lambda *_: None,
        every_s=60.0,
        step=steps.append,
    )
    await feed.once(30.0)
    return steps


async def test_two_that_are_told_two_steps_ask_one_and_deliver_one_batch(pair: Pair) -> None:
    """At one instant, by an analyzer that signed both. Reports that answer the other one are
    refused by both; the one that took the step goes away, and the other goes on and delivers what
    both took, under the name of the one. Planted: each keeps what it was told -> two are told,
    fails; the batch named by what the deliverer was offered -> fails.
    """
    steps = pair.step(1, b"\x02", b"\x13"), pair.step(1, b"\x02")
    both = [await start() for start in pair.starts]
    pair.clock.time = shuffler_world.START + shuffler_world.LENGTH + 10.0
    for end, step in zip(pair.ends, steps, strict=True):
        end.steps = [step.data]
    await asyncio.gather(*(one.serving.look() for one in both))
    for one in both:
        await one.steps.look()
    told = [await heard(one) for one in both]
    assert told[0] == told[1]
    asked, other = steps if told[0] == [steps[0].data] else steps[::-1]
    assert told[0] == [asked.data]
    first, last = both if asked is steps[0] else both[::-1]
    assert list(first.steps.conditions()) == []
    (condition,) = last.steps.conditions()
    assert not condition.stops
    frames = pair.frames(asked, 5)
    for one in both:
        assert await send(at(one), pair.frames(other, 2)) == [Kind.UNKNOWN_TASK.value] * 2
        assert await send(at(one), frames[:4]) == [0] * 4
    await first.stop()
    assert await send(at(last), frames) == [0] * 5
    pair.clock.time += 2 * shuffler_world.LENGTH
    end = pair.ends[1 if last is both[1] else 0]
    window = WindowId(pair.published.task_id, 1)
    while (window.task_id, window.window) not in end.delivered:
        await last.lifecycle.tick()
        await last.lifecycle.settle()
    (manifest,) = end.manifests.values()
    assert (manifest.window, manifest.reports, manifest.asked) == (1, 5, asked.name.raw)


async def test_a_step_outlives_whoever_took_it(pair: Pair) -> None:
    """It ends before any device asked it. One that starts later, with an analyzer that says
    nothing, or another thing, tells it. Planted: no look before it serves -> nothing is told,
    fails.
    """
    first = await pair.starts[0]()
    pair.clock.time = shuffler_world.START + shuffler_world.LENGTH + 10.0
    step = pair.step(1, b"\x02")
    pair.ends[0].steps = [step.data]
    await first.serving.look()
    await first.stop()
    pair.ends[1].steps = [pair.step(1, b"\x13").data]
    second = await pair.starts[1]()
    assert await heard(second) == [step.data]
    await second.serving.look()
    assert await heard(second) == [step.data]
    assert await send(at(second), pair.frames(step, 2)) == [0, 0]
