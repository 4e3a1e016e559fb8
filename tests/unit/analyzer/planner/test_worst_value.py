"""Means at their worst value, wherever in the range it lies: its cost by both searches."""

from __future__ import annotations

import pytest

from shoal.analyzer.planner import Candidate, Mean, Request, Standing, plan
from shoal.analyzer.planner.accuracy.answers import answers
from shoal.analyzer.planner.candidates import candidates
from shoal.analyzer.planner.choose import compared
from shoal.analyzer.planner.numbers import Numbers
from shoal.domain import Numeric
from tests.cases import for_each


@for_each("name", ["one_bit_mean", "hybrid", "piecewise"])
def test_the_worst_value_is_found_wherever_it_lies(name: str) -> None:
    """One bit errs most in the middle of the range. Planted: only the first and last two steps
    looked at -> of 64 levels an eighth of the error, and a task that errs eight times as much as
    was promised.
    """
    for levels, epsilon0 in ((3, 2.0), (24, 6.0), (64, 9.0)):
        domain = Numeric(0.0, 1.0, levels)
        law = Candidate(name, "standard", "", domain)
        if name == "one_bit_mean":
            law = Candidate(name, "", "", domain)
        numbers = Numbers(Mean(0.0, 1.0, worst=True), law.build(epsilon0), domain, 1_000)
        every = max(sum(numbers.at(i / 2)) for i in range(2 * levels - 1))
        assert sum(numbers.worst()) >= 0.94 * every  # squares: of piecewise only, others find it


@for_each("worst, error", [(True, 0.006), (False, 0.005)])
def test_no_candidate_reaches_an_error_for_less(worst: bool, error: float) -> None:
    """Every candidate by itself, against the plan that skips most of them, and the console's
    search. Planted: the worst value as it was looked for before -> 64 levels of one bit seem to
    cost less than the 3 levels of k-ary responses that the plan chose.
    """
    levels = (*range(2, 8), 16, 32, 64)
    asked = Request(
        Mean(0.0, 1.0, levels=levels, worst=worst),
        10_000,
        1e-8,
        error=error,
        mechanisms=("kmean", "one_bit_mean"),
    )
    found = plan(asked).choice.epsilon_upper
    every = [compared(asked, candidate) for candidate in candidates(asked)[0]]
    least = min(option.epsilon_upper for option in every if option.errors is not None)
    assert found <= 1.006 * least
    last = list(answers(asked))[-1].plan
    assert last is not None
    assert last.choice.epsilon_upper == pytest.approx(found, rel=0.006)


def test_settings_that_reach_an_error_with_the_same_integers_are_tried_once() -> None:
    """``hybrid`` tosses its coin for one bit alone here, whatever its number of outputs. Planted:
    compared at a guessed epsilon0, not at the one that reaches the error -> all are tried.
    """
    levels = tuple(range(2, 11))
    question = Mean(0.0, 1.0, levels=levels, worst=True)
    asked = Request(question, 5_000, 1e-6, error=0.025, mechanisms=("hybrid",))
    made = plan(asked)
    alike = [each for each in made.others if "the same integers" in each.reason]
    untried = [each for each in alike if each.standing is Standing.NOT_TRIED]
    assert len({each.candidate.setting for each in untried}) >= 4
    for each in untried[:: len(levels)]:
        found = compared(asked, each.candidate)
        assert found.epsilon_upper >= 0.994 * made.choice.epsilon_upper
