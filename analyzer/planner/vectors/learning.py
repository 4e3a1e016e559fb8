"""A model that devices learn in rounds (``questions.learning``), as a plan of sums of vectors: what
is asked of the plan, what its task says, and what each round costs.
"""

from __future__ import annotations

from dataclasses import replace

from shoal.accounting.sums.windows import epsilon_of_windows
from shoal.analyzer.planner.vectors.asked import SUMS, VectorRequest, wrong
from shoal.analyzer.planner.vectors.way import VectorPlan
from shoal.domain import Norm
from shoal.limits import LIMITS
from shoal.mechanisms.quantize import bounds
from shoal.questions.learning import LearningPlan


def of_rounds(features: VectorRequest, learning: LearningPlan) -> VectorRequest:
    """What devices are asked that have ``features``: in every window a gradient divided by its
    clip, as part of a sum. Raises CONFIG for another norm than L2, devices that can't be enrolled,
    and ways of which none is a sum.
    """
    if features.norm is not Norm.L2:
        raise wrong("a model is learnt with norm l2 alone: its clip is of a gradient's length")
    if not features.enrolled:
        raise wrong("a model is learnt by sums, whose devices have to be enrolled")
    ways = tuple(name for name in SUMS if not features.ways or name in features.ways)
    if not ways:
        raise wrong(f"a model is learnt by sums: {', '.join(SUMS)}")
    return replace(
        features,
        dimension=learning.dimension,
        clip=learning.bound,
        names=learning.names(features.names) if features.names else (),
        unit="",
        ways=ways,
    )


def question_of(question: str, learning: LearningPlan) -> str:
    """The question with the plan's words behind it, where they are signed. Raises CONFIG if it is
    too long.
    """
    text = f"{question} {learning.words}"
    if len(text) > LIMITS.text_chars:
        raise wrong(
            f"the question is too long: with the plan's words it has {len(text):,} characters, and "
            f"{LIMITS.text_chars:,} is the most"
        )
    return text


def epsilon_by_round(plan: VectorPlan) -> tuple[float, ...]:
    """Of the first round, the first two, and so on, of a device that answers in each, at the
    request's delta. Direction: upper bounds.
    """
    request, way = plan.request, plan.chosen
    if way.plan is None or way.spec is None or way.domain is None:
        raise TypeError("a model is learnt by sums")
    honest = way.plan.honest_survivors(request.honest_ppm)
    return tuple(
        epsilon_of_windows(
            way.spec,
            bounds(way.domain),
            request.dimension,
            honest=honest,
            windows=rounds,
            delta=request.delta,
        )
        for rounds in range(1, request.windows + 1)
    )
