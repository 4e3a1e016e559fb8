"""Which plan the words of a task are of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.domain import Norm, Vector
from shoal.errors import Kind, ShoalError
from shoal.questions.learning import ClipRule, LearningPlan
from shoal.questions.models import Logistic, Model
from shoal.questions.network import Network
from shoal.questions.plan_words import plan_of
from shoal.task import Task
from tests.cases import for_each
from tests.worlds.tasks import PAIRWISE, pairwise, window_plan

RULE = ClipRule(0.7, 0.25, 0.5)


def task_of(plan: LearningPlan) -> Task:
    assert PAIRWISE.pairwise is not None
    return pairwise(
        domain=Vector(plan.dimension, Norm.L2, plan.bound, 1_000),
        windows=window_plan(count=plan.rounds),
        question=f"How must a model change? {plan.words}",
        report_size=PAIRWISE.pairwise.vector_bytes(plan.dimension),
    )


@for_each("rule", [None, RULE])
@for_each("model", [Logistic(1), Logistic(30), Network(30, 16, 0), Network(1, 2, (1 << 63) - 1)])
def test_a_plan_is_read_back_from_its_words(model: Model, rule: ClipRule | None) -> None:
    """Planted: hidden units and numbers of a row exchanged; the rule of the clip forgotten ->
    each fails.
    """
    plan = LearningPlan(model, rounds=3, step=2.5e-3, clip=0.5, rule=rule)
    assert plan_of(task_of(plan)) == plan


@for_each("words", ["What do you do?", "Which network do you use?"])
def test_a_task_that_learns_nothing_is_told_apart(words: str) -> None:
    task = replace(task_of(LearningPlan(Logistic(2), 3, 1.0, 0.5)), question=words)
    with pytest.raises(ShoalError) as caught:
        plan_of(task)
    assert caught.value.kind is Kind.CONFIG


def test_words_of_another_size_than_the_vector_are_refused() -> None:
    """Planted: a plan that is not held against its task -> a device would answer with vectors that
    the task refuses.
    """
    other = LearningPlan(Network(4, 3, 7), 3, 1.0, 0.5)
    task = replace(task_of(LearningPlan(Logistic(2), 3, 1.0, 0.5)), question=other.words)
    with pytest.raises(ShoalError) as caught:
        plan_of(task)
    assert caught.value.kind is Kind.MISMATCH
