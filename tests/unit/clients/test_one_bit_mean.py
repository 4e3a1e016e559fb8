"""One bit per device in a memoized task: a report and a charge per value, and the fleet's mean as
it was.
"""

from __future__ import annotations

import numpy as np

from shoal.clients.memory.commitments_memory import MemoryCommitments
from shoal.domain import Numeric
from shoal.entropy import SeededEntropy
from shoal.mechanisms import create
from tests.worlds.devices.answers import given, made, told

LEVELS = Numeric(0, 10, 3)


def test_an_unchanged_value_between_two_levels_is_one_report_in_all_windows() -> None:
    """24 windows, three devices. Planted: a fresh point for every rounding -> a second cell is
    drawn and charged, this fails.
    """
    _, assignment = made(memoized=True, domain=LEVELS, mechanism="one_bit_mean", count=24)
    for device in range(3):
        commitments, sent = MemoryCommitments(SeededEntropy(f"book {device}")), set()
        for window in range(24):
            given(assignment, window, 2.5, commitments)
            sent.add(told(commitments)["report"])
        assert len(sent) == 1
        assert sum(charge.nano > 0 for charge in commitments.charges()) == 1


def test_over_a_fleet_the_mean_is_kept() -> None:
    """300 devices hold 3.7, which each rounds to 0 or 5 for good, and 60 hold nothing: the middle,
    5. Within 5 standard errors, of the coins and of the rounding (a false alarm in 1.7 million
    seeds, this one is fixed).

    Planted: rounding always down -> 3.1 too low, this fails.
    """
    _, assignment = made(memoized=True, domain=LEVELS, mechanism="one_bit_mean", epsilon0=4.0)
    mechanism = create(assignment.task.mechanism, LEVELS)
    reports = []
    for device, value in enumerate([3.7] * 300 + [None] * 60):
        commitments = MemoryCommitments(SeededEntropy(f"fleet {device}"))
        given(assignment, 0, value, commitments, entropy=SeededEntropy(f"device {device}"))
        reports.append(bytes.fromhex(str(told(commitments)["report"])))
    rows = np.frombuffer(b"".join(reports), dtype=np.uint8).reshape(360, 1)
    (mean,) = mechanism.estimate(mechanism.tally(rows)).values
    coins = float(mechanism.expected_stderr(np.array([78, 222, 0, 60]))[0])
    assert abs(mean - (300 * 3.7 + 60 * 5) / 360) < 5 * np.hypot(
        coins, np.sqrt(300 * 3.7 * 1.3) / 360
    )
