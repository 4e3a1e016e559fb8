"""What a deployment's claim means per report, per day and over a year; what shuffling changes; what
would be chosen instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from shoal.accounting.guarantee import Guarantee
from shoal.accounting.of_task import guaranteed
from shoal.analyzer.discovery.plan import DiscoveryPlan, DiscoveryRequest, plan_discovery
from shoal.analyzer.planner.candidates import Candidate
from shoal.analyzer.planner.choose import plan_window
from shoal.analyzer.planner.deployments.recipes import Recipe, Sought
from shoal.analyzer.planner.order import TellProgress
from shoal.analyzer.planner.predict import frame_bytes, predict
from shoal.analyzer.planner.question import Request
from shoal.analyzer.planner.repeated import over_windows
from shoal.analyzer.planner.result import Option, Plan, Repeated, Standing
from shoal.analyzer.planner.search import largest
from shoal.mechanisms import REGISTRY, Mechanism
from shoal.privacy import epsilon0_upper

DAYS = 365
# The choice is looked for among those that win behind a shuffler, and the deployment's own: a
# recipe shows one, not the whole table.
SHORT_LIST = ("binary_rr", "krr", "kmean", "subset")


@dataclass(frozen=True, slots=True)
class Weighed:
    """A recipe with its figures.

    ``report``: epsilon0 of one report, as built from integers. ``day``, ``year``: epsilon against
    whoever sees the device's reports (for a central claim: the published figures), the value never
    changing. ``year_at_worst``: the same, with a new value in every report. ``shuffled``:
    certificate of one batch of ``recipe.n`` reports; ``year_shuffled``: all batches of a year
    together, None where none is claimed (memoized). ``deployed``: the deployment's mechanism as a
    plan's option; ``instead``: the plan at the same central epsilon, or, where words are sought, a
    discovery at the recipe's own.
    """

    recipe: Recipe
    deployed: Plan
    report: float
    day: float
    year: float
    year_at_worst: float
    shuffled: Guarantee
    year_shuffled: float | None
    instead: Plan | DiscoveryPlan

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, as ``shoal plan --json`` prints them; epsilons are upper bounds."""
        recipe = self.recipe
        return {
            "recipe": recipe.name,
            "title": recipe.title,
            "claimed_epsilon": recipe.epsilon,
            "claim": recipe.claim,
            "central_claim": recipe.central,
            "reports_per_day": recipe.reports_per_day,
            "memoized": recipe.memoized,
            "epsilon_report": self.report,
            "epsilon_day": self.day,
            "epsilon_year": self.year,
            "epsilon_year_at_worst": self.year_at_worst,
            "shuffled": self.shuffled.to_json(),
            "shuffled_year": self.year_shuffled,
            "deployed": self.deployed.choice.to_json(recipe.counted.shown),
            "instead": (
                self.instead.to_json() if isinstance(self.instead, Plan) else _words(self.instead)
            ),
            "sources": [
                {"text": each.text, "where": each.where, "checked": each.checked}
                for each in recipe.sources
            ],
        }


def weigh(recipe: Recipe, n: int | None = None, tell: TellProgress | None = None) -> Weighed:
    """The figures, for batches of ``n`` reports (default: the recipe's), all honest. Raises CONFIG
    for numbers out of range.
    """
    n, windows = recipe.n if n is None else n, DAYS * recipe.reports_per_day
    request = Request(
        recipe.counted, n, recipe.delta, epsilon=1.0, windows=windows, memoized=recipe.memoized
    )
    candidate = _candidate(recipe)
    epsilon0 = recipe.epsilon
    if recipe.central:
        bracket = largest(
            candidate,
            recipe.epsilon,
            recipe.delta,
            request.n_honest,
            start=6.0,
            beaten=lambda _: False,
        )
        epsilon0 = bracket.epsilon0
    mechanism = candidate.build(epsilon0)
    shuffled = guaranteed(mechanism.privacy(), n, Fraction(1), recipe.delta)
    request = replace(request, epsilon=recipe.epsilon if recipe.central else shuffled.epsilon_upper)
    still = over_windows(request, mechanism, candidate.domain.size)
    moving = over_windows(replace(request, changes=windows - 1), mechanism, candidate.domain.size)
    option = _option(candidate, mechanism, shuffled, recipe, n)
    deployed = Plan(request, option, shuffled, (), (), n, still)
    instead = _instead(recipe, replace(request, windows=1, memoized=False), tell)
    day, year, worst = _sums(recipe, still, moving)
    central_year = None if recipe.memoized else still.fresh_central
    return Weighed(
        recipe, deployed, still.first_epsilon0, day, year, worst, shuffled, central_year, instead
    )


def _instead(recipe: Recipe, request: Request, tell: TellProgress | None) -> Plan | DiscoveryPlan:
    if isinstance(recipe.question, Sought):
        return plan_discovery(discovery_request(recipe.question, request.n, recipe.delta))
    short = tuple(name for name in REGISTRY if name in (*SHORT_LIST, recipe.mechanism))
    return plan_window(replace(request, mechanisms=short), tell)


def discovery_request(
    sought: Sought, n: int, delta: float, known: tuple[bytes, ...] = ()
) -> DiscoveryRequest:
    """What is planned for ``n`` devices, all honest, that answer at every level. ``known``: words
    that are left out, as ``Discovery`` has them.
    """
    return DiscoveryRequest(
        n,
        sought.epsilon,
        delta,
        first=sought.first,
        longest=sought.longest,
        most=sought.most,
        known=known,
    )


def _words(plan: DiscoveryPlan) -> dict[str, Any]:
    """A discovery in plain JSON values; numbers are of devices, epsilons upper bounds."""
    return {
        "levels": plan.discovery.levels,
        "epsilon_upper": plan.epsilon,
        "epsilon_of_a_level": plan.epsilon_level,
        "epsilon0": None,
        "stderr": plan.stderr,
        "threshold": plan.threshold,
        "found_from": plan.found_from,
    }


def _sums(recipe: Recipe, still: Repeated, moving: Repeated) -> tuple[float, float, float]:
    """(day, year, year at worst)."""
    if recipe.central:
        return recipe.epsilon, DAYS * recipe.epsilon, DAYS * recipe.epsilon
    if recipe.memoized and still.kept_epsilon0 is not None and moving.kept_epsilon0 is not None:
        day = still.first_epsilon0 if recipe.reports_per_day == 1 else still.kept_epsilon0
        return day, still.kept_epsilon0, moving.kept_epsilon0
    return recipe.reports_per_day * still.first_epsilon0, still.fresh_epsilon0, still.fresh_epsilon0


def _candidate(recipe: Recipe) -> Candidate:
    """Raises INVALID if the mechanism is not registered."""
    family = REGISTRY[recipe.mechanism]
    settings = family.settings(recipe.domain)
    name = recipe.setting or settings[0].name
    return Candidate(recipe.mechanism, name, family.summary, recipe.domain, len(settings) == 1)


def _option(
    candidate: Candidate, mechanism: Mechanism, shuffled: Guarantee, recipe: Recipe, n: int
) -> Option:
    return Option(
        candidate,
        Standing.CHOSEN,
        "the deployment's",
        spec=mechanism.spec,
        epsilon0=epsilon0_upper(mechanism.privacy()),
        epsilon_upper=shuffled.epsilon_upper,
        errors=predict(recipe.counted, mechanism, candidate.domain, n),
        messages=mechanism.messages,
        message_bytes=mechanism.report_size,
        frame_bytes=frame_bytes(mechanism),
    )
