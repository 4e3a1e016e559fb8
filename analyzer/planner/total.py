"""A budget for all windows together: which target each of them may have.

Asked ``windows`` times (and in ``tasks`` like this one) with fresh randomness, a device gives away
what all releases say together. Who names an epsilon names that total. Each window's own target is
found with the plan that it leads to: a plan for a guessed target, then the largest epsilon0 of its
choice whose releases compose to at most the total, then a plan for what that certifies; again until
it stays. The composition of the plan that is returned is checked, whatever came before: nothing
here can make it larger than was asked.
"""

from __future__ import annotations

import math
from dataclasses import replace

from shoal.accounting.accountant import upper_bound
from shoal.accounting.solving.solve_total import boundary, total_epsilon
from shoal.analyzer.planner.choose import most_epsilon0, plan_window
from shoal.analyzer.planner.order import TellProgress
from shoal.analyzer.planner.question import Request, wrong
from shoal.analyzer.planner.result import Option, Plan
from shoal.privacy import LocalPrivacy

_MOST_PLANS = 6
_ALIKE = 2e-3  # a plan whose total is so close below what was asked is the answer
_NEAR = 0.05  # the total is nearly in proportion to epsilon0: the answer lies so close to that
_HAIR = 1e-4


def plan(request: Request, tell: TellProgress | None = None) -> Plan:
    """The plan for a request. ``tell`` hears how far it is.

    ``choice.epsilon_upper`` <= the target, by the very certificate that a task's lint computes;
    every other option that was compared is proven to keep it too, and none of their predicted
    errors is below the choice's by more than 0.5 %. Where a total was asked for
    (``Request.total``), the plan's request has the target of one window, and ``asked`` is the
    total. Raises CONFIG where nothing can be chosen, saying what stands in the way of each.
    """
    total = request.total
    if total is None:
        return plan_window(request, tell)
    target, chosen_plan, best = total / math.sqrt(request.rounds), None, None
    for _ in range(_MOST_PLANS):
        chosen_plan = plan_window(replace(request, epsilon=target, together=False), tell)
        together = total_epsilon(
            _law(chosen_plan.choice, chosen_plan.choice.epsilon0),
            request.n_honest,
            request.delta,
            request.rounds,
        )
        if together <= total:
            best = chosen_plan if best is None or _target(chosen_plan) > _target(best) else best
            if together >= total * (1.0 - _ALIKE) or _capped(request, chosen_plan.choice):
                break
        fitting = _fitting(request, chosen_plan.choice, total, together)
        if best is not None and abs(fitting - _target(best)) <= _ALIKE * fitting:
            break
        target = fitting
    if best is None:
        raise wrong(
            f"no plan keeps {total:g} over {request.rounds} releases: ask less often, or allow more"
        )
    return replace(best, asked=total)


def _target(chosen_plan: Plan) -> float:
    return chosen_plan.request.epsilon or 0.0


def _law(choice: Option, epsilon0: float) -> LocalPrivacy:
    return choice.candidate.build(epsilon0).privacy()


def _capped(request: Request, choice: Option) -> bool:
    """Whether a limit on epsilon0 keeps the choice from using up the total."""
    return choice.epsilon0 >= most_epsilon0(request, choice.candidate) * (1.0 - _ALIKE)


def _fitting(request: Request, choice: Option, total: float, now: float) -> float:
    """The central epsilon of one window at which all of them with this choice are at most
    ``total``: a hair below, so that the plan for it is within. ``now``: what they are together at
    the choice's epsilon0, to begin near the answer.
    """
    most = most_epsilon0(request, choice.candidate)

    def together(epsilon0: float) -> float:
        return total_epsilon(
            _law(choice, epsilon0), request.n_honest, request.delta, request.rounds
        )

    floor, near = min(total / request.rounds, most), choice.epsilon0 * total / now
    inside = max(floor, near * (1.0 - _NEAR))
    if inside > floor and together(inside) > total:
        inside = floor
    beyond = min(most, near * (1.0 + _NEAR))
    outside = beyond if beyond > inside and together(beyond) > total else most
    epsilon0 = boundary(together, inside, outside, total)
    return upper_bound(_law(choice, epsilon0), request.n_honest, request.delta)[0] * (1.0 - _HAIR)
