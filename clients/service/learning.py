"""A running device's part in models that are learnt: which model each window is asked at, and its
answer there.

Everything that is heavy is imported when a source names a folder of releases: an idle device has no
such source.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from shoal.clients.core import Assignment
from shoal.clients.sources.own_thread import in_own_thread
from shoal.clients.sources.problem import SourceError
from shoal.domain import Value
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId

if TYPE_CHECKING:
    from shoal.arrays import NDArray, np
    from shoal.clients.rounds.followed import ModelInFolder
    from shoal.questions.learning import LearningState

T = TypeVar("T")


class ModelsInFolders:
    """One model for each task and folder, kept from window to window. For one event loop."""

    def __init__(self) -> None:
        self._models: dict[tuple[TaskId, Path], ModelInFolder] = {}

    async def at(
        self, assignment: Assignment, folder: Path, window: int, most_s: float
    ) -> LearningState:
        """The model at which a window is asked, within ``most_s`` seconds; what was followed by
        then is kept. Raises UNAVAILABLE with a line for the owner, CONFIG for a task that learns no
        model; nothing of it depends on a row.
        """
        model = self._of(assignment, folder)
        return await _within(assignment, folder, most_s, lambda: model.at(window))

    async def answer(
        self, assignment: Assignment, folder: Path, state: LearningState, value: Value
    ) -> NDArray[np.float64] | None:
        """What this device's row gives there, float64[dimension]; None: the zero vector. Raises
        CONFIG, whatever the value is.
        """
        from shoal.clients.rounds.followed import row_answer

        plan = self._of(assignment, folder).plan
        return await asyncio.to_thread(row_answer, plan, state, value)

    def forget(self, task_id: TaskId) -> None:
        """Free the memory of a task that is not answered any more."""
        self._models = {key: model for key, model in self._models.items() if key[0] != task_id}

    def _of(self, assignment: Assignment, folder: Path) -> ModelInFolder:
        from shoal.clients.rounds.followed import ModelInFolder

        key = assignment.task_id, folder
        if key not in self._models:
            self._models[key] = ModelInFolder(assignment.task, assignment.task_id, folder)
        return self._models[key]


async def missing(assignment: Assignment, folder: Path, window: int, most_s: float) -> str:
    """Why a window can't be answered yet, in a line for the owner; "" if all releases before it
    are there.
    """
    from shoal.clients.rounds.followed import ModelInFolder

    try:
        model = ModelInFolder(assignment.task, assignment.task_id, folder)
        await _within(assignment, folder, most_s, lambda: model.check(window))
    except ShoalError as error:
        return error.message
    return ""


async def _within(assignment: Assignment, folder: Path, most_s: float, step: Callable[[], T]) -> T:
    try:
        return await in_own_thread((assignment.task_id, folder), most_s, step)
    except SourceError as error:
        raise ShoalError(
            Kind.UNAVAILABLE,
            f"task {assignment.task.name}: the releases in {folder} can't be read yet ({error}): "
            "no window is answered until they are",
        ) from None
