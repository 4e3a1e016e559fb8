"""A discovery of places planned: into how many parts each part of a map is cut, and how many rows
the first level asks for, chosen by what they find.

A fine first level saves levels, and every level takes a part of the epsilon; but a device sends a
message now and then for each of its cells. Parts of 4 x 4 make fewer levels than those of 2 x 2,
and each part that is followed has more cells. So both are planned, with as fine a first level as a
device has messages for, and the one that finds the less crowded cells is taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shoal.accounting.several_messages.noise_design import design_dummies
from shoal.analyzer.discovery.plan import DiscoveryPlan, DiscoveryRequest, plan_discovery
from shoal.analyzer.planner.question import wrong
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.questions.place_paths import ACROSS, PlacePaths
from shoal.questions.places import Places

_NEAR = 0.05  # found from as few devices, but for this share: then fewer messages count


@dataclass(frozen=True, slots=True)
class PlacePlan:
    """``plan``: the one to take; ``others``: ways to cells of the same size that were planned too,
    and find less, or send more messages.
    """

    plan: DiscoveryPlan
    others: tuple[DiscoveryPlan, ...]

    @property
    def paths(self) -> PlacePaths:
        """The parts of the map."""
        return paths_of(self.plan)


def paths_of(plan: DiscoveryPlan) -> PlacePaths:
    """The alphabet of a plan for places."""
    alphabet = plan.discovery.alphabet
    if not isinstance(alphabet, PlacePaths):
        raise TypeError("it is a plan for words")
    return alphabet


def longest_for(paths: PlacePaths, cell_m: float) -> int:
    """The fewest symbols that make cells of ``cell_m`` metres in height and width, or less. Raises
    CONFIG where that is more than there can be.
    """
    widest = max(paths.box.cell_height_m, paths.box.cell_width_m)
    for longest in range(1, paths.most_length + 1):
        if widest <= cell_m * paths.across**longest:
            return longest
    least = widest / paths.across**paths.most_length
    raise wrong(
        f"this map has cells of {least:.3g} metres at least: give larger ones or less of it"
    )


def plan_places(
    request: DiscoveryRequest,
    box: Places,
    cell_m: float,
    across: int | None = None,
    first: int | None = None,
) -> PlacePlan:
    """``request``: for what, but for its symbols. Raises CONFIG: as ``plan_discovery``, of the way
    that comes nearest, and for cells that there can't be.
    """
    plans, refused = list[DiscoveryPlan](), list[ShoalError]()
    # in a cell: one level has no less, whatever the others are
    dummies = design_dummies(2, request.n_honest, request.epsilon, request.delta, windows=1).dummies
    for each in reversed(ACROSS) if across is None else (across,):
        paths = PlacePaths(box, each)
        longest = longest_for(paths, cell_m)
        finest = min(longest, paths.most_first)
        for begin in range(finest, 0, -1) if first is None else (first,):
            if begin > 1 and paths.symbols**begin * dummies > LIMITS.messages * request.n_honest:
                continue
            asked = replace(request, first=begin, longest=longest, alphabet=paths)
            try:
                plans.append(plan_discovery(asked))
            except ShoalError as error:
                if error.kind is not Kind.CONFIG:
                    raise
                refused.append(error)
            else:
                break
    if not plans:
        raise (
            refused[-1]
            if refused
            else wrong(
                "a device would send too many messages: ask for fewer symbols first, or give more "
                "devices or a larger epsilon"
            )
        )
    least = min(plan.found_from for plan in plans) * (1 + _NEAR)
    best = min(
        (plan for plan in plans if plan.found_from <= least),
        key=lambda plan: (plan.messages(plan.discovery.size), plan.found_from),
    )
    return PlacePlan(best, tuple(plan for plan in plans if plan is not best))
