"""What a task promises of everything it can release: fixed before anybody answers.

A task's promise is that of the smallest thing it can release: ``min_batch`` reports, or
``survivors_min`` vectors. It is known before the first answer, so no adversary can move it by
sending reports. A release of more reports may be better, and never counts as the promise.
"""

from __future__ import annotations

from fractions import Fraction

from shoal.accounting.accountant import certify
from shoal.accounting.certificate import Certificate
from shoal.accounting.guarantee import Guarantee
from shoal.accounting.sums.sum_task import check_sum
from shoal.mechanisms import Mechanism, create
from shoal.privacy import LocalPrivacy
from shoal.task import Aggregator, Task


def guaranteed(
    privacy: LocalPrivacy, min_batch: int, honest_fraction: Fraction | float, delta: float
) -> Certificate:
    """The certificate that holds for every batch a task can release: that of its smallest,
    floor(honest_fraction * min_batch).

    Fixed before collection: reports that an adversary adds cannot improve it, and a larger batch
    can only be better. Raises ShoalError CONFIG for bad numbers.
    """
    return certify(privacy, min_batch, delta, honest_fraction=honest_fraction)


def guarantee_of(task: Task, mechanism: Mechanism | None = None) -> Guarantee:
    """The guarantee of every release of ``task``: of its smallest batch, or of its smallest sum.

    ``mechanism``: the task's own, where the caller has made it already. Raises CONFIG or INVALID
    where nothing can be promised: a mechanism that doesn't fit, noise for another number of
    survivors, numbers out of range.
    """
    if task.aggregator is Aggregator.PAIRWISE:
        return check_sum(task)
    own = create(task.mechanism, task.domain) if mechanism is None else mechanism
    return guaranteed(own.privacy(), task.min_batch, task.honest_fraction, task.delta)
