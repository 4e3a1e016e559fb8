"""What several devices of one person give away in one window of a task: what ``shoal agent
explain`` tells an owner who has several.
"""

from __future__ import annotations

from shoal.accounting.certificate import count_honest
from shoal.accounting.groups.bound import SHIFT, GroupBound, check_group, group_of_law
from shoal.accounting.groups.of_messages import group_of_several
from shoal.accounting.sums.pairwise import certify_sum
from shoal.accounting.sums.sum_task import check_sum
from shoal.domain import Vector
from shoal.mechanisms.quantize import SensitivityBounds, bounds
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.several.registry import AnyMechanism, create_any
from shoal.task import Aggregator, Task


def group_of_task(task: Task, devices: int, mechanism: AnyMechanism | None = None) -> GroupBound:
    """The bound of ``devices`` that all answer one window of ``task``, at its delta and at the
    honest devices that it guarantees. Direction: UPPER.

    ``mechanism``: the task's own, where the caller has made it already. Raises CONFIG or INVALID
    where nothing can be promised, and for more devices than are sure to be honest.
    """
    if task.aggregator is Aggregator.PAIRWISE:
        return _of_sum(task, devices)
    own = create_any(task.mechanism, task.domain) if mechanism is None else mechanism
    n_honest = count_honest(task.min_batch, task.honest_fraction)
    if isinstance(own, Several):
        return group_of_several(own, n_honest, task.delta, devices)
    return group_of_law(own.privacy(), n_honest, task.delta, devices)


def _of_sum(task: Task, devices: int) -> GroupBound:
    """g vectors within the bounds add to a vector within g times the bounds: L1 and largest
    coordinate g times, the square of L2 g^2 times. So their sum shifts as that of one such device.
    """
    one = check_sum(task)
    check_group(devices, one.honest)
    assert isinstance(task.domain, Vector)  # noqa: S101 - for type checkers: check_sum refuses it
    of_one = bounds(task.domain)
    together = SensitivityBounds(
        devices * of_one.l1,
        devices * devices * of_one.l2_squared,
        devices * of_one.linf,
        of_one.certain_squared,  # no lower end is stated; one of them alone sends so much
    )
    assert task.pairwise is not None  # noqa: S101 - likewise
    found = certify_sum(
        task.mechanism,
        together,
        task.domain.dimension,
        survivors=one.survivors,
        honest_fraction=one.honest_fraction,
        delta=task.delta,
        mode=task.pairwise.mode,
    )
    return GroupBound(devices, 1, found.epsilon_upper, task.delta, SHIFT)
