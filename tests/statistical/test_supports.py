"""Subset selection and both Hadamard randomizers measured from outside: the errors that they predict and report, and the epsilon0 that
their reports give away.

Per cell, over many runs of the same devices with fresh coins: the mean estimate is within 5 of its standard errors of the truth, the
variance within 5 % of ``expected_stderr``^2, the mean square of the standard error that is reported within 5 % of that too, and the 95 %
interval holds the truth in 94 % to 96 % of 10,000 runs. Reduced: 500 runs, variance within 32 %, coverage 90 % to 100 %. These are 5
standard deviations of what they bound, but 3.5 (once in 2,000 per cell) for the variance and 4.6 for the coverage at full size; the
seeds are fixed.

The audit counts the event that tells x from x' best: the report supports x and not x'. Its two probabilities differ by the exact ratio.
It refutes a true claim with probability 1e-6 at most, and comes within a few percent of it.

Planted: q with d / k for (d - p) / (k - 1); strangers of a block counted as those of other blocks; a variance of 1/4 for the whole
Hadamard bit -> the variance fails. Planted: each of ``BROKEN`` -> the audit convicts it.
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
from shoal.mechanisms import Mechanism, create, design
from shoal.mechanisms.hadamard import HadamardBit, least_flip
from shoal.mechanisms.hadamard_response import HadamardResponse, most_include
from shoal.mechanisms.subset import SubsetSelection
from shoal.mechanisms.subset import most_include as most_included
from shoal.privacy import epsilon0_upper
from tests.sizes import FULL, size

HELD = np.array([0, 10_000, 7_000, 2_500, 490, 10])
GROUPS = Categories(("a", "b", "c", "d", "e"))
RUNS, AT_ONCE = size(500, 10_000), 50
WITHIN = 0.05 if FULL else 0.32
COVERAGE = (0.94, 0.96) if FULL else (0.90, 1.0)
TRIALS, FALSE_ALARM = size(200_000, 10_000_000), 1e-6
CASES = [
    ("subset", "standard", 1.0),
    ("subset", "d=1", 4.0),
    ("subset", "d=3", 3.0),
    ("hadamard", "standard", 1.0),
    ("hadamard", "standard", 4.0),
    ("hadamard_response", "B=1", 0.5),
    ("hadamard_response", "standard", 1.0),
    ("hadamard_response", "B=4", 4.0),
]


def made(name: str, setting: str, epsilon0: float) -> Mechanism:
    return create(design(name, GROUPS, epsilon0, setting), GROUPS)


@pytest.mark.parametrize(("name", "setting", "epsilon0"), CASES)
def test_errors_are_as_predicted_and_as_reported(name: str, setting: str, epsilon0: float) -> None:
    mechanism, entropy = made(name, setting, epsilon0), SeededEntropy(f"errors {name} {epsilon0} {setting}")
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


def supports(mechanism: Mechanism, reports: NDArray[np.uint8], cell: int) -> NDArray[np.bool_]:
    """Which of these one-byte reports support the cell, by the bits of docs/WIRE.md."""
    rows, found = reports[:, 0].astype(np.int64), np.zeros(len(reports), dtype=np.bool_)
    match mechanism:
        case SubsetSelection():
            found = (rows >> (7 - cell)) & 1 == 1
        case HadamardBit():
            found = (np.bitwise_count((rows >> 1) & cell) ^ rows) & 1 == 0
        case HadamardResponse():
            row, block = cell // mechanism.blocks + 1, cell % mechanism.blocks
            found = (rows // mechanism.order == block) & (np.bitwise_count(rows % mechanism.order & row) % 2 == 0)
    return found


def refuted(device: Mechanism, x: int, other: int) -> float:
    """The largest epsilon0 that the event refutes."""
    hits = []
    for cell in (x, other):
        reports = device.randomize(np.full(TRIALS, cell), SeededEntropy(f"audit {cell}"))[:, 0, :]
        hits.append(int((supports(device, reports, x) & ~supports(device, reports, other)).sum()))
    return measured_lower(hits[0], hits[1], TRIALS, 0.0, FALSE_ALARM)


@pytest.mark.parametrize(("x", "other"), [(0, 3), (1, 5), (4, 2)])
@pytest.mark.parametrize(("name", "setting", "epsilon0"), CASES)
def test_an_audit_finds_no_more_than_is_claimed_and_nearly_that(name: str, setting: str, epsilon0: float, x: int, other: int) -> None:
    """Pairs of one block and of two."""
    mechanism = made(name, setting, epsilon0)
    assert (0.98 if FULL else 0.9) * epsilon0 < refuted(mechanism, x, other) <= epsilon0_upper(mechanism.privacy())


class TrueBitSet(SubsetSelection):
    """Marks the true cell on top of whatever was drawn: the forgotten reset of an old library."""

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        reports = super().randomize(values, entropy)
        late = np.frombuffer(entropy.bytes(values.size), dtype=np.uint8) < 64
        reports[:, 0, 0] |= (late * (1 << (7 - values))).astype(np.uint8)
        return reports


class SmallWords(HadamardResponse):
    """Which half by the remainder of 3 random bits: the first halves of 2 B - 1 come up twice as often as the last (modulo bias)."""

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        reports = super().randomize(values, entropy)
        bits = np.frombuffer(entropy.bytes(values.size), dtype=np.uint8) % 8 % (2 * self.blocks - 1)
        outside = ~supports(self, reports[:, 0], int(values[0]))
        half = bits + (bits >= 2 * (values % self.blocks))
        place = np.frombuffer(entropy.bytes(values.size), dtype=np.uint8) % (self.order // 2)
        # With row 1 a half is every other output.
        reports[:, 0, 0] = np.where(outside, (half // 2) * self.order + 2 * place + half % 2, reports[:, 0, 0])
        return reports


LABELS = GROUPS.labels
BROKEN: dict[str, Mechanism] = {
    "true bit not reset": TrueBitSet(LABELS, 2, most_included(6, 2, 1.0)),
    "include of another set size": SubsetSelection(LABELS, 1, most_included(6, 2, 1.0)),
    "epsilon per bit of the index and the bit": HadamardBit(LABELS, least_flip(4.0)),
    "half of the flips": replace(HadamardBit(LABELS, least_flip(1.0)), flip=least_flip(1.0) // 2),
    "include of one block": HadamardResponse(LABELS, 4, most_include(1, 1.0)),
    "modulo bias": SmallWords(LABELS, 3, most_include(3, 1.0)),
}


@pytest.mark.parametrize("defect", BROKEN)
def test_the_same_audit_convicts_a_broken_device(defect: str) -> None:
    """All claim epsilon0 = 1."""
    assert max(refuted(BROKEN[defect], x, other) for x, other in ((0, 1), (0, 5), (2, 0))) > 1.05
