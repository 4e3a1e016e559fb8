"""Whether an analyzer could release a task at all: asked where a task is published and where it is
loaded, with the same words.
"""

from __future__ import annotations

from shoal.accounting.composition.memoized import check_memoized
from shoal.accounting.sums.sum_task import check_sum
from shoal.errors import Kind, ShoalError
from shoal.mechanisms import create
from shoal.task import Task


def check_servable(task: Task) -> None:
    """Return if the task's mechanism can be made and its reports are as the task says. Raises
    CONFIG, INVALID.
    """
    if task.pairwise is not None:
        check_sum(task)
        return
    mechanism = create(task.mechanism, task.domain)
    if (mechanism.report_size, mechanism.messages) != (task.report_size, task.messages):
        raise ShoalError(
            Kind.CONFIG,
            f"task {task.name}: report_size or messages are not those of its mechanism "
            f"{mechanism.name}: shoal task lint says which they are",
        )
    check_memoized(task, mechanism)
