"""One report per call: a real shuffler over TLS, hop layer opened, on disk before the reply;
against an echo of the same frame.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import echo, machine
from benchmarks.bench import Bench
from benchmarks.driver import Drive, drive
from benchmarks.figures import (
    MICROSECONDS,
    MILLISECONDS,
    RATE,
    Figure,
    Goal,
    Outcome,
    Sample,
    alternate,
    quantile,
    spread,
)
from benchmarks.site import Sealed, Site, started
from shoal.crypto.envelope import verify_receipt
from shoal.protos import submit_pb2
from shoal.services.workers import WorkerPool

TITLE = (
    "Submit, one report per call, 200 in flight, on disk before the reply / bare TLS echo of the "
    "same frame"
)
IN_FLIGHT = 200
SUBMIT = "/shoal.v1.Ingress/Submit"
_CHECKED = 200  # receipts verified per block, after the clock


@dataclass(frozen=True, slots=True)
class Target:
    """A server to call: where, which method, and the process whose CPU counts."""

    address: str
    method: str
    pid: int


def run(bench: Bench) -> Outcome:
    """How many single calls a shuffler takes, beside an echo over the same TLS."""
    block, repetitions = bench.pick(120, 2_000, 6_000), bench.repetitions
    warm = block // 4
    count = warm + block * repetitions
    site = bench.fresh_site("unary", count + 1)  # one more than is sent: the window stays open
    sealed = site.frames(bench.pool, count)
    requests = sealed.requests()
    shuffler = site.shuffler()
    caller = WorkerPool(1)
    try:
        with echo_server(site) as limit:
            started(shuffler)
            subject = Target(site.address, SUBMIT, shuffler.pid or 0)
            blocks = iter(range(repetitions))
            _drive(caller, limit, site, requests[:warm], requests[:1])
            _drive(caller, subject, site, requests[1:warm], requests[:1])

            def bare() -> Sample:
                return _sample(_drive(caller, limit, site, requests[:block], requests[:1]))

            def real() -> Sample:
                first = warm + next(blocks) * block
                done = _drive(caller, subject, site, requests[first : first + block], requests[:1])
                _check(done[0], sealed, first)
                return _sample(done)

            pairs = alternate(repetitions, bare, real)
    finally:
        shuffler.stop()
        caller.close()
    p50, p99 = (lambda s: s.extra["p50"]), (lambda s: s.extra["p99"])
    return Outcome(
        (
            Figure("rate", pairs.rates(), goal=Goal(at_least=0.75)),
            Figure("server CPU per report", pairs.against(lambda sample: sample.cpu_us)),
            Figure("latency p50", pairs.against(p50)),
            Figure("latency p99", pairs.against(p99)),
            spread("echo: rate", pairs.limits, lambda sample: sample.rate, RATE),
            spread("Submit: rate", pairs.subjects, lambda sample: sample.rate, RATE),
            spread("echo: server CPU", pairs.limits, lambda sample: sample.cpu_us, MICROSECONDS),
            spread(
                "Submit: server CPU", pairs.subjects, lambda sample: sample.cpu_us, MICROSECONDS
            ),
            spread(
                "echo: caller CPU",
                pairs.limits,
                lambda sample: sample.extra["caller_us"],
                MICROSECONDS,
            ),
            spread(
                "Submit: caller CPU",
                pairs.subjects,
                lambda sample: sample.extra["caller_us"],
                MICROSECONDS,
            ),
            spread("echo: latency p50", pairs.limits, p50, MILLISECONDS),
            spread("Submit: latency p50", pairs.subjects, p50, MILLISECONDS),
            spread("echo: latency p99", pairs.limits, p99, MILLISECONDS),
            spread("Submit: latency p99", pairs.subjects, p99, MILLISECONDS),
        ),
        (
            f"{block} calls of {len(requests[0])} bytes per run, one calling process, one TLS "
            "connection, both servers on uvloop",
            "an echo answers calls one by one, a group commit many at once: part of what the disk "
            "costs comes back as fewer wake-ups",
        ),
    )


@contextmanager
def echo_server(site: Site) -> Iterator[Target]:
    """The bare server with the shuffler's certificate, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.echo", str(site.folder / "shuffler")]
    environment = {
        **os.environ,
        "GRPC_VERBOSITY": "NONE",
        "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
    }
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as server:
        try:
            port = int(server.stdout.readline()) if server.stdout else 0
            yield Target(f"localhost:{port}", echo.METHOD, server.pid)
        finally:
            server.communicate()  # closes its input


def _drive(
    caller: WorkerPool, target: Target, site: Site, requests: list[bytes], first: list[bytes]
) -> tuple[Drive, float]:
    """The drive and the server's core-seconds meanwhile."""
    before = machine.cpu_s(target.pid)
    done = caller.submit(
        drive, target.address, site.ca, target.method, requests, first, IN_FLIGHT
    ).result()
    return done, machine.cpu_s(target.pid) - before


def _sample(drove: tuple[Drive, float]) -> Sample:
    done, server_cpu = drove
    count = len(done.replies)
    extra = {
        "caller_us": done.cpu / count * 1e6,
        "p50": quantile(done.latencies_ms, 0.5),
        "p99": quantile(done.latencies_ms, 0.99),
    }
    return Sample(count, done.wall, server_cpu, extra)


def _check(done: Drive, sealed: Sealed, first: int) -> None:
    """Some of the receipts must verify: what is measured is the real thing."""
    for index in random.sample(range(len(done.replies)), min(_CHECKED, len(done.replies))):
        mac = submit_pb2.SubmitReply.FromString(done.replies[index]).mac
        verify_receipt(sealed.ack_keys[first + index], 0, sealed.frames[first + index], mac)
