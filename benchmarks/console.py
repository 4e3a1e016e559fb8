"""A shuffler while fifty people read the console beside it / the same while the console stands
idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from benchmarks import machine
from benchmarks.bench import Bench
from benchmarks.figures import (
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
from benchmarks.overload import busy, offer
from benchmarks.site import Site, started
from shoal.services.workers import WorkerPool

TITLE = "reports taken while 50 people read the console / while nobody does, on the same machine"
_VIEWERS, _LOOKS_S = 50, 10.0  # a page each so often: what Running does by itself
_GOAL = 5_000  # reports per second
_PAGES = ("/releases", "/releases/visit-groups", "/promise", "/running", "/budget", "/running")


def run(bench: Bench) -> Outcome:
    """As fast as a shuffler goes, and at 5,000 reports a second, or four fifths of what it can."""
    size, seconds = bench.pick(20, 500, 500), bench.pick(0.3, 8.0, 20.0)
    viewers, windows = bench.pick(3, _VIEWERS, _VIEWERS), bench.pick(3, 200, 1_000)
    batches = bench.pick(4, 60, 120)
    releases = _releases(bench.folder, bench.pick(100, 500, 500), windows)
    site = bench.fresh_site("console", size * batches + 1)  # the window stays open
    requests = site.frames(bench.pool, size * batches).batches(size)
    shuffler, analyzer, caller = site.shuffler(), site.analyzer(), WorkerPool(1)
    seen, figures = list[float](), list[Figure]()
    try:
        started(shuffler, analyzer)
        with _console(releases, site) as (port, pid):
            caller.submit(busy, site.address, site.ca, requests, seconds / 4).result()

            def flat_out() -> Sample:
                load = caller.submit(busy, site.address, site.ca, requests, seconds).result()
                return Sample(load.taken * size, load.wall)

            def watched(work: Callable[[], Sample]) -> Sample:
                with _viewers(port, viewers, seen):
                    return work()

            used = machine.cpu_s(pid)
            most = alternate(bench.repetitions, flat_out, lambda: watched(flat_out))
            rate = min(_GOAL, 0.8 * min(sample.rate for sample in most.limits))

            def at_rate() -> Sample:
                load = caller.submit(
                    offer, site.address, site.ca, requests, rate / size, seconds
                ).result()
                return Sample(max(1, load.taken) * size, load.wall)

            steady = alternate(bench.repetitions, at_rate, lambda: watched(at_rate))
            used = machine.cpu_s(pid) - used
    finally:
        shuffler.stop()
        analyzer.stop()
        caller.close()
    goal = Goal(at_least=0.95) if viewers == _VIEWERS else None
    figures += [
        Figure("goodput at a steady rate", steady.rates(), goal=goal),
        Figure("goodput flat out", most.rates()),
        spread("steady, nobody looks", steady.limits, lambda sample: sample.rate, RATE),
        spread("steady, viewers", steady.subjects, lambda sample: sample.rate, RATE),
        spread("flat out, nobody looks", most.limits, lambda sample: sample.rate, RATE),
        spread("flat out, viewers", most.subjects, lambda sample: sample.rate, RATE),
        Figure("a page, median", (quantile(seen, 0.5),), MILLISECONDS),
        Figure("a page, p95", (quantile(seen, 0.95),), MILLISECONDS),
        Figure("CPU of the console per page", (used * 1000 / max(1, len(seen)),), MILLISECONDS),
    ]
    notes = (
        f"{viewers} viewers, a page each every {_LOOKS_S:g} s, {windows} windows of 3 questions",
        f"{len(seen)} pages",
        f"the steady rate was {rate:,.0f} reports/s",
    )
    return Outcome(tuple(figures), notes)


def _releases(folder: Path, devices: int, windows: int) -> Path:
    """A folder of releases: a demo's own, as if there had been so many windows of them."""
    results, out = folder / "demo.json", folder / "console-releases"
    command = [sys.executable, "-m", "shoal.cli.main", "demo", "--devices", str(devices)]
    if not results.exists():  # the benchmark of the demo leaves one, too
        made = subprocess.run(
            [*command, "--json", str(results), "--out", str(folder / "console-demo")],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if made.returncode:
            raise RuntimeError(f"shoal demo ended with {made.returncode}")
    told = json.loads(results.read_text())
    out.mkdir()
    for task in told["tasks"]:
        rows = []
        for window in range(windows):
            manifest = os.urandom(32).hex()
            rows.append({**task["release"], "window": window, "manifest_hash": manifest})
        (out / f"{task['name']}.json").write_text(json.dumps(rows))
    return out


@contextmanager
def _console(releases: Path, site: Site) -> Iterator[tuple[int, int]]:
    """(port, process id) of a console of these releases, beside both services."""
    made = site.workspace
    command = [
        *(sys.executable, "-m", "shoal.cli.main", "console", "--releases", str(releases)),
        *("--shuffler", f"127.0.0.1:{made.shuffler_admin}"),
        *("--analyzer", f"127.0.0.1:{made.analyzer_admin}"),
        *("--listen", "127.0.0.1:0", "--json"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = json.loads("".join(process.stdout.readline() for _ in range(3)))["url"]
            yield int(url.rstrip("/").rpartition(":")[2]), process.pid
        finally:
            process.send_signal(signal.SIGINT)


@contextmanager
def _viewers(port: int, count: int, seen: list[float]) -> Iterator[None]:
    """So many people, until the end of the block; what they saw is added to ``seen``. Raises
    RuntimeError for a page that was not answered.
    """
    loop, over = asyncio.new_event_loop(), asyncio.Event()
    with ThreadPoolExecutor(1) as thread:
        looking = thread.submit(loop.run_until_complete, _all_look(port, count, over, seen))
        try:
            yield
        finally:
            loop.call_soon_threadsafe(over.set)
            looking.result()
            loop.close()


async def _all_look(port: int, count: int, over: asyncio.Event, seen: list[float]) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(_looks(port, number, count, over, seen))


async def _looks(
    port: int, number: int, count: int, over: asyncio.Event, seen: list[float]
) -> None:
    """One person: a page, then a while for reading it. They don't come all at once."""
    first = number % len(_PAGES)
    pause_s = number / count * _LOOKS_S
    for path in itertools.cycle([*_PAGES[first:], *_PAGES[:first]]):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), pause_s)
        if over.is_set():
            return
        begin = time.perf_counter()
        await _page(port, path)
        seen.append((time.perf_counter() - begin) * 1000)
        pause_s = _LOOKS_S


async def _page(port: int, path: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    told = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\r\n"
    writer.write(told.encode())
    answer = await reader.read(-1)
    writer.close()
    await writer.wait_closed()
    if not answer.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(f"the console answered {answer[:100]!r}")
