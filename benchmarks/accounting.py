"""How long a certificate takes and what memory, from a thousand reports to ten million, for every
route to a bound.

Time in units of one exponential over a million numbers; memory at its peak, above what was there
before, in a run of its own (``tracemalloc`` sees numpy's arrays, and slows the run down).
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np

from benchmarks.bench import Bench
from benchmarks.figures import (
    MEGABYTES,
    MILLISECONDS,
    SECONDS,
    Figure,
    Outcome,
    Sample,
    alternate,
    spread,
)
from shoal.accounting import accountant, certify
from shoal.domain import Categories, Domain, YesNo
from shoal.mechanisms import create, design
from shoal.privacy import FiniteLaw, LocalPrivacy, PureLaw

TITLE = "wall time of one certificate / numpy.exp over 1e6 numbers; its peak memory"
_DELTA = 1e-8
_HONEST = 0.9


def _law(name: str, domain: Domain) -> LocalPrivacy:
    return create(design(name, domain, 3.0), domain).privacy()


def _krr(cells: int) -> LocalPrivacy:
    return _law("krr", Categories(tuple(f"c{i}" for i in range(cells - 1))))


def _certified_anew(law: LocalPrivacy, n: int) -> None:
    """``certify`` keeps its last bounds: a second run would only look one up."""
    accountant._both_ends.cache_clear()
    certify(law, n, _DELTA, honest_fraction=_HONEST)


def run(bench: Bench) -> Outcome:
    """How long certificates take, and what they hold in memory."""
    laws: dict[str, LocalPrivacy] = {
        "binary": _law("binary_rr", YesNo()),
        "krr, 3 cells": _krr(3),
        "krr, 16 cells": _krr(16),
        "krr, 1,024 cells": _krr(1024),
        "table of 3 x 4": FiniteLaw(((12, 5, 4, 3), (3, 12, 5, 4), (4, 3, 12, 5))),
        "any law of ratio 20": PureLaw(Fraction(20)),
    }
    numbers = np.linspace(-1.0, 1.0, 1_000_000)
    ratios: list[Figure] = []
    times: list[Figure] = []
    peaks: list[Figure] = []
    limits: list[Sample] = []
    for title, law in laws.items():
        for n in bench.pick(
            (1_000,), (1_000, 100_000, 10_000_000), (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
        ):
            work = partial(_certified_anew, law, n)
            pairs = alternate(
                bench.pick(1, 3, 3),
                partial(_timed, partial(np.exp, numbers)),
                partial(_timed, work),
            )
            what = f"{title}, n = {n:,}"
            ratios.append(Figure(what, pairs.against(lambda sample: sample.wall)))
            times.append(spread(what, pairs.subjects, lambda sample: sample.wall, SECONDS))
            peaks.append(Figure(f"{what}: peak", (_peak_mb(work),), MEGABYTES))
            limits += pairs.limits
    yardstick = spread(
        "numpy.exp over 1e6 numbers", limits, lambda sample: sample.wall * 1000, MILLISECONDS
    )
    notes = (f"delta = {_DELTA:g}, honest fraction {_HONEST:g}; upper and lower bound together",)
    return Outcome((*ratios, *times, *peaks, yardstick), notes)


def _timed(work: Callable[[], object]) -> Sample:
    begin = time.perf_counter()
    work()
    return Sample(1, time.perf_counter() - begin)


def _peak_mb(work: Callable[[], object]) -> float:
    """Megabytes allocated at once by Python and numpy while ``work`` runs, beyond those at its
    start.
    """
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()
