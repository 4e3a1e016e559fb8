"""The directory of a running shuffler, read over TLS by somebody whom it doesn't know."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal import codec
from shoal.clients.feeds.grpc_feed import GrpcFeed
from shoal.clocks.clock import FakeClock
from shoal.crypto.trust import serve_task
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.protos import directory_pb2
from shoal.rpc.channel import build_channel, call
from shoal.shuffler.service import Shuffler
from tests.worlds.services.shuffler import CA, GRACE, LENGTH, START, World

PAGE = "/shoal.v1.Directory/Page"


class Reader:
    """A device's feed, one look at a time."""

    def __init__(self, world: World, shuffler: Shuffler) -> None:
        self._authorities, self.offered = {world.authority.public}, list[TaskId]()
        self.feed = GrpcFeed(f"127.0.0.1:{shuffler.port}", CA.cert_pem, self._offer, every_s=60.0)

    def _offer(self, data: bytes, origin: str) -> None:
        bundle = codec.decode_bundle(data)
        self.offered.append(
            serve_task(bundle.signed_task, bundle.signed_schedule, self._authorities).task_id
        )

    async def look(self) -> list[TaskId]:
        """What a look at the catalogue brought; nothing if it is the same as the last time."""
        self.offered = []
        await self.feed.once(30.0)
        return self.offered


async def test_a_device_learns_tasks_as_they_come_and_go(tmp_path: Path) -> None:
    """All that are served, of every kind, verified by the reader; one that is added later comes
    too; one that is over is left out.

    Planted: the catalogue made once and for all -> this fails.
    """
    world, clock = World(tmp_path), FakeClock(START + 10)
    first = [
        world.publish(count=3).task_id,
        world.publish(world.enrolled(count=1)).task_id,
        world.publish(count=4_000).task_id,
    ]
    async with Shuffler(world.config(), clock=clock) as shuffler:
        reader = Reader(world, shuffler)
        # more than one page: the last task's schedule is 350 KB
        assert await reader.look() == sorted(first)
        assert await reader.look() == []
        later = world.publish(count=3).task_id
        shuffler.tasks.refresh()
        assert await reader.look() == sorted([*first, later])
        clock.time = START + LENGTH + GRACE
        assert await reader.look() == sorted({*first, later} - {first[1]})
        stranger = build_channel(f"127.0.0.1:{shuffler.port}", CA.cert_pem)
        with pytest.raises(ShoalError) as refused:
            await call(
                stranger, PAGE, directory_pb2.PageRequest(digest=b"x").SerializeToString(), 10
            )
        assert refused.value.kind is Kind.INVALID
        await stranger.close()


async def test_nothing_is_written_of_who_asks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Planted: a line per call -> this fails."""
    caplog.set_level("DEBUG", "shoal")  # whatever a command that ran here before has set
    world = World(tmp_path)
    world.publish()
    async with Shuffler(world.config(log_level="debug"), clock=FakeClock(START)) as shuffler:
        before = len(caplog.records)
        status = shuffler.tasks.served.keys()
        reader = Reader(world, shuffler)
        assert await reader.look() == sorted(status)
        assert [
            record.message for record in caplog.records[before:] if record.name.startswith("shoal")
        ] == []
