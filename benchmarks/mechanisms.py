"""Local randomizers on whole arrays: against the stream of random words that any exact randomizer
must draw from.

Everything here runs on one core without waiting for anything, so what counts is core-seconds: other
programs take time away, but not these. They still take caches away: where they ran, or where the
stream's own rate (the last line) is below 5e8 words/s, compare the ratios.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.bench import Bench
from benchmarks.figures import (
    MICROSECONDS,
    RATE,
    SECONDS,
    Figure,
    Goal,
    Outcome,
    Sample,
    alternate,
    spread,
)
from shoal.domain import Categories, Domain, Numeric, YesNo
from shoal.entropy import SYSTEM
from shoal.mechanisms import Mechanism, create, design
from shoal.mechanisms.categories.hadamard import HadamardBit, least_flip

TITLE = (
    "reports randomized and tallied per core-second / 64-bit words of an AES-256-CTR stream per "
    "core-second"
)
_EPSILON0 = 3.0
_ALONE = 200  # reports randomized one at a time per run
_BLOCK = 16_384  # words per draw: the keystream stays in cache, as it does in a randomizer
_WIDE = 1 << 20  # cells: beyond what a task may ask for, not beyond what one Hadamard bit serves


def _cells(k: int) -> Categories:
    return Categories(tuple(f"c{i}" for i in range(k - 1)))


@dataclass(frozen=True, slots=True)
class _Member:
    """``share``: one in so many of the reports of a run, where a report costs more than a few
    words. Goals in reports per core-second.
    """

    title: str
    name: str
    domain: Domain
    share: int = 1
    randomize: float | None = None
    tally: float | None = None


_MEMBERS = (
    _Member("binary, yes/no", "binary_rr", YesNo(), randomize=3e8),
    _Member("krr, 16 cells", "krr", _cells(16), randomize=3e7, tally=1e8),
    _Member("krr, 1,000 cells", "krr", _cells(1000), randomize=3e7, tally=1e8),
    _Member("kmean, 21 levels", "kmean", Numeric(0.0, 20.0, 21, clip=True, unit="visits")),
    _Member("unary, 1,024 cells", "unary", _cells(1024), 200, randomize=1.5e5, tally=1e6),
    _Member("local hashing, 1,024 cells", "local_hash", _cells(1024), 8, tally=1e6),
    _Member("subset, 1,024 cells", "subset", _cells(1024), 200),
    _Member("Hadamard bit, 1,024 cells", "hadamard", _cells(1024)),
    _Member("Hadamard response, 1,024 cells", "hadamard_response", _cells(1024)),
    _Member("projective geometry response, 1,024 cells", "projective", _cells(1024)),
)


def run(bench: Bench) -> Outcome:
    """How fast mechanisms draw and tally, beside drawing the random words alone."""
    most, repetitions = bench.pick(2_000, 1_000_000, 4_000_000), bench.repetitions
    ratios, rates, singles = [], [], []
    for member in _MEMBERS:
        mechanism = create(design(member.name, member.domain, _EPSILON0), member.domain)
        count = max(most // member.share, 200)
        values = np.arange(count, dtype=np.int64) % member.domain.size
        reports = np.ascontiguousarray(mechanism.randomize(values, SYSTEM)[:, 0, :])
        words = partial(_words, most)
        randomized = alternate(
            repetitions, words, partial(_timed, count, partial(mechanism.randomize, values, SYSTEM))
        )
        tallied = alternate(
            repetitions, words, partial(_timed, count, partial(mechanism.tally, reports))
        )
        alone = [
            _timed(_ALONE, partial(_alone, mechanism, member.domain.size))
            for _ in range(repetitions)
        ]
        for way, pairs, goal in (
            ("randomize", randomized, member.randomize),
            ("tally", tallied, member.tally),
        ):
            what = f"{member.title}: {way}"
            ratios.append(Figure(what, pairs.against(_rate)))
            rates.append(
                Figure(
                    what,
                    tuple(map(_rate, pairs.subjects)),
                    RATE,
                    None if goal is None else Goal(at_least=goal),
                )
            )
        singles.append(
            spread(
                f"{member.title}: randomize one report",
                alone,
                lambda sample: sample.cpu_us,
                MICROSECONDS,
            )
        )
        limit = spread("AES-CTR words", (*randomized.limits, *tallied.limits), _rate, RATE)
    notes = (
        f"{most:,} reports per run, fewer where one costs more; one process, epsilon0 = "
        f"{_EPSILON0:g}",
    )
    return Outcome((*ratios, *rates, *singles, _wide(bench), limit), notes)


def _rate(sample: Sample) -> float:
    """Units per core-second."""
    return sample.units / sample.cpu


def _wide(bench: Bench) -> Figure:
    """Counting, transforming and estimating at once: what an analyzer waits for."""
    cells, count = bench.pick(1 << 10, _WIDE, _WIDE), bench.pick(2_000, 1_000_000, 1_000_000)
    mechanism = HadamardBit(tuple(map(str, range(cells))), least_flip(_EPSILON0))
    reports = mechanism.randomize(np.arange(count, dtype=np.int64) % cells, SYSTEM)[:, 0, :]
    runs = [
        _timed(count, lambda: mechanism.estimate(mechanism.tally(reports)))
        for _ in range(bench.repetitions)
    ]
    what = f"Hadamard bit, {cells:,} cells: {count:,} reports to estimates"
    return Figure(what, tuple(sample.cpu for sample in runs), SECONDS, goal=Goal(at_most=1.0))


def _alone(mechanism: Mechanism, cells: int) -> None:
    """One report at a time, as a device does it."""
    for value in range(_ALONE):
        mechanism.randomize_one(value % cells, SYSTEM)


def _words(count: int) -> Sample:
    def draw() -> None:
        for _ in range(0, count, _BLOCK):
            SYSTEM.words(_BLOCK)

    return _timed(-(-count // _BLOCK) * _BLOCK, draw)


def _timed(units: int, work: Callable[[], object]) -> Sample:
    begin, cpu = time.perf_counter(), time.process_time()
    work()
    return Sample(units, time.perf_counter() - begin, time.process_time() - cpu)
