"""Our frequency randomizers beside those of pure-ldp and multi-freq-ldpy: speed of both sides, and
squared error per report.

The same devices' cells, the same number of reports, one thread each, CPU time, and turn by turn:
every run of ours stands between two of theirs. All of it is seen from a user's place: from cells to
reports, and from reports to an estimate of every cell. Ours are drawn by the array from a cipher's
stream, theirs one by one from Python's and numpy's Mersenne twister.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.bench import Bench
from benchmarks.figures import RATE, Figure, Outcome
from shoal.domain import Categories
from shoal.entropy import SYSTEM
from shoal.mechanisms import Mechanism, create, design

TITLE = (
    "our randomizers / those of pure-ldp and multi-freq-ldpy: reports per core-second, and squared "
    "error"
)
INSTALL = "pure-ldp and multi-freq-ldpy were not measured: `make peers` makes their environment"
PYTHON = Path(__file__).resolve().parent.parent / ".venv-peers" / "bin" / "python"
_EPSILON0 = 1.0
_ERROR_RUNS = 40  # of ours: the error of a few says little at 16 cells
_NOTES = (
    "epsilon0 = 1; cell i is held by a share of devices proportional to 1 / (i + 1); as many "
    "reports for each library",
    "multi-freq-ldpy's estimates are biased: what is below 0 becomes 0 and the rest is divided by "
    "its sum; that hides noise in empty cells",
)


@dataclass(frozen=True, slots=True)
class Protocol:
    """One randomizer, who else has it, and (cells, reports a run): as many as the slowest of them
    does in a few seconds.
    """

    title: str
    name: str
    setting: str
    libraries: tuple[str, ...]
    sizes: tuple[tuple[int, int], ...]


BOTH = ("pure-ldp", "multi-freq-ldpy")
PROTOCOLS = (
    Protocol(
        "k-ary", "krr", "", BOTH, ((16, 20_000), (128, 20_000), (1024, 20_000), (65_536, 5_000))
    ),
    Protocol("optimized unary", "unary", "oue", BOTH, ((16, 10_000), (128, 10_000), (1024, 2_000))),
    Protocol(
        "local hashing",
        "local_hash",
        "olh",
        BOTH,
        ((16, 10_000), (128, 5_000), (1024, 1_000), (65_536, 20)),
    ),
    Protocol(
        "Hadamard bit",
        "hadamard",
        "",
        ("pure-ldp",),
        ((16, 20_000), (128, 20_000), (1024, 20_000), (65_536, 20_000)),
    ),
    Protocol(
        "subset", "subset", "", ("multi-freq-ldpy",), ((16, 10_000), (128, 10_000), (1024, 2_000))
    ),
)


@dataclass(frozen=True, slots=True)
class Run:
    """CPU seconds of ``reports`` reports on either side, and the mean over cells of the squared
    error of the estimated counts.
    """

    reports: int
    randomize_s: float
    aggregate_s: float
    squared: float

    @property
    def rates(self) -> tuple[float, float]:
        """Reports per core-second, drawn and collected. No clock here is finer than a
        microsecond.
        """
        return self.reports / max(self.randomize_s, 1e-6), self.reports / max(
            self.aggregate_s, 1e-6
        )


def run(bench: Bench) -> Outcome:
    """Our randomizers beside those of other libraries, where these are installed."""
    python = Path(os.environ.get("SHOAL_PEERS_PYTHON", PYTHON))
    peers = None if bench.pick(True, False, False) or not python.exists() else Peers(python)
    comparison = _Found(bench, peers)
    try:
        for protocol in bench.pick(PROTOCOLS[:1], PROTOCOLS, PROTOCOLS):
            for cells, reports in protocol.sizes[: bench.pick(1, 3, 4)]:
                comparison.measure(protocol, cells, reports)
    finally:
        if peers is not None:
            peers.close()
    if peers is None:
        comparison.notes.append(INSTALL)
    return Outcome((*comparison.ratios, *comparison.rates), (*_NOTES, *comparison.notes))


@dataclass
class _Found:
    """The figures so far."""

    bench: Bench
    peers: Peers | None
    ratios: list[Figure] = field(default_factory=list)
    rates: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def measure(self, protocol: Protocol, cells: int, reports: int) -> None:
        """One protocol at one number of cells, ours alone and then beside each library that has
        it.
        """
        what = f"{protocol.title}, {cells:,} cells"
        domain = Categories(tuple(f"c{i}" for i in range(cells - 1)))
        mechanism = create(design(protocol.name, domain, _EPSILON0, protocol.setting), domain)
        values = zipf(cells, reports)
        ours = partial(timed, mechanism, values)
        ours()
        runs = [ours() for _ in range(self.bench.pick(2, 10, _ERROR_RUNS))]
        formula = float(
            np.mean(mechanism.expected_stderr(np.bincount(values, minlength=cells)) ** 2)
        )
        self.ratios.append(
            Figure(
                f"{what}: squared error / its formula",
                (statistics.fmean(one.squared for one in runs) / formula,),
            )
        )
        self.rates += _absolute(f"{what}, ours", runs)
        for library in protocol.libraries:
            if self.peers is None:
                continue
            pairs = beside(
                self.bench.repetitions,
                partial(self.peers.run, library, protocol.name, cells, values),
                ours,
            )
            if isinstance(pairs, str):
                self.notes.append(f"{library}, {what}: {pairs}")
                continue
            self._beside(what, library, pairs, formula)

    def _beside(self, what: str, library: str, pairs: Beside, formula: float) -> None:
        for side, name in enumerate(("randomize", "estimate")):
            self.ratios.append(Figure(f"{what}: {name}, ours / {library}", pairs.against(side)))
        error = statistics.fmean(one.squared for one in pairs.theirs) / formula
        self.ratios.append(Figure(f"{what}: squared error of {library} / our formula", (error,)))
        self.rates += _absolute(f"{what}, {library}", pairs.theirs)


def _absolute(what: str, runs: Sequence[Run]) -> list[Figure]:
    """Rates, and the squared error per report (the variance of a cell's count over n)."""
    error = statistics.fmean(one.squared / one.reports for one in runs)
    return [
        Figure(f"{what}: randomize", tuple(one.rates[0] for one in runs), RATE),
        Figure(f"{what}: estimate", tuple(one.rates[1] for one in runs), RATE),
        Figure(f"{what}: squared error per report", (error,), ""),
    ]


@dataclass(frozen=True, slots=True)
class Beside:
    """Runs in the order theirs, ours, theirs, ..., theirs."""

    theirs: tuple[Run, ...]
    ours: tuple[Run, ...]

    def against(self, side: int) -> tuple[float, ...]:
        """Our rate over the mean of their two around it; ``side``: 0 to draw, 1 to estimate."""
        around = [
            (a.rates[side] + b.rates[side]) / 2
            for a, b in zip(self.theirs, self.theirs[1:], strict=False)
        ]
        return tuple(one.rates[side] / limit for one, limit in zip(self.ours, around, strict=True))


def beside(
    repetitions: int, theirs: Callable[[], Run | str], ours: Callable[[], Run]
) -> Beside | str:
    """Both in turn; or what the other library said instead."""
    theirs_measured: list[Run] = []
    subjects: list[Run] = []
    for turn in range(repetitions + 1):
        one = theirs()
        if isinstance(one, str):
            return one
        theirs_measured.append(one)
        if turn < repetitions:
            subjects.append(ours())
    return Beside(tuple(theirs_measured), tuple(subjects))


def zipf(cells: int, count: int) -> NDArray[np.int64]:
    """The same cells in every run, int64[count]: largest shares first, in shuffled-looking order (a
    fixed stride).
    """
    weights = 1.0 / np.arange(1, cells + 1)
    bounds = np.rint(np.cumsum(weights / weights.sum()) * count).astype(np.int64)
    ordered = np.searchsorted(bounds, np.arange(count), side="right").astype(np.int64)
    stride = next(
        step for step in range(max(1, int(count * 0.618)), count + 2) if np.gcd(step, count) == 1
    )
    return ordered[np.arange(count) * stride % count]


def squared_error(counts: NDArray[np.float64], values: NDArray[np.int64]) -> float:
    """Mean over cells of the squared error of estimated counts of devices."""
    return float(np.mean((counts - np.bincount(values, minlength=counts.size)) ** 2))


def timed(mechanism: Mechanism, values: NDArray[np.int64]) -> Run:
    """CPU seconds of drawing and of estimating, and the squared error."""
    begin = time.process_time()
    reports = mechanism.randomize(values, SYSTEM)[:, 0, :]
    drawn = time.process_time()
    estimate = mechanism.estimate(mechanism.tally(reports))
    done = time.process_time()
    return Run(values.size, drawn - begin, done - drawn, squared_error(estimate.values, values))


class Peers:
    """The process of the other libraries; asked by lines of JSON."""

    def __init__(self, python: Path) -> None:
        script = Path(__file__).with_name("peers_child.py")
        # One thread, as ours. Their libraries warn about what they do themselves.
        environment = {
            **os.environ,
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
        }
        environment.pop("PYTHONPATH", None)
        self._process = subprocess.Popen(
            [str(python), str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def run(self, library: str, protocol: str, cells: int, values: NDArray[np.int64]) -> Run | str:
        """One run, or what the library said instead. Raises RuntimeError if the process is gone."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {
            "library": library,
            "protocol": protocol,
            "cells": cells,
            "epsilon": _EPSILON0,
            "values": values.tolist(),
        }
        try:
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError(
                "the process of the other libraries ended: look at its error above, and run `make "
                f"peers` again ({library})"
            )
        told = json.loads(line)
        if "error" in told:
            return str(told["error"])
        return Run(
            values.size,
            told["randomize_s"],
            told["aggregate_s"],
            squared_error(np.array(told["counts"]), values),
        )

    def close(self) -> None:
        """End it and wait for it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
