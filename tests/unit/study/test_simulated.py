"""A deployment that is played: errors as predicted, drop-outs, and what hostile devices can do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.entropy import SeededEntropy
from shoal.errors import ShoalError
from shoal.study.hostile import candidates, reach_of
from shoal.study.reports import tally_of
from tests.cases import for_each
from tests.sizes import size

RUNS = size(150, 1_000)
DESIGNS: list[dict[str, Any]] = [
    {"epsilon0": 2},
    {"labels": ["a", "b", "c"], "epsilon0": 2},
    {"labels": list("abcdef"), "epsilon0": 1, "mechanism": "unary"},
    {"labels": list("abcdef"), "epsilon0": 2, "mechanism": "local_hash"},
    {"low": 0, "high": 24, "levels": 5, "epsilon0": 3},
    {"low": -1, "high": 1, "levels": 9, "epsilon0": 2, "mechanism": "piecewise"},
    {"low": 0, "high": 24, "levels": 4, "epsilon0": 3, "mechanism": "krr"},
]


@for_each("asked", DESIGNS)
def test_the_simulated_error_is_the_predicted_one(asked: dict[str, Any]) -> None:
    """Within five standard errors of the mean square (a false alarm in fewer than one of 10^6
    seeds, and the seeds are fixed), and intervals cover. Planted: drop-outs that are counted in the
    truth; a mean's rounding left out of the prediction; levels as its truth -> fails.
    """
    question = shoal.design(**asked)
    played = question.simulate(n=2_000, drop_out=0.25, runs=RUNS, simulation_seed=5)
    errors = played.errors
    one = (errors.high**2 - errors.observed**2) / 1.96
    assert abs(errors.predicted**2 - errors.observed**2) <= 5 * one, played
    assert errors.runs == RUNS
    # five standard deviations of a binomial
    least = 0.95 - 5 * math.sqrt(0.95 * 0.05 / RUNS)
    assert all(isinstance(each, float) and each >= least for each in played.table["covered"])
    assert abs(played.reports - 1_500) <= 5 * math.sqrt(2_000 * 0.25 * 0.75 / RUNS)


def test_a_mean_is_that_of_the_values_and_not_of_their_levels() -> None:
    """Planted: the mean of the levels as the truth -> the predicted error is too large."""
    coarse = shoal.design(low=0, high=10, levels=2, epsilon0=8)
    played = coarse.simulate(values=[5.0] * 1_000, runs=RUNS, simulation_seed=2)
    # one bit of rounding alone is 5 / sqrt(1000) = 0.158
    assert 0.15 < played.errors.predicted < 0.17
    assert played.table["truth"][0] == 5.0
    assert 0.12 < played.errors.observed < 0.20


@for_each("asked", DESIGNS[:4])
def test_what_hostile_devices_reach_is_what_an_attack_does(asked: dict[str, Any]) -> None:
    """An attack that is played: hostile reports in place of honest ones move the estimate by the
    figure, but for noise. For labels it is h (1 / (p - q)) less what the replaced reports counted
    for. Planted: one hostile report too few; the rest not taken out -> fails.
    """
    question = shoal.design(**asked)
    entropy = SeededEntropy(3)
    labels = question.domain.labels
    cells = np.resize(np.arange(len(labels), dtype=np.int64), 6_000)
    reports = question.mechanism.randomize(cells, entropy)
    honest = tally_of(question.mechanism, reports)
    before = question.mechanism.estimate(honest).values
    reach = reach_of(question.mechanism, question.domain, honest, 600, entropy)
    best: np.float64 = np.float64(0)
    for lie in candidates(question.mechanism, question.domain, entropy):
        attacked = reports.copy()
        attacked[:600] = lie
        after = question.mechanism.estimate(tally_of(question.mechanism, attacked)).values
        best = max(best, after[0] - before[0])
    noise = 5 * question.mechanism.estimate(honest).stderr[0] * math.sqrt(0.1)
    assert abs(best - reach.up[0]) <= noise
    assert reach.up[0] > 600 * (1 - 1 / len(labels)) - noise
    assert (reach.down <= 0).all()
    none = reach_of(question.mechanism, question.domain, honest, 0, entropy)
    assert not none.up.any()


def test_the_best_lie_is_found_among_a_few_reports() -> None:
    """Of k-ary response it is the label itself, worth 1 / (p - q). Planted: candidates drawn from
    the first label alone, of a long report -> the last label's is not among them.
    """
    question = shoal.design([f"l{i}" for i in range(200)], epsilon0=3, mechanism="unary")
    found = candidates(question.mechanism, question.domain, SeededEntropy(1))
    heard = tally_of(question.mechanism, np.concatenate(found))
    assert (heard.counts > 0).all()
    krr = shoal.design(["a", "b"], epsilon0=2)
    ratio = math.exp(2)
    gap = (ratio - 1) / (ratio + 2)
    played = krr.simulate(n=3_000, shares=[0, 1], hostile=0.1, runs=2, simulation_seed=1)
    assert played.hostile_devices == 300
    up = played.table["hostile_up"][0]
    assert isinstance(up, float)
    assert abs(up - 300 / gap * (1 - 1 / (ratio + 2))) < 30


def test_batches_that_are_too_small_and_promises_for_the_honest() -> None:
    """Planted: the promise of all reports in place of the honest ones -> fails."""
    yes = shoal.design()
    played = yes.simulate(
        n=1_000, drop_out=0.5, hostile=0.2, min_batch=900, runs=5, simulation_seed=1
    )
    assert played.released == 0
    assert "0 % of the batches released" in played.headline
    # rounded up: what they can do is not made smaller
    assert yes.simulate(n=105, hostile=0.01, runs=2).hostile_devices == 2
    assert played.promise.epsilon == yes.certify(900, honest_fraction=0.8).epsilon
    assert yes.simulate(n=1_000, min_batch=1_000, runs=2).released == 1


def test_people_are_known_or_made_up() -> None:
    """Planted: ``n`` people cut off the values' beginning in place of a part of each -> fails."""
    sport = shoal.design(["never", "daily"], epsilon0=6)
    known = sport.simulate(n=500, values=["never"] * 600 + ["daily"] * 400, runs=2)
    assert known.table["truth"] == [300.0, 200.0, 0.0]
    by_label = sport.simulate(n=1_000, shares={"daily": 0.25, "no answer": 0.75}, runs=2)
    assert by_label.table["truth"] == [0.0, 250.0, 750.0]
    alike = sport.simulate(n=1_000, runs=2)
    assert alike.table["truth"] == [500.0, 500.0, 0.0]
    pets = shoal.design(["cat", "dog"], kind="words", epsilon0=4)
    words = pets.simulate(values=["cat", "axolotl", None, "cat"] * 100, runs=3)
    assert words.table["truth"] == [200.0, 0.0, 100.0]
    assert "collisions" in repr(words)
    assert "hostile" not in repr(alike.table)
    assert "<svg" in alike.plot().svg


def test_a_seed_repeats_a_simulation_and_nothing_else_does() -> None:
    """Planted: a default seed -> fails."""
    yes = shoal.design()
    first, again = (repr(yes.simulate(n=500, runs=5, simulation_seed=9)) for _ in range(2))
    assert first == again
    assert repr(yes.simulate(n=500, runs=5)) != repr(yes.simulate(n=500, runs=5))


@for_each(
    "argument, given",
    [
        ("n", {}),
        ("n", {"n": 1}),
        ("n", {"n": 10**9}),
        ("runs", {"n": 10, "runs": 1}),
        ("drop_out", {"n": 10, "drop_out": 1}),
        ("drop_out", {"n": 10, "drop_out": -0.1}),
        ("hostile", {"n": 10, "hostile": 1.5}),
        ("hostile", {"n": 10, "hostile": "10 %"}),
        ("min_batch", {"n": 10, "min_batch": 11}),
        ("shares", {"n": 10, "shares": [0.5]}),
        ("shares", {"n": 10, "shares": {"maybe": 1}}),
        ("shares", {"n": 10, "shares": "half"}),
        ("shares", {"n": 10, "shares": [1, 0], "values": [True]}),
        ("values", {"values": []}),
        ("values", {"values": ["maybe"]}),
        ("delta", {"n": 10, "delta": 0}),
    ],
)
def test_what_is_wrong_is_named(argument: str, given: dict[str, Any]) -> None:
    """Before anything is drawn. Planted: ``drop_out=1`` let through -> a batch of nobody."""
    with pytest.raises((TypeError, ValueError)) as refused:
        shoal.design().simulate(**given)
    assert isinstance(refused.value, ShoalError)
    assert str(refused.value).split(":")[0] == argument
