"""Whether an analyzer could release a task at all: asked where a task is published and where it is
loaded, with the same words.
"""

from __future__ import annotations

from shoal.accounting.composition.memoized import check_memoized
from shoal.accounting.of_task import guarantee_of
from shoal.accounting.sums.sum_task import check_sum
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.several.registry import check_shape, create_any
from shoal.mechanisms.vectors.protocol import VectorRandomizer
from shoal.task import Task


def check_servable(task: Task) -> None:
    """Return if the task's mechanism can be made and its reports are as the task says. Raises
    CONFIG, INVALID.
    """
    if task.pairwise is not None:
        check_sum(task)
        return
    made = create_any(task.mechanism, task.domain)
    try:
        check_shape(task, made)
    except ShoalError as error:
        raise ShoalError(Kind.CONFIG, f"{error}: shoal task lint says more") from None
    if isinstance(made, Several):
        guarantee_of(task, made)  # its end, should it have no other, is charged by that
    elif not isinstance(made, VectorRandomizer):  # a task of vectors is never memoized
        check_memoized(task, made)
