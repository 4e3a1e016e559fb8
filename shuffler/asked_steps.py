"""What the windows of discoveries ask, as the analyzer said: passed on to devices.

The first step of a window that is heard is the one, for as long as this shuffler has its data: the
analyzer can't tell one device this and the next one that. Two steps that differ are a condition,
and the second is told to nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from shoal.clocks.clock import SureClock
from shoal.crypto.discovery_steps import SignedStep, task_of_step
from shoal.crypto.step_folder import StepFolder
from shoal.domain import Discovery
from shoal.errors import ShoalError
from shoal.ids import TaskId
from shoal.log import get_log
from shoal.services.conditions import Condition
from shoal.services.whole_files import replace_whole
from shoal.shuffler.tasks import ShufflerTasks

log = get_log("shuffler")
FOLDER = "steps"


class AskedSteps:
    """``folder``: where they are kept; None: in memory alone, for tests."""

    def __init__(self, tasks: ShufflerTasks, clock: SureClock, folder: Path | None) -> None:
        self._tasks, self._clock = tasks, clock
        self._steps = StepFolder(folder, replace_whole)
        self._wrong: dict[TaskId, str] = {}

    def hear(self, steps: Iterable[bytes]) -> None:
        """SignedDiscoverySteps from the analyzer. What is wrong with one is a condition, and keeps
        nothing of the others back.
        """
        for data in steps:
            try:
                task_id = task_of_step(data)
            except ShoalError:  # of no task that could be named
                continue
            served = self._tasks.served.get(task_id)
            if served is None:
                continue
            try:
                if self._steps.take(served.task, task_id, data):
                    log.info("a window of a discovery is known", task=task_id)
                self._wrong.pop(task_id, None)
            except ShoalError as error:
                if self._wrong.get(task_id) != error.message:
                    log.error("a step of a discovery is passed on to nobody", task=task_id)
                self._wrong[task_id] = error.message

    def listed(self) -> tuple[bytes, ...]:
        """The last step of each discovery, for the catalogue: by task id."""
        every = (self._of(task_id) for task_id in sorted(self._tasks.served))
        return tuple(known[max(known)].data for known in every if known)

    @property
    def awaited(self) -> bool:
        """Whether a window of a discovery runs whose question is not known yet."""
        return any(window and window not in known for window, known in self._running())

    @property
    def under_way(self) -> bool:
        """Whether there is a discovery whose windows run, and that is not over."""
        return any(True for _ in self._running())

    def _of(self, task_id: TaskId) -> Mapping[int, SignedStep]:
        return self._steps.of(self._tasks.served[task_id].task, task_id)

    def _running(self) -> Iterator[tuple[int, Mapping[int, SignedStep]]]:
        """Of each discovery that is not over: its window now, and its steps."""
        now = self._clock.earliest()
        for task_id, served in self._tasks.served.items():
            window = served.task.windows.current(now)
            if window is None or not isinstance(served.task.domain, Discovery):
                continue
            known = self._of(task_id)
            if not (known and known[max(known)].step.is_over):
                yield window, known

    def conditions(self) -> Iterator[Condition]:
        """For ``Conditions.watch``."""
        for task_id, why in self._wrong.items():
            served = self._tasks.served.get(task_id)
            name = served.task.name if served is not None else task_id.short
            yield Condition(
                "task",
                f"{task_id.short}/steps",
                f"task {name}: the analyzer's step is passed on to nobody: {why}",
                stops=False,
            )
