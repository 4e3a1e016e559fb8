"""A balancer of TCP connections, as a Service of Kubernetes is one: bytes go through, TLS with
them, and a replica gets new connections while it is among the endpoints.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Balancer:
    """``targets``: ports of replicas on loopback, all endpoints at first. Counts of connections:
    ``opened``; ``passed_on``: refused by one replica and taken by another; ``refused``: by all.
    """

    def __init__(self, port: int, targets: list[int]) -> None:
        self.port, self._under_way = port, dict.fromkeys(targets, 0)
        self._endpoints = set(targets)
        self.opened = self.passed_on = self.refused = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    def leave(self, target: int) -> None:
        """No endpoint any more: what is connected stays so."""
        self._endpoints.remove(target)

    def back(self, target: int) -> None:
        """An endpoint again."""
        self._endpoints.add(target)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Balancer]:
        """Listening, on both loopback addresses' names."""
        server = await asyncio.start_server(self._accepted, "127.0.0.1", self.port, backlog=1024)
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            # who was cancelled before it was connected has closed nothing
            for writer in self._writers:
                writer.close()
            await asyncio.gather(
                *(writer.wait_closed() for writer in self._writers), return_exceptions=True
            )

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        task = asyncio.create_task(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        for target in sorted(self._endpoints, key=lambda port: self._under_way[port]):
            try:
                there = await asyncio.open_connection("127.0.0.1", target)
            except OSError:
                self.passed_on += 1
                continue
            self._writers.append(there[1])
            self._under_way[target] += 1
            try:
                await _joined((reader, writer), there)
            finally:
                self._under_way[target] -= 1
            return
        self.refused += 1
        writer.close()


End = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _joined(here: End, there: End) -> None:
    """Until either side ends."""
    ways = [
        asyncio.create_task(_piped(here[0], there[1])),
        asyncio.create_task(_piped(there[0], here[1])),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for _, writer in (here, there):
            with contextlib.suppress(OSError):
                writer.close()


async def _piped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(64 * 1024):
            writer.write(data)
            await writer.drain()
