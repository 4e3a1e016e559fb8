"""MQTT packets as bytes: read from a tap, and a puppet of a broker that does what no honest one
would (MQTT 3.1.1, OASIS 2014).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from shoal.mqtt.settings import BrokerSettings

CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK, PINGREQ, PINGRESP, DISCONNECT = (
    1,
    2,
    3,
    4,
    8,
    9,
    12,
    13,
    14,
)


@dataclass(frozen=True)
class Packet:
    kind: int
    flags: int
    body: bytes

    @property
    def client_id(self) -> str:
        """Of a CONNECT: after protocol name, level, flags, keep alive and, in MQTT 5, the
        properties.
        """
        at = 2 + int.from_bytes(self.body[:2], "big")
        five = self.body[at] == 5
        at += 4
        if five:
            size, at = _length(self.body, at)
            at += size
        return self.body[at + 2 : at + 2 + int.from_bytes(self.body[at : at + 2], "big")].decode()

    @property
    def topic(self) -> str:
        """Of a PUBLISH."""
        return self.body[2 : 2 + int.from_bytes(self.body[:2], "big")].decode()

    def payload(self, five: bool) -> bytes:
        """Of a PUBLISH: after topic, packet id if QoS > 0, and in MQTT 5 the properties."""
        at = 2 + int.from_bytes(self.body[:2], "big") + (2 if self.flags & 6 else 0)
        if five:
            size, at = _length(self.body, at)
            at += size
        return self.body[at:]


def packets(data: bytes) -> list[Packet]:
    """All packets of a connection in one direction. Raises if they don't end where the data
    does.
    """
    found, at = list[Packet](), 0
    while at < len(data):
        size, body = _length(data, at + 1)
        assert body + size <= len(data), "a packet is cut"
        found.append(Packet(data[at] >> 4, data[at] & 15, data[body : body + size]))
        at = body + size
    return found


def _length(data: bytes, at: int) -> tuple[int, int]:
    """A variable length (section 2.2.3) and where it ends."""
    size, shift = 0, 0
    while True:
        size |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 128:
            return size, at


def packet(kind: int, body: bytes, flags: int = 0, claimed: int | None = None) -> bytes:
    """One packet; ``claimed``: the length that it states."""
    size, head = len(body) if claimed is None else claimed, bytearray([kind << 4 | flags])
    while True:
        head.append(size & 127 | (128 if size > 127 else 0))
        size >>= 7
        if not size:
            return bytes(head) + body


def message(topic: bytes, payload: bytes) -> bytes:
    """A PUBLISH with QoS 0."""
    return packet(PUBLISH, len(topic).to_bytes(2, "big") + topic + payload)


class Puppet:
    """A broker on strings. connack: its code; None: it never answers. hangs_up: it ends every
    connection at once. suback: its code.

    puback: whether publications are acknowledged. on_publish: called with each, and what it returns
    is sent.
    """

    def __init__(
        self,
        connack: int | None = 0,
        *,
        hangs_up: bool = False,
        suback: int = 1,
        puback: bool = True,
        on_publish: Callable[[Packet], bytes] = lambda _one: b"",
    ) -> None:
        self.connack, self.hangs_up, self.suback, self.puback, self.on_publish = (
            connack,
            hangs_up,
            suback,
            puback,
            on_publish,
        )
        self.seen: list[Packet] = []
        self.published = asyncio.Event()
        self.ended = asyncio.Event()  # a client hung up
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def settings(self) -> BrokerSettings:
        return BrokerSettings("127.0.0.1", self.port, protocol="3.1.1", insecure=True)

    def send(self, data: bytes) -> None:
        """Bytes as they are, to everybody."""
        for writer in self._writers:
            writer.write(data)

    async def __aenter__(self) -> Puppet:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                while not self.hangs_up:
                    one = await _read(reader)
                    self.seen.append(one)
                    writer.write(self._answer(one))
                    if one.kind == PUBLISH:
                        self.published.set()
        finally:
            self.ended.set()
            self._writers.discard(writer)
            writer.transport.abort()

    def _answer(self, one: Packet) -> bytes:
        match one.kind:
            case 1 if self.connack is not None:
                return packet(CONNACK, bytes([0, self.connack]))
            case 8:
                return packet(SUBACK, one.body[:2] + bytes([self.suback]))
            case 12:
                return packet(PINGRESP, b"")
            case 3:
                at = 2 + int.from_bytes(one.body[:2], "big")
                acknowledgement = (
                    packet(PUBACK, one.body[at : at + 2]) if self.puback and one.flags & 6 else b""
                )
                return acknowledgement + self.on_publish(one)
            case _:
                return b""


async def _read(reader: asyncio.StreamReader) -> Packet:
    first = (await reader.readexactly(1))[0]
    size, shift = 0, 0
    while True:
        byte = (await reader.readexactly(1))[0]
        size |= (byte & 127) << shift
        shift += 7
        if not byte & 128:
            return Packet(first >> 4, first & 15, await reader.readexactly(size))
