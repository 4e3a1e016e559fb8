"""Recipes: every one names a registered mechanism, its figures add up as its unit says, and none
claims to have read what was not.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.accounting.accountant import certify
from shoal.analyzer.planner.deployments.claims import DAYS, weigh
from shoal.analyzer.planner.deployments.recipes import RECIPES, Recipe, recipe
from shoal.analyzer.planner.result import Plan
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import REGISTRY, create, design
from shoal.mechanisms.longitudinal.protocol import Longitudinal
from shoal.privacy import epsilon0_upper
from tests.cases import for_each

# The deployments that a reader will look for, and the numbers that they are cited with.
CITED = {
    "windows-app-usage": 1.672,
    "health-usage": 2.0,
    "emoji-popularity": 4.0,
    "browser-settings": 2.0,
    "mobility-counts": 2.64,
    "new-words": 16.0,
}
N = 2_000


def test_the_deployments_that_people_cite_are_there() -> None:
    assert {each.name: each.epsilon for each in RECIPES} == CITED


@for_each("each", RECIPES, ids=lambda each: each.name)
def test_a_recipes_mechanism_is_registered_and_keeps_the_claimed_epsilon(each: Recipe) -> None:
    """Planted: a mechanism misspelt, or the sketch's flips for an epsilon per bit instead of per
    report -> this fails.
    """
    assert each.mechanism in REGISTRY
    law = create(
        design(each.mechanism, each.domain, each.epsilon, each.setting), each.domain
    ).privacy()
    assert 0.9 * each.epsilon < epsilon0_upper(law) <= each.epsilon
    assert each.sources
    assert any(not source.checked for source in each.sources) or each.name == "none"
    assert all(source.text and source.where for source in each.sources)


@pytest.mark.parametrize("name", ["windows-app-usage", "health-usage", "mobility-counts"])
def test_a_claim_is_per_report_per_day_and_per_year(name: str) -> None:
    """Planted: a memoized answer paid for every day, or a fresh one once a year -> this fails."""
    found = weigh(recipe(name), N)
    asked = found.recipe
    if asked.central:
        assert (found.day, found.year) == (asked.epsilon, DAYS * asked.epsilon)
        assert found.shuffled.epsilon_upper <= asked.epsilon
        assert found.report > asked.epsilon
    elif asked.memoized:
        assert found.day == found.year == found.report <= asked.epsilon
        assert found.year_at_worst == pytest.approx(asked.domain.size * found.report)
        assert found.year_shuffled is None
    else:
        assert found.year == pytest.approx(DAYS * found.report)
        assert found.year_shuffled is not None
        assert found.shuffled.epsilon_upper < found.year_shuffled < found.year
    law = found.deployed.choice.candidate.build(found.report * (1.0 + 1e-12)).privacy()
    assert found.shuffled.n == N
    assert certify(law, N, asked.delta).epsilon_upper == pytest.approx(
        found.shuffled.epsilon_upper, rel=1e-6
    )
    # The alternative keeps what the deployment's reports guarantee after shuffling, and errs no
    # more.
    assert found.deployed.request.epsilon is not None
    assert isinstance(found.instead, Plan)
    assert found.instead.guarantee.epsilon_upper <= found.deployed.request.epsilon
    assert found.instead.choice.errors is not None
    assert found.deployed.choice.errors is not None
    assert found.instead.choice.errors.ranked <= 1.005 * found.deployed.choice.errors.ranked


def test_a_memory_costs_its_permanent_answer_in_a_year() -> None:
    """Not what one report says: the noise of a year's reports averages away. Planted: the epsilon
    of one report for the year -> 2 for 4, and this fails; so does the worst year by it.
    """
    found = weigh(recipe("browser-settings"), N)
    asked = found.recipe
    mechanism = create(
        design(asked.mechanism, asked.domain, asked.epsilon, asked.setting), asked.domain
    )
    assert isinstance(mechanism, Longitudinal)
    life = epsilon0_upper(mechanism.permanent())
    assert found.day == found.report <= asked.epsilon < life == found.year
    assert found.year_at_worst == pytest.approx(asked.domain.size * life)
    assert found.year_shuffled is None


def test_all_fresh_reports_of_a_day_and_of_a_year_add_up() -> None:
    """Planted: one report for the day; a year of as many windows as days -> this fails."""
    found = weigh(replace(recipe("health-usage"), reports_per_day=3), N)
    assert found.day == pytest.approx(3 * found.report)
    assert found.year == pytest.approx(DAYS * 3 * found.report)


def test_an_unknown_recipe_is_refused_with_the_names() -> None:
    with pytest.raises(
        ShoalError, match="there is no recipe 'soup': choose among windows-app-usage, health-usage"
    ) as caught:
        recipe("soup")
    assert caught.value.kind is Kind.CONFIG
