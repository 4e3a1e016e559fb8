"""Two ways to ask a recipe's question: the planner's keeps what it is compared at."""

from __future__ import annotations

import math

import pytest

from shoal.analyzer.planner.deployments.accounts import account
from shoal.analyzer.planner.deployments.recipes import RECIPES, Sought, recipe
from shoal.analyzer.planner.deployments.ways import Way, ways_of, ways_to_find
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.several.registry import create_any
from shoal.questions.spelling import spell
from tests.cases import for_each
from tests.sizes import FULL

N, WINDOWS = 1_000, 4
LISTED = [each.name for each in RECIPES if not isinstance(each.question, Sought)]
SPECIAL = {"windows-app-usage", "mobility-counts"}  # kept answers, and a server's claim


def run_of(way: Way, windows: int) -> float:
    """What all windows together cost, apart."""
    made = create_any(way.spec, way.domain)
    found = account(
        made, way.domain.size, N, 1e-6, windows=windows, per_day=1, memoized=way.memoized
    )
    return found.apart.run


@for_each("name", [each for each in LISTED if FULL or each in SPECIAL])
def test_the_planned_way_keeps_the_guarantee_and_errs_less(name: str) -> None:
    """Planted: the plan of one window where all together are meant -> more than the kept answers
    cost, fails; noise for one window alone -> no epsilon for a year of several messages.
    """
    ways = ways_of(recipe(name), N, WINDOWS)
    claimed, planned = ways.both
    assert claimed.spec.name == recipe(name).mechanism
    assert claimed.memoized == recipe(name).memoized
    assert not planned.memoized
    assert run_of(planned, ways.matched.windows) <= ways.matched.epsilon
    assert planned.epsilon <= ways.matched.epsilon
    assert planned.error < claimed.error
    if recipe(name).central:
        assert math.isfinite(run_of(planned, 365))
    if recipe(name).memoized:
        assert ways.matched.windows == WINDOWS
        assert ways.matched.epsilon == ways.weighed.report


def test_words_are_looked_for_at_a_part_of_the_claim() -> None:
    """Planted: levels that each have the whole epsilon -> together more, fails."""
    asked = recipe("new-words")
    assert isinstance(asked.question, Sought)
    known = (spell("and", asked.question.longest), spell("the", asked.question.longest))
    ways, plan = ways_to_find(asked, 3_000, known)
    assert plan.discovery.known == known
    assert plan.epsilon <= asked.question.epsilon < asked.epsilon
    assert ways.planned.epsilon < plan.epsilon
    assert ways.claimed.spec.name == asked.mechanism
    with pytest.raises(ShoalError, match="nobody listed") as listed:
        ways_of(asked, N, WINDOWS)
    with pytest.raises(ShoalError, match="lists its answers") as unlisted:
        ways_to_find(recipe("emoji-popularity"), N, ())
    assert listed.value.kind is unlisted.value.kind is Kind.CONFIG
