"""What all of an owner's devices give away together, for an owner who has several."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from shoal.accounting.groups.of_task import group_of_task
from shoal.accounting.sums.skellam import round_up
from shoal.clients.owner.explain_cost import up
from shoal.errors import ShoalError

if TYPE_CHECKING:
    from shoal.clients.core import Assignment


def group_lines(assignment: Assignment, devices: int) -> list[str]:
    """One line for ``devices`` of one owner that all answer; none for a single one. Epsilons are
    upper bounds, rounded up.
    """
    if devices == 1:
        return []
    first = f"If {devices:,} of your devices take part in this:"
    task = assignment.task
    try:
        group = group_of_task(task, devices, assignment.several or assignment.mechanism)
    except ShoalError as error:
        return [f"{first} nothing is proven of all of them together ({error.message})."]
    windows = task.windows_of_a_device
    # whoever answers once shows one window, of all that a task has
    of = "of one window" if windows == task.windows.count else "of all windows"
    line = (
        f"{first} epsilon <= {up(group.epsilon_upper)} at delta = {up(group.delta)} for all of "
        f"them together, {of}"
    )
    if task.memoized and math.isfinite(assignment.epsilon0):
        # of permanent answers, drawn independently by each device
        lifetime = round_up(devices * Fraction(assignment.epsilon0))
        return [f"{line}; of all windows, for values that don't change, epsilon <= {up(lifetime)}."]
    return [f"{line}. Windows add up." if windows > 1 else f"{line}."]
