"""What the score intervals cover, added up exactly over the laws of the counts: no sampling, and no
false alarm.

A grid of randomizers (k-ary response, unary encoding with p = 1/2 and with p near 1, local
hashing), numbers of devices, and holders of the cell. Full size: 11,520 laws. The worst that was
found there is what ``mechanisms.parts.intervals`` states.

Planted: z 5 % too small; the two-component variance replaced by one binomial's; the skewness with
the other sign; the room for whole counts left out, or always there; the two ends of "no" exchanged
-> each fails one of these. (No skewness at all moves what is covered by few parts of a percent,
which the exact figures of tests/conformance/mechanisms/test_intervals.py see.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.accounting.numerics.binomial import pmf
from shoal.domain import Categories
from shoal.mechanisms import create, design
from shoal.mechanisms.base import Tally, Z
from shoal.mechanisms.categories.binary_rr import BinaryResponse
from shoal.mechanisms.categories.hadamard_response import HadamardResponse
from shoal.mechanisms.parts import cells
from shoal.mechanisms.parts.intervals import of_counts
from tests.cases import for_each
from tests.sizes import FULL, size

WORDS = 1 << 64
DEVICES = (20, 28, 45, 80, 137, 300, 900, 3_000) if FULL else (20, 137, 900)
STEPS = size(12, 60)  # of the likelihood ratio, from 1.4 to 8,000
LEAST, WALD = 94.1, 22.6 if FULL else 43.7


@dataclass(frozen=True)
class Covered:
    """``deviation``: of the count, in reports. The others: probabilities that the interval holds
    the truth, in percent.
    """

    case: tuple[float, ...]
    deviation: float
    score: float
    wald: float


def law(n: int, holders: int, p: float, q: float) -> NDArray[np.float64]:
    """float64[n + 1]: P(count) of Bin(holders, p) + Bin(n - holders, q)."""
    mine = pmf(np.arange(holders + 1), holders, p, 1 - p) if holders else np.ones(1)
    others = pmf(np.arange(n - holders + 1), n - holders, q, 1 - q) if n > holders else np.ones(1)
    return np.convolve(mine, others)


def covered(n: int, holders: int, p: float, q: float) -> Covered:
    weights = law(n, holders, p, q)
    counts = np.flatnonzero(weights > 1e-9).astype(np.float64)
    weights = 100 * weights[counts.astype(np.int64)]
    low, high = of_counts(counts, n, p, q, p - q)
    values, errors = cells.unbiased(counts, n, p, q, p - q)
    assert (low <= values).all()
    assert (values <= high).all()
    near = 1e-9 * n
    score = float(weights[(low <= holders + near) & (holders - near <= high)].sum())
    wald = float(weights[np.abs(values - holders) <= Z * errors + near].sum())
    deviation = math.sqrt(holders * p * (1 - p) + (n - holders) * q * (1 - q))
    return Covered((n, holders, round(p, 5), round(q, 7)), deviation, score, wald)


def chances() -> Iterator[tuple[float, float]]:
    """(p, q) of the randomizers, one after the other at growing ratios."""
    for at, ratio in enumerate(np.geomspace(1.4, 8_000, STEPS).tolist()):
        k, g = (3, 16, 1_000)[at % 3], (2, 8, 64)[at % 3]
        p = (0.9, 0.97, 0.999)[at % 3]
        yield ratio / (ratio + k - 1), 1 / (ratio + k - 1)
        yield 0.5, 1 / (1 + ratio)
        yield p, p / (ratio * (1 - p) + p)
        yield ratio / (ratio + g - 1), 1 / g


@cache
def grid() -> tuple[Covered, ...]:
    return tuple(
        covered(n, holders, p, q)
        for n in DEVICES
        for p, q in chances()
        for holders in sorted({0, 1, n // 10, n // 2, n - 1, n})
        if holders * p * (1 - p) + (n - holders) * q * (1 - q) > 1e-4
    )


def test_never_much_less_than_the_level() -> None:
    """Planted: the room for whole counts left out -> 0 %, of counts that are nearly always 0; the
    skewness with the other sign -> 85 %.
    """
    assert min(grid(), key=lambda found: found.score).score >= LEAST


def test_no_more_than_the_level_where_counts_are_fine_enough() -> None:
    """A standard deviation of 6 reports or more: 94 % to 96 %. Below, whole counts leave no choice.

    Planted: half a report of room whatever the deviation -> 96.3 %."""
    fine = [found for found in grid() if found.deviation >= 6]
    assert len(fine) > 150
    assert max(fine, key=lambda found: found.score).score <= 96.0
    assert min(fine, key=lambda found: found.score).score >= 94.0


def test_what_wald_covers_on_the_same_grid() -> None:
    """The reason for all this: stated in ``mechanisms.parts.intervals``."""
    assert min(grid(), key=lambda found: found.wald).wald == pytest.approx(WALD, abs=0.1)


def test_two_binomials_are_less_spread_than_one() -> None:
    """Exactly: V of the module against the variance of the law, and the ends as the roots of the
    quadratic, away from steps and skewness.

    Planted: V as of Bin(n, r), r the average rate -> this fails.
    """
    n, holders, p, q = 40_000, 10_000, Fraction(3, 4), Fraction(1, 4)
    two = holders * p * (1 - p) + (n - holders) * q * (1 - q)
    rate = (holders * p + (n - holders) * q) / n
    assert two < n * rate * (1 - rate)
    count = holders * p + (n - holders) * q
    low, high = of_counts(np.array([float(count)]), n, 0.75, 0.25, 0.5)
    assert (high - low)[0] == pytest.approx(2 * Z * math.sqrt(two) / 0.5, rel=1e-4)
    # here p + q = 1: V does not depend on x, so both ends are z sqrt(V) away, but for the skewness
    for end in (
        low[0],
        high[0],
    ):
        assert abs(end - holders) == pytest.approx(Z * math.sqrt(two) / 0.5, rel=0.005)


@pytest.mark.parametrize(("p", "q"), [(0.9, 0.3), (0.5, 1e-4), (0.999, 0.99)])
def test_ends_are_roots(p: float, q: float) -> None:
    """With many devices skewness is a part of a report: at the ends (v - x)^2 is z^2 V(x)."""
    n = 10**12
    counts = np.array([q * n, (q + (p - q) * 0.3) * n, p * n])
    values, _ = cells.unbiased(counts, n, p, q, p - q)
    for ends in of_counts(counts, n, p, q, p - q):
        line = (ends * (p * (1 - p)) + (n - ends) * (q * (1 - q))) / (p - q) ** 2
        assert (values - ends) ** 2 == pytest.approx(Z**2 * line, rel=1e-3)


@for_each("gap", [1 / WORDS, 1e-9, 1.0 - 1e-12])
@for_each("rows", [0, 1, 2, 10**9, 1 << 61])
def test_every_count_has_an_interval(gap: float, rows: int) -> None:
    """Below 0 and above n as well: finite, and around the estimate. Without reports and with
    any.
    """
    counts = np.array([0.0, min(1.0, rows), rows // 2, rows], dtype=np.float64)
    for q in (1e-19, 1e-6, 0.3):
        if gap + q < 1.0:
            values, _ = cells.unbiased(counts, rows, gap + q, q, gap)
            low, high = of_counts(counts, rows, gap + q, q, gap)
            assert np.isfinite(low).all()
            assert np.isfinite(high).all()
            assert (low <= values).all()
            assert (values <= high).all()


def test_the_ends_of_no_mirror_those_of_yes() -> None:
    """Planted: the two ends exchanged -> low is above high, and this fails."""
    estimate = BinaryResponse(WORDS - WORDS // 100, WORDS // 50).estimate(
        Tally(np.array([75, 25]), 100)
    )
    assert (
        estimate.ci_low[0]
        == 100 - estimate.ci_high[1]
        < estimate.values[0]
        < estimate.ci_high[0]
        == 100 - estimate.ci_low[1]
    )


def response(n: int, holders: int, others: int, mechanism: HadamardResponse) -> float:
    """How often, in percent, the interval of cell 0 holds ``holders``; ``others`` more devices hold
    a cell of its block, the rest do not.

    The sum of a cell is decided by three counts: +1 and -1 of its block, and reports of other
    blocks, which are told apart no further.
    """
    chances = mechanism._chances
    gap, own, other = (float(part) for part in (chances.gap, chances.own, chances.other))
    room = round(holders * own + others * own + (n - holders - others) * other)
    room = min(n, room + 8 * math.isqrt(room) + 12) + 1
    joint = np.zeros((room, room))
    joint[0, 0] = 1.0
    plus, minus = (own + gap) / 2, (own - gap) / 2
    for devices, up, down in (
        (holders, plus, minus),
        (others, own / 2, own / 2),
        (n - holders - others, other / 2, other / 2),
    ):
        for _ in range(devices):
            moved = (1 - up - down) * joint
            moved[1:] += up * joint[:-1]
            moved[:, 1:] += down * joint[:, :-1]
            joint = moved
    found = 0.0
    for ups, downs in zip(*np.nonzero(joint > 1e-9), strict=True):
        outputs = np.zeros((mechanism.blocks, mechanism.order), dtype=np.int64)
        outputs[0, 0], outputs[0, 1] = ups, downs  # row 1 of the matrix: +1 at 0, -1 at 1
        if mechanism.blocks > 1:
            outputs[1, 0] = n - ups - downs
        if outputs.sum() == n:
            estimate = mechanism.estimate(Tally(outputs.reshape(-1), n))
            found += (
                100
                * joint[ups, downs]
                * (estimate.ci_low[0] <= holders + 1e-9 and holders - 1e-9 <= estimate.ci_high[0])
            )
    return found / float(joint.sum())


@for_each(
    "setting, epsilon0, n, holders, others",
    [
        ("B=4", 5.0, 60, 0, 0),  # nobody in the block: less than one report by chance
        ("B=4", 5.0, 60, 0, 2),
        ("B=4", 5.0, 60, 20, 2),
        ("B=4", 1.0, 60, 6, 20),
        ("B=16", 3.0, 80, 0, 0),
        ("B=16", 3.0, 80, 40, 0),
        ("B=16", 7.1, 51, 20, 0),
        ("B=2", 7.9, 87, 0, 8),
        ("B=1", 4.0, 40, 0, 40),
        ("B=1", 1.0, 70, 7, 63),
    ],
)
def test_hadamard_response(
    setting: str, epsilon0: float, n: int, holders: int, others: int
) -> None:
    """Sums of +1 and -1: never less than 94 %.

    Planted: one step in place of two -> 93.2 % for B=2; only the line of ``squares`` -> 63 % for 20
    holders; only the other -> 36 %.
    """
    domain = Categories(tuple(f"{cell}" for cell in range(31)))
    mechanism = create(design("hadamard_response", domain, epsilon0, setting), domain)
    assert isinstance(mechanism, HadamardResponse)
    assert response(n, holders, others, mechanism) >= 94.0


def test_a_full_grid_is_the_one_that_is_stated() -> None:
    assert len(grid()) > (11_000 if FULL else 800)
