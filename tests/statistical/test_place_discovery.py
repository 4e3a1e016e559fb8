"""Places found part by part: predicted against measured, by the production randomizer."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from shoal.analyzer.discovery.plan import DiscoveryRequest, plan_discovery
from shoal.analyzer.discovery.played import Population, simulate_discovery
from shoal.entropy import SeededEntropy
from shoal.mechanisms.several.events import below
from shoal.mechanisms.several.levels import histogram_of
from shoal.questions.coordinates import degrees
from tests.sizes import size
from tests.worlds.place_trees import CITY

RUNS = size(12, 200)
CROWDS = 12  # cells of the smallest size with just as many devices as are found with 95 %
REQUEST = DiscoveryRequest(2_400, 3.0, 1e-6, first=2, longest=4, most=64, alphabet=CITY)


def middle(symbols: bytes) -> str:
    """A place in a cell."""
    south, west, north, east = CITY.edges(symbols)
    return f"{degrees((south + north) // 2)}, {degrees((west + east) // 2)}"


@pytest.mark.timeout(size(300, 3_000))
def test_cells_err_as_predicted_and_crowded_ones_are_found() -> None:
    """200 runs at full counts, 12 at reduced ones, of one population: twelve cells of the smallest
    size with as many devices as the plan finds with 95 %, and scattered devices.

    Over all cells that any level asked for, whether they reached the threshold or not: the mean
    square error is that of the stated standard errors, and intervals of 95 % hold the truth in 94
    to 97 of 100. (Errors of a run are independent, some 900 of them: 11,000 at reduced counts, so
    that five standard deviations are 1 % of the coverage and 6 % of the square error.) Of cells
    that reached the threshold alone, which is a choice by their own noise, fewer: nothing is
    promised of those. The twelve are found in 95 of 100 cases or more, less five standard
    deviations; cells that nobody is in are found half a time in a run or less, plus five of them.

    Planted: a standard error without the noise -> fails; intervals of 90 % -> fails; a threshold
    twice as high -> crowds are missed; one of half the height -> false ones.
    """
    plan = plan_discovery(REQUEST)
    entropy = SeededEntropy("crowds of places")
    crowds = {bytes(below(16, entropy) for _ in range(4)) for _ in range(CROWDS)}
    held = Counter({middle(cell): plan.found_from for cell in sorted(crowds)})
    south, west, north, east = CITY.edges(b"")
    while held.total() < REQUEST.n:
        latitude, longitude = below(north - south, entropy), below(east - west, entropy)
        held[f"{degrees(south + latitude)}, {degrees(west + longitude)}"] += 1
    population = Population.of(plan.discovery, held)
    assert population.n == REQUEST.n
    scores, covered = list[np.ndarray](), list[np.ndarray]()
    found, false = 0, 0
    for run in range(RUNS):
        done = simulate_discovery(plan, population, SeededEntropy(f"run {run}"))
        for level in done:
            made, estimate = histogram_of(plan.made, level.level), level.estimate
            predicted = made.expected_stderr(REQUEST.n)
            errors = estimate.values - level.counts
            scores.append(errors / predicted)
            covered.append((estimate.ci_low <= level.counts) & (level.counts <= estimate.ci_high))
            false += sum(not level.true(one) for one in level.found)
        last = {one.symbols for one in done[-1].found} if len(done) == 3 else set[bytes]()
        found += len(crowds & last)
    cells = np.concatenate(scores)
    assert abs(float(np.mean(cells))) < 5 / math.sqrt(cells.size)
    assert abs(float(np.mean(cells**2)) - 1) < 5 * math.sqrt(2.2 / cells.size)
    assert 0.94 <= float(np.mean(np.concatenate(covered))) <= 0.97
    trials = RUNS * len(crowds)
    assert found >= trials * 0.95 - 5 * math.sqrt(trials * 0.95 * 0.05)
    assert false <= RUNS * 0.5 + 5 * math.sqrt(RUNS * 0.5)
