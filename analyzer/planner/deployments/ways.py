"""The ways to ask a recipe's question: as the deployment is claimed to ask it, and as the planner
would at the same honest guarantee.

**The same guarantee.** What is compared holds while shuffler and analyzer do not work together.

- Answers drawn anew: the certificate of one window of the deployment's reports. Windows add up
  alike on both sides.
- Answers that devices keep: no figure of a single window adds up there. All windows together cost
  a device whose value never changes the epsilon of what it keeps; so much is given to the
  planner's way for all windows together, drawn anew in each. A device whose value changes costs
  the deployment more, and the planner's way no more.
- A claim of published figures (``central``): the claimed epsilon itself. There the server sees
  raw values, so that mechanisms of several messages, of which shuffler and analyzer together see
  the value, are no worse, and may be chosen too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from shoal.accounting.of_task import guaranteed_several
from shoal.accounting.several_messages.of_domain import design_several
from shoal.analyzer.discovery.plan import DiscoveryPlan, TooManyMessagesError, plan_discovery
from shoal.analyzer.planner.deployments.claims import (
    DAYS,
    SHORT_LIST,
    Weighed,
    discovery_request,
    weigh,
)
from shoal.analyzer.planner.deployments.recipes import Recipe, Sought
from shoal.analyzer.planner.frontier.several import foremost
from shoal.analyzer.planner.question import Request, wrong
from shoal.analyzer.planner.result import Plan
from shoal.analyzer.planner.total import plan
from shoal.domain import Domain
from shoal.mechanisms.several.registry import create
from shoal.task import MechanismSpec

CLAIMED, PLANNED = "claimed", "planned"


@dataclass(frozen=True, slots=True)
class Way:
    """A way to ask. ``epsilon``: certified of one window of n reports, all honest, at the recipe's
    delta, an upper bound. ``error``: predicted standard error of an estimate, in the question's
    unit.
    """

    name: str
    title: str
    domain: Domain
    spec: MechanismSpec
    memoized: bool
    epsilon: float
    error: float


@dataclass(frozen=True, slots=True)
class Matched:
    """``epsilon``: the guarantee at which the planner chose; ``windows``: of how many windows
    together; ``what``: in words.
    """

    epsilon: float
    windows: int
    what: str


@dataclass(frozen=True, slots=True)
class Ways:
    """``weighed``: the recipe's arithmetic for batches of as many devices."""

    weighed: Weighed
    claimed: Way
    planned: Way
    matched: Matched

    @property
    def both(self) -> tuple[Way, Way]:
        """In the order in which they are shown."""
        return self.claimed, self.planned


def ways_of(recipe: Recipe, n: int, windows: int) -> Ways:
    """Both, for ``n`` devices that answer in so many windows. Raises CONFIG for numbers out of
    range, and for a recipe that lists no answers.
    """
    if isinstance(recipe.question, Sought):
        raise wrong(f"recipe {recipe.name} looks for answers that nobody listed")
    weighed = weigh(recipe, n)
    matched = _matched(weighed, windows)
    return Ways(weighed, _claimed(weighed), _planned(weighed, n, matched), matched)


def ways_to_find(
    recipe: Recipe, n: int, known: tuple[bytes, ...], spare: int | None = None
) -> tuple[Ways, DiscoveryPlan]:
    """Of a recipe that looks for words, of which some are ``known``: the claimed way, which nobody
    runs, and the plan of a discovery. ``spare``: every device answers in one window alone that it
    draws by itself, of so many beyond one for each level; None: at every level. Raises CONFIG for
    numbers out of range, and for too few devices, with how many would do.
    """
    sought = recipe.question
    if not isinstance(sought, Sought):
        raise wrong(f"recipe {recipe.name} lists its answers")
    request = discovery_request(sought, n, recipe.delta, known)
    try:
        if spare is not None:
            request = replace(request, spare=spare).drawing(n)
        found, plain = plan_discovery(request), weigh(recipe, n)
    except TooManyMessagesError as error:
        more = f"{error.devices:,} devices or more" if error.devices else "more devices"
        raise wrong(f"{error.reason}: run recipe {recipe.name} with {more}") from None
    planned = Way(
        PLANNED,
        f"discovery of {found.discovery.levels} levels{'' if request.same else ', fresh devices'}",
        found.discovery,
        found.made.spec,
        False,
        found.epsilon_level,
        found.stderr,
    )
    of_what = "of all levels together" if request.same else "of the one window that it answers"
    matched = Matched(
        sought.epsilon,
        request.windows,
        f"a part of the claimed epsilon, {of_what}: at all of it little is promised",
    )
    return Ways(plain, _claimed(plain), planned, matched), found


def _claimed(weighed: Weighed) -> Way:
    deployed = weighed.deployed.choice
    if deployed.spec is None or deployed.errors is None:
        raise TypeError("a deployment's mechanism has integers and errors")
    return Way(
        CLAIMED,
        deployed.candidate.title,
        deployed.candidate.domain,
        deployed.spec,
        weighed.recipe.memoized,
        weighed.shuffled.epsilon_upper,
        deployed.errors.ranked,
    )


def _matched(weighed: Weighed, windows: int) -> Matched:
    recipe = weighed.recipe
    if recipe.central:
        return Matched(recipe.epsilon, 1, "the claimed epsilon of one window's figures")
    if recipe.memoized:
        return Matched(
            weighed.year,
            windows,
            "what all windows together cost a device of the deployment whose value never changes",
        )
    return Matched(
        weighed.shuffled.epsilon_upper, 1, "the certificate of one window of the deployment"
    )


def _planned(weighed: Weighed, n: int, matched: Matched) -> Way:
    recipe = weighed.recipe
    question = recipe.counted
    if recipe.central:
        several = _several(Request(question, n, recipe.delta, epsilon=matched.epsilon), recipe)
        if several is not None:
            return several
    if not recipe.memoized:
        return _way(weighed.instead)
    request = Request(
        question,
        n,
        recipe.delta,
        epsilon=matched.epsilon,
        windows=matched.windows,
        mechanisms=(*SHORT_LIST, recipe.mechanism),
    )
    return _way(plan(request))


def _several(request: Request, recipe: Recipe) -> Way | None:
    """By the mechanism of several messages that errs least, its noise such that a year of windows
    can be composed. None where none is within the limits on a report.
    """
    option = foremost(request)
    if option is None:
        return None
    n, delta, windows = request.n, request.delta, DAYS * recipe.reports_per_day
    spec = design_several(
        option.spec.name, option.domain, n, recipe.epsilon, delta, windows=windows
    )
    made = create(spec, option.domain)
    epsilon = guaranteed_several(made, n, 1, delta).epsilon_upper
    title = f"{option.title}, several messages"
    return Way(PLANNED, title, option.domain, spec, False, epsilon, option.error)


def _way(made: Plan | DiscoveryPlan) -> Way:
    if not isinstance(made, Plan):
        raise TypeError("words are sought by a discovery")
    choice = made.choice
    if choice.spec is None:
        raise TypeError("what was chosen has integers")
    return Way(
        PLANNED,
        choice.candidate.title,
        choice.candidate.domain,
        choice.spec,
        False,
        made.guarantee.epsilon_upper,
        math.nan if choice.errors is None else choice.errors.ranked,
    )
