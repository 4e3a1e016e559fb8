"""What a sum by secure aggregation promises, for a device's owner: of one window, and of all."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from shoal.accounting.meaning import sum_sentences
from shoal.accounting.sums.windows import epsilon_of_task
from shoal.clients.owner.explain_cost import up
from shoal.errors import ShoalError

if TYPE_CHECKING:
    from shoal.accounting.guarantee import Guarantee
    from shoal.secagg import PairwisePlan
    from shoal.task import Task


def sum_lines(task: Task, plan: PairwisePlan, guarantee: Guarantee) -> list[str]:
    """Of one window, then of all of them together: the divergences of their sums are composed.
    Epsilons are upper bounds, rounded up.
    """
    together, count = guarantee.remaining.together, task.windows.count
    words = sum_sentences(
        guarantee.epsilon_upper,
        guarantee.delta,
        guarantee.n_honest,
        together if math.isfinite(together) else None,
        plan.mode.name.lower(),
    )
    lines = [f"  - {line}" for line in words]
    if count == 1:
        return lines
    first = f"Promised of all {count:,} windows together:"
    try:
        composed = epsilon_of_task(task, count, task.delta)
    except ShoalError as error:
        return [*lines, f"{first} nothing that this device can compute ({error.message})."]
    return [*lines, f"{first} epsilon <= {up(composed)} at delta = {task.delta:g}, composed."]
