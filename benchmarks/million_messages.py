"""A million devices that send several messages each: submitted, stored, mixed, opened, tallied and
released by real services; the analyzer's part of it beside opening as many messages and nothing
else.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass

from benchmarks import machine
from benchmarks.bench import Bench
from benchmarks.figures import (
    MICROSECONDS,
    RATE,
    SECONDS,
    Figure,
    Goal,
    Outcome,
    Sample,
    spread,
)
from benchmarks.raw import Opening, Processes, open_held
from shoal.analyzer.core import BatchState
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.cli.demo.processes import Process
from shoal.cli.demo.workspace import Site, prepare
from shoal.crypto.envelope import NONCE_SIZE, report_info, seal_report, sealed_size
from shoal.crypto.hpke import generate
from shoal.crypto.suites import SuiteId, parse_config
from shoal.ids import TaskId
from tests.worlds.services.releasing import (
    Asked,
    Counting,
    Spread,
    Window,
    ask,
    running,
    send,
    spread_of,
    windows_of,
)

TITLE = "several messages of a million devices, opened, tallied and released / opening them alone"
_LOOK_S = 0.05
_CHUNK = 2_000  # rows that one process seals at a time
_SUITE = SuiteId.X25519_AES128  # of the site's keys


@dataclass(frozen=True, slots=True)
class Ran:
    """Seconds: ``sending``, from the first report to the last acknowledgement; ``delivering``, from
    there until the analyzer has every row; ``opening``, from there to the release. ``shuffler``:
    core-seconds over the first two, ``analyzer``: over the last.
    """

    sending: float
    delivering: float
    opening: float
    shuffler: float
    analyzer: float


def run(bench: Bench) -> Outcome:
    """Cancelling noise at s = .45, (1, 1e-6), 1,024 cells, in floods of up to 21, which a report's
    200 messages allow: 1.526 on average, empty ones among them (2.059 with a task file's 4).
    """
    counting = bench.pick(
        Counting("dummies", 16, 300, 1),
        Counting("cancelling", 16, 20_000, 1),
        Counting("cancelling", 1_024, 1_000_000, 1, largest=21),
    )
    folder = bench.folder / "million-messages"
    folder.mkdir(parents=True)
    site = prepare(folder)
    asked = ask(site, counting)
    openers = Processes(bench.cores)
    try:
        opening = _hold(openers, bench, asked, bench.pick(200, 20_000, 100_000))
        before = openers.run(open_held, "rows", opening)
        ran, window = asyncio.run(_release(site, asked, bench.cores))
        limits = (before, openers.run(open_held, "rows", opening))
    finally:
        openers.close()
    return _outcome(asked, ran, window, limits)


def _hold(openers: Processes, bench: Bench, asked: Asked, count: int) -> Opening:
    """So many rows as long as the task's, for a key of this run."""
    key, size = generate(_SUITE), asked.mechanism.report_size
    raw, parts = key.config.raw, range(0, count, _CHUNK)
    sealed = [bench.pool.submit(_rows, raw, size, min(_CHUNK, count - at)) for at in parts]
    wide = sealed_size(_SUITE, size)
    openers.hold("rows", b"".join(part.result() for part in sealed), wide)
    info = report_info(TaskId(bytes(32)), 0, key.config.key_id)
    return Opening(_SUITE, key.to_raw_secret(), info, wide)


async def _release(site: Site, asked: Asked, cores: int) -> tuple[Ran, Window]:
    async with running(site) as (shuffler, analyzer):
        began, shuffler_s = time.monotonic(), _cpu_s(shuffler)
        await send(site, asked, processes=cores)
        sent = time.monotonic()
        await _until(site, BatchState.PROCESSING)
        complete, shuffler_s = time.monotonic(), _cpu_s(shuffler) - shuffler_s
        analyzer_s = _cpu_s(analyzer)
        await _until(site, BatchState.DONE)
        done = time.monotonic()
        # less than a tick of the machine's clock reads as nothing
        analyzer_s = max(_cpu_s(analyzer) - analyzer_s, machine.RESOLUTION_S)
        (window,) = await windows_of(site, 1)
    parts = (sent - began, complete - sent, done - complete)
    return Ran(*parts, shuffler_s, analyzer_s), window


def _cpu_s(service: Process) -> float:
    return machine.cpu_s(service.pid or 0)


async def _until(site: Site, state: BatchState) -> None:
    """Wait until the analyzer's one batch has come so far."""
    path = site.analyzer_data / FILE_NAME
    while True:
        store = AnalyzerStore(path, read_only=True)
        try:
            if any(batch.state >= state for batch in store.batches()):
                return
        finally:
            store.close()
        await asyncio.sleep(_LOOK_S)


def _outcome(asked: Asked, ran: Ran, window: Window, limits: tuple[Sample, Sample]) -> Outcome:
    counting, law, rows = asked.counting, asked.mechanism.noise, window.rows
    bare = sum(limit.rate for limit in limits) / 2
    bare_us = sum(limit.cpu_us for limit in limits) / 2
    found: Spread = spread_of(counting, asked.mechanism, [window])
    opened, opened_us = rows / ran.opening, ran.analyzer / rows * 1e6
    goal = Goal(at_least=0.9)
    return Outcome(
        (
            Figure("messages opened, tallied, released: rate", (opened / bare,), goal=goal),
            Figure("  opening's CPU alone / the analyzer's CPU", (bare_us / opened_us,), goal=goal),
            Figure("s.d. of the released counts / the account's", (found.ratio,)),
            spread("opening alone: rate", limits, lambda sample: sample.rate, RATE),
            Figure("opened, tallied, released: rate", (opened,), RATE),
            spread("opening alone: CPU", limits, lambda sample: sample.cpu_us, MICROSECONDS),
            Figure("opened, tallied, released: CPU of a message", (opened_us,), MICROSECONDS),
            Figure("last row delivered to release", (ran.opening,), SECONDS),
            Figure("last acknowledgement to last row delivered", (ran.delivering,), SECONDS),
            Figure("first report to last acknowledgement", (ran.sending,), SECONDS),
            Figure(
                "CPU of the shuffler for a device, delivery included",
                (ran.shuffler / counting.devices * 1e6,),
                MICROSECONDS,
            ),
        ),
        (
            f"{counting.devices:,} devices, {counting.cells:,} cells, {counting.name}, floods of "
            f"up to {law.largest}: {rows:,} messages opened, {rows / counting.devices:.4f} a "
            f"device, law {float(law.mean_messages):.4f} on average and {law.slots} at most",
            f"s.d. {found.measured:.4f} of {found.count:,} counts, {found.expected:.4f} accounted, "
            f"ratio {found.ratio:.3f} +- {found.ratio * found.uncertain:.3f}; epsilon_upper "
            f"{window.release['privacy']['epsilon_upper']:.7f}",
            "while devices draw, seal and send, they share the cores with the services; while the "
            "analyzer opens nothing else is done",
        ),
    )


# --- in a sealing process -------------------------------------------------------------------------


def _rows(raw: bytes, size: int, count: int) -> bytes:
    config, task_id = parse_config(raw), TaskId(bytes(32))
    return b"".join(
        seal_report(config, task_id, 0, os.urandom(NONCE_SIZE), bytes(size)) for _ in range(count)
    )
