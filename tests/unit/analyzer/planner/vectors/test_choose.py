"""Plans for vectors: every figure is proven or predicted by what a task and its release say, and
what is recommended errs least of what keeps the limits.
"""

from __future__ import annotations

import math
import tomllib
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shoal.accounting.of_task import guaranteed
from shoal.accounting.solving.solve_total import total_epsilon
from shoal.accounting.sums.pairwise import certify_sum
from shoal.analyzer.planner.result import Standing
from shoal.analyzer.planner.vectors.asked import VectorRequest
from shoal.analyzer.planner.vectors.choose import plan_vectors
from shoal.analyzer.planner.vectors.task_text import vectors_text
from shoal.analyzer.planner.vectors.way import VectorPlan, VectorWay
from shoal.domain import Norm
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.noise.registry import create_noise
from shoal.mechanisms.quantize import bounds, quantize
from shoal.mechanisms.vectors.privunit import PrivUnit
from shoal.mechanisms.vectors.registry import create
from shoal.privacy import epsilon0_upper
from tests.cases import for_each

DELTA = 1e-6


def planned(n: int = 1_000, dimension: int = 3, epsilon: float = 1.0, **more: Any) -> VectorPlan:
    return plan_vectors(VectorRequest(dimension, 2.0, n, epsilon, DELTA, **more))


def ways(plan: VectorPlan) -> dict[str, VectorWay]:
    return {way.title: way for way in (plan.chosen, *plan.others)}


def check_proven(plan: VectorPlan) -> None:
    """Every epsilon is a certificate's, and all windows keep the target."""
    request = plan.request
    for way in ways(plan).values():
        if way.spec is None or way.domain is None:
            assert math.isnan(way.together)
            continue
        assert way.together <= request.epsilon, way.title
        if way.plan is None:
            law = create(way.spec, way.domain).privacy()
            found = guaranteed(law, request.smallest_batch, request.honest, DELTA)
            assert way.epsilon == found.epsilon_upper
            assert way.epsilon0 == epsilon0_upper(law) <= request.most_epsilon0
            if request.windows > 1:
                together = total_epsilon(law, found.n_honest, DELTA, request.windows)
                assert way.together == together
        else:
            bound = certify_sum(
                way.spec,
                bounds(way.domain),
                request.dimension,
                survivors=way.plan.survivors_min,
                honest_fraction=way.plan.honest_share(request.honest_ppm),
                delta=DELTA,
                mode=way.plan.mode,
            )
            assert (way.epsilon, way.epsilon0) == (bound.epsilon_upper, bound.remaining.together)
            assert way.epsilon <= way.target * (1.0 + 1e-12)


def test_sums_win_where_rounds_can_be_held() -> None:
    """Planted: an error of a sum that is not divided by n -> privunit is recommended, fails."""
    plan = planned(honest=Fraction(9, 10))
    check_proven(plan)
    found = ways(plan)
    assert (plan.chosen.title, plan.chosen.standing) == ("sum, default", Standing.CHOSEN)
    assert found["sum, helper"].error == found["sum, strict"].error == plan.chosen.error
    assert all(way.error >= plan.chosen.error for way in plan.others)
    assert found["privunit"].report_bytes == 18
    assert found["sum, strict"].epsilon0 == found["sum, strict"].epsilon  # both, and still no more


@for_each(
    "limits, chosen",
    [
        ({"enrolled": False}, "privunit"),
        ({"several_visits": False}, "sum, helper"),
        ({"most_epsilon0": 4.0}, "sum, strict"),
        ({"most_epsilon0": 4.0, "several_visits": False}, "privunit"),
        ({"dimension": 100, "most_bytes": 18}, "privunit"),
        ({"ways": ("privunit",)}, "privunit"),
        ({"norm": Norm.L1}, "sum, default"),
        ({"n": 5}, "privunit"),  # a device's own epsilon0 of 1 errs less than one honest share of 3
    ],
)
def test_privunit_is_recommended_only_where_it_wins(limits: dict[str, Any], chosen: str) -> None:
    """Planted: what is over a limit is not left out of the choice -> sums are chosen, fails."""
    plan = planned(**limits)
    check_proven(plan)
    assert plan.chosen.title == chosen
    possible = [way for way in plan.others if way.possible]
    assert all(way.error >= plan.chosen.error * 0.994 for way in possible)
    for way in plan.others:
        assert way.reason, way.title
        assert way.possible == (way.standing is Standing.LOSES)


def test_windows_share_the_target() -> None:
    """Four windows together keep it, and use most of it."""
    plan = planned(windows=4, ways=("privunit", "default"))
    check_proven(plan)
    for title in ("sum, default", "privunit"):
        way = ways(plan)[title]
        assert 0.98 < way.together <= 1.0
        assert way.epsilon < 0.6


def test_rounds_of_a_large_fleet() -> None:
    """30,001 devices are four rounds of 10,000 at most, whose variances add. Planted: the noise of
    one round for all -> half the error, fails.
    """
    plan = planned(n=30_001, ways=("default", "helper"))
    found = ways(plan)
    split, one = found["sum, default"], found["sum, helper"]
    assert (split.rounds, one.rounds) == (4, 1)
    assert split.error / one.error == pytest.approx(2.0, rel=0.01)
    for way in (split, one):
        assert way.spec is not None
        assert way.domain is not None
        step = way.domain.clip / way.domain.grid
        variance = 30_001 * (Fraction(create_noise(way.spec).variance) + Fraction(1, 4))
        assert way.error == pytest.approx(math.sqrt(variance) * step / 30_001, rel=1e-12)


def test_errors_are_those_of_the_draws() -> None:
    """300 devices with one vector of the clip's length, 40 times: the root mean square error over
    the three coordinates is as predicted. 120 nearly normal errors: their mean square is off by 45
    % with probability 1e-3 at most, as chi-squared of 120.
    """
    plan = planned(n=300, ways=("privunit",), enrolled=False)
    way = ways(plan)["privunit K=64"]
    assert way.spec is not None
    assert way.domain is not None
    made = create(way.spec, way.domain)
    assert isinstance(made, PrivUnit)
    true, entropy = np.array([1.0, -1.5, math.sqrt(0.75)]), SeededEntropy("vectors are planned")
    vector = quantize(true, way.domain, entropy).vector
    squares = []
    for _ in range(40):
        reports = made.randomize(np.repeat(vector[None, :], 300, axis=0), entropy)[:, 0]
        squares.append((made.estimate(made.tally(reports)).values - true) ** 2)
    assert math.sqrt(np.mean(squares)) == pytest.approx(way.error, rel=0.23)


@for_each(
    "limits, said",
    [
        ({"epsilon": 0.0}, "--epsilon"),
        ({"epsilon": math.nan}, "--epsilon"),
        ({"windows": 0}, "--windows"),
        ({"drop_out": 1_000_000}, "--drop-out"),
        ({"most_bytes": 0}, "--max-bytes"),
        ({"most_epsilon0": 0.0}, "--max-epsilon0"),
        ({"min_batch": 1_001}, "--min-batch"),
        ({"ways": ("krr",)}, "privunit, default, strict, helper"),
        ({"dimension": 0}, "coordinates"),
        ({"ways": ("privunit",), "norm": Norm.L1}, 'norm = "l2"'),
        ({"ways": ("default",), "enrolled": False}, "enrolled"),
        ({"ways": ("strict",), "several_visits": False}, "minutes"),
        ({"ways": ("privunit",), "dimension": 70_000}, "65,535"),
    ],
)
def test_what_cannot_be_planned(limits: dict[str, Any], said: str) -> None:
    """One line that names the option, or what stands in the way."""
    with pytest.raises(ShoalError) as refused:
        planned(**limits)
    assert refused.value.kind is Kind.CONFIG
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@for_each("way", ["default", "privunit"])
@for_each("honest", [Fraction(9_999_997, 10_000_000), Fraction(7, 10), Fraction(2, 3)])
def test_a_file_never_says_more_honest_devices_than_were_planned_for(
    way: str, honest: Fraction
) -> None:
    """Noise of a file is made for the share that it says. Planted: rounded to the nearest -> of
    0.9999997 it says 1, and fails.
    """
    plan = planned(ways=(way,), honest=honest)
    told = tomllib.loads(vectors_text(plan))["honest_fraction"]
    assert round(told * 10**6) == plan.request.honest_ppm
    assert Fraction(plan.request.honest_ppm, 10**6) <= honest


def test_a_window_whose_delta_hides_a_whole_report_can_be_planned() -> None:
    """Its epsilon is 0, of which no digits can be taken. Planted: taken all the same -> ValueError,
    fails.
    """
    plan = planned(windows=2, ways=("privunit",), most_epsilon0=1e-9)
    assert plan.chosen.epsilon == plan.chosen.together == 0.0
    assert tomllib.loads(vectors_text(plan))["target_epsilon"] == plan.request.epsilon
