"""A model that devices learn in rounds (``questions.learning``), as a plan of sums of vectors: what
is asked of the plan, what its task says, and what each round costs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shoal.accounting.sums.windows import epsilon_of_windows
from shoal.analyzer.planner.task_file import Settings
from shoal.analyzer.planner.vectors.asked import SUMS, VectorRequest, wrong
from shoal.analyzer.planner.vectors.way import VectorPlan
from shoal.domain import Norm
from shoal.limits import LIMITS
from shoal.mechanisms.quantize import bounds
from shoal.questions.learning import ClipRule, LearningPlan
from shoal.questions.models import Logistic, Model
from shoal.questions.network import Network

HIDDEN = 16  # units of a network, unless another number is asked for
_SEED = 1  # of a network's first weights: public, and any is as good
_MOST_GRACE_S = 86_400  # of a window, and a quarter of it at most
_MOST_NAMES = LIMITS.task_bytes // 2  # characters: with more the task would be too large


@dataclass(frozen=True, slots=True)
class ModelAsked:
    """``step``: by how much of the mean gradient a round moves the weights. ``hidden``: units of a
    network's hidden layer, 0 for a logistic regression. ``adaptive``: the clip is that of the first
    round, and follows the gradients then.
    """

    step: float
    hidden: int = 0
    adaptive: bool = False


def model_plan(features: VectorRequest, asked: ModelAsked) -> LearningPlan:
    """The plan of a model over ``features``, a round in each window; ``features.clip`` is that of a
    gradient. Raises INVALID.
    """
    size = features.dimension
    model: Model = Network(size, asked.hidden, _SEED) if asked.hidden else Logistic(size)
    rule = ClipRule() if asked.adaptive else None
    return LearningPlan(model, features.windows, asked.step, features.clip, rule)


def follows(learning: LearningPlan) -> str | None:
    """What a clip that adapts costs, in one line; None for one that stays."""
    if learning.rule is None:
        return None
    more = 100.0 * (learning.bound - 1.0)
    return (
        f"The clip begins at {learning.clip:g} and moves to where {learning.rule.quantile:.0%} of "
        "the gradients are within it: one number more of each vector says whether its own was, and "
        f"the noise of all is {more:.2g} % larger for that."
    )


def takes(learning: LearningPlan) -> str | None:
    """What devices want beside Shoal to answer, in one line; None for nothing."""
    if isinstance(learning.model, Network):
        return (
            "A device computes the gradient of a network with PyTorch: pip install "
            "'shoal[network]' on each; one that lacks it answers nothing, and is charged nothing."
        )
    return None


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
        names=names_of(features.names, learning),
        unit="",
        ways=ways,
    )


def names_of(features: tuple[str, ...], learning: LearningPlan) -> tuple[str, ...]:
    """Of a vector's coordinates; none where the features have none, and where so many would not go
    into a task: the plan's words say their order. Raises INVALID for another number of features.
    """
    names = learning.names(features) if features else ()
    return names if sum(map(len, names)) <= _MOST_NAMES else ()


def told_with(told: Settings, learning: LearningPlan) -> Settings:
    """The same, with the plan's words behind the question, where they are signed, and windows in
    which the release of a round comes early in the next one. Raises CONFIG without a question, and
    if it is too long.
    """
    question = told.texts.get("question")
    if question is None:
        raise wrong("a question is wanted: the words of the model's plan follow it")
    text = f"{question} {learning.words}"
    if len(text) > LIMITS.text_chars:
        raise wrong(
            f"the question is too long: with the plan's words it has {len(text):,} characters, and "
            f"{LIMITS.text_chars:,} is the most"
        )
    windows = told.windows
    if "length_s" in windows:
        windows = {"grace_s": min(_MOST_GRACE_S, windows["length_s"] // 4), **windows}
    return replace(told, texts={**told.texts, "question": text}, windows=windows)


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
