"""What a task promises of everything it can release: fixed before anybody answers.

A task's promise is that of the smallest thing it can release: ``min_batch`` reports, or
``survivors_min`` vectors. It is known before the first answer, so no adversary can move it by
sending reports. A release of more reports may be better, and never counts as the promise.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from shoal.accounting.accountant import certify
from shoal.accounting.certificate import Certificate, check_honest, count_honest
from shoal.accounting.guarantee import Guarantee
from shoal.accounting.sums.sum_task import check_sum
from shoal.domain import AnswerRecord, Discovery, Domain
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.several.registry import AnyMechanism, create_any
from shoal.privacy import LocalPrivacy
from shoal.task import Aggregator, Task

if TYPE_CHECKING:
    from shoal.accounting.several_messages.messages import MessagesBound


def guaranteed(
    privacy: LocalPrivacy, min_batch: int, honest_fraction: Fraction | float, delta: float
) -> Certificate:
    """The certificate that holds for every batch a task can release: that of its smallest,
    floor(honest_fraction * min_batch).

    Fixed before collection: reports that an adversary adds cannot improve it, and a larger batch
    can only be better. Raises ShoalError CONFIG for bad numbers.
    """
    return certify(privacy, min_batch, delta, honest_fraction=honest_fraction)


def guarantee_of(task: Task, mechanism: AnyMechanism | None = None) -> Guarantee:
    """The guarantee of every release of ``task``: of its smallest batch, or of its smallest sum.

    ``mechanism``: the task's own, where the caller has made it already. Raises CONFIG or INVALID
    where nothing can be promised: a mechanism that doesn't fit, noise for another number of
    survivors or honest devices, numbers out of range.
    """
    if task.aggregator is Aggregator.PAIRWISE:
        return check_sum(task)
    own = create_any(task.mechanism, task.domain) if mechanism is None else mechanism
    bound: Certificate | MessagesBound
    if isinstance(own, Several):
        bound = guaranteed_several(own, task.min_batch, task.honest_fraction, task.delta)
    else:
        bound = guaranteed(own.privacy(), task.min_batch, task.honest_fraction, task.delta)
    # Two records are two cells only once a marginal is drawn. The average over the coin keeps every
    # upper bound of two cells, and may be far below what two cells attain: nothing is claimed then.
    # Of a discovery the largest level is certified, which bounds every level from above alone:
    # where true messages are randomized too, others' draws hide more in fewer cells.
    randomized = isinstance(task.domain, Discovery) and math.isfinite(bound.epsilon0)
    return replace(bound, epsilon_lower=0.0) if randomized or _drawn(task.domain) else bound


def _drawn(domain: Domain) -> bool:
    """Whether a device draws which of several marginals it answers in."""
    if not isinstance(domain, AnswerRecord):
        return False
    return not domain.together and len(domain.marginals) > 1


def guaranteed_several(
    made: Several, n: int, honest_fraction: Fraction | float, delta: float
) -> MessagesBound:
    """The bound that holds for every batch of ``n`` devices or more that send several messages.

    More devices only add noise. Raises CONFIG for bad numbers and where nothing is proven.
    """
    # of the accountant, which most tasks do not want
    from shoal.accounting.several_messages.messages import certify_messages
    from shoal.accounting.several_messages.of_mechanism import protocol_of

    bound = certify_messages(protocol_of(made), n, delta, honest_fraction=honest_fraction)
    if bound is None:
        honest, least = count_honest(n, check_honest(honest_fraction)), made.least_devices
        few = f", and only {honest} are sure to be honest" if honest < least else ""
        raise ShoalError(
            Kind.CONFIG,
            f"nothing is proven: the noise is split over {least} devices{few}: design it for "
            "floor(honest_fraction x min_batch) devices",
        )
    return bound
