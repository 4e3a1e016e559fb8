"""Places on a map, counted from single messages: predicted against measured errors, and what the
95 % intervals cover, the devices' places held fixed.

Reports are drawn from the mechanism's stated law (that ``randomize`` has it is enumerated in the
conformance suite) and estimated by the production code. A town: most devices in a few cells, some
cells empty, a few devices elsewhere.

**False alarms.** Of a right mechanism the mean squared error of all cells, over the predicted one,
has a standard deviation below 3 % over 200 runs (measured, over seeds): 15 % is five of them. Of
each cell the exact limits of Clopper and Pearson for the coverage, wrong with probability 1e-6,
leave room for 94 %; the share of all cells and runs lies within 94 % and 97 %: covered counts of a
run hang together, and their standard deviation is 0.3 %. The seeds are fixed.

Planted: errors predicted of even places; intervals of half their width -> fails.
"""

from __future__ import annotations

import numpy as np
import pytest

from shoal.accounting.audit.audit import upper_limit
from shoal.mechanisms import Tally, create, design
from shoal.mechanisms.maps.planar import PlanarResponse
from shoal.questions.places import Places
from tests.sizes import size

RUNS = size(200, 1_000, 4_000)
TOWN = Places(48_100_000, 11_500_000, 48_136_000, 11_554_000, 6, 6)


@pytest.mark.parametrize(("setting", "epsilon0"), [("cut", 4.0), ("clamped", 8.0)])
def test_counts_err_as_predicted_and_are_covered(setting: str, epsilon0: float) -> None:
    mechanism = create(design("planar", TOWN, epsilon0, setting), TOWN)
    assert isinstance(mechanism, PlanarResponse)
    rows = mechanism.response.table.probabilities()
    rows = rows / rows.sum(axis=1, keepdims=True)
    held = np.zeros(37, dtype=np.int64)
    held[[7, 8, 13, 14]] = 4_000
    held[20:30] = np.arange(10) * 150
    held[36] = 60
    coins, squares, inside = np.random.default_rng(17), np.zeros(37), np.zeros(37, dtype=np.int64)
    for _ in range(RUNS):
        counts = sum(coins.multinomial(count, rows[cell]) for cell, count in enumerate(held))
        estimate = mechanism.estimate(Tally(np.asarray(counts, dtype=np.int64), int(held.sum())))
        squares += (estimate.values - held) ** 2
        inside += (estimate.ci_low <= held) & (held <= estimate.ci_high)
    predicted = mechanism.expected_stderr(held) ** 2
    assert 0.85 < squares.sum() / RUNS / predicted.sum() < 1.15
    assert all(upper_limit(int(hits), RUNS, 1e-6) >= 0.94 for hits in inside), inside / RUNS
    assert 0.94 <= inside.sum() / RUNS / 37 <= 0.97
