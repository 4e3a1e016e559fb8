"""Local hashing measured from outside: the errors it predicts and reports, and the epsilon0 that its reports give away.

Per label, over many runs of the same devices with fresh seeds and coins: the mean estimate is within 5 of its standard errors of the
truth, the variance within 5 % of ``expected_stderr``^2, the mean squared standard error that is reported within 5 % of that too, and
the 95 % interval holds the truth in 94 % to 96 % of 10,000 runs. Reduced: 250 runs, variance within 45 %, coverage 88 % to 100 %. These are
5 standard deviations or more of what they bound, but 3.5 (once in 2,000) for the variance at full size; the seeds are fixed.

The audit counts one event, the one that tells x from x' best: the report supports x and not x'. Its two probabilities differ by
e^epsilon0 exactly. Its false-alarm rate is 1e-6, and at these sizes it comes within a few percent of the claim.

Planted: p and q exchanged in ``expected_stderr``, no term for the cell's own devices in the variance, another number for g in q -> the
errors fail, at the reduced size too. One seed for two devices of a block -> the variance of the estimates fails for g = 4. Two broken
devices are convicted below.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.accounting.audit import measured_lower
from shoal.domain import Categories
from shoal.entropy import SeededEntropy
from shoal.mechanisms import create, design
from shoal.mechanisms.local_hash import LocalHash
from shoal.privacy import epsilon0_upper
from tests.sizes import FULL, size

HELD = np.array([0, 10_000, 7_000, 2_500, 490, 10])
GROUPS = Categories(("a", "b", "c", "d", "e"))
RUNS, AT_ONCE = size(250, 10_000), 50
WITHIN = 0.05 if FULL else 0.45
COVERAGE = (0.94, 0.96) if FULL else (0.88, 1.0)
TRIALS, FALSE_ALARM = size(200_000, 10_000_000), 1e-6


def made(epsilon0: float, setting: str) -> LocalHash:
    mechanism = create(design("local_hash", GROUPS, epsilon0, setting), GROUPS)
    assert isinstance(mechanism, LocalHash)
    return mechanism


@pytest.mark.parametrize(("epsilon0", "setting"), [(1.0, "olh"), (1.0, "blh"), (5.0, "g=4"), (6.0, "olh")])
def test_errors_are_as_predicted_and_as_reported(epsilon0: float, setting: str) -> None:
    mechanism, entropy = made(epsilon0, setting), SeededEntropy(f"errors {epsilon0} {setting}")
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


Device = Callable[[LocalHash, int, int, SeededEntropy], NDArray[np.uint8]]


def honest(mechanism: LocalHash, x: int, count: int, entropy: SeededEntropy) -> NDArray[np.uint8]:
    return mechanism.randomize(np.full(count, x), entropy)[:, 0, :]


def per_bit(mechanism: LocalHash, x: int, count: int, entropy: SeededEntropy) -> NDArray[np.uint8]:
    """epsilon0 spent on every bit of the hash value instead of on the report."""
    bare = LocalHash(mechanism.labels, mechanism.g, 1)
    reports, ratio = honest(bare, x, count, entropy), float(mechanism.privacy().max_ratio)
    for bit in range(mechanism.log2_g):
        flips = entropy.words(count) < np.uint64(int(2**64 / (ratio + 1)))
        reports[:, 8] ^= flips.astype(np.uint8) << np.uint8(bit)
    return reports


def threshold_of_two(mechanism: LocalHash, x: int, count: int, entropy: SeededEntropy) -> NDArray[np.uint8]:
    """The threshold of binary local hashing whatever g is."""
    two = design("local_hash", GROUPS, epsilon0_upper(mechanism.privacy()), "blh")
    return honest(LocalHash(mechanism.labels, mechanism.g, two.get("uniform")), x, count, entropy)


def refuted(device: Device, mechanism: LocalHash) -> float:
    """The largest epsilon0 that the event refutes."""
    hits = []
    for x in (0, 3):
        reports = device(mechanism, x, TRIALS, SeededEntropy(f"audit {x}"))
        words = np.ascontiguousarray(reports[:, :8]).view(">u4").astype(np.int64)
        mine, its = ((words[:, 0] * cell + words[:, 1]) % 2**32 * mechanism.g >> 32 for cell in (0, 3))
        hits.append(int(((mine == reports[:, 8]) & (its != reports[:, 8])).sum()))
    return measured_lower(hits[0], hits[1], TRIALS, 0.0, FALSE_ALARM)


@pytest.mark.parametrize(("epsilon0", "setting"), [(0.5, "olh"), (1.0, "g=4"), (3.0, "olh")])
def test_an_audit_finds_no_more_than_is_claimed_and_nearly_that(epsilon0: float, setting: str) -> None:
    mechanism = made(epsilon0, setting)
    found = refuted(honest, mechanism)
    assert (0.98 if FULL else 0.85) * epsilon0 < found <= epsilon0_upper(mechanism.privacy())


@pytest.mark.parametrize("broken", [per_bit, threshold_of_two])
def test_the_same_audit_convicts_a_broken_device(broken: Device) -> None:
    mechanism = made(1.0, "g=4")
    assert refuted(broken, mechanism) > 1.05 * epsilon0_upper(mechanism.privacy())
