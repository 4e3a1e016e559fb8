"""More batches than can be opened: what a real shuffler still gets done at 1 to 10 times its
capacity, and what strangers make it hold.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import uvloop

from benchmarks import machine
from benchmarks.bench import Bench
from benchmarks.figures import MEGABYTES, MILLISECONDS, RATE, RATIO, Figure, Goal, Outcome, quantile
from benchmarks.site import started
from shoal.clients.core import pause
from shoal.entropy import SYSTEM
from shoal.errors import RETRYABLE, ShoalError
from shoal.limits import LIMITS
from shoal.protos import submit_pb2
from shoal.rpc.channel import build_channel, call
from shoal.services.workers import WorkerPool

TITLE = (
    "SubmitBatch, 500 reports per call, offered at 1 to 10 times capacity by relays that come "
    "again when told / capacity"
)
SUBMIT_BATCH = "/shoal.v1.Ingress/SubmitBatch"
_RELAYS = 20  # connections
_IN_FLIGHT = 8  # calls at once while capacity is measured
_QUIET_S = 5.0  # after a flood, until memory is looked at again


@dataclass(frozen=True, slots=True)
class Load:
    """What became of batches that were offered at a rate. ``taken``: those acknowledged within
    ``wall`` seconds; ``latencies_ms``: of the calls that brought them; ``refused``: calls by kind.
    """

    offered: int
    taken: int
    wall: float
    latencies_ms: list[float] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)


def run(bench: Bench) -> Outcome:
    """What a shuffler still takes when many times as much is offered as it can."""
    size, seconds = bench.pick(20, 500, 500), bench.pick(0.2, 10.0, 30.0)
    levels = bench.pick((2,), (1, 2, 5, 10), (1, 2, 3, 5, 7, 10))
    batches, workers = bench.pick(4, 60, 120), max(1, bench.cores - 1)
    # one more than is sent: the window stays open
    site = bench.fresh_site("overload", size * batches + 1)
    requests = site.frames(bench.pool, size * batches).batches(size)
    shuffler, caller = site.shuffler(workers), WorkerPool(1)
    figures, notes = list[Figure](), list[str]()
    try:
        started(shuffler)
        pid = shuffler.pid or 0

        def capacity() -> float:
            """Reports per second while as many calls as keep it busy are under way; what is sent
            again costs as much to open.
            """
            load = caller.submit(busy, site.address, site.ca, requests, seconds / 2).result()
            return load.taken * size / load.wall

        capacities = [capacity()]
        for level in levels:
            rate = level * capacities[-1] / size
            load = caller.submit(offer, site.address, site.ca, requests, rate, seconds).result()
            capacities.append(capacity())
            around = (capacities[-2] + capacities[-1]) / 2
            taken = load.taken * size / load.wall / around
            figures += _level_figures(level, load, taken, machine.peak_mb(pid))
            notes.append(_level_note(level, load))
        figures.append(Figure("capacity", tuple(capacities), RATE))
        calls = bench.pick(2, 1_000, 1_000)
        caller.submit(flood, site.address, site.ca, requests[0], calls).result()
        figures.append(
            Figure(
                f"peak memory with {calls:,} calls of 1 MiB at once",
                (machine.peak_mb(pid),),
                MEGABYTES,
                Goal(at_most=700),
            )
        )
        time.sleep(bench.pick(0.0, _QUIET_S, _QUIET_S))
        figures.append(Figure("memory some seconds later", (resident_mb(pid),), MEGABYTES))
        held = bench.pick(40, 2_000, 2_000)
        answered = caller.submit(silence, site.address, site.ca, requests[0], held).result()
        figures.append(
            Figure(
                f"one batch while {held:,} calls send headers alone",
                (answered * 1000,),
                MILLISECONDS,
            )
        )
    finally:
        shuffler.stop()
        caller.close()
    return Outcome(tuple(figures), tuple(notes))


def _level_figures(level: int, load: Load, taken: float, peak_mb: float) -> list[Figure]:
    """``taken``: reports per second that were taken, as a part of what the service could take."""
    goal = Goal(at_least=0.9) if level > 1 else None
    p99_ms = quantile(load.latencies_ms or [0.0], 0.99)
    return [
        Figure(f"{level} x: goodput / capacity", (taken,), RATIO, goal),
        Figure(f"{level} x: p99 of calls that were taken", (p99_ms,), MILLISECONDS),
        Figure(f"{level} x: peak memory of the main process so far", (peak_mb,), MEGABYTES),
    ]


def _level_note(level: int, load: Load) -> str:
    refused = ", ".join(f"{count} {kind}" for kind, count in sorted(load.refused.items()))
    return (
        f"{level} x: {load.offered} batches offered in {load.wall:.0f} s, {load.taken} "
        f"taken; refusals: {refused or 'none'}"
    )


def resident_mb(pid: int) -> float:
    """Of one process, now; MB (1e6 bytes)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


# --- in the calling process -----------------------------------------------------------------------


def busy(address: str, ca: bytes, requests: list[bytes], seconds: float) -> Load:
    """A few calls under way at any time, each followed by the next."""
    return uvloop.run(_busy(address, ca, requests, seconds))


async def _busy(address: str, ca: bytes, requests: list[bytes], seconds: float) -> Load:
    loop, latencies, refused = asyncio.get_running_loop(), list[float](), dict[str, int]()
    channels = [build_channel(address, ca, private_pool=True) for _ in range(_IN_FLIGHT)]
    try:
        await asyncio.gather(*(_relay(channel, requests[0], [], {}) for channel in channels))
        begin = loop.time()

        async def relay(number: int) -> None:
            while loop.time() < begin + seconds:
                await _relay(
                    channels[number],
                    requests[(len(latencies) + number) % len(requests)],
                    latencies,
                    refused,
                )

        await asyncio.gather(*(relay(number) for number in range(_IN_FLIGHT)))
        return Load(len(latencies), len(latencies), loop.time() - begin, latencies, refused)
    finally:
        for channel in channels:
            await channel.close()


async def _relay(
    channel: grpc.aio.Channel, request: bytes, latencies: list[float], refused: dict[str, int]
) -> None:
    """Until the batch is taken; as a relay does, it waits as long as it is told to."""
    loop, attempts = asyncio.get_running_loop(), 0
    while True:
        sent = loop.time()
        try:
            await call(channel, SUBMIT_BATCH, request, LIMITS.send_deadline_s)
        except ShoalError as error:
            if error.kind not in RETRYABLE:
                raise
            attempts += 1
            refused[error.kind.name] = refused.get(error.kind.name, 0) + 1
            await asyncio.sleep(pause(attempts, SYSTEM, asked_s=error.retry_after_s))
        else:
            latencies.append((loop.time() - sent) * 1000)
            return


def offer(address: str, ca: bytes, requests: list[bytes], rate: float, seconds: float) -> Load:
    """Batches at a steady rate (per second), whatever becomes of those before them; each is sent
    until it is taken or the time is over.
    """
    return uvloop.run(_offer(address, ca, requests, rate, seconds))


async def _offer(
    address: str, ca: bytes, requests: list[bytes], rate: float, seconds: float
) -> Load:
    loop, latencies, refused = asyncio.get_running_loop(), list[float](), dict[str, int]()
    channels = [build_channel(address, ca, private_pool=True) for _ in range(_RELAYS)]
    tasks = list[asyncio.Task[None]]()

    try:
        await asyncio.gather(
            *(call(channel, "/grpc.health.v1.Health/Check", b"", 20.0) for channel in channels)
        )
        begin = loop.time()
        while (now := loop.time()) < begin + seconds:
            while len(tasks) < (now - begin) * rate:
                channel, request = (
                    channels[len(tasks) % _RELAYS],
                    requests[len(tasks) % len(requests)],
                )
                tasks.append(asyncio.create_task(_relay(channel, request, latencies, refused)))
            await asyncio.sleep(0.005)
        wall, taken, offered = loop.time() - begin, len(latencies), len(tasks)
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
    finally:
        for channel in channels:
            await channel.close()
    return Load(offered, taken, wall, latencies[:taken], refused)


def flood(address: str, ca: bytes, request: bytes, calls: int) -> dict[str, int]:
    """So many calls at once, each as large as a call may be: copies of one frame. How they
    ended.
    """
    frame = submit_pb2.SubmitBatchRequest.FromString(request).frames[0]
    large = submit_pb2.SubmitBatchRequest(
        frames=[frame] * min(LIMITS.batch_frames, LIMITS.batch_bytes // (len(frame) + 4))
    ).SerializeToString()
    return uvloop.run(_flood(address, ca, large, calls))


async def _flood(address: str, ca: bytes, request: bytes, calls: int) -> dict[str, int]:
    ends = dict[str, int]()
    channels = [build_channel(address, ca, private_pool=True) for _ in range(4)]

    async def one(channel: grpc.aio.Channel) -> None:
        try:
            await call(channel, SUBMIT_BATCH, request, LIMITS.send_deadline_s)
            end = "taken"
        except ShoalError as error:
            end = error.kind.name
        ends[end] = ends.get(end, 0) + 1

    try:
        await asyncio.gather(*(one(channels[number % 4]) for number in range(calls)))
    finally:
        for channel in channels:
            await channel.close()
    return ends


def silence(address: str, ca: bytes, request: bytes, calls: int) -> float:
    """Seconds that one batch takes, its connection included, while so many calls of ten strangers
    send headers and no message.
    """
    return uvloop.run(_silence(address, ca, request, calls))


async def _silence(address: str, ca: bytes, request: bytes, calls: int) -> float:
    async def never() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async with AsyncExitStack() as stack:
        channels = [build_channel(address, ca, private_pool=True) for _ in range(11)]
        for channel in channels:
            stack.push_async_callback(channel.close)
        streams: list[grpc.aio.StreamUnaryMultiCallable[bytes, bytes]] = [
            silent.stream_unary(SUBMIT_BATCH) for silent in channels[1:]
        ]
        held = [streams[number % 10](never()) for number in range(calls)]
        await asyncio.gather(
            *(call(channel, "/grpc.health.v1.Health/Check", b"", 20.0) for channel in channels[1:]),
            return_exceptions=True,
        )
        begin = time.perf_counter()
        await _relay(channels[0], request, [], {})
        took = time.perf_counter() - begin
        for silent in held:
            silent.cancel()
        return took
