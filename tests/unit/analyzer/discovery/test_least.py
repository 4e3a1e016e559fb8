"""How little epsilon is enough for a word to be found."""

from __future__ import annotations

import pytest

from shoal.analyzer.discovery.least import least_plans, plan_found_from
from shoal.analyzer.discovery.plan import DiscoveryRequest, fitting, found_from
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.several.levels import threshold
from tests.cases import for_each

REQUEST = DiscoveryRequest(2_000, 1.0, 1e-6, first=1, longest=4, spare=1)


def found(epsilon: float) -> int:
    """From how many devices at that epsilon of one level."""
    _, made = fitting(REQUEST, epsilon, REQUEST.windows)
    return found_from(made, threshold(made, 4, REQUEST.n), REQUEST.n, 4)


def test_the_least_that_finds_it() -> None:
    """What is planned finds it, and 3 % less of epsilon at a level does not; the epsilon of all
    windows is the request's. Planted: the last epsilon that did not do is taken -> fails.
    """
    plan = plan_found_from(REQUEST, 60)
    assert plan.found_from <= 60 < found(plan.epsilon_level * 0.97)
    assert plan.request.epsilon == plan.epsilon > plan.epsilon_level
    assert plan.together == 5
    assert plan.discovery.most >= 2_000 // 60


def test_it_tells_how_far_it_is() -> None:
    told = list(least_plans(REQUEST, 60))
    assert [one.tried for one in told[:-1]] == list(range(1, len(told)))
    assert {one.of for one in told} == {told[-1].tried}
    assert len(told) <= told[0].of
    assert [one.plan is None for one in told] == [True] * (len(told) - 1) + [False]


@for_each("wanted", [0, 3])
def test_what_no_epsilon_finds_is_refused(wanted: int) -> None:
    with pytest.raises(ShoalError) as refused:
        plan_found_from(REQUEST, wanted)
    assert refused.value.kind is Kind.CONFIG
