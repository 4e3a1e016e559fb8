"""Maps planned and played: what is predicted comes, and the best is named."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import product

import pytest

from shoal.analyzer.planner.deployments.accounts import account
from shoal.analyzer.planner.frontier.maps import WAYS, MapPlan, MapRequest, plan_map
from shoal.analyzer.planner.simulation.maps import _spread_over, play_map
from shoal.analyzer.results.maps.drawing import text_of
from shoal.analyzer.results.maps.released import law_of_rectangles, law_shown, places_of
from shoal.arrays import np
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.categories.krr import KaryResponse
from tests.cases import for_each
from tests.worlds.maps import MAP, town

REQUEST = MapRequest(MAP, 1_500, 1.0, 1e-6)


@cache
def plan() -> MapPlan:
    return plan_map(REQUEST)


def test_every_way_is_looked_at_the_least_error_first() -> None:
    """Planted: sorted by the error of a cell -> fails."""
    assert {way.name for way in plan().ways} | {name for name, _ in plan().unsuited} == set(WAYS)
    errors = [way.rectangle for way in plan().ways]
    assert errors == sorted(errors)
    assert all(way.epsilon <= 1.0 for way in plan().ways)
    finite = {way.name for way in plan().ways if math.isfinite(way.epsilon0)}
    assert finite == {"krr"}


@for_each("name", sorted(WAYS))
def test_the_error_of_rectangles_is_the_mean_over_all(name: str) -> None:
    """Against every rectangle of a 6 x 5 map, by enumeration. Planted: rectangles weighted by their
    cells -> fails.
    """
    way = next(way for way in plan().ways if way.name == name)
    law = law_of_rectangles(way.made, 1_500)
    squares = [
        law.stderr(MAP, (a, b), (c, d), 1_500, 1_500 * (b - a) * (d - c) / MAP.size) ** 2
        for a, b, c, d in product(range(6), range(1, 7), range(5), range(1, 6))
        if a < b and c < d
    ]
    assert way.rectangle == pytest.approx(math.sqrt(np.mean(squares)), rel=1e-9)


@for_each("name", sorted(WAYS))
def test_a_release_is_played_and_drawn(name: str) -> None:
    """The errors of one batch lie near what is said: far inside what chance does in 10^6 batches.
    Planted: the tally of the last block alone -> fails.
    """
    way = next(way for way in plan().ways if way.name == name)
    held = town(MAP, 1_500)
    told = list[int]()
    cells = np.repeat(np.arange(MAP.size), held)
    done = play_map(way, cells, SeededEntropy(name), tell=told.append)
    assert sum(told) == 1_500
    assert done.truth.tolist() == held.tolist()
    assert float(done.estimate.values.sum()) == pytest.approx(1_500, rel=0.2)
    assert 0.1 * way.cell < done.cell_error < 2.0 * max(way.cell, done.estimate.stderr.max())
    assert len(done.rectangles) == 315 == len(done.said)
    assert done.rectangle_error < 4.0 * done.rectangle_said
    assert places_of(done.release["map"]) == MAP
    assert law_shown(done.release["map"]) == law_of_rectangles(way.made, 1_500)
    assert len(text_of(done.release)) == 8


def test_rectangles_that_are_looked_at_are_all_or_spread_over_them() -> None:
    """Planted: intervals that end a line too early -> fails."""
    few = _spread_over(3, 2)
    assert len(set(few)) == len(few) == 6 * 3
    many = _spread_over(32, 32)
    assert 2_000 <= len(set(many)) == len(many) < 2_100
    for (a, b), (c, d) in many:
        assert 0 <= a < b <= 32
        assert 0 <= c < d <= 32
    mean = np.mean([(b - a) * (d - c) for (a, b), (c, d) in many])
    assert mean == pytest.approx((34 / 3) ** 2, rel=0.05)


@for_each(
    "changed, mends",
    [
        ({"epsilon": 0.0}, "epsilon above 0"),
        ({"delta": 1.0}, "delta between 0 and 1"),
        ({"epsilon": math.nan}, "epsilon above 0"),
        ({"epsilon": math.inf}, "epsilon above 0"),
        ({"n": 1}, "two honest devices or more"),
        ({"n": 10**9 + 1}, "1,000,000,000 in all at most"),
        ({"windows": 0}, "1 or more"),
    ],
)
def test_wrong_requests(changed: dict[str, float], mends: str) -> None:
    """Planted: each check left out -> its case fails."""
    with pytest.raises(ShoalError, match=mends) as caught:
        plan_map(replace(REQUEST, **changed))  # type: ignore[arg-type] # of several types
    assert caught.value.kind is Kind.CONFIG


def test_all_windows_together_are_composed() -> None:
    """Of 30 windows: more than one costs, less than 30 times that, and with krr no more than what
    is composed of its releases elsewhere. Planted: one window's for all -> fails.
    """
    asked = replace(REQUEST, n=5_000, windows=30)
    found = {way.name: way for way in plan_map(asked).ways}
    for way in found.values():
        assert 2.0 * way.epsilon < way.together < 30 * way.epsilon
    made = found["krr"].made
    assert isinstance(made, KaryResponse)
    account_ = account(made, 31, 5_000, 1e-6, windows=30, per_day=1, memoized=False)
    assert found["krr"].together == pytest.approx(account_.apart.run, rel=1e-9)
    assert all(way.together == way.epsilon for way in plan().ways)


def test_what_does_not_fit_is_said_with_its_reason() -> None:
    """So many cells for so few devices: cancelling would send too many messages. By what was asked,
    not by names of other places. Planted: a design's own words -> fails.
    """
    large = plan_map(replace(REQUEST, places=replace(MAP, rows=32, columns=32)))
    unsuited = dict(large.unsuited)
    assert "messages" in unsuited["cancelling"]
    assert "more devices or a larger epsilon, fewer rows or columns" in unsuited["cancelling"]
    with pytest.raises(ShoalError, match="as many devices as it was planned for"):
        play_map(plan().best, np.zeros(3, dtype=np.int64))
