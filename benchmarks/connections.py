"""One report per connection, as a device sends that has one: TCP, TLS, one call, gone. Against the
same report over a connection that stays.
"""

from __future__ import annotations

import asyncio
import time

import grpc
import uvloop

from benchmarks import machine
from benchmarks.bench import Bench
from benchmarks.driver import drive
from benchmarks.figures import (
    MICROSECONDS,
    RATE,
    RATIO,
    Figure,
    Outcome,
    Sample,
    alternate,
    spread,
)
from benchmarks.site import started
from shoal.rpc.channel import build_channel
from shoal.services.workers import WorkerPool

TITLE = "Submit, each report on a TLS connection of its own / over one connection that stays"
SUBMIT = "/shoal.v1.Ingress/Submit"
IN_FLIGHT = 50  # connections at once; 200 calls on the one that stays are too few to matter here
_DEADLINE_S = 60.0


def run(bench: Bench) -> Outcome:
    """What a connection costs a shuffler, beyond the report that comes over it."""
    block, repetitions = bench.pick(100, 500, 2_000), bench.repetitions
    count = 2 * block * (repetitions + 2)
    site = bench.fresh_site("connections", count + 1)  # one more: the window stays open
    requests = iter(site.frames(bench.pool, count).requests())
    shuffler = site.shuffler()
    caller = WorkerPool(1)
    try:
        started(shuffler)
        pid = shuffler.pid or 0

        def measured(own: bool) -> Sample:
            batch = [next(requests) for _ in range(block)]
            before, alone = machine.cpu_s(pid), machine.own_cpu_s(pid)
            if own:
                wall = caller.submit(connect, site.address, site.ca, batch).result()
            else:
                arguments = site.address, site.ca, SUBMIT, batch, batch[:1], IN_FLIGHT
                wall = caller.submit(drive, *arguments).result().wall
            main = machine.own_cpu_s(pid) - alone
            return Sample(block, wall, machine.cpu_s(pid) - before, {"loop_us": main / block * 1e6})

        measured(True)
        pairs = alternate(repetitions, lambda: measured(False), lambda: measured(True))
    finally:
        shuffler.stop()
        caller.close()
    return Outcome(
        (
            Figure("server CPU per report", pairs.against(lambda one: one.cpu_us), RATIO),
            spread(
                "one connection: server CPU", pairs.limits, lambda one: one.cpu_us, MICROSECONDS
            ),
            spread("own: server CPU", pairs.subjects, lambda one: one.cpu_us, MICROSECONDS),
            spread(
                "own: CPU of event loop and writer",
                pairs.subjects,
                lambda one: one.extra["loop_us"],
                MICROSECONDS,
            ),
            spread("own: rate", pairs.subjects, lambda one: one.rate, RATE),
        ),
        (
            f"{block} reports per run, {IN_FLIGHT} in flight, full TLS handshakes; the caller "
            "shares the cores and costs more than the shuffler: read CPU, not the rate",
        ),
    )


def connect(address: str, ca: bytes, requests: list[bytes]) -> float:
    """Send each over a connection of its own; seconds for all. Any failed call raises."""
    return uvloop.run(_connect(address, ca, requests))


async def _connect(address: str, ca: bytes, requests: list[bytes]) -> float:
    left = iter(requests)

    async def work() -> None:
        for request in left:
            channel = build_channel(address, ca, private_pool=True)
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(SUBMIT)
            try:
                await call(request, timeout=_DEADLINE_S)
            finally:
                await channel.close()

    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(min(IN_FLIGHT, len(requests))):
            group.create_task(work())
    return time.perf_counter() - begin
