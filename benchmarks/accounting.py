"""How long a certificate takes, from a thousand reports to ten million; in units of one exponential over a million numbers."""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np

from benchmarks.bench import Bench
from benchmarks.figures import MILLISECONDS, SECONDS, Figure, Outcome, Sample, alternate, spread
from shoal.accounting import certify
from shoal.domain import Categories, Domain, YesNo
from shoal.mechanisms import create, design
from shoal.privacy import LocalPrivacy, PureLaw

TITLE = "wall time of one certificate / numpy.exp over 1e6 numbers"
_DELTA = 1e-8
_HONEST = 0.9


def _law(name: str, domain: Domain) -> LocalPrivacy:
    return create(design(name, domain, 3.0), domain).privacy()


def run(bench: Bench) -> Outcome:
    laws: dict[str, LocalPrivacy] = {
        "binary": _law("binary_rr", YesNo()),
        "krr, 16 cells": _law("krr", Categories(tuple(f"c{i}" for i in range(15)))),
        "any law of ratio 20": PureLaw(Fraction(20)),
    }
    numbers = np.linspace(-1.0, 1.0, 1_000_000)
    ratios: list[Figure] = []
    times: list[Figure] = []
    limits: list[Sample] = []
    for title, law in laws.items():
        for n in bench.pick((1_000,), (1_000, 100_000, 10_000_000), (1_000, 10_000, 100_000, 1_000_000, 10_000_000)):
            pairs = alternate(
                bench.pick(1, 3, 3),
                partial(_timed, partial(np.exp, numbers)),
                partial(_timed, partial(certify, law, n, _DELTA, honest_fraction=_HONEST)),
            )
            ratios.append(Figure(f"{title}, n = {n:,}", pairs.against(lambda sample: sample.wall)))
            times.append(spread(f"{title}, n = {n:,}", pairs.subjects, lambda sample: sample.wall, SECONDS))
            limits += pairs.limits
    yardstick = spread("numpy.exp over 1e6 numbers", limits, lambda sample: sample.wall * 1000, MILLISECONDS)
    return Outcome((*ratios, *times, yardstick), (f"delta = {_DELTA:g}, honest fraction {_HONEST:g}; upper and lower bound together",))


def _timed(work: Callable[[], object]) -> Sample:
    begin = time.perf_counter()
    work()
    return Sample(1, time.perf_counter() - begin)
