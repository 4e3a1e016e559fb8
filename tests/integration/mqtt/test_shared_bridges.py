"""Several shufflers with one key behind one real broker: each frame comes to one of them, and
whichever took it answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from shoal.crypto.envelope import open_frame, seal_frame
from shoal.mqtt.topics import tag_of
from shoal.shuffler.reports.mqtt_bridge import MqttBridge, broker_link
from shoal.shuffler.reports.taken import Answer
from tests.worlds.mqtt import broker as brokers
from tests.worlds.mqtt.broker import Broker
from tests.worlds.mqtt.devices import PATIENCE_S, Devices
from tests.worlds.services.shuffler import World

pytestmark = pytest.mark.skipif(brokers.mosquitto() is None, reason=brokers.LACKING)
ACL = Path(__file__).parents[3] / "deploy" / "mosquitto.acl"


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if reached():
                return
            await asyncio.sleep(0.01)


class AskedWorld(World):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.published = self.publish()

    def frames(self, count: int) -> list[tuple[bytes, bytes]]:
        contents = [self.published.content() for _ in range(count)]
        return [(seal_frame(self.published.hop.config, one), one.ack_key) for one in contents]


class Replica:
    """A bridge whose ingress takes all that opens, and what it took."""

    def __init__(self, broker: Broker, world: AskedWorld, *, shared: bool) -> None:
        self.frames: list[bytes] = []
        self.hop = world.published.hop
        tag = tag_of(world.shuffler.public)
        link = broker_link(broker.settings, tag, shared=shared)
        self.bridge = MqttBridge(self._take, link, tag)

    async def _take(self, frames: Sequence[bytes]) -> list[Answer]:
        self.frames += frames
        return [Answer(None, open_frame(self.hop, frame).ack_key) for frame in frames]

    async def up(self) -> None:
        await self.bridge.start()
        await until(lambda: self.bridge.connected)


async def test_each_frame_reaches_one_replica_and_its_reply_the_device(tmp_path: Path) -> None:
    """Under the rules of the sample broker; and when a replica leaves, all come to the other.
    Planted: a plain subscription -> each frame is taken twice, fails; another group for each
    replica -> the same; the reply to one replica's own topic -> the device waits for ever.
    """
    world = AskedWorld(tmp_path)
    rules = ACL.read_text().replace("\nuser shuffler\n", "\n").replace("\nuser publisher\n", "\n")
    (tmp_path / "acl").write_text(rules)
    (tmp_path / "acl").chmod(0o600)
    lines = [f"acl_file {tmp_path / 'acl'}"]
    async with Broker("mosquitto", tls=False, lines=lines) as broker, AsyncExitStack() as stack:
        replicas = [Replica(broker, world, shared=True) for _ in range(2)]
        for one in replicas:
            await one.up()
            stack.push_async_callback(one.bridge.stop)
        devices = await stack.enter_async_context(Devices(broker.settings, world.shuffler.public))
        first = world.frames(120)
        assert set(await asyncio.gather(*(devices.submit(*one) for one in first))) == {0}
        taken = [frame for one in replicas for frame in one.frames]
        assert sorted(taken) == sorted(frame for frame, _ in first)
        assert all(one.frames for one in replicas)
        await replicas[0].bridge.stop()
        later = world.frames(20)
        assert set(await asyncio.gather(*(devices.submit(*one) for one in later))) == {0}
        assert {frame for frame, _ in later} <= set(replicas[1].frames)


async def test_without_the_share_every_replica_takes_every_frame(tmp_path: Path) -> None:
    """The control: this is what the shared subscription is for."""
    world = AskedWorld(tmp_path)
    async with Broker("mosquitto", tls=False) as broker, AsyncExitStack() as stack:
        replicas = [Replica(broker, world, shared=False) for _ in range(2)]
        for one in replicas:
            await one.up()
            stack.push_async_callback(one.bridge.stop)
        devices = await stack.enter_async_context(Devices(broker.settings, world.shuffler.public))
        sent = world.frames(20)
        assert set(await asyncio.gather(*(devices.submit(*one) for one in sent))) == {0}
        await until(lambda: all(len(one.frames) == 20 for one in replicas))
