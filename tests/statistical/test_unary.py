"""Unary encoding measured from outside: the errors that it predicts and reports, and the epsilon0 that its reports give away.

Per cell, over many runs of the same devices with fresh coins: the mean estimate is within 5 of its standard errors of the truth, the
variance within 5 % of ``expected_stderr``^2, the mean square of the standard error that is reported within 5 % of that too, and the 95 %
interval holds the truth in 94 % to 96 % of 10,000 runs. Reduced: 500 runs, variance within 32 %, coverage 90 % to 100 %. These are 5
standard deviations of what they bound, but 3.5 (once in 2,000 per cell) for the variance and 4.6 for the coverage at full size; the
seeds are fixed.

The audit counts the event that tells x from x' best: the bit of x is 1 and that of x' is 0. Its two probabilities differ by the exact
ratio. It refutes a true claim with probability 1e-6 at most, and comes within a few percent of it.

Planted: the variance of empty cells for all of them; p and q exchanged in it; the true bit one sixteenth more often -> the errors fail,
at the reduced size too. Planted: each of ``BROKEN`` -> the audit convicts it.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.accounting.audit import measured_lower
from shoal.domain import Categories
from shoal.entropy import Entropy, SeededEntropy
from shoal.mechanisms import create, design
from shoal.mechanisms.unary import UnaryEncoding, least_one_if_zero
from shoal.privacy import epsilon0_upper
from tests.sizes import FULL, size

WORDS = 1 << 64
HELD = np.array([0, 10_000, 7_000, 2_500, 490, 10])
GROUPS = Categories(("a", "b", "c", "d", "e"))
RUNS, AT_ONCE = size(500, 10_000), 50
WITHIN = 0.05 if FULL else 0.32
COVERAGE = (0.94, 0.96) if FULL else (0.90, 1.0)
TRIALS, FALSE_ALARM = size(200_000, 10_000_000), 1e-6
CASES = [("oue", 0.5), ("oue", 1.0), ("sue", 2.0), ("p=0.9", 3.0), ("p=0.97", 5.0)]


def made(setting: str, epsilon0: float) -> UnaryEncoding:
    mechanism = create(design("unary", GROUPS, epsilon0, setting), GROUPS)
    assert isinstance(mechanism, UnaryEncoding)
    return mechanism


@pytest.mark.parametrize(("setting", "epsilon0"), CASES)
def test_errors_are_as_predicted_and_as_reported(setting: str, epsilon0: float) -> None:
    mechanism, entropy = made(setting, epsilon0), SeededEntropy(f"unary errors {epsilon0} {setting}")
    values = np.tile(np.repeat(np.arange(HELD.size), HELD), AT_ONCE)
    estimates = []
    for _ in range(RUNS // AT_ONCE):
        reports = mechanism.randomize(values, entropy)[:, 0, :]
        estimates += [mechanism.estimate(mechanism.tally(rows)) for rows in np.split(reports, AT_ONCE)]
    found = np.array([estimate.values for estimate in estimates])
    expected = mechanism.expected_stderr(HELD)
    assert (np.abs(found.mean(axis=0) - HELD) < 5 * expected / math.sqrt(RUNS)).all()
    assert np.abs(found.var(axis=0, ddof=1) / expected**2 - 1).max() < WITHIN
    reported = np.mean([estimate.stderr**2 for estimate in estimates], axis=0)
    assert np.abs(reported / expected**2 - 1).max() < 0.05
    covered = np.mean([(estimate.ci_low <= HELD) & (estimate.ci_high >= HELD) for estimate in estimates], axis=0)
    assert covered.min() >= COVERAGE[0]
    assert covered.max() <= COVERAGE[1]


def refuted(device: UnaryEncoding, x: int, other: int) -> float:
    """The largest epsilon0 that the event refutes."""
    hits = []
    for cell in (x, other):
        rows = device.randomize(np.full(TRIALS, cell), SeededEntropy(f"unary audit {cell}"))[:, 0, 0]
        hits.append(int(((rows >> (7 - x)) & 1 > (rows >> (7 - other)) & 1).sum()))
    return measured_lower(hits[0], hits[1], TRIALS, 0.0, FALSE_ALARM)


@pytest.mark.parametrize(("x", "other"), [(0, 3), (5, 1)])
@pytest.mark.parametrize(("setting", "epsilon0"), CASES)
def test_an_audit_finds_no_more_than_is_claimed_and_nearly_that(setting: str, epsilon0: float, x: int, other: int) -> None:
    mechanism = made(setting, epsilon0)
    assert (0.97 if FULL else 0.8) * epsilon0 < refuted(mechanism, x, other) <= epsilon0_upper(mechanism.privacy())


class TrueBitKept(UnaryEncoding):
    """The true bit is drawn with p on top of what it was drawn with q: the forgotten reset of an old library."""

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        reports = super().randomize(values, entropy)
        late = entropy.words(values.size) < np.uint64(self.one_if_zero)
        reports[:, 0, 0] |= (late * (1 << (7 - values))).astype(np.uint8)
        return reports


class ShortWords(UnaryEncoding):
    """Random words of 3 bits: thresholds rounded down to eighths."""

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        eighths = [threshold >> 61 << 61 for threshold in (self.one_if_one, self.one_if_zero)]
        return UnaryEncoding(self.labels, *eighths).randomize(values, entropy)


def per_bit(epsilon0: float) -> UnaryEncoding:
    """p : q = (1 - q) : (1 - p) = e^epsilon0: kept by every bit, and the report has two that tell."""
    zero = int(WORDS / (1 + math.exp(epsilon0)))
    return UnaryEncoding(GROUPS.labels, WORDS - zero, zero)


ONE = made("oue", 1.0)
BROKEN: dict[str, UnaryEncoding] = {
    "true bit not reset": TrueBitKept(ONE.labels, ONE.one_if_one, ONE.one_if_zero),
    "epsilon per bit": per_bit(1.0),
    "q of the optimized, p of the symmetric": replace(made("sue", 1.0), one_if_zero=ONE.one_if_zero),
    "q of another p": replace(ONE, one_if_one=3 * (WORDS // 4)),
    "words of 3 bits": ShortWords(ONE.labels, 3 * (WORDS // 4), least_one_if_zero(3 * (WORDS // 4), 1.0)),
}


@pytest.mark.parametrize("defect", BROKEN)
def test_the_same_audit_convicts_a_broken_device(defect: str) -> None:
    """All claim epsilon0 = 1."""
    assert max(refuted(BROKEN[defect], x, other) for x, other in ((0, 3), (5, 1))) > 1.05
