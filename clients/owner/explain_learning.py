"""A task that learns a model, for the owner of a device: what leaves it in a round, what all rounds
together give away, and what is left where parties work together.
"""

from __future__ import annotations

import importlib.util
import math
from typing import TYPE_CHECKING

from shoal.accounting.sums.windows import epsilon_of_task, epsilon_of_windows
from shoal.clients.owner.explain_cost import up
from shoal.domain import Vector
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.quantize import bounds
from shoal.questions.network import Network
from shoal.questions.plan_words import plan_of

if TYPE_CHECKING:
    from shoal.clients.core import Assignment
    from shoal.clients.sources.spec import SourceSpec
    from shoal.questions.learning import LearningPlan
    from shoal.task import Task

_MOST_SHOWN = 12  # epsilons, of all rounds


def learning_lines(assignment: Assignment) -> list[str]:
    """Lines of a task whose question ends with the words of a learning plan; none for another.
    Epsilons are upper bounds, rounded up.
    """
    task = assignment.task
    try:
        plan = plan_of(task)
    except ShoalError as error:
        if error.kind is Kind.CONFIG:
            return []
        return [
            "It says that it learns a model, and its numbers are not those of its words "
            f"({error.message}): shoal agent learn answers nothing to it."
        ]
    return [
        f"It learns a model, a round in each window: {plan.words}",
        _leaves(plan),
        "Nobody sends the model: this device computes it from the signed releases of the windows "
        "before. An analyzer that signed two releases of one window could "
        "ask this device at a model of its own; what it learnt by that is within the same epsilon.",
        *_by_round(task),
        *_together(assignment),
        *_lacks(plan),
        f"To see what this device would answer, without sending it: shoal agent learn {task.name}.",
    ]


def otherwise_line(spec: SourceSpec) -> str:
    """What is done with what a source says that is no answer, or no row of a model."""
    if spec.releases is None:
        return f'What is no answer to the question counts as "{spec.otherwise}".'
    return (
        "It is this device's row, and is answered by its gradient; by zeros, if the model can't "
        f"use it. It is read once {spec.releases} has the signed releases of all windows before; "
        "until then the window is not answered."
    )


def _leaves(plan: LearningPlan) -> str:
    clip = f"{plan.clip:g}"
    follows, beside = "", ""
    if plan.rule is not None:
        clip = f"{clip} in the first round"
        follows = (
            f", then so that about {plan.rule.quantile:.0%} of the gradients are within it, as the "
            "releases say"
        )
        beside = " One more number says whether the gradient was within the clip."
    return (
        f"What leaves this device in a round: {plan.dimension:,} numbers, masked: the gradient of "
        "its row's error at the model so far. It is shortened where it is longer than the clip "
        f"({clip}{follows}), divided by that, rounded, and has this device's share of the noise in "
        f"it.{beside} The row itself stays here."
    )


def _by_round(task: Task) -> list[str]:
    """What the first round gives away, the first two, and so on."""
    rounds = task.windows.count
    step = -(-rounds // _MOST_SHOWN)
    shown = [at for at in range(1, rounds + 1) if at % step == 0 or at == rounds]
    try:
        epsilons = [f"{up(epsilon_of_task(task, at, task.delta))} of {at:,}" for at in shown]
    except ShoalError as error:
        return [f"Promised of its rounds: nothing that this device can compute ({error.message})."]
    return [
        "Promised of its first rounds together, to a device that answers in each, at delta = "
        f"{task.delta:g}: epsilon <= {', '.join(epsilons)}."
    ]


def _together(assignment: Assignment) -> list[str]:
    """What is left of all rounds if shuffler and analyzer work together."""
    first = "If shuffler and analyzer work together"
    apart, task = assignment.epsilon_apart, assignment.task
    if apart is not None and assignment.epsilon0 <= apart:
        return [f"{first} the same holds of all rounds, as long as neither runs the enrolment."]
    left = (
        f"{first} they can read this device's gradient of each round with its own share of the "
        "noise, and a gradient can tell its row"
    )
    domain = task.domain
    assert isinstance(domain, Vector)  # noqa: S101 - plan_of checked it
    try:
        alone = epsilon_of_windows(
            task.mechanism,
            bounds(domain),
            domain.dimension,
            honest=1,
            windows=task.windows.count,
            delta=task.delta,
        )
    except ShoalError as error:
        return [f"{left}: nothing is proven to be left of the promise ({error.message})."]
    if not math.isfinite(alone):
        return [f"{left}: nothing is left of the promise."]
    return [
        f"{left}: epsilon <= {up(alone)} at delta = {task.delta:g} is left of all rounds together."
    ]


def _lacks(plan: LearningPlan) -> list[str]:
    if isinstance(plan.model, Network) and importlib.util.find_spec("torch") is None:
        return [
            "This device lacks PyTorch, which the gradient of a network takes: pip install "
            "'shoal[network]'. Until then it can answer nothing here."
        ]
    return []
