"""Local randomizers on whole arrays: against the stream of random words that any exact randomizer must draw from."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.bench import Bench
from benchmarks.figures import MICROSECONDS, RATE, Figure, Outcome, Sample, alternate, spread
from shoal.domain import Categories, Domain, Numeric, YesNo
from shoal.entropy import SYSTEM
from shoal.mechanisms import Mechanism, create, design

TITLE = "reports randomized and tallied per second / 64-bit words of an AES-256-CTR stream per second"
_EPSILON0 = 3.0
_ALONE = 200  # reports randomized one at a time per run
_BLOCK = 16_384  # words per draw: the keystream stays in cache, as it does in a randomizer
_MEMBERS: tuple[tuple[str, str, Domain], ...] = (
    ("binary, yes/no", "binary_rr", YesNo()),
    ("krr, 16 cells", "krr", Categories(tuple(f"c{i}" for i in range(15)))),
    ("krr, 1,000 cells", "krr", Categories(tuple(f"c{i}" for i in range(999)))),
    ("kmean, 21 levels", "kmean", Numeric(0.0, 20.0, 21, clip=True, unit="visits")),
)


def run(bench: Bench) -> Outcome:
    count, repetitions = bench.pick(2_000, 1_000_000, 4_000_000), bench.repetitions
    ratios, rates, singles = [], [], []
    for title, name, domain in _MEMBERS:
        mechanism = create(design(name, domain, _EPSILON0), domain)
        values = np.arange(count, dtype=np.int64) % domain.size
        reports = np.ascontiguousarray(mechanism.randomize(values, SYSTEM)[:, 0, :])
        words = partial(_words, count)
        randomized = alternate(repetitions, words, partial(_timed, count, partial(mechanism.randomize, values, SYSTEM)))
        tallied = alternate(repetitions, words, partial(_timed, count, partial(mechanism.tally, reports)))
        alone = [_timed(_ALONE, partial(_alone, mechanism)) for _ in range(repetitions)]
        ratios += [Figure(f"{title}: randomize", randomized.rates()), Figure(f"{title}: tally", tallied.rates())]
        rates += [
            spread(f"{title}: randomize", randomized.subjects, lambda sample: sample.rate, RATE),
            spread(f"{title}: tally", tallied.subjects, lambda sample: sample.rate, RATE),
        ]
        singles.append(spread(f"{title}: randomize one report", alone, lambda sample: sample.wall / sample.units * 1e6, MICROSECONDS))
        limit = spread("AES-CTR words", (*randomized.limits, *tallied.limits), lambda sample: sample.rate, RATE)
    return Outcome((*ratios, *rates, *singles, limit), (f"{count:,} reports per run, one process, epsilon0 = {_EPSILON0:g}",))


def _alone(mechanism: Mechanism) -> None:
    """One report at a time, as a device does it."""
    for _ in range(_ALONE):
        mechanism.randomize_one(0, SYSTEM)


def _words(count: int) -> Sample:
    def draw() -> None:
        for _ in range(0, count, _BLOCK):
            SYSTEM.words(_BLOCK)

    return _timed(-(-count // _BLOCK) * _BLOCK, draw)


def _timed(units: int, work: Callable[[], object]) -> Sample:
    begin, cpu = time.perf_counter(), time.process_time()
    work()
    return Sample(units, time.perf_counter() - begin, time.process_time() - cpu)
