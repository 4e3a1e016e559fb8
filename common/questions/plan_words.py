"""A learning plan from the words that stand for it at the end of a task's question
(``LearningPlan.words``). Whoever takes part reads it here: devices, analyzers, owners.
"""

from __future__ import annotations

import re

from shoal.errors import Kind, ShoalError
from shoal.questions.learning import ClipRule, LearningPlan
from shoal.questions.models import Logistic, Model
from shoal.questions.network import Network

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
