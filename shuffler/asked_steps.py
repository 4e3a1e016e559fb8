"""What the windows of discoveries ask, as the analyzer said: passed on to devices, and held against
their reports.

The first step of a window that is heard is the one, for as long as this shuffler has its data: the
analyzer can't tell one device this and the next one that. Two steps that differ are a condition,
and the second is told to nobody. A report of a later window names the step that it answers
(``SignedStep.name``), and only those of the window's one are taken (``find``): whatever else a
device was told, by whomever, the reports of a batch answer the same.

*When.* A step counts if it is heard before its window has run for three quarters, and not before
the window before it began. It is told until its window is over. So the analyzer can't choose the
few devices that happen to ask in a moment of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from shoal.clocks.clock import SureClock
from shoal.crypto.discovery_steps import SignedStep, task_of_step, trust_step
from shoal.crypto.step_folder import StepFolder
from shoal.crypto.trust import ServedTask
from shoal.domain import Discovery
from shoal.errors import ShoalError
from shoal.ids import TaskId
from shoal.log import get_log
from shoal.services.conditions import Condition
from shoal.services.whole_files import replace_whole
from shoal.shuffler.core import WindowId
from shoal.shuffler.tasks import ShufflerTasks

log = get_log("shuffler")
FOLDER = "steps"
_LATEST = 0.75  # of a window, until which a step of it is taken


class AskedSteps:
    """``folder``: where they are kept; None: in memory alone, for tests."""

    def __init__(self, tasks: ShufflerTasks, clock: SureClock, folder: Path | None) -> None:
        self._tasks, self._clock = tasks, clock
        self._steps = StepFolder(folder, replace_whole)
        self._wrong: dict[TaskId, str] = {}
        self._named: dict[TaskId, WindowId] = {}
        self._indexed: set[TaskId] = set()  # tasks whose steps were read from disk

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
                if self._is_known(task_id, data):
                    self._wrong.pop(task_id, None)
                    continue
                signed = trust_step(data, served.task, task_id)
                in_time = self._in_time(served, signed)
                if in_time and self._steps.keep(signed, served.task, task_id):
                    log.info("a window of a discovery is known", task=task_id)
                    self._index(task_id)
                self._wrong.pop(task_id, None)
            except ShoalError as error:
                if self._wrong.get(task_id) != error.message:
                    log.error("a step of a discovery is passed on to nobody", task=task_id)
                self._wrong[task_id] = error.message

    def _is_known(self, task_id: TaskId, data: bytes) -> bool:
        """Whether these are the bytes of a step that was verified before: the analyzer says its
        last one whenever it is asked.
        """
        return any(one.data == data for one in self._of(task_id).values())

    def _in_time(self, served: ServedTask, signed: SignedStep) -> bool:
        """Whether a step may still be taken. Of one that was taken, True."""
        window, plan = signed.step.window, served.task.windows
        if self._of(served.task_id).get(window) == signed:
            return True
        now = self._clock.decide()
        current = None if now is None else plan.current(now)
        if now is None or current is None or window > current + 1:
            return False
        return now <= plan.start_of(window) + _LATEST * plan.length_s

    def find(self, name: TaskId) -> WindowId | None:
        """The window whose question has that name; None: no question that this shuffler knows."""
        for task_id in self._tasks.served.keys() - self._indexed:
            self._index(task_id)
        return self._named.get(name)

    def named(self, window: WindowId) -> bytes:
        """The name of what a window of a discovery asks; none of window 0, nor of other tasks."""
        if window.task_id not in self._tasks.served:
            return b""
        signed = self._of(window.task_id).get(window.window)
        return b"" if signed is None or signed.step.is_over else signed.name.raw

    def _index(self, task_id: TaskId) -> None:
        """Its names, and who verifies the proofs of devices that send under them."""
        self._indexed.add(task_id)
        verifier = self._tasks.verifiers.get(task_id.raw)
        for window, signed in self._of(task_id).items():
            if not signed.step.is_over:
                self._named[signed.name] = WindowId(task_id, window)
                if verifier is not None:
                    self._tasks.verifiers[signed.name.raw] = verifier

    def listed(self) -> tuple[bytes, ...]:
        """For the catalogue, by task id: the steps of windows that are not over, and the last one
        of each discovery.
        """
        now = self._clock.earliest()
        steps = list[bytes]()
        for task_id, served in sorted(self._tasks.served.items()):
            known, plan = self._of(task_id), served.task.windows
            steps += [
                known[window].data
                for window in sorted(known)
                if window == max(known) or now < plan.end_of(window)
            ]
        return tuple(steps)

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
