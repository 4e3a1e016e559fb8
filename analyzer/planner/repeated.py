"""One-off or repeated: what several windows about the same devices add up to, drawn anew in each,
and memoized.
"""

from __future__ import annotations

from shoal.accounting.accountant import simplest, upper_curve
from shoal.accounting.composition.compose import compose, release_law
from shoal.analyzer.planner.question import Request
from shoal.analyzer.planner.result import Option, Repeated
from shoal.mechanisms import Mechanism
from shoal.mechanisms.longitudinal.protocol import Longitudinal
from shoal.privacy import epsilon0_upper


def repeated(request: Request, choice: Option) -> Repeated | None:
    """None if the devices are asked once."""
    if request.rounds == 1:
        return None
    return over_windows(
        request, choice.candidate.build(choice.epsilon0), choice.candidate.domain.size
    )


def over_windows(request: Request, mechanism: Mechanism, cells: int) -> Repeated:
    """Fresh reports compose: their privacy losses centrally, epsilon0 locally. Memoized ones are a
    function of one permanent answer per distinct value (or per key, where a mechanism has a memory
    of its own), so they cost the permanent answer's epsilon once for each.
    """
    law = mechanism.privacy()
    first = epsilon0_upper(law)
    fresh = request.rounds * first
    rounds = [
        (release_law(upper_curve, simplest(law), request.n_honest, request.delta), request.rounds)
    ]
    central = min(compose(rounds, request.delta).epsilon_upper, fresh)
    values, permanent, kept = permanently(request, mechanism, cells)
    costs = (first, fresh, central, request.delta, values, permanent, kept)
    return Repeated(request.windows, request.changes, request.memoized, *costs, request.tasks)


def permanently(
    request: Request, mechanism: Mechanism, cells: int
) -> tuple[int, float, float | None]:
    """(distinct values, epsilon0 of each permanent answer, epsilon0 of all reports together or None
    where a report can't be memoized).
    """
    values, permanent = min(request.changes + 1, cells), epsilon0_upper(mechanism.privacy())
    if isinstance(mechanism, Longitudinal):
        values, permanent = min(values, mechanism.keys), epsilon0_upper(mechanism.permanent())
    elif mechanism.messages != 1:
        return values, permanent, None
    return values, permanent, request.tasks * values * permanent
