"""The other way round: so many devices have a word, and it is to be found. How little epsilon is
enough?
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from shoal.analyzer.discovery.plan import (
    DiscoveryPlan,
    DiscoveryRequest,
    drawn_from,
    fitting,
    found_from,
    planned,
)
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.several.levels import threshold

_MOST, _LEAST = 8.0, 1e-3  # of the epsilon of one level; more finds no more
_NEAR = 1.01  # how near to the smallest the epsilon of one level is found
_LOOKS = math.ceil(math.log2(math.log(_MOST / _LEAST) / math.log(_NEAR)))


@dataclass(frozen=True, slots=True)
class LeastSoFar:
    """``plan``: None but of the last; ``tried`` of ``of`` settings of the noise."""

    plan: DiscoveryPlan | None
    tried: int
    of: int = _LOOKS + 2


def plan_found_from(request: DiscoveryRequest, wanted: int) -> DiscoveryPlan:
    """The plan of the least epsilon with which a word of ``wanted`` devices of all is found with
    95 %; the request's own epsilon is not looked at. Raises CONFIG where none does, with what would
    work.
    """
    plan = None
    for each in least_plans(request, wanted):
        plan = each.plan
    assert plan is not None  # noqa: S101 - the last one has it
    return plan


def least_plans(request: DiscoveryRequest, wanted: int) -> Iterator[LeastSoFar]:
    """The same, telling how far it is. The last one has the plan."""
    fleet = request.fleet
    if not 1 <= wanted <= fleet:
        raise ShoalError(
            Kind.CONFIG,
            f"a word is to be found from 1 to {fleet:,} devices, as many as there are, got "
            f"{wanted:,}",
        )
    if found_with(request, _MOST, wanted) > wanted:
        raise ShoalError(
            Kind.CONFIG,
            f"no epsilon finds all words of {wanted:,} of {fleet:,} devices within "
            f"{request.asked_windows} windows: give a larger count, or more devices",
        )
    tried, low, high = 1, _LEAST, _MOST
    yield LeastSoFar(None, tried)
    while high > low * _NEAR:
        middle = math.sqrt(low * high)
        low, high = (
            (low, middle) if found_with(request, middle, wanted) <= wanted else (middle, high)
        )
        tried += 1
        yield LeastSoFar(None, tried)
    plan = planned(request, *fitting(request, high, request.windows))
    epsilon = max(plan.epsilon, plan.epsilon_level)
    if not math.isfinite(epsilon):
        raise ShoalError(
            Kind.CONFIG,
            f"nothing is proven of {request.windows} windows together there: give fewer letters, "
            "a larger count or a larger delta",
        )
    yield LeastSoFar(replace(plan, request=replace(request, epsilon=epsilon)), _LOOKS + 2)


def found_with(request: DiscoveryRequest, epsilon: float, wanted: int) -> float:
    """Devices from which a word is found if one level costs so much; math.inf where no noise does
    that, or a level has no room for all beginnings that ``wanted`` devices can have.
    """
    try:
        discovery, made = fitting(request, epsilon, request.windows)
    except ShoalError as error:
        if error.kind is not Kind.CONFIG:
            raise
        return math.inf
    if discovery.most < min(request.room, request.fleet // wanted):
        return math.inf
    least = threshold(made, discovery.levels, request.crowd)
    if not request.same:
        return drawn_from(made, least, request, discovery.levels)
    return found_from(made, least, request.crowd, discovery.levels)
