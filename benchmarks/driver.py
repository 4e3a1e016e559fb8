"""The calling side of the call benchmarks: ready-made requests from one process over one TLS
connection, so many in flight.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import grpc
import uvloop

from shoal.rpc.channel import build_channel

_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class Drive:
    """What came back: replies and latencies in the order of the requests; ``cpu``: core-seconds of
    the calling process.
    """

    wall: float
    cpu: float
    latencies_ms: list[float]
    replies: list[bytes]


def drive(
    address: str, ca: bytes, method: str, requests: list[bytes], first: list[bytes], in_flight: int
) -> Drive:
    """Send ``first`` to connect and warm up, then ``requests`` against the clock. Any failed call
    raises.
    """
    return uvloop.run(_drive(address, ca, method, requests, first, in_flight))


async def _drive(
    address: str, ca: bytes, method: str, requests: list[bytes], first: list[bytes], in_flight: int
) -> Drive:
    channel = build_channel(address, ca, private_pool=True)
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
    try:
        for request in first:
            await call(request, timeout=_DEADLINE_S)
        return await _timed(call, requests, in_flight)
    finally:
        await channel.close()


async def _timed(
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes], requests: list[bytes], in_flight: int
) -> Drive:
    latencies, replies = [0.0] * len(requests), [b""] * len(requests)
    left = iter(range(len(requests)))

    async def work() -> None:
        for index in left:
            sent = time.perf_counter()
            replies[index] = await call(requests[index], timeout=_DEADLINE_S)
            latencies[index] = (time.perf_counter() - sent) * 1000

    begin, cpu = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as group:
        for _ in range(min(in_flight, len(requests))):
            group.create_task(work())
    return Drive(time.perf_counter() - begin, time.process_time() - cpu, latencies, replies)
