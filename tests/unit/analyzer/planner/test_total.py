"""A budget over windows and tasks: the plan keeps the total, and its windows are not wasted."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from shoal.accounting.solving.solve_total import total_epsilon
from shoal.analyzer.planner import Frequencies, Plan, Request, plan
from shoal.domain import YesNo
from shoal.errors import ShoalError

ASKED = Request(Frequencies(YesNo()), 150, 1e-6, epsilon=1.0, mechanisms=("binary_rr",), windows=5)


def together(made: Plan, rounds: int) -> float:
    law = made.choice.candidate.build(made.choice.epsilon0).privacy()
    return total_epsilon(law, made.request.n_honest, made.request.delta, rounds)


def test_the_total_over_windows_is_what_was_asked() -> None:
    """Planted: the target taken for each window, as before -> 5 of them are 2.2 and more, and this
    fails.
    """
    made = plan(ASKED)
    assert made.asked == 1.0
    assert 0.98 <= together(made, 5) <= 1.0
    assert made.repeated is not None
    assert made.repeated.fresh_central <= 1.0
    assert made.guarantee.epsilon_upper <= (made.request.epsilon or 0.0)
    value = json.loads(json.dumps(made.to_json()))
    assert value["target_epsilon"] == 1.0
    assert value["target_epsilon_per_window"] == made.request.epsilon


def test_tasks_share_a_total_as_windows_do() -> None:
    """Planted: tasks left out of the rounds -> this fails."""
    made = plan(replace(ASKED, windows=1, tasks=5))
    assert 0.98 <= together(made, 5) <= 1.0


def test_a_window_alone_is_asked_for_by_name() -> None:
    """And memoized answers do not compose: their target is a window's. Planted: ``together``
    ignored -> fails.
    """
    alone = plan(replace(ASKED, together=False))
    assert (alone.asked, alone.request.epsilon) == (None, 1.0)
    assert together(alone, 5) > 1.5
    kept = plan(replace(ASKED, memoized=True))
    assert (kept.asked, kept.request.epsilon) == (None, 1.0)


def test_a_limit_on_epsilon0_holds() -> None:
    """What is left of the total then stays unused. Planted: the limit given up for the total ->
    fails.
    """
    made = plan(replace(ASKED, most_epsilon0=0.4))
    assert made.choice.epsilon0 <= 0.4
    assert together(made, 5) <= 1.0


@pytest.mark.parametrize("tasks", [0, 1_001])
def test_bad_numbers(tasks: int) -> None:
    with pytest.raises(ShoalError, match="tasks share a target"):
        replace(ASKED, tasks=tasks)
