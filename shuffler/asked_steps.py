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

*Several shufflers of one store* agree by its ``StepBook``: what is entered there first is what all
of them tell and take reports for. What this one has in its folder beside is entered again where the
store, put back from a copy, lost it, and is forgotten where the store has another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from shoal.clocks.clock import SureClock
from shoal.crypto.discovery_steps import SignedStep, check_step, task_of_step, trust_step
from shoal.crypto.step_folder import StepFolder
from shoal.crypto.trust import ServedTask
from shoal.domain import Discovery
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.log import get_log
from shoal.services.conditions import Condition
from shoal.services.whole_files import replace_whole
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.steps import EnteredStep, StepBook
from shoal.shuffler.tasks import ShufflerTasks

log = get_log("shuffler")
FOLDER = "steps"
_LATEST = 0.75  # of a window, until which a step of it is taken
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
        self._tasks, self._clock, self._book = tasks, clock, book
        self._steps = StepFolder(folder, replace_whole)
        self._agreeing = asyncio.Lock()
        self._wrong: dict[TaskId, str] = {}
        self._entries: dict[TaskId, str] = {}  # what is wrong with what the store has
        self._twice: dict[TaskId, int] = {}  # a window of which two things were told
        self._away = ""  # why the store can't be asked
        self._named: dict[TaskId, WindowId] = {}
        self._indexed: set[TaskId] = set()  # tasks whose steps were read from disk

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
            if served is None:
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
                if self._wrong.get(task_id) != error.message:
                    log.error("a step of a discovery is passed on to nobody", task=task_id)
                self._wrong[task_id] = error.message

    async def _take(self, served: ServedTask, signed: SignedStep) -> None:
        """Keep it, if it is the first of its window. Raises CONFLICT, and what the disk and the
        store raise.
        """
        if self._book is None:
            self._keep(served, signed)
            return
        async with self._agreeing:
            known = [one.step for one in self._of(served.task_id).values()]
            check_step(signed.step, known, _of(served))
            await self._enter(self._book, served, signed)

    def _keep(self, served: ServedTask, signed: SignedStep) -> None:
        if self._steps.keep(signed, served.task, served.task_id):
            log.info("a window of a discovery is known", task=served.task_id)
            self._index(served.task_id)

    async def _enter(self, book: StepBook, served: ServedTask, signed: SignedStep) -> None:
        """Raises CONFLICT: another one was the first; it is kept."""
        window = WindowId(served.task_id, signed.step.window)
        entry = EnteredStep(window, signed.name.raw, signed.data)
        first = await book.enter(entry)
        if first.name == entry.name:  # whatever became of the row since: it is the same question
            self._keep(served, signed)
            return
        self._keep(served, self._verified(served, first))
        check_step(signed.step, [self._of(served.task_id)[window.window].step], _of(served))

    async def run(self, stop: asyncio.Event) -> None:
        """Look at what the others were told, until ``stop``; nothing where there are none."""
        while self._book is not None and not stop.is_set():
            await self.look()
            try:
                await asyncio.wait_for(stop.wait(), _LOOK_S)
            except TimeoutError:
                continue

    async def look(self) -> None:
        """Take up what the store has of all discoveries. While it is away what is known stands, and
        a condition says so.
        """
        served = {
            task_id: one
            for task_id, one in self._tasks.served.items()
            if isinstance(one.task.domain, Discovery)
        }
        if self._book is None or not served:
            return
        try:
            async with self._agreeing:
                there = dict[TaskId, list[EnteredStep]]()
                for entry in await self._book.entered(served.keys()):
                    there.setdefault(entry.window.task_id, []).append(entry)
                for task_id, one in served.items():
                    self._entries.pop(task_id, None)
                    await self._agree(self._book, one, there.get(task_id, []))
            self._away = ""
        except ShoalError as error:
            if not self._away:
                log.warning("what discoveries ask can't be read in the store", error=error)
            self._away = error.message

    async def _agree(self, book: StepBook, served: ServedTask, there: list[EnteredStep]) -> None:
        """Make what is known here what the store has. What it lacks, because it was put back, is
        entered again, if it follows.
        """
        task_id, discovery = served.task_id, _of(served)
        known, first = self._of(task_id), dict[int, SignedStep]()
        for entry in there:
            window = entry.window.window
            mine = known.get(window)
            try:
                signed = (
                    mine
                    if mine is not None and mine.data == entry.data
                    else self._verified(served, entry)
                )
                check_step(signed.step, [one.step for one in first.values()], discovery)
            except ShoalError as error:
                self._entries[task_id] = f"the row of window {window} in the table step: {error}"
                continue
            first[window] = signed
        rows = {entry.window.window for entry in there}
        for window, mine in known.items():
            if first.get(window) == mine:
                continue
            try:
                check_step(mine.step, [one.step for one in first.values()], discovery)
                lacking = window not in rows
            except ShoalError:
                lacking = False
            if lacking:
                log.warning("the store lost what a window of a discovery asks", task=task_id)
                await self._enter(book, served, mine)
            elif window in first or window not in rows:  # of a damaged row the word here stands
                self._drop(served, mine)
        for signed in first.values():
            self._keep(served, signed)

    def _drop(self, served: ServedTask, mine: SignedStep) -> None:
        task_id, window = served.task_id, mine.step.window
        log.error(
            "the store has another step of a window than was told here",
            task=task_id,
            window=window,
        )
        self._twice[task_id] = window
        self._steps.drop(served.task, task_id, window)
        self._named.pop(mine.name, None)
        self._tasks.verifiers.pop(mine.name.raw, None)

    def _verified(self, served: ServedTask, entry: EnteredStep) -> SignedStep:
        """Raises what ``trust_step`` raises, MISMATCH."""
        signed = trust_step(entry.data, served.task, served.task_id)
        if signed.name.raw != entry.name or signed.step.window != entry.window.window:
            raise ShoalError(Kind.MISMATCH, "its name or window is another than its step says")
        return signed

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
        for task_id, why in self._entries.items():
            yield Condition(
                "damage",
                f"{task_id.short}/step",
                f"what the database says that a discovery asks is passed over: {why}",
                stops=False,
            )
        for task_id, window in self._twice.items():
            yield Condition(
                "database",
                f"{task_id.short}:{window}/steps",
                f"two things were told that window {window} of task {task_id.short} asks: the "
                "database was put back, and has another one than before; reports of that one alone "
                "are taken. See what the analyzer signed",
                stops=False,
            )
        if self._away:
            yield Condition(
                "database",
                "steps",
                f"what discoveries ask can't be read, what was known stands: {self._away}",
                stops=False,
            )


def _of(served: ServedTask) -> Discovery:
    """Of a task that has a step."""
    assert isinstance(served.task.domain, Discovery)  # noqa: S101 - it has a step
    return served.task.domain
