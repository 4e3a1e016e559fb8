"""The mean by k-level randomized response: ratio, error, and honesty when nothing can be said."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shoal.domain import Categories, Numeric, YesNo
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import Tally, create, design
from shoal.mechanisms.categories.krr import KaryResponse
from shoal.mechanisms.numbers.distribution import Distributed
from shoal.mechanisms.numbers.kmean import KaryMean
from shoal.task import MechanismSpec
from tests.cases import for_each

WORDS = 1 << 64
DOMAIN = Numeric(10, 30, 3)  # levels 10, 20, 30 and "no answer"


def mean(uniform: int) -> KaryMean:
    return KaryMean(DOMAIN, KaryResponse(DOMAIN.labels, uniform))


def exact_stderr(mechanism: KaryMean, devices: np.ndarray) -> float:
    """From the law's table and the true cells, without the formula under test: the ratio's
    first-order weights (level - mean) / answered on the linear estimate of each cell, variance
    summed device by device.
    """
    law = mechanism.response.privacy()
    k, p, q = law.k, law.same / law.total, law.other / law.total
    table = np.full((k, k), q) + np.eye(k) * (p - q)
    levels = np.array([10.0, 20.0, 30.0])
    answered = devices[:-1].sum()
    weights = np.append((levels - levels @ devices[:-1] / answered) / answered, 0.0)
    per_report = np.array(
        [sum(weights[v] * ((y == v) - q) / (p - q) for v in range(k)) for y in range(k)]
    )
    variance = table @ per_report**2 - (table @ per_report) ** 2
    return math.sqrt(float(devices @ variance))


def test_an_estimate_by_hand() -> None:
    """k = 4, T = 2^63 (q = 1/8, p - q = 1/2), 800 reports: cells 400, 200, 100 and 100 without
    answer; mean 110/7.
    """
    devices = np.array([400, 200, 100, 100])
    tally = Tally(devices // 2 + 100, 800)
    estimate, cells = mean(WORDS // 2).estimate(tally), mean(WORDS // 2).response.estimate(tally)
    assert estimate.labels == ("mean", "no answer")
    assert estimate.values == pytest.approx([(4000 + 4000 + 3000) / 700, 100])
    assert estimate.coins[0] == pytest.approx(exact_stderr(mean(WORDS // 2), devices))
    assert estimate.stderr[0] == pytest.approx(math.hypot(estimate.coins[0], estimate.rounding[0]))
    assert estimate.stderr[1] == pytest.approx(math.sqrt((100 * 15 + 700 * 7) / 16))
    assert estimate.ci_high[0] - estimate.ci_low[0] == pytest.approx(
        2 * 1.959963984540054 * estimate.stderr[0]
    )
    assert (estimate.ci_low[1], estimate.ci_high[1]) == (cells.ci_low[3], cells.ci_high[3])


@for_each("uniform", [1, WORDS // 100, WORDS // 3, WORDS // 10 * 9])
def test_the_error_has_every_covariance(uniform: int) -> None:
    """Expected counts of 10^6 devices through the formula, against the table. Planted: cells taken
    as independent (variances summed, covariances dropped) -> 2 % to 105 % off and this fails.
    Planted: m1 left out -> fails.
    """
    mechanism, devices = mean(uniform), np.array([600_000, 150_000, 50_000, 200_000])
    p_minus_q, q = mechanism.response.gap, mechanism.response.blanket / 4
    counts = np.round(devices * p_minus_q + 1_000_000 * q).astype(np.int64)
    estimate = mechanism.estimate(Tally(counts, int(counts.sum())))
    assert estimate.coins[0] == pytest.approx(exact_stderr(mechanism, devices), rel=2e-3, abs=1e-6)


@for_each(
    "counts",
    [[0, 0, 0, 0], [0, 0, 0, 800], [100, 100, 100, 500], [1, 0, 0, 1], [120, 120, 120, 440]],
)
def test_without_clear_answers_the_interval_is_the_whole_domain(counts: list[int]) -> None:
    """Nobody, or not clearly anybody, answered: finite numbers, the middle, and an interval that
    certainly holds the mean.

    Planted: the plain ratio -> 0/0, or a mean of thousands with a narrow interval, and this fails.
    """
    estimate = mean(WORDS // 2).estimate(Tally(np.array(counts), sum(counts)))
    assert (estimate.values[0], estimate.stderr[0], estimate.ci_low[0], estimate.ci_high[0]) == (
        20,
        10,
        10,
        30,
    )
    assert np.isfinite(estimate.values).all()


def test_the_whole_domain_interval_ends_where_answers_are_clear() -> None:
    """Answers at 4.9 and 5.1 standard errors above 0. Planted: threshold 0 -> the first is a ratio
    and this fails.
    """
    response = mean(WORDS // 2).response

    def tally(answered: int) -> Tally:
        return Tally(np.array([1000 + answered // 2, 1000, 1000, 5000 - answered // 2]), 8000)

    def clearness(answered: int) -> float:
        devices, errors = response.devices(tally(answered))
        return float((8000 - devices[-1]) / errors[-1])

    below = max(a for a in range(0, 2000, 2) if clearness(a) <= 5)
    assert mean(WORDS // 2).estimate(tally(below)).ci_low[0] == 10
    above = mean(WORDS // 2).estimate(tally(below + 2))
    assert above.stderr[0] != 10
    assert above.values[0] == pytest.approx(10)


def test_few_answers_among_many_devices_stay_honest() -> None:
    """2,000 devices of which 60 answer, epsilon0 = 2: over 300 runs the interval holds the true
    mean at least 92 times in 100 (binomial at 95 %: false alarm 1e-2 at 92 % of 300, at a fixed
    seed), whichever of the two intervals is given.
    """
    mechanism = create(design("kmean", DOMAIN, 2.0), DOMAIN)
    values = np.array([0] * 40 + [2] * 20 + [3] * 1940)
    entropy, held = SeededEntropy("few answers"), 0
    for _ in range(300):
        estimate = mechanism.estimate(mechanism.tally(mechanism.randomize(values, entropy)[:, 0]))
        held += bool(estimate.ci_low[0] <= 10 + 20 / 3 <= estimate.ci_high[0])
    assert held >= 276


def test_levels_scale_the_mean_and_its_error() -> None:
    """The same counts in another unit. Planted: levels as cell numbers -> this fails."""
    counts = np.array([500, 300, 200, 150])
    one = mean(WORDS // 2).estimate(Tally(counts, 1150))
    far = Numeric(-1e9, 1e9, 3)
    other = KaryMean(far, KaryResponse(far.labels, WORDS // 2)).estimate(Tally(counts, 1150))
    assert (other.values[0] + 1e9) / 1e9 == pytest.approx((one.values[0] - 10) / 10)
    assert other.stderr[0] / 1e9 == pytest.approx(one.stderr[0] / 10)


def test_other_domains_are_refused() -> None:
    for domain in (YesNo(), Categories(("a", "b", "c"))):
        with pytest.raises(ShoalError, match="numeric domain"):
            design("kmean", domain, 1.0)
        with pytest.raises(ShoalError, match="numeric domain"):
            create(MechanismSpec.of("kmean", k=domain.size, uniform=5), domain)
    with pytest.raises(ShoalError, match='"k" is 3, but the domain has 4 cells'):
        create(MechanismSpec.of("kmean", k=3, uniform=5), DOMAIN)


def test_a_distribution_is_the_projected_counts() -> None:
    """Without noise to speak of it is the levels' shares, and with it shares still. Planted: shares
    of all devices, not of those that answered -> this fails.
    """
    mechanism = mean(1)
    assert isinstance(mechanism, Distributed)
    spread = mechanism.distribution(Tally(np.array([10, 20, 10, 60]), 100))
    assert spread.shares == pytest.approx([0.25, 0.5, 0.25])
    assert spread.answered == pytest.approx(0.4)
    assert spread.method == "norm-sub"
    assert spread.edges.tolist() == [10, 15, 25, 30]
    assert spread.quantile(0.5) == pytest.approx(20)
    noisy = mean(WORDS // 2).distribution(Tally(np.array([0, 90, 5, 5]), 100))
    assert noisy.shares.tolist() == [0, 1, 0]


def test_a_distribution_of_no_answers_is_flat_and_of_no_reports_refused() -> None:
    spread = mean(1).distribution(Tally(np.array([0, 0, 0, 60]), 60))
    assert (spread.shares.tolist(), spread.answered) == ([1 / 3] * 3, 0.0)
    with pytest.raises(ShoalError, match="no reports") as caught:
        mean(1).distribution(Tally(np.zeros(4, dtype=np.int64), 0))
    assert caught.value.kind is Kind.INVALID
