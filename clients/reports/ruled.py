"""What a device is asked to answer with, by its owner's rules: one answer, or a vector."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from shoal.clients.core import Assignment
from shoal.clients.owner.rules import Rule, settle
from shoal.domain import Value
from shoal.errors import Kind, ShoalError

if TYPE_CHECKING:
    from shoal.clients.vectors import VectorValue


def ruled_value(
    assignment: Assignment, rules: Iterable[Rule], value: VectorValue, otherwise: str | None
) -> Value:
    """The value as the rules leave it (``settle``); a vector as its text (``settle_vector``).
    Raises INVALID for a vector where one answer is asked for, and for what is neither.
    """
    task = assignment.task
    if assignment.vectors is not None:
        # numpy: only for who is asked for vectors
        from shoal.clients.vectors import settle_vector

        return settle_vector(rules, task, assignment.vectors.domain, value, otherwise)
    if value is not None and not isinstance(value, bool | int | float | str):
        raise ShoalError(Kind.INVALID, f"task {task.name} asks for one answer, not for a vector")
    return settle(rules, task, value, otherwise)
