"""What several shufflers of one store agree on before a window of a discovery is answered: the
first step of each window, for all of them.

A store that one shuffler has for itself needs none of it: ``AskedSteps`` keeps its steps in a
folder. A member is held by ``StepBookSuite`` (tests/conformance/store/steps_suite.py).

A step that is entered here is passed on by everybody who shares the store, and nothing else is. The
store holds it against reports too: a window takes those alone that name the question with which it
was opened, and it is opened only with the one that is entered here (``AdmittedRows.asked``). So
even shufflers that remember different steps, after a store was put back, gather one batch of one
question.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from shoal.ids import TaskId
from shoal.shuffler.core import WindowId


@dataclass(frozen=True, slots=True)
class EnteredStep:
    """``name``: of the question, 32 bytes. ``data``: the SignedDiscoveryStep. Nothing of it is
    verified.
    """

    window: WindowId
    name: bytes
    data: bytes


class StepBook(Protocol):
    """For one event loop."""

    async def enter(self, step: EnteredStep) -> EnteredStep:
        """The step of this window from now on, durably, if none was entered before: the one that
        is. Of several at one instant one is the first, and all of them are told the same. Raises
        UNAVAILABLE, OVERLOADED, INTERNAL: whether it was entered is not known.
        """
        ...

    async def entered(self, task_ids: Collection[TaskId]) -> list[EnteredStep]:
        """All of these tasks, by task and window. Raises UNAVAILABLE, OVERLOADED, INTERNAL."""
        ...

    async def forget(self, task_id: TaskId) -> None:
        """Delete all of a task whose retention has ended. Raises UNAVAILABLE, OVERLOADED,
        INTERNAL.
        """
        ...
