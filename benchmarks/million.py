"""``shoal load`` with a million reports against real services: every one counted, once; beside it
this machine's bare limits.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks import machine, wire
from benchmarks.bench import Bench
from benchmarks.driver import drive
from benchmarks.echo import METHOD
from benchmarks.figures import (
    MEGABYTES,
    MICROSECONDS,
    MILLISECONDS,
    RATE,
    SECONDS,
    Figure,
    Goal,
    Outcome,
    Sample,
    spread,
)
from benchmarks.fleet_site import FleetSite, Load
from benchmarks.raw import Opening, Processes, open_held
from benchmarks.site import started
from benchmarks.unary import echo_server
from shoal.crypto.envelope import HEADER_SIZE, hop_info
from shoal.services.workers import WorkerPool
from tests.worlds.mqtt.broker import Broker

TITLE = (
    "shoal load, 1e6 reports in batches with misbehaving clients among them, all counted once / "
    "bare limits of the same machine"
)
_BATCH = 500  # frames per call, as a relay sends them
_CALLS = 8  # batches in flight
_UNARY = 128  # calls in flight: two processes with 64 devices each
_LOOK_S = 0.25
_ROLES = (
    "shuffler",
    "a shuffler worker",
    "analyzer",
    "an analyzer worker",
    "shoal load",
    "a process of devices",
)


@dataclass(frozen=True, slots=True)
class Ran:
    """One load. ``summary``: what --json said. ``cpu``: core-seconds from the first report to the
    last answer, of shuffler and analyzer with their workers. ``after``: the same from the last
    answer until the release. ``peaks``: MB so far, of the largest process of each role.
    """

    summary: dict[str, Any]
    cpu: dict[str, float]
    after: dict[str, float]
    peaks: dict[str, float]

    @property
    def acked(self) -> int:
        """Reports that were acknowledged."""
        count: int = self.summary["acked"]
        return count

    @property
    def rate(self) -> float:
        """Acknowledged reports per second."""
        return self.acked / float(self.summary["seconds"])

    def us(self, seconds: float) -> float:
        """Microseconds per acknowledged report."""
        return seconds / self.acked * 1e6

    @property
    def generator_us(self) -> float:
        """CPU microseconds of the generator per report."""
        return self.us(self.summary["generator"]["cpu_s"])


def run(bench: Bench) -> Outcome:
    """A million devices, by relay, by single calls and by a broker, beside the limits of each."""
    reports, few = bench.pick((200, 60), (50_000, 4_000), (1_000_000, 30_000))
    with Broker() as broker:
        site = FleetSite(bench.folder / "million", broker)
        tenth, whole = (
            site.load("tenth", reports // 10, misbehaving=True),
            site.load("whole", reports, misbehaving=True),
        )
        one_by_one, by_broker = site.load("calls", few), site.load("broker", few)
        limits = _Limits(bench, broker, bench.pick(100, 20_000, 40_000), few)
        try:
            started(site.shuffler, site.analyzer)
            with limits, _Watch(site) as watch:
                little = watch.load(tenth, "--way", "relay", "--prepare")
                relay = limits.around(
                    lambda: watch.load(whole, "--way", "relay", "--prepare"),
                    limits.batches,
                    limits.opening,
                )
                calls = limits.around(
                    lambda: watch.load(one_by_one, "--way", "grpc", "--prepare"), limits.calls
                )
                mqtt = limits.around(
                    lambda: watch.load(
                        by_broker, "--way", "mqtt", "--prepare", *site.broker_options
                    ),
                    limits.publishes,
                )
        finally:
            site.shuffler.stop()
            site.analyzer.stop()
    return Outcome(_figures(little, relay, calls, mqtt), _notes(few, whole, relay.ran))


# --- figures --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Beside:
    """A load between two runs of each of its limits."""

    ran: Ran
    limits: tuple[tuple[Sample, ...], ...]

    def ratio(self, limit: int = 0) -> tuple[float, ...]:
        """Our rate over the mean rate of one limit, measured before and after."""
        samples = self.limits[limit]
        return (self.ran.rate / (sum(sample.rate for sample in samples) / len(samples)),)


def _figures(little: Ran, relay: Beside, calls: Beside, mqtt: Beside) -> tuple[Figure, ...]:
    ran = relay.ran
    generator, shuffler = ran.generator_us, ran.us(ran.cpu["shuffler"])
    opening = sum(sample.cpu_us for sample in relay.limits[1]) / len(relay.limits[1])
    figures = [
        Figure("batches: rate / opening the frames and nothing else", relay.ratio(1)),
        Figure("batches: rate / bare echo of 500 frames a call", relay.ratio(0)),
        Figure("one call each: rate / bare echo of one frame a call", calls.ratio()),
        Figure("MQTT: rate / bare QoS 1 publishes of a frame's size", mqtt.ratio()),
        Figure("batches: shuffler's CPU / opening's alone", (shuffler / opening,)),
        Figure(
            "batches: generator's CPU / shuffler's",
            (generator / max(shuffler, 1e-9),),
            goal=Goal(at_most=1),
        ),
    ]
    figures += [
        Figure(
            f"{role}: peak memory / with a tenth of the reports",
            (ran.peaks[role] / little.peaks[role],),
        )
        for role in _ROLES
    ]
    for title, one, limits in (
        ("batches", relay, ("bare echo, batches", "opening alone")),
        ("one call each", calls, ("bare echo, calls",)),
        ("MQTT", mqtt, ("bare publishes",)),
    ):
        figures += [
            spread(f"{name}: rate", found, lambda sample: sample.rate, RATE)
            for name, found in zip(limits, one.limits, strict=True)
        ]
        figures += _of_one(title, one.ran)
    summary = ran.summary
    figures += [
        spread("opening alone: CPU", relay.limits[1], lambda sample: sample.cpu_us, MICROSECONDS),
        Figure("batches: encapsulations beforehand", (summary["prepare_seconds"],), SECONDS),
        Figure(
            "batches: CPU of the encapsulations",
            (ran.us(summary["generator"]["prepare_cpu_s"]),),
            MICROSECONDS,
        ),
        Figure("batches: last answer to release", (summary["decided_seconds"],), SECONDS),
        Figure(
            "batches: CPU of the shuffler meanwhile", (ran.us(ran.after["shuffler"]),), MICROSECONDS
        ),
        Figure(
            "batches: CPU of the analyzer meanwhile", (ran.us(ran.after["analyzer"]),), MICROSECONDS
        ),
    ]
    figures += [Figure(f"{role}: peak memory", (ran.peaks[role],), MEGABYTES) for role in _ROLES]
    return tuple(figures)


def _of_one(title: str, ran: Ran) -> list[Figure]:
    latencies = ran.summary["latency_ms"]
    return [
        Figure(f"{title}: acknowledged and counted", (ran.rate,), RATE),
        Figure(
            f"{title}: CPU of the shuffler, workers included",
            (ran.us(ran.cpu["shuffler"]),),
            MICROSECONDS,
        ),
        Figure(f"{title}: CPU of the generator", (ran.generator_us,), MICROSECONDS),
        *(
            Figure(f"{title}: latency {name}", (latencies[name],), MILLISECONDS)
            for name in ("p50", "p90", "p99", "p999", "max")
        ),
    ]


def _notes(few: int, whole: Load, ran: Ran) -> tuple[str, ...]:
    row = ran.summary["tasks"][0]
    breaches = sum(one["sent"] for one in ran.summary["misbehaving"].values())
    copies = ran.summary["duplicates"]
    return (
        f"{row['acked']:,} reports acknowledged and {row['counted']:,} counted, of "
        f"{whole.devices:,} devices; {copies['acked']:,} of"
        f" {copies['sent']:,} copies acknowledged alike, the others told that the window is over; "
        f"{breaches:,} frames that break a rule got"
        f" the answer that they must get, {row['garbage']:,} of them stored and "
        f"{row['rejected']:,} rejected by the analyzer",
        f"generator and services share {machine.cores()} cores, its "
        f"{ran.summary['generator']['processes']} processes and their workers;"
        f" load average {', '.join(f'{one:.1f}' for one in os.getloadavg())} at the end",
        f"one call each and MQTT: {few:,} reports; each load stands between two runs of its "
        "limits; an echo sends all bytes back, a"
        " shuffler about 40 for each frame",
        "replies over MQTT leave at multiples of 50 ms, whatever the broker can do",
    )


# --- the limits -----------------------------------------------------------------------------------


class _Limits:
    """What the same machine does when nothing but the call, the opening or the publish is done."""

    def __init__(self, bench: Bench, broker: Broker, frames: int, few: int) -> None:
        self._few = few
        self._site = bench.fresh_site("million-limits", frames)
        sealed = self._site.frames(bench.pool, frames)
        self._size = len(sealed.frames[0])
        self._batches, self._requests = sealed.batches(_BATCH), sealed.requests()[:few]
        key = self._site.hop_key
        self._opening = Opening(
            key.config.suite,
            key.to_raw_secret(),
            hop_info(0, key.config.key_id),
            self._size,
            HEADER_SIZE,
        )
        self._frames = b"".join(sealed.frames)
        self._cores, self._place, self._topics = (
            bench.cores,
            wire.Place(broker.port, broker.settings.ca),
            iter(range(1_000)),
        )

    def __enter__(self) -> None:
        self._caller, self._consumer, self._openers = (
            WorkerPool(1),
            WorkerPool(1),
            Processes(self._cores),
        )
        self._openers.hold("frames", self._frames, self._size)
        self._echo = echo_server(self._site)
        self._target = self._echo.__enter__()

    def __exit__(self, *_: object) -> None:
        self._echo.__exit__(None, None, None)
        for one in (self._caller, self._consumer, self._openers):
            one.close()

    def around(self, load: Callable[[], Ran], *limits: Callable[[], Sample]) -> Beside:
        before = [limit() for limit in limits]
        ran = load()
        return Beside(
            ran, tuple((first, limit()) for first, limit in zip(before, limits, strict=True))
        )

    def opening(self) -> Sample:
        return self._openers.run(open_held, "frames", self._opening)

    def batches(self) -> Sample:
        return self._driven(self._batches, _CALLS, len(self._frames) // self._size)

    def calls(self) -> Sample:
        return self._driven(self._requests, _UNARY, len(self._requests))

    def _driven(self, requests: list[bytes], in_flight: int, frames: int) -> Sample:
        arguments = (self._target.address, self._site.ca, METHOD, requests, requests[:1], in_flight)
        done = self._caller.submit(drive, *arguments).result()
        return Sample(frames, done.wall, done.cpu)

    def publishes(self) -> Sample:
        name = f"bench/{next(self._topics)}"
        taken = self._consumer.submit(wire.consume, self._place, name, self._few, f"{name}/ready")
        self._caller.submit(wire.await_message, self._place, f"{name}/ready").result()
        done = self._caller.submit(
            wire.publish, self._place, name, self._size, self._few, _UNARY
        ).result()
        taken.result()
        return Sample(self._few, done.wall, done.cpu)


# --- loads ----------------------------------------------------------------------------------------


@dataclass
class _Watch:
    """Looks at CPU and memory of all processes a few times per second, and runs loads meanwhile."""

    site: FleetSite
    peaks: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_ROLES, 0.0))

    def __post_init__(self) -> None:
        self._services = {"shuffler": self.site.shuffler, "analyzer": self.site.analyzer}
        # (Unix seconds, core-seconds of each service so far)
        self._seen: list[tuple[float, dict[str, float]]] = []
        self._load_pid = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(_LOOK_S):
            for name, service in self._services.items():
                self._peak(
                    service.pid or 0,
                    name,
                    "a shuffler worker" if name == "shuffler" else "an analyzer worker",
                )
            if self._load_pid:
                self._peak(self._load_pid, "shoal load", "a process of devices")
            self._seen.append(
                (
                    time.time(),
                    {
                        name: machine.cpu_s(service.pid or 0)
                        for name, service in self._services.items()
                    },
                )
            )

    def _peak(self, root: int, name: str, child: str) -> None:
        for pid in machine.tree(root):
            role = name if pid == root else child
            self.peaks[role] = max(self.peaks[role], machine.peak_mb(pid))

    def load(self, load: Load, *options: str) -> Ran:
        """``shoal load`` as a user runs it. Raises RuntimeError unless all that it sent was
        acknowledged, and counted once.
        """
        command = [
            sys.executable,
            "-m",
            "shoal.cli.main",
            "load",
            *load.arguments,
            *self.site.status_options,
            *options,
            "--json",
        ]
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            self._load_pid = process.pid
            out, err = process.communicate()
            self._load_pid = 0
        if process.returncode:
            raise RuntimeError(
                f"shoal load ended with {process.returncode}: {out[-2_000:]}\n{err[-4_000:]}"
            )
        summary: dict[str, Any] = json.loads(out)
        load.check(summary)
        begin, end = (
            float(summary["began_at"]),
            float(summary["began_at"]) + float(summary["seconds"]),
        )
        while self._seen[-1][0] < end + float(summary["decided_seconds"]):
            time.sleep(_LOOK_S)
        sending = {
            name: self._cpu_s(name, end) - self._cpu_s(name, begin) for name in self._services
        }
        after = {name: self._seen[-1][1][name] - self._cpu_s(name, end) for name in self._services}
        return Ran(summary, sending, after, dict(self.peaks))

    def _cpu_s(self, name: str, at: float) -> float:
        return cpu_at([(when, each[name]) for when, each in self._seen], at)


def cpu_at(looks: Sequence[tuple[float, float]], at: float) -> float:
    """Core-seconds used until ``at``, from (time, core-seconds so far) in order: it grew evenly
    between two looks, as far as we know.
    """
    index = min(max(1, bisect_left(looks, at, key=lambda look: look[0])), len(looks) - 1)
    (before, less), (after, more) = looks[index - 1], looks[index]
    return less + min(1.0, max(0.0, (at - before) / (after - before))) * (more - less)
