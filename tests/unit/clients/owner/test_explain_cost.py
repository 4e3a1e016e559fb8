"""What an owner reads about what a task costs, and how far the budget goes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from shoal.accounting.meaning import bound_text
from shoal.accounting.several_messages.of_domain import design_several
from shoal.clients.owner.explain import explain
from shoal.clients.owner.explain_cost import guaranteed_epsilon
from shoal.clients.owner.policy import Policy
from shoal.domain import YesNo
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


@for_each(
    "several, memoized, count, words",
    [
        (False, False, 4, "more may leak than is promised behind the shuffler, though never more"),
        (False, False, 1, "more may leak than is promised"),
        (False, True, 4, "more may leak than is promised"),
        (True, False, 4, "an answer may leak whole. Over all 4 windows this adds up to 1.2e-07."),
    ],
)
def test_delta_is_told_beside_the_limit(
    several: bool, memoized: bool, count: int, words: str
) -> None:
    """And what windows add up to, where each has a draw of its own. Planted: no such line; the
    delta of one window for that of all; the words of a report that has an epsilon0 for one that has
    none -> each fails.
    """
    world = small_world(domain=YesNo(), mechanism="binary_rr", count=count)
    if several:
        spec = design_several("shuffler_noise", YesNo(), 90, 4.0, 1e-8, windows=count)
        world.task = replace(world.task, mechanism=spec)
    world.task = replace(world.task, delta=3e-8, memoized=memoized)
    world.sign()
    config = config_of(world)
    config = replace(config, policy=replace(config.policy, max_delta=1e-5))
    (line,) = (one for one in explain(assignment_of(world), config) if one.startswith("Delta: "))
    assert "probability 3e-08 (of one window; your limit, max_delta, is 1e-05) " in line
    assert words in line
    assert ("Over all 4 windows this adds up to 1.2e-07." in line) == (count == 4 and not memoized)
