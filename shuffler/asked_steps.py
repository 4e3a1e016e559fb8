"""What the windows of discoveries ask, as the analyzer said: passed on to devices.

The first step of a window that is heard is the one, for as long as this shuffler has its data: the
analyzer can't tell one device this and the next one that. Two steps that differ are a condition,
and the second is told to nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from shoal.clocks.clock import SureClock
from shoal.crypto.discovery_steps import (
    DiscoveryStep,
    SignedStep,
    check_step,
    most_bytes,
    task_of_step,
    trust_step,
)
from shoal.crypto.trust import ServedTask, read_file
from shoal.domain import Discovery
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.log import get_log
from shoal.services.conditions import Condition
from shoal.services.whole_files import replace_whole
from shoal.shuffler.tasks import ShufflerTasks

log = get_log("shuffler")
FOLDER = "steps"
_SUFFIX = ".step"


class AskedSteps:
    """``folder``: where they are kept, made when there is one; None: nowhere, for tests."""

    def __init__(self, tasks: ShufflerTasks, clock: SureClock, folder: Path | None) -> None:
        self._tasks, self._clock, self._folder = tasks, clock, folder
        self._known: dict[TaskId, dict[int, SignedStep]] = {}
        self._wrong: dict[TaskId, str] = {}

    def hear(self, steps: Iterable[bytes]) -> None:
        """SignedDiscoverySteps from the analyzer. What is wrong with one is a condition, and keeps
        nothing of the others back.
        """
        for data in steps:
            try:
                task_id = task_of_step(data)
                served = self._tasks.served.get(task_id)
                if served is None or not isinstance(served.task.domain, Discovery):
                    continue
                self._take(served, data)
            except ShoalError as error:
                log.error("the analyzer sent a step that can't be passed on", error=error)
                continue

    def _take(self, served: ServedTask, data: bytes) -> None:
        task, task_id = served.task, served.task_id
        known = self._of(served)
        try:
            signed = trust_step(data, task, task_id)
            self._check(signed.step, known, served)
        except ShoalError as error:
            self._wrong[task_id] = error.message
            raise
        self._wrong.pop(task_id, None)
        if signed.step.window in known:
            return
        if self._folder is not None:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            try:
                replace_whole(self._path(task_id, signed.step.window), signed.data)
            except OSError as error:
                raise ShoalError(
                    Kind.OVERLOADED,
                    f"a step of task {task.name} can't be kept: {error.strerror or 'unwritable'}: "
                    "it is passed on when it can",
                ) from None
        known[signed.step.window] = signed
        log.info("a window of a discovery is known", task=task_id, window=signed.step.window)

    def _check(self, step: DiscoveryStep, known: dict[int, SignedStep], served: ServedTask) -> None:
        """Raises CONFLICT."""
        domain = served.task.domain
        assert isinstance(domain, Discovery)  # noqa: S101 - looked at by ``hear``
        check_step(step, [one.step for one in known.values()], domain)

    def _of(self, served: ServedTask) -> dict[int, SignedStep]:
        """The steps of a task; read from disk when it is first asked for."""
        known = self._known.get(served.task_id)
        if known is None:
            known = self._known[served.task_id] = dict(self._read(served))
        return known

    def _read(self, served: ServedTask) -> Iterator[tuple[int, SignedStep]]:
        domain = served.task.domain
        if self._folder is None or not isinstance(domain, Discovery):
            return
        for path in sorted(self._folder.glob(f"{served.task_id.hex}.*{_SUFFIX}")):
            try:
                data = read_file(path, most_bytes(domain))
                signed = trust_step(data, served.task, served.task_id)
            except ShoalError as error:
                log.error("a step can't be read: it is asked for again", error=error)
                continue
            yield signed.step.window, signed

    def _path(self, task_id: TaskId, window: int) -> Path:
        assert self._folder is not None  # noqa: S101 - asked by who has one
        return self._folder / f"{task_id.hex}.{window}{_SUFFIX}"

    def listed(self) -> tuple[bytes, ...]:
        """The last step of each discovery, for the catalogue: by task id."""
        steps = list[bytes]()
        for _, served in sorted(self._tasks.served.items()):
            if isinstance(served.task.domain, Discovery) and (known := self._of(served)):
                steps.append(known[max(known)].data)
        return tuple(steps)

    @property
    def awaited(self) -> bool:
        """Whether a window of a discovery runs whose question is not known yet."""
        return any(window and window not in known for window, known in self._running())

    @property
    def under_way(self) -> bool:
        """Whether there is a discovery whose windows run, and that is not over."""
        return any(True for _ in self._running())

    def _running(self) -> Iterator[tuple[int, dict[int, SignedStep]]]:
        """Of each discovery that is not over: its window now, and its steps."""
        now = self._clock.earliest()
        for served in self._tasks.served.values():
            window = served.task.windows.current(now)
            if window is None or not isinstance(served.task.domain, Discovery):
                continue
            known = self._of(served)
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
