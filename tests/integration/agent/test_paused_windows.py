"""A window that the analyzer can't open: refused at the shuffler, told in its directory, and taken
once it can be.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.clients.feeds.grpc_feed import GrpcFeed
from shoal.clocks.clock import FakeClock
from shoal.errors import Kind, ShoalError
from shoal.protos import submit_pb2
from shoal.rpc.channel import build_channel, call
from shoal.shuffler.service import Shuffler
from tests.worlds.services.shuffler import CA, START, AnalyzerEnd, World, submit, submit_batch


async def test_nothing_is_taken_that_could_not_be_opened(tmp_path: Path) -> None:
    """Alone and in a batch, where an authentic receipt says the same; the other task goes on; the
    same bytes are taken later.

    Planted: ``paused`` not given to the ingress, to the directory -> acknowledged, or not told:
    fails.
    """
    world, clock, told = World(tmp_path), FakeClock(START + 10), list[object]()
    bad, good = world.publish(name="bad"), world.publish(name="good")
    analyzer = AnalyzerEnd(world)
    address = await analyzer.start()
    analyzer.unserved = {bad.task_id: [0]}
    async with Shuffler(world.config(address), clock=clock) as shuffler:
        await shuffler.serving.look()
        own = f"127.0.0.1:{shuffler.port}"
        channel = build_channel(own, CA.cert_pem)
        feed = GrpcFeed(
            own,
            CA.cert_pem,
            lambda *_: None,
            every_s=60.0,
            pause=lambda _, paused: told.append(paused),
        )
        frame, other = bad.frame(), good.frame()
        with pytest.raises(ShoalError) as refused:
            await call(channel, "/shoal.v1.Ingress/Submit", submit(frame), 10)
        assert refused.value.kind is Kind.UNAVAILABLE
        answer = await call(
            channel, "/shoal.v1.Ingress/SubmitBatch", submit_batch([frame, other]), 10
        )
        statuses = [one.status for one in submit_pb2.SubmitBatchReply.FromString(answer).receipts]
        assert statuses == [Kind.UNAVAILABLE.value, 0]
        await feed.once(30.0)
        assert [one.code for one in shuffler.conditions.current()] == ["task"]
        analyzer.unserved = {}
        await shuffler.serving.look()
        await call(channel, "/shoal.v1.Ingress/Submit", submit(frame), 10)
        await feed.once(30.0)
        assert told == [{bad.task_id: frozenset({0})}, {}]
        assert shuffler.conditions.ready() is None
        await channel.close()
    await analyzer.stop()
