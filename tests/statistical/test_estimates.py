"""Coverage and variance of every estimate of every mechanism, over many runs of the production code
at the demo's size.

Each run randomizes the same 20,190 answers (the bundled survey's distribution, with 190 devices
moved to "no answer") with fresh coins, tallies and estimates them; cells are held fixed
(test_coverage holds values fixed, which are rounded). Per label:

- coverage: the 95 % interval holds the truth in 94 % to 96 % of 20,000 runs (the band is 6.5
  standard deviations of a binomial at 95 %; the distance leaves room for what a lattice of counts
  and a plugged-in variance do to an interval, measured at most 0.5 %);
- variance: the estimates' variance is within 5 % of the law's (5 standard deviations of a sample
  variance, which is sqrt(2 / runs)), where the law's variance is summed here device by device from
  ``privacy()``'s integer table and never from the formula under test; and so is the mean of the
  squared standard errors that are reported;
- bias: the mean estimate is within 5 of its standard errors of the truth.

4,000 runs: coverage 92.5 % to 97.5 %, variance within 16 %. Reduced: 1,000 runs, 91 % to 98.5 %,
22.5 %. Over seeds each assertion would fail in fewer than one of 10^6 (five standard deviations,
6e-7); there are about 150 of them, and the seeds are fixed.

Planted, one at a time, each of these fails here: the variance without its f term (coverage and
reported variance); the uniform cell drawn from the other cells only (bias); a true bit kept when
yes_if_no decides (bias); word % k on 5-bit words (bias); a standard error 5 % too small (reported
variance, at full size); covariances dropped from the mean's error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from shoal.domain import Categories, Numeric, YesNo
from shoal.entropy import SeededEntropy
from shoal.mechanisms import create, design
from shoal.mechanisms.categories.binary_rr import two_coin
from shoal.privacy import FiniteLaw, KaryLaw, LocalPrivacy
from shoal.task import MechanismSpec
from tests.conformance.mechanisms.checks.statistics import of_coins
from tests.sizes import CAMPAIGN, FULL, size

WORDS = 1 << 64
pytestmark = pytest.mark.campaign
RUNS = size(1_000, 4_000, 20_000)
COVERAGE = (0.94, 0.96) if CAMPAIGN else (0.925, 0.975) if FULL else (0.91, 0.985)
VARIANCE = 0.05 if CAMPAIGN else 0.16 if FULL else 0.225
AT_ONCE = 50  # runs randomized by one call

# How many of the survey's 20,190 gave each number of visits, 20 meaning 20 or more.
VISITS = (
    6308,
    3817,
    2797,
    1884,
    1345,
    968,
    689,
    531,
    408,
    287,
    206,
    190,
    118,
    109,
    82,
    59,
    56,
    33,
    37,
    35,
    231,
)
SILENT = 190  # of the 6,308 with no visit, moved to "no answer"
GROUPS = Categories(("0", "1", "2", "3-4", "5-9", "10+"), (0, 1, 2, 3, 5, 10))
LEVELS = Numeric(0, 20, 21, unit="visits")


@dataclass(frozen=True)
class Setup:
    name: str
    spec: MechanismSpec
    domain: YesNo | Categories | Numeric

    def devices(self) -> np.ndarray:
        """int64[cells]: how many devices hold each cell."""
        answered = [VISITS[0] - SILENT, *VISITS[1:]]
        match self.domain:
            case YesNo():
                return np.array([VISITS[0], sum(VISITS[1:])])
            case Categories():
                cells = np.repeat([self.domain.encode(visits) for visits in range(21)], answered)
                return np.append(np.bincount(cells, minlength=6), SILENT)
            case Numeric():
                return np.array([*answered, SILENT])


SETUPS = (
    Setup("binary_rr two coins", two_coin(), YesNo()),
    Setup("binary_rr symmetric, epsilon0 2", design("binary_rr", YesNo(), 2.0), YesNo()),
    Setup(
        "binary_rr asymmetric",
        MechanismSpec.of("binary_rr", yes_if_yes=WORDS // 2, yes_if_no=WORDS // 16),
        YesNo(),
    ),
    Setup("krr 7 cells, epsilon0 3", design("krr", GROUPS, 3.0), GROUPS),
    Setup("krr 7 cells, epsilon0 6", design("krr", GROUPS, 6.0), GROUPS),
    Setup("kmean 22 cells, epsilon0 3", design("kmean", LEVELS, 3.0), LEVELS),
    Setup("kmean 22 cells, epsilon0 5", design("kmean", LEVELS, 5.0), LEVELS),
)


def table(law: LocalPrivacy) -> np.ndarray:
    """float64[inputs, outputs] from the integers of the law."""
    if isinstance(law, KaryLaw):
        rows = [[law.same if x == y else law.other for y in range(law.k)] for x in range(law.k)]
    else:
        assert isinstance(law, FiniteLaw)
        rows = [list(row) for row in law.rows]
    return np.array([[weight / sum(row) for weight in row] for row in rows])


def truth_and_variance(setup: Setup) -> tuple[np.ndarray, np.ndarray]:
    """(truth, variance) per label. A linear estimate is sum over reports of c(y), with c the
    inverse of the law's matrix; its variance is summed over devices. The mean's ratio is taken to
    first order.
    """
    law, devices = table(create(setup.spec, setup.domain).privacy()), setup.devices().astype(float)
    rows = np.linalg.inv(law)  # row y: what a report y adds to the estimate of each cell
    truth = devices
    if isinstance(setup.domain, Numeric):
        answered = devices[:-1].sum()
        mean = np.arange(21) @ devices[:-1] / answered
        weights = np.append((np.arange(21) - mean) / answered, 0.0)
        rows, truth = np.stack([rows @ weights, rows[:, -1]], axis=1), np.array([mean, devices[-1]])
    return truth, devices @ (law @ rows**2 - (law @ rows) ** 2)


@dataclass(frozen=True)
class Outcome:
    values: np.ndarray  # float64[runs, labels]
    stderr: np.ndarray
    held: np.ndarray  # bool[runs, labels]


def run(setup: Setup, truth: np.ndarray) -> Outcome:
    mechanism, devices = create(setup.spec, setup.domain), setup.devices()
    values = np.tile(np.repeat(np.arange(devices.size), devices), AT_ONCE)
    entropy, estimates = SeededEntropy(f"coverage of {setup.name}"), []
    for _ in range(RUNS // AT_ONCE):
        reports = mechanism.randomize(values, entropy).reshape(
            AT_ONCE, devices.sum() * mechanism.messages, mechanism.report_size
        )
        estimates += [mechanism.estimate(mechanism.tally(batch)) for batch in reports]
    held = np.array([(low <= truth) & (truth <= high) for low, high in map(of_coins, estimates)])
    return Outcome(
        np.array([e.values for e in estimates]), np.array([e.coins for e in estimates]), held
    )


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup.name)
def test_coverage_variance_and_bias(setup: Setup) -> None:
    truth, variance = truth_and_variance(setup)
    outcome = run(setup, truth)
    coverage = outcome.held.mean(axis=0)
    assert ((coverage >= COVERAGE[0]) & (coverage <= COVERAGE[1])).all(), (
        f"coverage per label: {coverage}"
    )
    measured = outcome.values.var(axis=0, ddof=1) / variance
    assert (np.abs(measured - 1) < VARIANCE).all(), f"measured variance over the law's: {measured}"
    # The plugged-in variance is far steadier than a sample variance: 2 % at every size.
    reported = (outcome.stderr**2).mean(axis=0) / variance
    assert (np.abs(reported - 1) < 0.02).all(), f"reported variance over the law's: {reported}"
    distance = (outcome.values.mean(axis=0) - truth) / np.sqrt(variance / RUNS)
    assert (np.abs(distance) < 5).all(), f"standard errors from the truth: {distance}"


def test_the_law_s_variance_is_that_of_wang() -> None:
    """The table's variance against the closed formula for k-RR (Wang and others 2017, section 4),
    so that "theory" above is not a formula of this file alone.
    """
    setup = SETUPS[3]
    _, variance = truth_and_variance(setup)
    odds, k, n = math.exp(3), 7, 20_190
    p, q, share = odds / (odds + k - 1), 1 / (odds + k - 1), setup.devices() / n
    closed = n * q * (1 - q) / (p - q) ** 2 + n * share * (1 - p - q) / (p - q)
    assert variance == pytest.approx(closed, rel=1e-9)
