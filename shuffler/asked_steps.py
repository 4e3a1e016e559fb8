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

*Until when.* Steps go once the retention of the task's last window has ended: nobody answers, holds
or delivers anything of it then. Replicas whose clocks differ may enter them anew for that long.

*Several shufflers of one store* agree by its ``StepBook``: see ``StepAgreement``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from shoal.clocks.clock import SureClock
from shoal.crypto.discovery_steps import SignedStep, task_of_step, trust_step
from shoal.crypto.step_folder import StepFolder
from shoal.crypto.trust import ServedTask
from shoal.domain import Discovery
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.log import get_log
from shoal.services.complaints import Complaints
from shoal.services.conditions import Condition
from shoal.services.whole_files import replace_whole
from shoal.shuffler.core import WindowId, expired
from shoal.shuffler.step_agreement import StepAgreement, is_late
from shoal.shuffler.stores.steps import StepBook
from shoal.shuffler.tasks import ShufflerTasks

log = get_log("shuffler")
_MEND = (
    "if the analyzer was put back from a copy, give it this shuffler's steps (docs/DISCOVERY.md)"
)
POINT = "shuffler.step"  # of the failpoints of a step's file
_LOOK_S = 1.0  # between two looks at what other shufflers of the store were told


class AskedSteps:
    """``folder``: where they are kept; None: in memory alone, for tests. ``book``: what the
    shufflers of one store agree by; None: this is the only one.
    """

    def __init__(
        self,
        tasks: ShufflerTasks,
        clock: SureClock,
        folder: Path | None,
        book: StepBook | None = None,
    ) -> None:
        self._tasks, self._clock = tasks, clock
        self._steps = StepFolder(folder, partial(replace_whole, point=POINT))
        self._agreement = (
            None if book is None else StepAgreement(book, self._steps, clock, self._index)
        )
        self._wrong: dict[TaskId, str] = {}
        self._named: dict[TaskId, WindowId] = {}
        self._indexed: set[TaskId] = set()  # tasks whose steps were read from disk
        self._ended: set[TaskId] = set()  # whose steps are gone for good
        self._complaints = Complaints(log, "steps whose retention has ended can't be deleted")

    async def hear(self, steps: Iterable[bytes]) -> None:
        """SignedDiscoverySteps from the analyzer. What is wrong with one is a condition, and keeps
        nothing of the others back: also that the store can't be asked; it is heard again then.
        """
        for data in steps:
            try:
                task_id = task_of_step(data)
            except ShoalError:  # of no task that could be named
                continue
            served = self._tasks.served.get(task_id)
            if served is None or task_id in self._ended:
                continue
            try:
                if self._is_known(task_id, data):
                    self._wrong.pop(task_id, None)
                    continue
                signed = trust_step(data, served.task, task_id)
                if self._in_time(served, signed):
                    await self._take(served, signed)
                self._wrong.pop(task_id, None)
            except ShoalError as error:
                if task_id not in self._wrong:
                    log.error(
                        "a step of a discovery is passed on to nobody", task=task_id, error=error
                    )
                mend = f"; {_MEND}" if error.kind is Kind.CONFLICT else ""
                self._wrong[task_id] = f"{error.message}{mend}"

    async def _take(self, served: ServedTask, signed: SignedStep) -> None:
        """Keep it, if it is the first of its window. Raises CONFLICT, and what the disk and the
        store raise.
        """
        if self._agreement is not None:
            await self._agreement.enter(served, signed)
        elif self._steps.keep(signed, served.task, served.task_id):
            log.info("a window of a discovery is known", task=served.task_id)
            self._index(served.task_id)

    async def run(self, stop: asyncio.Event) -> None:
        """Look at what the others were told, and at what has ended, until ``stop``."""
        while not stop.is_set():
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - whatever it was, it is tried again
                log.error("what discoveries ask can't be looked at", error=error)
            try:
                await asyncio.wait_for(stop.wait(), _LOOK_S)
            except TimeoutError:
                continue

    async def look(self) -> None:
        """Take up what the others were told (see ``StepAgreement.look``), and delete what has
        ended.
        """
        served = dict(self._tasks.served)
        for task_id, one in served.items():
            if task_id not in self._ended and self._has_ended(one):
                await self._end(one)
        if self._agreement is not None:
            going_on = {at: one for at, one in served.items() if at not in self._ended}
            await self._agreement.look(going_on)

    def _has_ended(self, served: ServedTask) -> bool:
        task = served.task
        now = self._clock.decide() if isinstance(task.domain, Discovery) else None
        last = task.windows.count - 1
        return (
            now is not None
            and now >= task.windows.end_of(last) + task.windows.skew_s
            and expired(task, last, now - task.windows.skew_s)
        )

    async def _end(self, served: ServedTask) -> None:
        """A step or two later where the disk or the store is in the way."""
        task_id = served.task_id
        try:
            if self._agreement is not None:
                await self._agreement.forget(served)
            for window in self._of(task_id):
                self._steps.drop(served.task, task_id, window)
        except ShoalError as error:
            self._complaints.failed(task_id, error)
            return
        self._complaints.ended(task_id)
        self._ended.add(task_id)
        self._wrong.pop(task_id, None)
        self._index(task_id)

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
        return not is_late(plan, window, now)

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
        if task_id not in self._tasks.served:  # since the store was asked
            return
        self._indexed.add(task_id)
        asking = {
            signed.name: WindowId(task_id, window)
            for window, signed in self._of(task_id).items()
            if not signed.step.is_over
        }
        for name, window in list(self._named.items()):
            if window.task_id == task_id and name not in asking:
                del self._named[name]
                self._tasks.verifiers.pop(name.raw, None)
        self._named |= asking
        verifier = self._tasks.verifiers.get(task_id.raw)
        if verifier is not None:
            self._tasks.verifiers |= {name.raw: verifier for name in asking}

    def listed(self) -> tuple[bytes, ...]:
        """For the catalogue, by task id: the steps of windows that are not over, but those that
        were met too late, and the last one of each discovery.
        """
        now = self._clock.earliest()
        steps = list[bytes]()
        for task_id, served in sorted(self._tasks.served.items()):
            known, plan = self._of(task_id), served.task.windows
            steps += [
                known[window].data
                for window in sorted(known)
                if (window == max(known) or now < plan.end_of(window))
                and (known[window].step.is_over or not self._is_late(task_id, window, now))
            ]
        return tuple(steps)

    def announced(self) -> tuple[bytes, ...]:
        """For a broker, which keeps one step of each discovery: of the first window that is not
        over, or the last one. Nothing while that was met too late to be told: a later one in its
        place would take from the broker what others told it.
        """
        now, listed = self._clock.earliest(), self.listed()
        held = {
            task_id
            for task_id, served in self._tasks.served.items()
            for window in sorted(self._of(task_id))
            if now < served.task.windows.end_of(window) and self._is_late(task_id, window, now)
        }
        return tuple(data for data in listed if task_of_step(data) not in held)

    def _is_late(self, task_id: TaskId, window: int, now: float) -> bool:
        """Whether a device that was told it now would answer at a moment of somebody's choice."""
        return (
            self._agreement is not None
            and now < self._tasks.served[task_id].task.windows.end_of(window)
            and self._agreement.is_late(WindowId(task_id, window))
        )

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
        if self._agreement is not None:
            yield from self._agreement.conditions(self._tasks.served)
