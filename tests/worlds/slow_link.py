"""A link with a round trip and losses, as TCP shows them: a relay between real processes and real
servers.

What crosses the relay takes half a round trip each way and keeps its rate, since bytes wait with
the time at which they may leave. The kernel accepts a connection here at once, so the first bytes
of the caller wait for the round trip that the handshake of TCP would have taken. A lost segment is
sent again: its direction stands still for a retransmission time, max(200 ms, round trip), twice
that when it is lost again (RFC 6298, which starts from 1 s for a SYN), and everything behind it
waits. All draws come from the seed and the number of the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

_SEGMENT = 16 * 1024  # bytes that are lost or not as one: about the flight of a young connection
_WINDOW = 1 << 20  # bytes under way in one direction
_LEAST_RTO_S = 0.2
_SYN_RTO_S = 1.0
_MOST_LOSSES = 4  # of one segment in a row


@dataclass
class SlowLink:
    """``rtt_s``: of the link, seconds. ``loss``: share of segments that are lost. ``dead``: takes
    every byte and answers none.

    ``cut_first``: so many connections are cut off within their handshake, after the caller's first
    bytes. ``frozen``: from now on nothing leaves, either way, and nobody is told. Count:
    ``opened``.
    """

    target: int
    rtt_s: float = 0.0
    loss: float = 0.0
    seed: int = 1
    dead: bool = False
    cut_first: int = 0
    frozen: bool = False
    host: str = "127.0.0.1"
    port: int = 0
    opened: int = 0
    met: asyncio.Event = field(default_factory=asyncio.Event)  # somebody connected
    stalls: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    @asynccontextmanager
    async def open(self) -> AsyncIterator[SlowLink]:
        server = await asyncio.start_server(self._accepted, self.host, 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            # a relay that was cancelled before it began has closed nothing
            for writer in self._writers:
                writer.close()
            await asyncio.gather(
                *(writer.wait_closed() for writer in self._writers), return_exceptions=True
            )

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, self.opened = self.opened, self.opened + 1
        self.met.set()
        self._writers.append(writer)
        task = asyncio.get_running_loop().create_task(self._relay(number, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _relay(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        far: asyncio.StreamWriter | None = None
        try:
            if self.dead:
                while await reader.read(_SEGMENT):
                    pass
                return
            if number < self.cut_first:
                await reader.read(_SEGMENT)
                return
            back, far = await asyncio.open_connection(self.host, self.target)
            self._writers.append(far)
            up, down = (random.Random(f"{self.seed} {number} {way}") for way in ("up", "down"))  # noqa: S311 - what is lost is no secret
            opening = self.rtt_s + self._stall(up, max(_SYN_RTO_S, self.rtt_s))
            await asyncio.gather(
                self._carry(reader, far, up, opening), self._carry(back, writer, down, 0.0)
            )
        except OSError:
            pass  # the far end is gone: so is this one
        finally:
            for one in (writer, far):
                if one is not None:
                    one.close()

    def _stall(self, draw: random.Random, rto_s: float) -> float:
        """Seconds that the losses of one segment hold its direction up."""
        stall = 0.0
        for _ in range(_MOST_LOSSES):
            if draw.random() >= self.loss:
                break
            self.stalls += 1
            stall, rto_s = stall + rto_s, 2 * rto_s
        return stall

    async def _carry(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        draw: random.Random,
        opening_s: float,
    ) -> None:
        """One direction, in order, from its first byte to its end."""
        loop = asyncio.get_running_loop()
        waiting: deque[tuple[float, bytes]] = deque()
        changed, size, free = asyncio.Event(), 0, loop.time() + opening_s

        async def leave() -> None:
            nonlocal size
            while True:
                while not waiting:
                    changed.clear()
                    await changed.wait()
                due, data = waiting[0]
                if due > loop.time():
                    await asyncio.sleep(due - loop.time())
                if self.frozen:
                    await asyncio.Event().wait()
                waiting.popleft()
                if not data:
                    with contextlib.suppress(OSError):
                        sink.write_eof()
                    return
                sink.write(data)
                await sink.drain()
                size -= len(data)
                changed.set()

        leaving = asyncio.create_task(leave())
        try:
            data = b"."
            while data and not leaving.done():
                try:
                    data = await source.read(_SEGMENT)
                except OSError:
                    data = b""
                free = max(free, loop.time()) + self._stall(draw, max(_LEAST_RTO_S, self.rtt_s))
                waiting.append((free + self.rtt_s / 2, data))
                size += len(data)
                changed.set()
                while size > _WINDOW and not leaving.done():
                    changed.clear()
                    await changed.wait()
            await leaving
        finally:
            leaving.cancel()
            if not sink.is_closing() and sink.can_write_eof():
                with contextlib.suppress(OSError):
                    sink.write_eof()
