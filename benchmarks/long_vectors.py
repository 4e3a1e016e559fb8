"""Long vectors of secure aggregation: how often one is in memory at a device, and what their
release costs the analyzer.

In this process, without services: memory is what Python and numpy ask for (tracemalloc), beyond the
device's own numbers. A release is written in a process of its own, whose peak of resident memory is
compared with the one before.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np

from benchmarks.bench import Bench
from benchmarks.figures import MEGABYTES, RATIO, SECONDS, Figure, Goal, Outcome
from shoal.accounting.sums.sum_task import check_sum
from shoal.analyzer.rounds.sum_release import conclude_sums
from shoal.analyzer.rounds.sums import StoredSum
from shoal.clients.rounds.agent import noisy
from shoal.crypto import hpke
from shoal.crypto.secagg import pads, words
from shoal.crypto.signing import SigningKey
from shoal.crypto.suites import SuiteId
from shoal.crypto.trust import ServedTask
from shoal.entropy import SYSTEM
from shoal.ids import Digest, TaskId
from shoal.task import Task
from tests.worlds.sums import designed, task_of

TITLE = "long vectors: memory of a device, and of their release"
_NEIGHBOURS = 50
_ROOT = Path(__file__).resolve().parent.parent


def run(bench: Bench) -> Outcome:
    """Peaks in vectors of 8 bytes per coordinate, CPU beside them."""
    dimension = bench.pick(10_000, 100_000, 1_000_000)
    task, own = _task(dimension), np.full(dimension, dimension**-0.5)
    noisy(task, own, SYSTEM)  # the table of its noise is made once
    answered = [_measured(lambda: noisy(task, own, SYSTEM), dimension) for _ in _times(bench)]
    vector, key = noisy(task, own, SYSTEM), hpke.generate(SuiteId.X25519_AES128)
    sealed = [_measured(lambda: _seal(task, vector, key), dimension) for _ in _times(bench)]
    told = json.loads(
        subprocess.run(
            [sys.executable, "-m", "benchmarks.long_vectors", str(dimension)],
            cwd=_ROOT,
            capture_output=True,
            check=True,
            text=True,
        ).stdout
    )
    figures = (
        _peak(f"device, {dimension:,} coordinates: clip, round, add noise", answered, 1.3),
        _peak(f"device, {dimension:,} coordinates: mask and seal", sealed, 1.3),
        Figure("device, clip, round, add noise: CPU", tuple(s for _, s in answered), SECONDS),
        Figure("device, mask and seal: CPU", tuple(s for _, s in sealed), SECONDS),
        Figure("analyzer, the release: peak of memory", (told["peak"],), MEGABYTES),
        Figure("analyzer, the release: size", (told["size"],), MEGABYTES),
        Figure("analyzer, the release: CPU", (told["seconds"],), SECONDS),
    )
    return Outcome(figures, (f"{_NEIGHBOURS} pads; peaks beyond the device's own numbers",))


def _times(bench: Bench) -> range:
    return range(bench.repetitions)


def _peak(what: str, found: list[tuple[float, float]], goal: float) -> Figure:
    values = tuple(peak for peak, _ in found)
    return Figure(f"{what}: peak / vector", values, RATIO, Goal(at_most=goal))


def _measured(work: Callable[[], object], dimension: int) -> tuple[float, float]:
    """(peak in vectors, seconds of CPU), each of a run of its own."""
    begin = time.process_time()
    work()
    seconds = time.process_time() - begin
    tracemalloc.start()
    try:
        work()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak / (8 * dimension), seconds


def _seal(task: Task, vector: np.ndarray[tuple[int], np.dtype[np.int64]], key: object) -> bytes:
    assert task.pairwise is not None
    bits, private = task.pairwise.word_bits, cast(hpke.HpkePrivateKey, key)
    masked = words.append_checks(vector, words.check_constants(bytes(32), bits), bits)
    pads.apply_all(masked, [(bytes([at] * 48), 1) for at in range(_NEIGHBOURS)])
    return hpke.seal(private.config, masked.data.cast("B"), b"long vectors")


def _task(dimension: int) -> Task:
    draft = task_of(designed(dimension), delta=1e-5)
    return replace(draft, target_epsilon=check_sum(draft).epsilon_upper)


def _release(dimension: int) -> dict[str, float]:
    """Write a release of one sum; in a process of its own."""
    task = _task(dimension)
    served = cast(ServedTask, Served(task))
    sums = [StoredSum(Digest(bytes(32)), task.min_batch, np.arange(dimension))]
    key = SigningKey.generate()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.process_time()
    outcome = conclude_sums(served, 0, sums, {}, [], key)
    seconds = time.process_time() - begin
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3
    return {"peak": peak, "size": len(outcome.release) / 1e6, "seconds": seconds}


class Served:
    """A task as its release wants it."""

    def __init__(self, task: Task) -> None:
        self.task, self.task_id = task, TaskId(bytes(32))


if __name__ == "__main__":
    json.dump(_release(int(sys.argv[1])), sys.stdout)
