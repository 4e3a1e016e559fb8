"""The measurements of a running agent: for every accepted task with a source, once per window, at a
moment of its own.

Every window is answered, whether or not there is a value: a source that is missing, late or broken
gives no answer, which is a cell like any other. What a source said, and whether the question could
use it, is never logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from shoal.clients.agent import Agent, TaskStatus
from shoal.clients.core import Assignment, ReportState
from shoal.clients.service.learning import ModelsInFolders, missing
from shoal.clients.sources.read import read_source
from shoal.clients.sources.spec import SourceSpec
from shoal.clients.timetable import margin, next_moment
from shoal.entropy import Entropy
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.limits import LIMITS
from shoal.log import get_log

if TYPE_CHECKING:
    from shoal.clients.vectors import VectorValue

log = get_log("agent")
SleepUntilWoken = Callable[[float], Awaitable[None]]
# where, what, what is wrong: logged when it changes
TroubleListener = Callable[[str, str, ShoalError | None], None]
_NAP_S = 60.0  # longest sleep: a clock that was set, or a machine that slept, is noticed then
_AGAIN_S = 30.0  # before a full disk is tried again
_LEAST_READING_S = 0.05
_MOST_NAMES = 8  # of tasks in one line


def source_of(agent: Agent, assignment: Assignment) -> SourceSpec | None:
    """The source that the owner named for a task; None if there is none, or it is for another task
    of that name.
    """
    spec = agent.config.sources.get(assignment.task.name)
    return spec if spec is not None and assignment.task_id.hex.startswith(spec.task_id) else None


def unmatched(agent: Agent) -> dict[str, str]:
    """Sources for which there is no task, by name, with a line for the owner. No error: the task
    may come later, by a feed or a file.

    A source whose task is here, but can't be used, is not among them: what is wrong with a task's
    files is told of them.
    """
    known_tasks = agent.tasks
    unusable = {
        *known_tasks.problems,
        *(
            problem.trusted.task.name
            for problem in known_tasks.unusable
            if problem.trusted is not None
        ),
    }
    names = sorted({assignment.task.name for assignment in known_tasks.all()})
    unmatched_lines = {}
    for name, spec in agent.config.sources.items():
        here = [assignment for assignment in known_tasks.all() if assignment.task.name == name]
        if name in unusable or any(source_of(agent, assignment) is not None for assignment in here):
            continue
        known = ", ".join(names[:_MOST_NAMES]) + (
            f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
        )
        why = f"known are {known}" if names else "none is known yet"
        if here:
            why = (
                "the id of the task of that name is "
                f"{', '.join(assignment.task_id.short for assignment in here)}, "
                f"and task_id is {spec.task_id}"
            )
        unmatched_lines[name] = (
            f"[sources.{name[:64]}] matches no task that this device knows: {why}"
        )
    return unmatched_lines


async def waiting(agent: Agent, tasks: list[TaskStatus]) -> list[str]:
    """Which open windows can't be answered because the model before is not known, a line each."""
    lines = []
    for status in tasks:
        spec, window = source_of(agent, status.assignment), status.window
        if spec is None or spec.releases is None or window is None or status.refusal:
            continue
        if not await asyncio.to_thread(agent.answered, status.assignment.task_id, window):
            lines.append(await missing(status.assignment, spec.releases, window, LIMITS.source_s))
    return [line for line in lines if line]


class Measuring:
    """One loop per task. For one event loop."""

    def __init__(
        self, agent: Agent, entropy: Entropy, sleep: SleepUntilWoken, tell: TroubleListener
    ) -> None:
        self._agent, self._clock, self._entropy, self._sleep, self._tell = (
            agent,
            agent.clock,
            entropy,
            sleep,
            tell,
        )
        self._loops: dict[TaskId, asyncio.Task[None]] = {}
        self._reporting: set[TaskId] = set()
        self._models = ModelsInFolders()
        # windows that can't be answered, and need not be tried again
        self._passed: set[tuple[TaskId, int]] = set()

    def update(self, tasks: list[TaskStatus]) -> None:
        """Measure for exactly the tasks that would be answered now and have a source."""
        wanted = {}
        for status in tasks:
            spec = source_of(self._agent, status.assignment)
            if spec is not None and not status.refusal:
                wanted[status.assignment.task_id] = (status.assignment, spec)
        for task_id in [known for known in self._loops if known not in wanted]:
            self._loops.pop(task_id).cancel()
            self._models.forget(task_id)
        for task_id, (assignment, spec) in wanted.items():
            if task_id not in self._loops:
                self._loops[task_id] = asyncio.create_task(self._measure_on(assignment, spec))

    def stop(self) -> None:
        """Measure no more. A vector that is in a round now goes on until ``close``."""
        for task_id, loop in self._loops.items():
            if task_id not in self._reporting:
                loop.cancel()

    async def close(self) -> None:
        """End everything."""
        loops = list(self._loops.values())
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)

    async def _measure_on(self, assignment: Assignment, spec: SourceSpec) -> None:
        """Window after window, until the task is over."""
        task_id, plan = assignment.task_id, assignment.task.windows
        kept = margin(plan, spec.timeout_s)

        def answered(window: int) -> bool:
            return (task_id, window) in self._passed or self._agent.answered(task_id, window)

        while True:
            try:
                await self._agent.own.draw(assignment)
                mean, now = self._agent.config.measure_mean_s, self._clock.now()
                # a moment that is drawn by a wrong clock would pass windows by
                if await self.doubted():
                    await self._sleep(_NAP_S)
                    continue
                moment = await asyncio.to_thread(
                    next_moment, plan, now, mean, kept, answered, self._entropy
                )
                if moment is None:
                    return
                if not await self._until(moment.at_s) or await self.doubted():
                    continue
                # else the clock was set, or the machine slept: another moment
                if plan.current(self._clock.now()) == moment.window:
                    await self.measure(assignment, spec, moment.window)
            except ShoalError as error:  # the disk, or the services: the moment is drawn anew
                if error.kind is Kind.UNAVAILABLE:
                    self._tell(f"task {assignment.task.name}", "window waits", error)
                else:
                    self._tell("memory", "the device's memory fails", error)
                await self._sleep(_AGAIN_S)
            except Exception as error:  # noqa: BLE001 - a bug in one task must not stop the others
                log.error("bug", kind=Kind.INTERNAL, task=task_id, error=error)
                await self._sleep(_NAP_S)

    async def doubted(self) -> bool:
        """Whether the clock jumped, so that nothing is measured by it now. Said when it changes."""
        doubt = await asyncio.to_thread(self._clock.doubt)
        self._tell(
            "clock",
            "clock jumped" if doubt else "clock is believed again",
            ShoalError(Kind.UNAVAILABLE, doubt) if doubt else None,
        )
        return bool(doubt)

    async def _until(self, at_s: float) -> bool:
        """False as soon as the clock was set back: the moment may be one of a window that is far
        away now.
        """
        now = self._clock.now()
        while now < at_s:
            await self._sleep(min(at_s - now, _NAP_S))
            before, now = now, self._clock.now()
            if now < before:
                return False
        return True

    async def measure(self, assignment: Assignment, spec: SourceSpec, window: int) -> None:
        """Read the source and answer one window with what it says. Raises OVERLOADED if nothing
        could be kept, UNAVAILABLE while its model can't be followed: then it is not answered.
        """
        task, plan = assignment.task, assignment.task.windows
        left = max((plan.deadline_of(window) - self._clock.now()) / 2.0, _LEAST_READING_S)
        try:
            state = (
                None
                if spec.releases is None
                else await self._models.at(assignment, spec.releases, window, left)
            )
        except ShoalError as error:
            if error.kind is Kind.UNAVAILABLE:
                raise
            self._pass(assignment, window, error)
            return
        reading = await read_source(spec, left)
        trouble = (
            ShoalError(Kind.UNAVAILABLE, f"{reading.reason}: windows get no answer until it works")
            if reading.reason
            else None
        )
        self._tell(
            f"source of task {task.name}",
            "source answers" if trouble is None else "source gives no value",
            trouble,
        )
        self._reporting.add(assignment.task_id)
        try:
            value: VectorValue = reading.value
            if spec.releases is not None and state is not None:
                value = await self._models.answer(assignment, spec.releases, state, reading.value)
            answered = await self._report(assignment, value, window, spec)
        except ShoalError as error:
            if error.kind in {Kind.OVERLOADED, Kind.UNAVAILABLE}:
                raise
            if error.kind in {Kind.TOO_EARLY, Kind.WINDOW_CLOSED} and await self.doubted():
                return  # by a clock that jumped meanwhile
            self._pass(assignment, window, error)
        else:
            said = "window is answered" if answered else "window is over without an answer"
            self._tell(f"task {task.name}", said, None)
        finally:
            self._reporting.discard(assignment.task_id)

    def _pass(self, assignment: Assignment, window: int, error: ShoalError) -> None:
        self._passed.add((assignment.task_id, window))
        self._tell(f"task {assignment.task.name}", "window gets no report", error)

    async def _report(
        self, assignment: Assignment, value: VectorValue, window: int, spec: SourceSpec
    ) -> bool:
        """Whether the window has this device's answer now; not, where no round took its vector."""
        name, source = assignment.task_id.hex, spec.kind
        if assignment.task.pairwise is None:
            await self._agent.report(
                name, value, send=False, window=window, source=source, otherwise=spec.otherwise
            )
            return True
        where = f"sum of task {assignment.task.name}"

        def told(line: str) -> None:
            self._tell(where, line, None)

        try:
            outcome = await self._agent.report(name, value, tell=told, window=window, source=source)
        except ShoalError as error:
            if error.kind is not Kind.INVALID or value is None:
                raise
            # no vector of this task: no answer
            outcome = await self._agent.report(name, None, tell=told, window=window, source=source)
        # the call returned when there was nothing more to do in this window
        self._passed.add((assignment.task_id, window))
        if outcome.state is not ReportState.ACKED and outcome.message:
            self._tell(
                where,
                "window without a sum",
                ShoalError(outcome.kind or Kind.ABORTED, outcome.message),
            )
        return await asyncio.to_thread(self._agent.answered, assignment.task_id, window)
