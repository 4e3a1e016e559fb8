"""Waiting for links to brokers, and for what they bring."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from shoal.errors import Kind, ShoalError
from shoal.mqtt.link import Link
from shoal.mqtt.settings import BrokerSettings

PATIENCE_S = 30.0  # only a failing test waits that long


class Inbox:
    """What arrived, and a way to wait for it."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self._more = asyncio.Event()

    def __call__(self, topic: str, payload: bytes) -> None:
        self.messages.append((topic, payload))
        self._more.set()

    async def until(self, count: int) -> list[tuple[str, bytes]]:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.messages) < count:
                self._more.clear()
                await self._more.wait()
        return self.messages


async def up_again(link: Link) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await link.connected(PATIENCE_S)
            except ShoalError as error:
                assert error.kind is Kind.UNAVAILABLE  # noqa: PT017


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0)


@asynccontextmanager
async def silent() -> AsyncIterator[BrokerSettings]:
    """A listener whose connections are taken by the system, and never spoken to."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield BrokerSettings("127.0.0.1", server.getsockname()[1], insecure=True)
