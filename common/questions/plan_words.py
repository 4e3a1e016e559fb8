"""A learning plan from the words that stand for it at the end of a task's question
(``LearningPlan.words``), and whether the task is asked by it. Whoever takes part reads it here:
devices and their owners, analyzers, who signs.
"""

from __future__ import annotations

import re

from shoal.domain import Norm, Vector
from shoal.errors import Kind, ShoalError
from shoal.questions.learning import ClipRule, LearningPlan
from shoal.questions.models import Logistic, Model
from shoal.questions.network import Network
from shoal.task import Task

# A clip of the domain that differs from the plan's by less than this is the same: it went through
# text.
_SAME = 1e-12
_NUMBER = r"[0-9][0-9.e+-]*"
_MODELS = (
    r"(?:Logistic regression over (?P<features>[0-9]{1,7}) numbers"
    r"|A network of (?P<hidden>[0-9]{1,4}) hidden units over (?P<inputs>[0-9]{1,7}) numbers, begun "
    r"at seed (?P<seed>[0-9]{1,19}),)"
)
_WORDS = re.compile(
    rf"{_MODELS} in (?P<rounds>[0-9]{{1,5}}) rounds, step (?P<step>{_NUMBER}), clip "
    rf"(?P<clip>{_NUMBER})(?: following quantile (?P<quantile>{_NUMBER}) at rate "
    rf"(?P<rate>{_NUMBER}), mark (?P<mark>{_NUMBER}))?\.$"
)


def plan_in(question: str) -> LearningPlan | None:
    """The plan that a question ends with; None where it ends with none. Raises INVALID for words
    whose numbers are no plan's.
    """
    found = _WORDS.search(question)
    if found is None:
        return None
    try:
        step, clip = float(found["step"]), float(found["clip"])
        adapting = [found[name] for name in ("quantile", "rate", "mark")]
        rule = None if None in adapting else ClipRule(*map(float, adapting))
    except ValueError:
        raise ShoalError(
            Kind.INVALID, "the words of a learning plan have a number that is none"
        ) from None
    if found["features"] is not None:
        model: Model = Logistic(int(found["features"]))
    else:
        model = Network(int(found["inputs"]), int(found["hidden"]), int(found["seed"]))
    return LearningPlan(model, int(found["rounds"]), step, clip, rule)


def check_learning(task: Task, plan: LearningPlan) -> None:
    """Raises MISMATCH for a task that the plan can't be asked by: another domain, other rounds, or
    a question that does not end with the plan's words, which its authority signed.

    The task's L2 clip must be the plan's: with a smaller one vectors would be clipped once more,
    and with a larger one the noise would be more than is needed.
    """
    domain = task.domain
    fits = (
        isinstance(domain, Vector)
        and task.pairwise is not None
        and domain.norm is Norm.L2
        and domain.dimension == plan.dimension
        and abs(domain.clip / plan.bound - 1.0) < _SAME
        and task.windows.count == plan.rounds
        and task.question.endswith(plan.words)
    )
    if not fits:
        raise ShoalError(
            Kind.MISMATCH,
            f"task {task.name} is not asked by this plan: it wants sums of {plan.dimension} "
            f"coordinates clipped to {plan.bound:g} (L2), {plan.rounds} windows, and the plan's "
            "words at the end of the question",
        )


def plan_of(task: Task) -> LearningPlan:
    """From the words that the task's question ends with. Raises CONFIG where there are none, and
    MISMATCH, INVALID where task or words don't hold.
    """
    plan = plan_in(task.question)
    if plan is None:
        raise ShoalError(
            Kind.CONFIG,
            f"task {task.name} learns no model: its question does not end with the words of a plan "
            "(docs/SECAGG.md, Learning a model)",
        )
    check_learning(task, plan)
    return plan
