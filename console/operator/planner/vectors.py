"""A list of numbers from each device, on the Planner's page: the mean of the lists, or a model that
is learnt over them in rounds. It is the plan of ``shoal plan vectors``: every way to ask, by what
it errs at the epsilon that is given.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from shoal.accounting.meaning import bet, bound_text
from shoal.analyzer.planner.result import Standing
from shoal.analyzer.planner.vectors.asked import SUMS, WAYS, VectorRequest
from shoal.analyzer.planner.vectors.choose import tried_of, vector_plan, ways_of
from shoal.analyzer.planner.vectors.learning import epsilon_by_round, follows, takes
from shoal.analyzer.planner.vectors.way import VectorPlan, VectorWay
from shoal.console.words import odds, size
from shoal.pictures.axes import number
from shoal.questions.learning import LearningPlan

AGAIN_MS = 300
VECTOR_WAYS = {"": "what errs least"} | {
    name: f"a sum by secure aggregation, {name} mode" if name in SUMS else f"{name}, shuffled"
    for name in WAYS
}
_MOST_SHOWN = 24  # epsilons, of all rounds


@dataclass(frozen=True, slots=True)
class VectorsQuestion:
    """``learning``: the model whose gradients the request is for; None where the mean is asked."""

    request: VectorRequest
    learning: LearningPlan | None = None


@dataclass(frozen=True, slots=True)
class VectorsAnswer:
    """``plan``: None until it is known; ``tried`` of the ways that there are. ``epsilons``: of the
    first round of a model, the first two, and so on.
    """

    plan: VectorPlan | None = None
    tried: int = 0
    epsilons: tuple[float, ...] = ()

    @property
    def done(self) -> bool:
        """Whether there is a plan."""
        return self.plan is not None

    @property
    def options(self) -> tuple[VectorPlan, ...]:
        """What there is to see."""
        return () if self.plan is None else (self.plan,)


def vectors_answers(question: VectorsQuestion) -> Iterator[VectorsAnswer]:
    """One more way in each. Raises CONFIG where none keeps what was asked."""
    request, found = question.request, list[VectorWay]()
    tried = tried_of(request)
    for done, name in enumerate(tried):
        found += ways_of(request, name)
        yield VectorsAnswer(None, done + 1)
    plan = vector_plan(request, found)
    epsilons = () if question.learning is None else epsilon_by_round(plan)
    yield VectorsAnswer(plan, len(tried), epsilons)


def vectors_view(
    question: VectorsQuestion, answer: VectorsAnswer | None, trouble: str | None, way: str
) -> dict[str, Any]:
    """Values for the template's part ``vectors``. ``way``: one of ``VECTOR_WAYS``."""
    known = VectorsAnswer() if answer is None else answer
    shown: dict[str, Any] = {
        "wanted": _wanted(question),
        "trouble": trouble,
        "again_ms": None if known.done or trouble else AGAIN_MS,
        "tried": known.tried,
        "of": len(tried_of(question.request)),
        "vectors": None,
    }
    if known.plan is not None:
        own = chosen_plan(known.plan, way)
        shown["vectors"] = _found(own, known.plan)
        if question.learning is not None:
            epsilons = known.epsilons if own is known.plan else epsilon_by_round(own)
            shown["vectors"]["words"] = question.learning.words
            shown["vectors"]["takes"] = [
                line for line in (follows(question.learning), takes(question.learning)) if line
            ]
            shown["vectors"]["epsilons"] = _by_round(epsilons)
    return shown


def chosen_plan(plan: VectorPlan, way: str) -> VectorPlan:
    """The same plan with that way as its choice, for a file; itself where the way does not keep
    what was asked, which ``lacking_way`` says.
    """
    if not way or way == plan.chosen.name or lacking_way(plan, way) is not None:
        return plan
    own = next(each for each in plan.others if each.name == way and each.possible)
    return VectorPlan(
        plan.request,
        replace(own, standing=Standing.CHOSEN, reason="as it was chosen"),
        (plan.chosen, *(each for each in plan.others if each is not own)),
    )


def lacking_way(plan: VectorPlan, way: str) -> str | None:
    """Why a plan can't be carried out by that way, for the form; None if it can."""
    own = [each for each in (plan.chosen, *plan.others) if each.name == way]
    if not way or any(each.possible for each in own):
        return None
    why = own[0].reason if own else "it does not answer this question"
    return f"{why}: choose another line"


def _wanted(question: VectorsQuestion) -> str:
    request, learning = question.request, question.learning
    unit = f" {request.unit}" if request.unit else ""
    norm = request.norm.name.lower()
    if learning is None:
        what = (
            f"the mean of lists of {request.dimension:,} numbers, {norm} norm up to "
            f"{request.clip:g}{unit}"
        )
    else:
        first = "" if learning.rule is None else ", in the first round"
        what = (
            f"the mean of gradients / their clip of {learning.clip:g}{first}, each of "
            f"{request.dimension:,} numbers, {norm} norm up to {request.clip:g}"
        )
    times = "1 window" if request.windows == 1 else f"{request.windows:,} windows"
    return (
        f"{what}, of {request.n:,} devices in {times}: epsilon up to {request.epsilon:g} at "
        f"delta = {request.delta:g}"
    )


def _found(taken: VectorPlan, plan: VectorPlan) -> dict[str, Any]:
    request, way = taken.request, taken.chosen
    left = way.epsilon0 if math.isfinite(way.epsilon0) else None
    return {
        "bet": bet(way.together, request.delta, request.windows),
        "odds": odds(way.together, request.delta),
        "name": way.title,
        "recommended": taken is plan,
        "summed": way.plan is not None,
        "epsilon": way.together,
        "each": way.epsilon,
        "delta": request.delta,
        "windows": request.windows,
        "epsilon0": left,
        "together": None if left is None else odds(left, 0.0),
        "error": number(float(bound_text(way.error, digits=3))),
        "sends": size(way.report_bytes),
        "visits": way.visits,
        "rounds": way.rounds,
        "honest": _honest(taken),
        "words": None,
        "epsilons": [],
        "rows": [
            _row(each)
            for each in sorted(
                (each for each in (plan.chosen, *plan.others) if not math.isnan(each.error)),
                key=lambda each: each.error,
            )
        ],
        "unsuited": [
            f"{each.title}, not possible: {each.reason}"
            for each in (plan.chosen, *plan.others)
            if math.isnan(each.error)
        ],
    }


def _honest(plan: VectorPlan) -> int:
    """Devices on whose noise, or reports, the promise of a window rests."""
    request, way = plan.request, plan.chosen
    if way.plan is not None:
        return way.plan.honest_survivors(request.honest_ppm)
    return math.floor(request.honest * request.smallest_batch)


def _row(way: VectorWay) -> dict[str, Any]:
    note = "" if way.standing is Standing.CHOSEN else way.reason
    return {
        "title": way.title,
        "note": f"over the limit: {note}" if way.standing is Standing.OVER_LIMIT else note,
        "error": number(float(bound_text(way.error, digits=3))),
        "sends": size(way.report_bytes),
        "visits": way.visits,
        "rounds": way.rounds,
        "epsilon0": way.epsilon0 if math.isfinite(way.epsilon0) else None,
        "epsilon": way.epsilon,
    }


def _by_round(epsilons: tuple[float, ...]) -> list[tuple[int, float]]:
    """(rounds, epsilon), the last one too; of many rounds some between."""
    step = -(-len(epsilons) // _MOST_SHOWN)
    shown = [(at + 1, each) for at, each in enumerate(epsilons) if (at + 1) % step == 0]
    if shown and shown[-1][0] != len(epsilons):
        shown.append((len(epsilons), epsilons[-1]))
    return shown
