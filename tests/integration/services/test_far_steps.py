"""What a discovery asks, over far links: from the analyzer to the shuffler, from there to a device,
beside strangers who open and never end.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from shoal.clients.feeds.grpc_feed import GrpcFeed
from shoal.clocks.clock import FakeClock
from shoal.crypto.discovery_steps import DiscoveryStep, sign_step
from shoal.ids import Digest
from shoal.protos import directory_pb2
from shoal.rpc.channel import build_channel, call
from shoal.shuffler.core import WindowId
from shoal.shuffler.service import Shuffler
from tests.cases import for_each
from tests.sizes import FULL
from tests.worlds.services import shuffler as shuffler_world
from tests.worlds.slow_link import SlowLink
from tests.worlds.words import SMALL, words_world

LINKS = [(0.4, 0.2), (2.0, 0.2)] if FULL else [(0.15, 0.2)]
PAGE = "/shoal.v1.Directory/Page"
STRANGERS = 5


@for_each("rtt_s, loss", LINKS)
async def test_steps_come_over_far_links_beside_calls_that_never_end(
    rtt_s: float, loss: float, tmp_path: Path
) -> None:
    """Two steps of which the later one is made while the first is under way, each heard once and
    the same by a device; strangers' connections stand still meanwhile, within a call or before it.
    Planted: the shuffler asks for steps with a deadline of one round trip -> nothing comes, this
    waits in vain; the catalogue waits for open calls -> the same.
    """
    world, clock = shuffler_world.World(tmp_path), FakeClock(shuffler_world.START + 10.0)
    words = words_world().task
    own = world.task(count=6)
    published = world.publish(
        replace(
            words,
            windows=own.windows,
            key_authority=own.key_authority,
            shuffler_key=own.shuffler_key,
            analyzer_key=own.analyzer_key,
            shuffler_ca=own.shuffler_ca,
            retention_s=own.retention_s,
        )
    )
    task_id, release = published.task_id, Digest.of(b"a release")
    first, second = (
        sign_step(DiscoveryStep(task_id, window, level, release), SMALL, world.analyzer)
        for window, level in (
            (1, SMALL.level(1, [b"\x02"])),
            (2, SMALL.level(2, [b"\x02\x01"])),
        )
    )
    analyzer = shuffler_world.AnalyzerEnd(world)
    analyzer.steps = [first.data]
    async with AsyncExitStack() as stack:
        port = int((await analyzer.start()).rpartition(":")[2])
        stack.push_async_callback(analyzer.stop)
        to_analyzer = SlowLink(port, rtt_s, loss)
        await stack.enter_async_context(to_analyzer.open())
        clock.time = shuffler_world.START + shuffler_world.LENGTH
        shuffler = await stack.enter_async_context(
            Shuffler(world.config(f"127.0.0.1:{to_analyzer.port}"), clock=clock)
        )
        to_shuffler = SlowLink(shuffler.port, rtt_s, loss, seed=2)
        stuck = SlowLink(shuffler.port)
        for link in (to_shuffler, stuck):
            await stack.enter_async_context(link.open())
        strangers = await asyncio.gather(*(stranger(stuck, stack) for _ in range(STRANGERS)))
        heard = list[bytes]()
        feed = GrpcFeed(
            to_shuffler.address,
            shuffler_world.CA.cert_pem,
            lambda *_: None,
            every_s=60.0,
            step=heard.append,
        )
        while first.data not in heard:
            await feed.once(120.0)
        analyzer.steps = [second.data, first.data, second.data]  # twice, and out of order
        while second.data not in heard:
            await shuffler.serving.look()
            await feed.once(120.0)
        assert shuffler.steps.listed() == (first.data, second.data)
        assert shuffler.steps.named(WindowId(task_id, 2)) == second.name.raw
        assert list(shuffler.steps.conditions()) == []
        for one in strangers:
            one.cancel()
        await asyncio.gather(*strangers, return_exceptions=True)


async def stranger(link: SlowLink, stack: AsyncExitStack) -> asyncio.Task[None]:
    """Somebody whose call stands still for ever once it is begun; the last ones before it is."""
    channel = build_channel(link.address, shuffler_world.CA.cert_pem, private_pool=True)
    stack.push_async_callback(channel.close)

    async def ask() -> None:
        while True:
            request = directory_pb2.PageRequest().SerializeToString()
            await call(channel, PAGE, request, 600.0)
            link.frozen = True

    return asyncio.get_running_loop().create_task(ask())
