"""``shoal demo`` from its start to its last line, all processes together; against the seals and the
opens that its reports can't do without.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.figures import (
    MICROSECONDS,
    RATIO,
    SECONDS,
    Figure,
    Goal,
    Outcome,
    Pairs,
    Sample,
    alternate,
    spread,
)
from benchmarks.raw import Layer, Processes, seal_and_open
from shoal.cli.demo.survey import questions
from shoal.crypto.envelope import HEADER_SIZE, NONCE_SIZE, frame_size, sealed_size
from shoal.crypto.suites import SuiteId
from shoal.mechanisms import create

TITLE = (
    "the whole of `shoal demo`, its processes and their imports included / two HPKE seals and two "
    "opens per report"
)
_SUITE = SuiteId.X25519_AES128  # of the demo's keys
_PROMISED_S = 25.0  # on two cores that do nothing else


def run(bench: Bench) -> Outcome:
    """The demo between two runs of its limit."""
    devices = bench.pick(50, 4_000, 20_190)
    each = bench.pick(50, 2_000, 2_000)  # of the limit, per process and run
    processes = Processes(bench.cores)
    try:
        processes.run(seal_and_open, _layers(), 10)  # imports
        pairs = alternate(
            bench.repetitions,
            lambda: processes.run(seal_and_open, _layers(), each),
            lambda: _demo(bench.folder, devices),
        )
    finally:
        processes.close()
    return _outcome(pairs, devices, bench.cores)


def _layers() -> tuple[tuple[Layer, Layer], ...]:
    """Both layers of one report of each of the demo's questions, for keys that nobody holds yet."""
    made = []
    for question in questions():
        size = create(question.mechanism, question.domain).report_size
        frame = frame_size(_SUITE, 1, sealed_size(_SUITE, size))
        made.append(
            (
                # info is as long as shoal.crypto.envelope makes it
                Layer(b"", bytes(60), NONCE_SIZE + size),
                Layer(b"", bytes(22), frame - HEADER_SIZE - _SUITE.overhead),
            )
        )
    return tuple(made)


def _demo(folder: Path, devices: int) -> Sample:
    """One run as a person starts it. Raises RuntimeError unless every report was acknowledged and
    counted, once.
    """
    results = folder / "demo.json"
    out = folder / "shoal-demo"
    command = [sys.executable, "-m", "shoal.cli.main", "demo", "--devices", str(devices)]
    before, begin = _children_s(), time.perf_counter()
    done = subprocess.run(
        [*command, "--json", str(results), "--out", str(out)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    wall, cpu = time.perf_counter() - begin, _children_s() - before
    if done.returncode:
        raise RuntimeError(f"shoal demo ended with {done.returncode}: {done.stderr[-2_000:]}")
    check(json.loads(results.read_text())["reports"], devices * len(questions()))
    return Sample(devices * len(questions()), wall, cpu)


def check(reports: dict[str, object], wanted: int) -> None:
    """Raise RuntimeError unless all that were wanted were acknowledged and counted."""
    right = {"acknowledged": wanted, "counted": wanted, "unknown": 0, "refused": {}}
    if reports != right:
        raise RuntimeError(f"the demo lost or doubled a report: {reports}, where {right} is right")


def _children_s() -> float:
    """Core-seconds of this process's children that have ended, and of theirs: the demo waits for
    each of its own.
    """
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _outcome(pairs: Pairs, devices: int, cores: int) -> Outcome:
    whole = devices == 20_190
    return Outcome(
        (
            Figure(
                "CPU",
                pairs.against(lambda sample: sample.cpu_us),
                goal=Goal(at_most=2.5) if whole else None,
            ),
            Figure("time", pairs.against(lambda sample: sample.wall / sample.units), RATIO),
            Figure(
                "from the start to the last line",
                tuple(sample.wall for sample in pairs.subjects),
                SECONDS,
                goal=Goal(at_most=_PROMISED_S) if whole else None,
            ),
            spread("the demo's CPU", pairs.subjects, lambda sample: sample.cpu, SECONDS),
            Figure(
                "bare seals and opens of as many reports: CPU",
                tuple(
                    sample.cpu / sample.units * pairs.subjects[0].units for sample in pairs.limits
                ),
                SECONDS,
            ),
            spread(
                "the demo's CPU per report",
                pairs.subjects,
                lambda sample: sample.cpu_us,
                MICROSECONDS,
            ),
            spread(
                "bare seals and opens per report: CPU",
                pairs.limits,
                lambda sample: sample.cpu_us,
                MICROSECONDS,
            ),
        ),
        (
            f"{devices:,} devices, {pairs.subjects[0].units:,} reports, {cores} cores; every "
            "report acknowledged and counted, or this fails",
            "the limit is in as many processes as there are cores, each warm; the demo starts "
            "seven or more, makes keys, tasks and certificates, delivers, certifies, and draws "
            "its page",
        ),
    )
