"""What a task on a map promises by distance, in plain words, for the owner of a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.accounting.metric import metric_of
from shoal.accounting.metric_words import metric_sentences
from shoal.accounting.of_task import guarantee_of
from shoal.errors import ShoalError

if TYPE_CHECKING:
    from shoal.clients.core import Assignment


def place_lines(assignment: Assignment) -> list[str]:
    """None for a task whose answers have no distance, or of which nothing can be promised."""
    task, mechanism = assignment.task, assignment.mechanism
    if mechanism is None:
        return []
    try:
        found = metric_of(mechanism, guarantee_of(task, mechanism))
    except ShoalError:
        return []  # the promise above says so
    if found is None:
        return []
    words = metric_sentences(found, task.windows.count, memoized=task.memoized)
    return ["Promised by distance, in every single report:", *(f"  - {line}" for line in words)]
