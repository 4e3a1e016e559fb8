"""The audit's own arithmetic: exact limits, no peeking, and statistics that are what they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy

from shoal.accounting.audit.audit import (
    AuditResult,
    Distinguisher,
    audit,
    lower_limit,
    measured_lower,
    permute,
    shuffled_views,
    upper_limit,
)
from shoal.domain import Categories
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import create, design
from shoal.privacy import FiniteLaw, KaryLaw, PureLaw
from tests.cases import for_each
from tests.sizes import size
from tests.unit.accounting.laws import kary

COUNTS = [
    (0, 1),
    (1, 1),
    (0, 100),
    (3, 100),
    (50, 100),
    (97, 100),
    (100, 100),
    (1, 10**6),
    (1234, 10**6),
    (999_999, 10**6),
    (31, 10**7),
]


@for_each("hits, trials", COUNTS)
@for_each("error", [0.3, 0.025, 5e-7, 1e-12])
def test_limits_are_those_of_the_beta_law(hits: int, trials: int, error: float) -> None:
    """To 1e-8, and on the safe side. Planted: P(> hits) in place of P(>= hits), the other end of
    the bisection -> fails.
    """
    low = scipy.stats.beta.ppf(error, hits, trials - hits + 1) if hits else 0.0
    high = scipy.stats.beta.isf(error, hits + 1, trials - hits) if hits < trials else 1.0
    found_low, found_high = lower_limit(hits, trials, error), upper_limit(hits, trials, error)
    # scipy's own quantiles are good to some 1e-12.
    assert low * (1 - 1e-8) <= found_low <= low * (1 + 1e-11)
    assert high * (1 - 1e-11) <= found_high <= min(1.0, high * (1 + 1e-8))
    assert 0.0 <= found_low <= hits / trials <= found_high <= 1.0


@pytest.mark.parametrize("trials", [1, 7, 40])
def test_coverage_at_every_probability(trials: int) -> None:
    """P(limit > p) <= error for p on a fine grid and at the limits themselves, exactly. Planted:
    error doubled -> fails.
    """
    for error in (0.1, 0.01):
        lows = np.array([lower_limit(hits, trials, error) for hits in range(trials + 1)])
        highs = np.array([upper_limit(hits, trials, error) for hits in range(trials + 1)])
        for p in np.concatenate(
            [np.linspace(0.001, 0.999, 199), lows[1:] * (1 - 1e-9), highs[:-1] * (1 + 1e-9)]
        ):
            law = scipy.stats.binom.pmf(np.arange(trials + 1), trials, p)
            assert law[lows > p].sum() <= error * (1 + 1e-9)
            assert law[highs < p].sum() <= error * (1 + 1e-9)


def test_what_is_refuted() -> None:
    """Planted: delta not subtracted; p_low / q_low -> fails."""
    p, q = lower_limit(900, 1000, 0.005), upper_limit(100, 1000, 0.005)
    assert measured_lower(900, 100, 1000, 0.0, 0.01) == pytest.approx(math.log(p / q), rel=1e-9)
    assert measured_lower(900, 100, 1000, 0.1, 0.01) == pytest.approx(
        math.log((p - 0.1) / q), rel=1e-9
    )
    assert measured_lower(900, 100, 1000, 0.9, 0.01) == 0.0
    assert measured_lower(500, 500, 1000, 0.0, 0.01) == 0.0
    assert measured_lower(0, 0, 1000, 0.0, 0.01) == 0.0


def test_false_alarms_when_there_is_nothing_to_find() -> None:
    """Two equal series with 40 useless statistics, false_alarm = 0.05: at most that share of audits
    may measure more than 0.

    Binomial at 0.05, five standard deviations over the seeds. Planted: the event chosen on the
    trials that judge it -> about one audit in two measures something, this fails.
    """
    runs, alarms = size(80, 2000), 0
    for run in range(runs):
        draws = np.random.default_rng(run)

        def views(
            which: int, trials: int, draws: np.random.Generator = draws
        ) -> dict[str, np.ndarray]:
            return {f"noise {i}": draws.random(trials) for i in range(40)}

        alarms += audit(views, 0.0, 0.0, 200, false_alarm=0.05, at_once=100).refuted
    assert alarms <= 0.05 * runs + 5 * math.sqrt(0.05 * 0.95 * runs)


@for_each("above", [True, False])
@for_each("likelier", [0, 1])
def test_every_side_and_direction_is_found(above: bool, likelier: int) -> None:
    """One answer has a mass that the other lacks, at either end. Planted: one side, or one
    direction, not tried -> fails.
    """
    draws = np.random.default_rng(5)

    def views(which: int, trials: int) -> dict[str, np.ndarray]:
        spike = (draws.random(trials) < 0.3) & (which == likelier)
        return {
            "useless": draws.random(trials),
            "value": np.where(spike, 2.0 if above else -2.0, draws.random(trials)),
        }

    result = audit(views, 1.0, 0.1, 4000)
    assert (result.event.statistic, result.event.above, result.event.likelier) == (
        "value",
        above,
        likelier,
    )
    assert result.refuted
    assert result.trials == 2000
    assert result.hits_other < 0.01 * 2000 < 0.25 * 2000 < result.hits_likelier


def test_all_trials_are_made_once_and_counted() -> None:
    """Odd numbers too. Planted: the last portion left out -> fails."""
    made, told = [0, 0], list[int]()

    def views(which: int, trials: int) -> dict[str, np.ndarray]:
        made[which] += trials
        return {"value": np.full(trials, float(which))}

    result = audit(views, 1.0, 0.0, 1001, at_once=64, progress=told.append)
    assert made == [1001, 1001]
    assert sum(told) == 2002
    assert result.trials == 501
    assert {result.hits_likelier, result.hits_other} == {501, 0}


def test_views_are_tallies_of_the_real_randomizer() -> None:
    """The counts that the statistics see are those that ``tally`` sees, and the likelihood ratio is
    that of the histogram.

    Planted: little-endian cells -> fails at 300 cells (two bytes).
    """
    domain = Categories(tuple(f"c{i}" for i in range(299)))
    mechanism = create(design("krr", domain, 5.0), domain)
    law, n, trials = mechanism.privacy(), 7, 50
    assert isinstance(law, KaryLaw)
    values = np.full((trials, n), 299, dtype=np.int64)
    values[:, -1] = 260
    reports = mechanism.randomize(values.reshape(-1), SeededEntropy("tally"))
    views = shuffled_views(mechanism, law, n, SeededEntropy("tally"), answers=(260, 2), others=299)
    found = views(0, trials)
    counts = np.array([mechanism.tally(batch).counts for batch in reports.reshape(trials, n, 2)])
    assert np.array_equal(found["reports of the first answer"], counts[:, 260])
    assert np.array_equal(found["reports of the second answer"], counts[:, 2])
    same, other = law.same / law.total, law.other / law.total

    def density(cell: int) -> np.ndarray:
        weights = np.ones(300)
        weights[cell], weights[299] = same / other, other / same
        return counts @ weights

    assert found["log likelihood ratio"] == pytest.approx(
        np.log(density(260) / density(2)), abs=1e-9
    )
    assert found["reports of the first answer"].sum() > 5  # not vacuous


def test_a_permutation_is_uniform() -> None:
    """Where the last report goes: chi-square over 5 places. Planted: one word per row instead of
    per report -> fails.
    """
    rows = np.tile(np.arange(5), (5000, 1))
    moved = permute(rows, SeededEntropy("order"))
    assert np.array_equal(np.sort(moved, axis=1), rows)
    for value in range(5):
        assert (
            scipy.stats.chisquare(
                np.bincount(np.argmax(moved == value, axis=1), minlength=5)
            ).pvalue
            > 1e-6
        )


def test_bad_numbers() -> None:
    def views(which: int, trials: int) -> dict[str, np.ndarray]:
        return {"value": np.zeros(trials)}

    cases = (
        (99, 0.1, 0.1, "trials"),
        (1000, 1.0, 0.1, "delta"),
        (1000, -0.1, 0.1, "delta"),
        (1000, 0.1, 0.0, "alarm"),
    )
    for trials, delta, false_alarm, word in cases:
        with pytest.raises(ShoalError, match=word) as error:
            audit(views, 1.0, delta, trials, false_alarm=false_alarm)
        assert error.value.kind is Kind.CONFIG
    for hits, total, wrong in ((-1, 5, 0.1), (6, 5, 0.1), (0, 0, 0.1), (1, 5, 0.0), (1, 5, 1.0)):
        for limit in (lower_limit, upper_limit):
            with pytest.raises(ShoalError):
                limit(hits, total, wrong)
    mechanism = create(design("krr", Categories(("a", "b")), 1.0), Categories(("a", "b")))
    entropy = SeededEntropy(1)
    three, unknown = kary(3, 1.0), PureLaw(mechanism.privacy().max_ratio)
    for law, answers, others in (
        (three, (0, 3), None),
        (three, (1, 1), None),
        (three, (0, 1), -1),
        (unknown, (0, 1), None),
    ):
        with pytest.raises(ShoalError) as error:
            shuffled_views(mechanism, law, 5, entropy, answers=answers, others=others)
        assert error.value.kind is Kind.INVALID
    with pytest.raises(ShoalError, match="no output"):
        shuffled_views(mechanism, FiniteLaw(((2, 1), (1, 2))), 5, entropy)(0, 50)


def test_json() -> None:
    result = AuditResult(1.25, 1.0, 0.01, 1e-6, Distinguisher("value", False, 3.0, 1), 500, 90, 10)
    assert result.to_json() == {
        "epsilon_measured_lower": 1.25,
        "epsilon_claimed": 1.0,
        "refuted": True,
        "delta": 0.01,
        "confidence": 1.0 - 1e-6,
        "event": "value <= 3",
        "trials": 500,
        "hits_likelier": 90,
        "hits_other": 10,
    }
