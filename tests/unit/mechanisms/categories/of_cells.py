"""What tests of randomizers over k cells have in common: errors against the law in fractions, and
domains that are too large to be listed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.domain import Categories
from shoal.entropy import SeededEntropy
from shoal.mechanisms import Tally
from shoal.mechanisms.base import Mechanism
from tests.sizes import size

WORDS = 1 << 64


def labels(k: int) -> tuple[str, ...]:
    return tuple(map(str, range(k)))


def domain(k: int) -> Categories:
    return Categories(labels(k - 1))


def check_errors(
    mechanism: Mechanism, k: int, outputs: int, chances: Callable[[int], Sequence[Fraction]]
) -> None:
    """The estimate is linear in the reports, each of them one of ``outputs``: its mean and variance
    in fractions, output by output. ``chances``: of every output after a cell.
    """
    weights = []  # what one report of this output adds to every estimate
    for output in range(outputs):
        one = np.zeros(outputs, dtype=np.int64)
        one[output] = 1
        values = mechanism.estimate(Tally(one, 1)).values
        weights.append([Fraction(value) for value in values.tolist()])
    held = np.arange(1, k + 1, dtype=np.int64) ** 2
    for cell, error in enumerate(mechanism.expected_stderr(held)):
        variance = Fraction(0)
        for other, devices in enumerate(held.tolist()):
            after = chances(other)
            assert sum(after) == 1
            mean = sum(c * w[cell] for c, w in zip(after, weights, strict=True))
            assert float(mean) == pytest.approx(float(cell == other), abs=1e-9)
            square = sum(c * w[cell] ** 2 for c, w in zip(after, weights, strict=True))
            variance += devices * (square - mean**2)
        assert error**2 == pytest.approx(float(variance), rel=1e-6)


def check_large(mechanism: Mechanism, k: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """All devices in three cells, the first, a middle and the last: within 5 standard errors, all
    others within 6.5 (false alarm below 2e-5; fixed seeds). Reports drawn one by one are the same.
    The three cells, and the reports.
    """
    cells = np.array([0, k // 2 + 1, k - 1])
    values = cells[np.arange(size(20_000, 300_000)) % 3]
    reports = mechanism.randomize(values, SeededEntropy(k))[:, 0]
    assert mechanism.valid(reports).all()
    truth = np.bincount(values, minlength=k)
    estimate = mechanism.estimate(mechanism.tally(reports))
    misses = np.abs(estimate.values - truth) / mechanism.expected_stderr(truth)
    assert (misses[cells] < 5).all()
    assert misses.max() < 6.5
    for cell in cells.tolist():
        one = mechanism.randomize_one(cell, SeededEntropy(cell))
        assert one == (mechanism.randomize(np.array([cell]), SeededEntropy(cell)).tobytes(),)
    return cells, reports
