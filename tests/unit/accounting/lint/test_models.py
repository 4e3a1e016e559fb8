"""Findings about tasks that learn a model: is the plan theirs, do rounds come in time."""

from __future__ import annotations

from dataclasses import replace

from shoal.accounting.lint.task import lint
from shoal.task import Task
from tests.cases import for_each
from tests.worlds.learning import PLAN, learning_world


def task_with(grace_s: int, length_s: int = 1_000, **changes: object) -> Task:
    task = learning_world().task
    windows = replace(task.windows, grace_s=grace_s, length_s=length_s)
    return replace(task, windows=windows, **changes)  # type: ignore[arg-type]


@for_each("grace, error, warned", [(500, False, False), (501, False, True), (1_000, True, False)])
def test_the_release_of_a_round_comes_before_the_next_one_ends(
    grace: int, error: bool, warned: bool
) -> None:
    """Planted: ``>`` for ``>=`` -> a task whose second round nobody could answer passes, fails."""
    found = [one for one in lint(task_with(grace)).findings if "grace_s" in one.message]
    assert [one.error for one in found] == ([True] if error else [False] if warned else [])


def test_a_single_round_waits_for_none() -> None:
    plan = replace(PLAN, rounds=1)
    assert lint(learning_world(plan).task).errors == ()


@for_each(
    "words, said",
    [
        (replace(PLAN, rounds=9).words, "is not asked by this plan"),
        ("A network of 4000 hidden units over 2 numbers, begun at seed 1, in 4 rounds, step 1.0, "
         "clip 0.5.", "hidden units"),
    ],
)  # fmt: skip
def test_words_that_devices_would_refuse_are_an_error(words: str, said: str) -> None:
    """Before it is signed. Planted: not looked at -> fails."""
    (error,) = lint(task_with(100, question=f"How must a model change? {words}")).errors
    assert said in error


def test_other_sums_may_end_when_they_like() -> None:
    assert lint(task_with(1_000, question="How far did you go?")).errors == ()
