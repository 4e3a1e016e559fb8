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
    values, permanent = min(request.changes + 1, cells), first
    kept: float | None = None
    if isinstance(mechanism, Longitudinal):
        values, permanent = min(values, mechanism.keys), epsilon0_upper(mechanism.permanent())
        kept = request.tasks * values * permanent
    elif mechanism.messages == 1:
        kept = request.tasks * values * permanent
    costs = (first, fresh, central, request.delta, values, permanent, kept)
    return Repeated(request.windows, request.changes, request.memoized, *costs, request.tasks)
