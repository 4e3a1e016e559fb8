"""How the shufflers of one store come to ask the same of a discovery's windows, and what of it this
one tells.

What the store has (``StepBook``) is what all of them take reports for. A row counts if the task's
analyzer signed it and if it follows from those of the windows before: so all shufflers believe the
same rows, whichever they read first. What this one has in its folder beside is entered again where
the store, put back from a copy, lost it, and is forgotten where the store has another step.

*Late rows.* A row that is met only when three quarters of its window are over is a question that
reports may answer: others may have told it in time. But it is not told from here, and not kept in
the folder: else whoever writes to the store chose the moment in which devices hear it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from shoal.clocks.clock import SureClock
from shoal.crypto.discovery_steps import SignedStep, check_step, trust_step
from shoal.crypto.step_folder import StepFolder
from shoal.crypto.trust import ServedTask
from shoal.domain import Discovery
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.log import get_log
from shoal.services.conditions import Condition
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.steps import EnteredStep, StepBook
from shoal.task import WindowPlan

log = get_log("shuffler")
_LATEST = 0.75  # of a window, until which a step of it is told for the first time


def is_late(plan: WindowPlan, window: int, now: float) -> bool:
    """Whether a step of this window is heard too late to be told to devices. ``now``: Unix
    seconds.
    """
    return now > plan.start_of(window) + _LATEST * plan.length_s


@dataclass(slots=True)
class _Rows:
    """What the store has of one discovery, judged. ``steps``: that count, by window; ``damaged``:
    rows that no analyzer signed for their window, and why; ``contrary``: that were signed, and do
    not follow from those that count.
    """

    steps: dict[int, SignedStep] = field(default_factory=dict)
    damaged: dict[int, str] = field(default_factory=dict)
    contrary: dict[int, str] = field(default_factory=dict)

    def follows(self, signed: SignedStep, discovery: Discovery) -> str:
        """Why a step can't stand beside those that count; empty: it can."""
        try:
            check_step(signed.step, [one.step for one in self.steps.values()], discovery)
        except ShoalError as error:
            return error.message
        return ""


def _judged(
    served: ServedTask, rows: Mapping[int, EnteredStep], known: Mapping[int, SignedStep]
) -> _Rows:
    """``known``: verified before, so not again. By window: the same for everybody. It may take a
    second, for many windows with thousands of beginnings.
    """
    judged, discovery = _Rows(), _of(served)
    for window, row in sorted(rows.items()):
        signed = known.get(window)
        if signed is None or (signed.data, signed.name.raw) != (row.data, row.name):
            try:
                signed = trust_step(row.data, served.task, served.task_id)
            except ShoalError as error:
                judged.damaged[window] = error.message
                continue
            if signed.name.raw != row.name or signed.step.window != window:
                judged.damaged[window] = "its name or window is another than its step says"
                continue
        why = judged.follows(signed, discovery)
        if why:
            judged.contrary[window] = why
        else:
            judged.steps[window] = signed
    return judged


class StepAgreement:
    """``steps``: what this shuffler has. ``changed``: called with a task whose steps are others
    now.
    """

    def __init__(
        self,
        book: StepBook,
        steps: StepFolder,
        clock: SureClock,
        changed: Callable[[TaskId], None],
    ) -> None:
        self._book, self._steps, self._clock, self._changed = book, steps, clock, changed
        self._turn = asyncio.Lock()
        # what was agreed last, and is not judged again: what the store had, and what was known then
        self._agreed: dict[TaskId, tuple[list[EnteredStep], Mapping[int, SignedStep]]] = {}
        self._late: dict[TaskId, set[int]] = {}
        self._wrong: dict[TaskId, str] = {}  # why what the store has is not taken up
        self._twice: dict[TaskId, int] = {}  # a window of which two things were told
        self._away = ""  # why the store can't be asked

    def is_late(self, window: WindowId) -> bool:
        """Whether its step was met too late to be told from here."""
        return window.window in self._late.get(window.task_id, ())

    async def look(self, served: Mapping[TaskId, ServedTask]) -> None:
        """Take up what the store has of these tasks. While it is away what is known stands, and a
        condition says so. What is wrong with one task costs the others nothing.
        """
        discoveries = {
            task_id: one
            for task_id, one in served.items()
            if isinstance(one.task.domain, Discovery)
        }
        if not discoveries:
            return
        async with self._turn:
            try:
                there = await self._there(discoveries)
                for task_id, one in discoveries.items():
                    await self._agree_alone(one, there[task_id])
                self._away = ""
            except ShoalError as error:
                if not self._away:
                    log.warning("what discoveries ask can't be read in the store", error=error)
                self._away = error.message

    async def enter(self, served: ServedTask, signed: SignedStep) -> None:
        """Have a step that was heard in time told by everybody, if it is the first of its window.

        Raises CONFLICT: another one is, or it does not follow from what others were told; what the
        disk and the store raise.
        """
        task_id, window = served.task_id, signed.step.window
        async with self._turn:
            rows = (await self._there({task_id: served}))[task_id]
            await self._agree(served, rows)  # of other windows too: it must follow from them
            check_step(signed.step, [one.step for one in self._known(served).values()], _of(served))
            if window in self._known(served):
                return
            first = await self._book.enter(_entry(served, signed))
            if first.name == signed.name.raw:  # whatever became of the row since
                self._keep(served, signed)
                return
            await self._agree(served, [*rows, first])
            raise ShoalError(
                Kind.CONFLICT, f"another step of window {window} was entered in the database before"
            )

    async def forget(self, served: ServedTask) -> None:
        """Of a task whose retention has ended: nothing of it is asked or told any more. Raises what
        the store and the disk raise: try again.
        """
        task_id = served.task_id
        async with self._turn:
            await self._book.forget(task_id)
            for window in self._known(served):
                self._steps.drop(served.task, task_id, window)
        for kept in (self._agreed, self._late, self._wrong, self._twice):
            kept.pop(task_id, None)

    # --- one task ---------------------------------------------------------------------------------

    async def _there(self, served: Mapping[TaskId, ServedTask]) -> dict[TaskId, list[EnteredStep]]:
        there: dict[TaskId, list[EnteredStep]] = {task_id: [] for task_id in served}
        for entry in await self._book.entered(served.keys()):
            there[entry.window.task_id].append(entry)
        return there

    async def _agree_alone(self, served: ServedTask, there: Sequence[EnteredStep]) -> None:
        """As ``_agree``; what is wrong with the task's steps, or this machine's disk, is no reason
        to leave the others. Raises what the store raises.
        """
        try:
            await self._agree(served, there)
        except ShoalError as error:
            if error.kind not in (Kind.CONFLICT, Kind.OVERLOADED):
                raise
            self._wrong[served.task_id] = error.message
            self._agreed.pop(served.task_id, None)  # judged anew, or this would stand for ever

    async def _agree(self, served: ServedTask, there: Sequence[EnteredStep]) -> None:
        """Make what is known here what the store has. What that lacks, because it was put back, is
        entered again, if it follows.
        """
        task_id, known, now = served.task_id, self._known(served), self._clock.letting()
        # while the clock is disputed no report is let in, and nobody knows what is late
        if now is None or self._agreed.get(task_id) == (list(there), known):
            return
        rows = {entry.window.window: entry for entry in there}
        judged = await asyncio.to_thread(_judged, served, rows, known)
        for window, mine in known.items():
            if window not in rows and not judged.follows(mine, _of(served)):
                log.warning("the store lacks what a window of a discovery asks", task=task_id)
                rows[window] = await self._book.enter(_entry(served, mine))
                judged = await asyncio.to_thread(_judged, served, rows, known)
        self._drop(served, judged)
        told = {**judged.damaged, **judged.contrary}
        self._wrong[task_id] = "; ".join(f"window {at}: {why}" for at, why in sorted(told.items()))
        for window, signed in judged.steps.items():
            if window not in known or known[window] != signed:
                self._keep(served, signed, late=is_late(served.task.windows, window, now))
        self._agreed[task_id] = (list(there), self._known(served))

    def _drop(self, served: ServedTask, judged: _Rows) -> None:
        """Forget what the store has otherwise. Of a damaged row the word here stands, if it
        follows.
        """
        task_id = served.task_id
        for window, mine in self._known(served).items():
            stands = judged.steps.get(window) == mine
            if stands or (window in judged.damaged and not judged.follows(mine, _of(served))):
                continue
            log.error(
                "the store has another step of a window than was told here",
                task=task_id,
                window=window,
            )
            self._twice[task_id] = window
            self._late.get(task_id, set()).discard(window)
            try:
                self._steps.drop(served.task, task_id, window)
            finally:
                self._changed(task_id)

    def _keep(self, served: ServedTask, signed: SignedStep, *, late: bool = False) -> None:
        task_id = served.task_id
        if late:
            self._late.setdefault(task_id, set()).add(signed.step.window)
        if self._steps.keep(signed, served.task, task_id, stored=not late):
            log.info("a window of a discovery is known", task=task_id, window=signed.step.window)
            self._changed(task_id)

    def _known(self, served: ServedTask) -> Mapping[int, SignedStep]:
        return self._steps.of(served.task, served.task_id)

    # --- what operators are told ------------------------------------------------------------------

    def conditions(self, served: Mapping[TaskId, ServedTask]) -> Iterator[Condition]:
        """Of these tasks, for ``Conditions.watch``."""
        for task_id, why in self._wrong.items():
            if why and task_id in served:
                yield Condition(
                    "damage",
                    f"{task_id.short}/step",
                    f"what the database says that task {served[task_id].task.name} asks is passed "
                    f"over: {why}",
                    stops=False,
                )
        for task_id, window in self._twice.items():
            if task_id in served:
                yield Condition(
                    "database",
                    f"{task_id.short}:{window}/steps",
                    f"two things were told that window {window} of task "
                    f"{served[task_id].task.name} asks: the database was put back, and has another "
                    "one than before; reports of that one alone are taken. See what the analyzer "
                    "signed",
                    stops=False,
                )
        if self._away:
            yield Condition(
                "database",
                "steps",
                f"what discoveries ask can't be read, what was known stands: {self._away}",
                stops=False,
            )


def _entry(served: ServedTask, signed: SignedStep) -> EnteredStep:
    window = WindowId(served.task_id, signed.step.window)
    return EnteredStep(window, signed.name.raw, signed.data)


def _of(served: ServedTask) -> Discovery:
    """Of a task that has a step."""
    assert isinstance(served.task.domain, Discovery)  # noqa: S101 - it has a step
    return served.task.domain
