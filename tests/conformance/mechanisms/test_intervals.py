"""What the intervals of a release cover, added up exactly over the binomial law of a cell's count:
no sampling.

A cell that h of n devices hold is reported Bin(h, p) + Bin(n - h, q) times. Where chance alone
reports it, and leaves it out, 150 times or more, 95 % are 94.8 % to 95.3 %, for empty and heavy
cells alike. Where that is a few times, whole counts leave room for more than 95 %, and never much
less: tests/unit/mechanisms/parts/test_intervals.py goes through the grid. (Wald's intervals, which
were here before, covered an empty cell in the cases below with 94.0, 91.9, 90.4, 92.7 and 86.6 %.)

Planted: Wald's intervals in ``cells.estimated`` -> all of k-ary responses fail. 1.9 for 1.96 -> all
cases of enough reports fail (of few reports it shows only where it moves an end past a whole
count).
"""

from __future__ import annotations

import numpy as np
import pytest

from shoal.accounting.numerics.binomial import pmf
from shoal.domain import Categories
from shoal.mechanisms import create, design
from shoal.mechanisms.base import Tally
from shoal.mechanisms.categories.krr import KaryResponse
from shoal.mechanisms.categories.unary import UnaryEncoding

GROUPS = Categories(("a", "b", "c", "d", "e"))
WORDS = 1 << 64


def coverage(name: str, setting: str, epsilon0: float, n: int, holders: int) -> tuple[float, float]:
    """(probability that the interval holds ``holders``, that it lies above them), in percent."""
    mechanism = create(design(name, GROUPS, epsilon0, setting), GROUPS)
    if isinstance(mechanism, KaryResponse):
        q = mechanism.blanket / mechanism.k
        p = mechanism.gap + q
    else:
        assert isinstance(mechanism, UnaryEncoding)
        p, q = mechanism.one_if_one / WORDS, mechanism.one_if_zero / WORDS
    law = pmf(np.arange(n - holders + 1), n - holders, q, 1 - q)
    if holders:
        law = np.convolve(law, pmf(np.arange(holders + 1), holders, p, 1 - p))
    covered = above = 0.0
    for count in np.flatnonzero(law > 1e-8):
        estimate = mechanism.estimate(Tally(np.array([count, 0, 0, 0, 0, 0]), n))
        covered += 100 * law[count] * (estimate.ci_low[0] <= holders <= estimate.ci_high[0])
        above += 100 * law[count] * (holders < estimate.ci_low[0])
    return float(covered), float(above)


@pytest.mark.parametrize(
    ("name", "setting", "epsilon0", "empty", "light", "heavy"),
    [
        ("krr", "standard", 1.0, 95.0, 94.9, 94.9),
        ("krr", "standard", 4.0, 95.1, 95.2, 94.9),
        ("unary", "oue", 4.0, 95.3, 95.0, 94.9),
        ("unary", "p=0.97", 4.0, 95.0, 95.0, 94.8),
        ("unary", "p=0.999", 4.0, 95.2, 95.0, 95.0),
    ],
)
def test_enough_reports(
    name: str, setting: str, epsilon0: float, empty: float, light: float, heavy: float
) -> None:
    """9,000 devices: an empty cell, one of 74 and one of 5,400."""
    found = [coverage(name, setting, epsilon0, 9_000, holders)[0] for holders in (0, 74, 5_400)]
    assert found == pytest.approx([empty, light, heavy], abs=0.06)


@pytest.mark.parametrize(
    ("name", "setting", "epsilon0", "n", "covered", "above"),
    [
        ("krr", "standard", 6.0, 3_000, 95.9, 1.8),  # reported 7 times by chance
        ("krr", "standard", 8.0, 3_000, 98.1, 1.9),  # once
        ("krr", "standard", 8.0, 300, 99.5, 0.5),  # once in ten batches
        ("unary", "p=0.999", 2.0, 3_000, 94.65, 2.7),  # left out 22 times by chance
        ("unary", "p=0.999", 2.0, 300, 97.55, 0.0),  # twice
    ],
)
def test_few_reports(
    name: str, setting: str, epsilon0: float, n: int, covered: float, above: float
) -> None:
    """Of an empty cell: neither side is missed by much more than its half."""
    assert coverage(name, setting, epsilon0, n, 0) == pytest.approx((covered, above), abs=0.06)
