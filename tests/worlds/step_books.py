"""Shufflers' views of what discoveries ask, several on one book; and a book in memory, which can be
away, and put back from a copy.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import cast

from shoal.clocks.clock import FakeClock
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.shuffler.asked_steps import AskedSteps
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.steps import EnteredStep, StepBook
from shoal.shuffler.tasks import ShufflerTasks
from tests.worlds.services.analyzer import START, World


class MemoryBook:
    """``away``: it can't be asked. ``rows``: to be copied, and put back."""

    def __init__(self) -> None:
        self.rows: dict[WindowId, EnteredStep] = {}
        self.away = False

    async def enter(self, step: EnteredStep) -> EnteredStep:
        """As ``StepBook.enter``."""
        self._ask()
        return self.rows.setdefault(step.window, step)

    async def entered(self, task_ids: Collection[TaskId]) -> list[EnteredStep]:
        """As ``StepBook.entered``."""
        self._ask()
        return [step for window, step in sorted(self.rows.items()) if window.task_id in task_ids]

    async def forget(self, task_id: TaskId) -> None:
        """As ``StepBook.forget``."""
        self._ask()
        self.rows = {at: step for at, step in self.rows.items() if at.task_id != task_id}

    def _ask(self) -> None:
        if self.away:
            raise ShoalError(Kind.UNAVAILABLE, "the database is away")


class ServedBook:
    """What ``AskedSteps`` asks of tasks."""

    def __init__(self, *worlds: World) -> None:
        self.served = {one.task_id: one.served for one in worlds}
        self.verifiers = dict[bytes, object]()


def asking(
    book: StepBook, folder: Path, at_s: float, *worlds: World, clock: FakeClock | None = None
) -> AskedSteps:
    """One shuffler of them. ``at_s``: seconds after the tasks begin that its clock shows, or
    ``clock``.
    """
    tasks = cast(ShufflerTasks, ServedBook(*worlds))
    return AskedSteps(tasks, clock or FakeClock(START + at_s), folder / "steps", book)
