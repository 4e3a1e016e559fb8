"""A device's draw of its one window, and the windows that it passes by, for an event loop."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from shoal.clients.core import ReportState, chosen_window
from shoal.clients.reports.outcomes import ReportOutcome
from shoal.clients.reports.own_window import answers_once, draw_window

if TYPE_CHECKING:
    from shoal.clients.core import Assignment
    from shoal.clients.memory.device_memory import Memory
    from shoal.clients.reports.own_window import OwnWindow
    from shoal.clients.reports.permit import Permit
    from shoal.clocks.clock import DeviceClock
    from shoal.crypto.admission.enrolment import DeviceIdentity
    from shoal.entropy import Entropy


@dataclass(frozen=True, slots=True)
class OwnWindows:
    """Of one device."""

    memory: Memory
    permit: Permit
    clock: DeviceClock
    entropy: Entropy
    identity: DeviceIdentity | None = None

    async def draw(self, assignment: Assignment) -> OwnWindow | None:
        """Which window this device answers, drawn now if it was not yet; None: every one. Raises
        REFUSED where the owner does not stand behind the task, CONFIG where the task does not
        admit this device: nothing is drawn; OVERLOADED.
        """
        if not answers_once(assignment):
            return None
        await self.permit.ask(assignment)
        commitments, now = self.memory.commitments, self.clock.now()
        return await self.memory.run(
            partial(draw_window, assignment, commitments, self.entropy, now, self.identity)
        )

    async def passed(self, assignment: Assignment, window: int | None) -> ReportOutcome | None:
        """NOT_ASKED, if the window to be answered (None: the clock's) is not the one that this
        device drew, and has no report. Raises as ``draw`` and ``chosen_window``.
        """
        own, task = await self.draw(assignment), assignment.task
        if own is None:
            return None
        chosen = chosen_window(task.name, task.windows, self.clock.now(), window)
        find = partial(self.memory.outbox.find, assignment.task_id, chosen)
        if own.window == chosen or await self.memory.run(find) is not None:
            return None
        state, why = ReportState.NOT_ASKED, own.words(task.windows.count)
        return ReportOutcome(task.name, assignment.task_id, chosen, state, False, 0, None, why)
