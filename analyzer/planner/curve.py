"""Error against the central epsilon: for the mechanism that was chosen, and for the best one that
has no shuffler to rely on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from shoal.accounting.accountant import LARGEST_EPSILON0
from shoal.analyzer.planner.candidates import Candidate
from shoal.analyzer.planner.frontier.option import SeveralOption
from shoal.analyzer.planner.frontier.several import option_at
from shoal.analyzer.planner.predict import ranked
from shoal.analyzer.planner.question import Request
from shoal.analyzer.planner.result import Plan, Standing
from shoal.analyzer.planner.search import guess, largest
from shoal.errors import ShoalError

_POINTS = 13
_REACH = 10.0  # the curve goes from a tenth of the plan's epsilon to ten times it
_LEAST_EPSILON = 1e-3


@dataclass(frozen=True, slots=True)
class Point:
    """Predicted errors at one epsilon: ``shuffled`` as central epsilon of the chosen setting (and
    its cap on epsilon0), ``local`` as local epsilon of whichever candidate is best there. nan where
    there is no mechanism.
    """

    epsilon: float
    shuffled: float
    local: float


def curve(chosen_plan: Plan, tell: Callable[[], None] | None = None) -> tuple[Point, ...]:
    """13 points around the plan's epsilon, ascending. The shuffled errors are those of proven
    epsilon0's, to 0.05 %.
    """
    middle = (
        chosen_plan.guarantee.epsilon_upper
        if chosen_plan.request.epsilon is None
        else chosen_plan.request.epsilon
    )
    every = [
        option.candidate
        for option in chosen_plan.options
        if option.standing is not Standing.OVER_LIMIT
    ]
    points = []
    for i in range(_POINTS):
        epsilon = max(_LEAST_EPSILON, middle * _REACH ** (2.0 * i / (_POINTS - 1) - 1.0))
        local = min(
            _error(chosen_plan.request, candidate, min(epsilon, LARGEST_EPSILON0))
            for candidate in every
        )
        points.append(Point(epsilon, _shuffled(chosen_plan, epsilon), local))
        if tell is not None:
            tell()
    return tuple(points)


def _shuffled(chosen_plan: Plan, epsilon: float) -> float:
    request, candidate = chosen_plan.request, chosen_plan.choice.candidate
    start = guess(epsilon, request.delta, request.n_honest)
    try:
        bracket = largest(
            candidate,
            epsilon,
            request.delta,
            request.n_honest,
            most=request.most_epsilon0,
            start=start,
            beaten=lambda _: False,
        )
    except ShoalError:
        return math.nan
    return _error(request, candidate, bracket.epsilon0)


def _error(request: Request, candidate: Candidate, epsilon0: float) -> float:
    """inf where the setting has no mechanism."""
    try:
        return ranked(request.question, candidate.build(epsilon0), candidate.domain, request.n)
    except ShoalError:
        return math.inf


def curve_of_several(
    chosen_plan: Plan, option: SeveralOption, points: tuple[Point, ...]
) -> tuple[tuple[float, float], ...]:
    """(epsilon, error) of ``option`` at the epsilons of ``points``, without those that its design
    refuses: too small for its noise, or too large.
    """
    found = []
    for point in points:
        try:
            error = option_at(chosen_plan.request, option, point.epsilon).error
        except ShoalError:
            continue
        found.append((point.epsilon, error))
    return tuple(found)
