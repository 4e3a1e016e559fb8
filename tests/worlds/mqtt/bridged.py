"""A shuffler behind a broker, with an analyzer's end, and gRPC's channel to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import grpc

from shoal.clocks.clock import FakeClock
from shoal.mqtt.settings import BrokerSettings
from shoal.rpc.channel import build_channel, call
from shoal.shuffler.service import Shuffler
from tests.worlds.mqtt.broker import Broker
from tests.worlds.mqtt.devices import PATIENCE_S, Devices, table
from tests.worlds.services.shuffler import CA, START, AnalyzerEnd, World, submit


class Site:
    """A broker, a shuffler behind it with an analyzer's end, and gRPC's channel to it; the clock is
    moved by hand.
    """

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.world, self.clock, self.broker = World(folder), FakeClock(START + 10), broker
        self.analyzer = AnalyzerEnd(self.world)
        self.shuffler: Shuffler
        self.channel: grpc.aio.Channel | None = None

    async def start(self, settings: BrokerSettings | None = None, **changes: object) -> None:
        """``settings``: how the shuffler reaches the broker, if not directly."""
        address = await self.analyzer.start()
        changes.setdefault("mqtt", table(settings or self.broker.settings))
        self.shuffler = Shuffler(self.world.config(address, **changes), clock=self.clock)
        await self.shuffler.__aenter__()
        self.channel = build_channel(f"127.0.0.1:{self.shuffler.port}", CA.cert_pem)

    async def stop(self) -> None:
        if self.channel is not None:
            await self.channel.close()
            await self.shuffler.stop()
            await self.analyzer.stop()

    async def get(self, path: str) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.shuffler.admin_port)
        writer.write(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        body = await reader.read()
        writer.close()
        await writer.wait_closed()
        return body.decode().partition("\r\n\r\n")[2]

    async def until(self, condition: Callable[[str], bool], path: str = "/readyz") -> str:
        async with asyncio.timeout(PATIENCE_S):
            text = await self.get(path)
            while not condition(text):
                await asyncio.sleep(0.02)
                text = await self.get(path)
            return text

    async def ready(self) -> None:
        await self.until(lambda text: self.broker_trouble(text) is None, "/status")

    @staticmethod
    def broker_trouble(status: str) -> str | None:
        """What /status says of the broker; the shuffler is ready all the while: it takes calls."""
        page = json.loads(status)
        assert page["ready"] is None
        return next(
            (str(one["message"]) for one in page["conditions"] if one["code"] == "broker"), None
        )

    async def by_call(self, frame: bytes) -> None:
        assert self.channel is not None
        await call(self.channel, "/shoal.v1.Ingress/Submit", submit(frame), 10)

    async def delivered(self) -> list[bytes]:
        """What the analyzer's end got for every window, after all of them were closed, sealed and
        delivered.
        """
        self.clock.time = START + 10 * 86_400
        for _ in range(8):
            await self.shuffler.lifecycle.tick()
            await self.shuffler.lifecycle.settle()
            self.clock.advance(1)
        return sorted(row for rows in self.analyzer.delivered.values() for row in rows)

    def devices(self, settings: BrokerSettings | None = None) -> Devices:
        return Devices(settings or self.broker.settings, self.world.shuffler.public)
