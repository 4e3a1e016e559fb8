"""Figures of a load test: percentiles, the rate while it runs, and what a report costs on this
machine.
"""

from __future__ import annotations

import math
import time
from array import array
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.arrays import np
from shoal.clients.fleet.misbehaviour import Carrier
from shoal.clients.fleet.reporter import Reporter
from shoal.clients.fleet.share import Share, SimulatedTask
from shoal.crypto.envelope import (
    NONCE_SIZE,
    HopContent,
    open_frame,
    open_report,
    report_info,
    seal_frame,
    seal_report,
)
from shoal.crypto.hpke import generate
from shoal.ids import TaskId

if TYPE_CHECKING:
    from shoal.clients.core import Assignment

_RANKS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}


def percentiles(latencies_ms: array[float]) -> dict[str, float]:
    """Milliseconds by nearest rank: the smallest value that at least that share of the values
    doesn't exceed. Empty for none.
    """
    ordered = np.sort(np.asarray(latencies_ms))
    if not len(ordered):
        return {}
    return {
        name: float(ordered[max(0, math.ceil(share * len(ordered)) - 1)])
        for name, share in _RANKS.items()
    }


class Meter:
    """The rate of a growing count over the last ``span_s`` seconds."""

    def __init__(self, span_s: float = 3.0) -> None:
        self._span_s = span_s
        self._seen: deque[tuple[float, int]] = deque()

    def rate(self, now: float, count: int) -> float:
        """Per second, after ``count`` at ``now`` (seconds on a clock that never goes back); 0 until
        there are two looks.
        """
        self._seen.append((now, count))
        while len(self._seen) > 2 and self._seen[1][0] <= now - self._span_s:
            self._seen.popleft()
        (begin, before), (end, after) = self._seen[0], self._seen[-1]
        return (after - before) / (end - begin) if end > begin else 0.0


def peak_memory_bytes() -> int:
    """The largest resident set that this process had; 0 where the system does not tell.
    (``ru_maxrss`` may be its parent's.)
    """
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return next(
        (int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("VmHWM:")), 0
    )


@dataclass(frozen=True, slots=True)
class LoadCost:
    """One report of a task, measured here, on one core: seconds of CPU to make and to open both
    layers, and the frame's bytes.
    """

    make_s: float
    open_s: float
    frame_bytes: int
    sealed_bytes: int


def cost_of(
    task: SimulatedTask,
    authorities: frozenset[bytes],
    roots: tuple[bytes, ...],
    prepare: bool = False,
    count: int = 64,
) -> LoadCost:
    """Make ``count`` reports as a simulated device does, and open as many of the same shape as the
    services do. Sends nothing.

    ``prepare``: without the encapsulations, which are made before the clock starts. Raises what
    verifying the task raises.
    """
    values = tuple(task.values[index % len(task.values)] for index in range(count))
    share = Share(
        (replace(task, values=values),),
        authorities,
        0,
        1,
        1,
        Carrier.GRPC,
        None,
        0.0,
        1.0,
        roots,
        prepare=prepare,
    )
    reporter = Reporter(share)
    assignment = reporter.assignment(0)
    if prepare:
        reporter.prepare()
    frame = b""
    begin = time.process_time()
    for device in range(count):
        assignment = reporter.assignment(0)
        frame = reporter.report(assignment, reporter.window(0), 0, device).frame
    made = time.process_time() - begin
    opened, sealed_bytes = _opening(assignment, count)
    return LoadCost(made / count, opened / count, len(frame), sealed_bytes)


def _opening(assignment: Assignment, count: int) -> tuple[float, int]:
    """(seconds to open both layers ``count`` times, bytes that the shuffler stores for one report).
    With keys of our own.
    """
    task = assignment.task
    analyzer, hop = (
        generate(assignment.keys.analyzer_keys[0].suite),
        generate(assignment.keys.hop_keys[0].suite),
    )
    task_id, window, key_id = TaskId(bytes(TaskId.SIZE)), 0, analyzer.config.key_id
    report = bytes(task.report_size)
    sealed = tuple(
        seal_report(analyzer.config, task_id, window, bytes(NONCE_SIZE), report)
        for _ in range(_messages(assignment))
    )
    frame = seal_frame(hop.config, HopContent(task_id, window, bytes(32), key_id, b"", sealed))
    info = report_info(task_id, window, key_id)
    begin = time.process_time()
    for _ in range(count):
        for message in open_frame(hop, frame).sealed:
            open_report(analyzer, info, message)
    return time.process_time() - begin, sum(map(len, sealed))


def _messages(assignment: Assignment) -> int:
    """Of one report: where it draws how many, as many as the mean, to the nearest."""
    made = assignment.several
    return assignment.task.messages if made is None else round(float(made.mean_messages))
