"""MQTT 3.1.1 as bare as it gets: two ends that only keep a broker busy, written out in bytes so
that no library slows them.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import uvloop

_CONNECT, _PUBLISH, _PUBACK, _SUBSCRIBE = 0x10, 0x32, 0x40, 0x82  # first bytes; PUBLISH with QoS 1
_PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a broker listens. ``ca``: PEM; None: no TLS."""

    port: int
    ca: bytes | None


@dataclass(frozen=True, slots=True)
class Done:
    """``wall``: seconds of a clock; ``cpu``: core-seconds of this end."""

    wall: float
    cpu: float


def publish(place: Place, topic: str, size: int, count: int, in_flight: int) -> Done:
    """Publish ``count`` messages of ``size`` bytes with QoS 1; done when the broker has
    acknowledged them all.
    """
    return uvloop.run(_publish(place, topic, size, count, in_flight))


def consume(place: Place, topic: str, count: int, ready: str) -> Done:
    """Take ``count`` messages with QoS 1 and acknowledge each. Publishes to ``ready`` once it has
    subscribed.
    """
    return uvloop.run(_consume(place, topic, count, ready))


def await_message(place: Place, topic: str) -> None:
    """Return when a message has come. It is asked for with retention, so it may have come
    before.
    """
    uvloop.run(_consume(place, topic, 1, ""))


async def _publish(place: Place, topic: str, size: int, count: int, in_flight: int) -> Done:
    async with asyncio.timeout(_PATIENCE_S), _connection(place, "publisher") as (reader, writer):
        name, payload = _text(topic), bytes(size)
        room = asyncio.Semaphore(in_flight)

        async def read_acknowledgements() -> None:
            left = count
            while left:
                first, _ = await _packet(reader)
                if first & 0xF0 == _PUBLISH & 0xF0:
                    continue  # amqtt sends what it retains to whoever connects
                if first != _PUBACK:
                    raise RuntimeError("the broker did not acknowledge")
                left -= 1
                room.release()

        begin, cpu = time.perf_counter(), time.process_time()
        async with asyncio.TaskGroup() as group:
            group.create_task(read_acknowledgements())
            for number in range(count):
                await room.acquire()
                writer.write(
                    _framed(_PUBLISH, name + (number % 65_535 + 1).to_bytes(2, "big") + payload)
                )
                await writer.drain()
        return Done(time.perf_counter() - begin, time.process_time() - cpu)


async def _consume(place: Place, topic: str, count: int, ready: str) -> Done:
    async with (
        asyncio.timeout(_PATIENCE_S),
        _connection(place, f"consumer {topic}") as (reader, writer),
    ):
        writer.write(_framed(_SUBSCRIBE, b"\x00\x01" + _text(topic) + b"\x01"))
        await _packet(reader)  # SUBACK
        if ready:
            writer.write(_framed(0x31, _text(ready) + b"ready"))  # QoS 0, retained
        begin, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            first, body = await _packet(reader)
            if first & 0x06:  # QoS 1
                at = 2 + int.from_bytes(body[:2], "big")
                writer.write(_framed(_PUBACK, body[at : at + 2]))
        await writer.drain()
        return Done(time.perf_counter() - begin, time.process_time() - cpu)


@asynccontextmanager
async def _connection(
    place: Place, client: str
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    context = (
        None if place.ca is None else ssl.create_default_context(cadata=place.ca.decode("ascii"))
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port, ssl=context)
    try:
        # version 4, clean session, 60 s
        writer.write(_framed(_CONNECT, _text("MQTT") + b"\x04\x02\x00\x3c" + _text(client)))
        first, body = await _packet(reader)
        if first != 0x20 or body[1]:
            raise RuntimeError("the broker refused the connection")
        yield reader, writer
    finally:
        writer.close()


def _text(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode()


def _framed(first: int, body: bytes) -> bytes:
    """First byte, the length in groups of seven bits, the body."""
    length, left = b"", len(body)
    while True:
        left, digit = left >> 7, left & 0x7F
        length += bytes((digit | (0x80 if left else 0),))
        if not left:
            return bytes((first,)) + length + body


async def _packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    first, length, shift = (await reader.readexactly(1))[0], 0, 0
    while True:
        digit = (await reader.readexactly(1))[0]
        length |= (digit & 0x7F) << shift
        shift += 7
        if not digit & 0x80:
            return first, await reader.readexactly(length)
