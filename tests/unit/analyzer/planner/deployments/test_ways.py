"""Two ways to ask a recipe's question: the planner's keeps what it is compared at."""

from __future__ import annotations

import math
import re

import pytest

from shoal.analyzer.planner.deployments.accounts import account
from shoal.analyzer.planner.deployments.recipes import RECIPES, Sought, recipe
from shoal.analyzer.planner.deployments.ways import Way, ways_of, ways_to_find
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.several.registry import create_of_cells
from shoal.questions.spelling import spell
from tests.cases import for_each
from tests.sizes import FULL

N, WINDOWS = 1_000, 4
LISTED = [each.name for each in RECIPES if not isinstance(each.question, Sought)]
SPECIAL = {"windows-app-usage", "mobility-counts"}  # kept answers, and a server's claim


def run_of(way: Way, windows: int) -> float:
    """What all windows together cost, apart."""
    made = create_of_cells(way.spec, way.domain)
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
        assert ways.matched.epsilon == ways.weighed.year >= ways.weighed.report


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
    assert ways.matched.windows == plan.discovery.levels
    with pytest.raises(ShoalError, match="nobody listed") as listed:
        ways_of(asked, N, WINDOWS)
    with pytest.raises(ShoalError, match="lists its answers") as unlisted:
        ways_to_find(recipe("emoji-popularity"), N, ())
    assert listed.value.kind is unlisted.value.kind is Kind.CONFIG


def test_devices_that_answer_once_have_the_epsilon_for_one_window() -> None:
    """Planted: planned as if each answered at every level -> an epsilon of each window that is a
    part of it, fails; for all devices in every window -> fails.
    """
    asked = recipe("new-words")
    ways, plan = ways_to_find(asked, 6_000, (), 2)
    assert plan.discovery.fresh
    assert (ways.matched.windows, plan.request.asked_windows) == (1, plan.discovery.levels + 2)
    assert ways.planned.epsilon == plan.epsilon <= ways.matched.epsilon
    assert plan.request.n < 6_000 / plan.request.asked_windows
    _, every = ways_to_find(asked, 6_000, ())
    assert every.epsilon_level < plan.epsilon


@for_each("spare", [None, 2])
def test_too_few_devices_are_told_how_many_would_do(spare: int | None) -> None:
    """Planted: fewer symbols as the advice, which no recipe can ask for -> fails; a number for one
    window in place of all -> refused again, fails.
    """
    asked = recipe("new-words")
    few = 150 if spare is None else 1_000
    with pytest.raises(ShoalError, match=r"run recipe new-words with [0-9,]+ devices") as refused:
        ways_to_find(asked, few, (), spare)
    assert refused.value.kind is Kind.CONFIG
    assert "symbols" not in refused.value.message
    enough = int(re.findall("with ([0-9,]+) devices", refused.value.message)[0].replace(",", ""))
    assert few < enough < 2 * few
    ways_to_find(asked, enough, (), spare)
