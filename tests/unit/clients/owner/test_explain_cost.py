"""What an owner reads about what a task costs, and how far the budget goes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from shoal.accounting.meaning import bound_text
from shoal.clients.owner.explain import explain
from shoal.clients.owner.explain_cost import guaranteed_epsilon
from shoal.clients.owner.policy import Policy
from tests.cases import for_each
from tests.worlds.devices.explained import assignment_of, config_of, small_world, text_of


@pytest.mark.parametrize(
    ("memoized", "spent", "words"),
    [
        (
            False,
            0,
            "The whole budget pays for 2 of 52 windows of this task; what is left, for 2 more.",
        ),
        (False, 1_500_000_000, "pays for 2 of 52 windows of this task; what is left, for 1 more."),
        (
            True,
            0,
            "pays for 2 distinct values of this task, over all of its 52 windows; what is left, "
            "for 2 more.",
        ),
    ],
)
def test_how_far_a_budget_goes(memoized: bool, spent: int, words: str) -> None:
    """A budget of 3 at 1.3 a window. Planted: no such line; windows rounded up -> fails."""
    world = small_world(count=52, epsilon0=1.3)
    world.task = replace(world.task, memoized=memoized)
    world.sign()
    policy = Policy(
        world.authorities, 4.0, 100, {world.task.purpose: "allowed"}, lifetime_epsilon=3.0
    )
    assert words in text_of(
        explain(assignment_of(world), config_of(world, policy=policy), spent=spent)
    )


def test_a_budget_that_pays_for_all_and_one_for_nothing() -> None:
    """Never more windows than there are. Planted: no ``min`` -> 66 of 4."""
    world = small_world(epsilon0=1.5)
    for limit, words in (
        (100.0, "pays for 4 of 4 windows"),
        (0.1, "pays for 0 of 4 windows"),
        (math.inf, ""),
    ):
        policy = Policy(world.authorities, 4.0, 100, {}, lifetime_epsilon=limit)
        text = text_of(explain(assignment_of(world), config_of(world, policy=policy)))
        assert words in text
        assert bool(words) == ("pays for" in text)


def test_without_a_budget_what_was_spent_is_told() -> None:
    world = small_world()
    policy = Policy(world.authorities, 4.0, 100, {"to plan clinics": "allowed"})
    text = text_of(
        explain(assignment_of(world), config_of(world, policy=policy), spent=1_234_567_890)
    )
    assert "none is set (lifetime_epsilon); all tasks together cost epsilon 1.235 so far" in text
    assert "was answered" not in text


@for_each(
    "memoized, kept, left, answers",
    [
        (False, False, 3.0, True),
        (False, True, 2.999999999, False),
        (True, False, 2.9, False),
        (True, True, 2.9, True),
    ],
)
def test_a_budget_that_is_used_up_is_in_the_verdict(
    memoized: bool, kept: bool, left: float, answers: bool
) -> None:
    """A memoized answer that is remembered costs nothing; windows that were answered before it was
    forgotten are none of it.

    Planted: the verdict of the policy alone -> a task that would be refused "would be answered".
    The number of answered windows in the place of what is remembered -> the same, after consent was
    taken back and given again.
    """
    world = small_world()
    world.task = replace(world.task, memoized=memoized)
    world.sign()
    one = assignment_of(world)
    assert 2.9 < one.epsilon0 <= 3.0
    lines = explain(one, config_of(world), spent=round((10.0 - left) * 1e9), answered=1, kept=kept)
    what = "answer it." if answers else "send nothing: its budget does not pay for another window."
    assert lines[-1] == f"As things are, this device would {what}"


def test_an_accepted_epsilon_is_charged_what_the_certificate_guarantees() -> None:
    """Planted: the acceptance not passed on -> "above your limit"."""
    world = small_world()
    config = config_of(world)
    config = replace(config, policy=replace(config.policy, max_epsilon0=2.0))
    one = assignment_of(world)
    lines = explain(one, config, accepted=one.epsilon0)
    assert (
        f"each window costs epsilon {bound_text(guaranteed_epsilon(one))} (what the certificate "
        "guarantees" in text_of(lines)
    )
    assert lines[-1] == "As things are, this device would answer it."
    assert "which is above your limit" in text_of(explain(one, config))
