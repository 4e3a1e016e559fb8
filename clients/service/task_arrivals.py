"""What feeds bring to a running agent: verified and kept, or refused with its reason in the
ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from shoal.clients.agent import Agent
from shoal.clients.feeds.task_store import LearntTasks
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId


class TaskArrivals:
    """The other end of every feed. ``fresh`` is set when the tasks should be looked at again.
    Raises CONFIG if there can be no folder for them.
    """

    def __init__(self, agent: Agent) -> None:
        self.fresh = asyncio.Event()
        self._agent = agent
        self._learnt_tasks = LearntTasks(
            agent.config.learnt_folder,
            agent.config.effective_policy.authorities,
            agent.clock,
            on_conflict=self._strike,
        )

    def offer(self, data: bytes, origin: str) -> None:
        """Take a bundle. Raises what is wrong with it: that is in the ledger then, once per
        bytes.
        """
        try:
            offered = self._learnt_tasks.offer(data)
        except ShoalError as error:
            # this device's own trouble says nothing about the bundle
            if error.kind is not Kind.OVERLOADED:
                self._agent.offered(data, origin, error)
            raise
        if offered.fresh:
            self.fresh.set()

    def pause(
        self, address: str, paused: Mapping[TaskId, frozenset[int]], ca: bytes | None = None
    ) -> None:
        """What a shuffler says that it can't take now, by task: until it says something else, these
        windows get no answer.

        ``ca``: as ``KnownTasks.pause``.
        """
        if self._agent.tasks.pause(address, paused, ca):
            self.fresh.set()

    def step(self, data: bytes) -> None:
        """Take what a window of a discovery asks. Raises as ``KnownTasks.step``."""
        try:
            if self._agent.tasks.step(data):
                self.fresh.set()
        except ShoalError as error:
            if error.kind is Kind.CONFLICT:
                self.fresh.set()
            raise

    def awaits(self) -> bool:
        """Whether a window of a discovery runs of which nobody has told yet what it asks."""
        return self._agent.tasks.awaits(self._agent.clock.now())

    def _strike(self, task_id: TaskId) -> None:
        """Two schedules for one task: nothing of it is sent any more, and everybody is told why.

        Raises OVERLOADED if that can't be kept: then the bundle has to be offered again, or the
        task would go on after all.
        """
        self._agent.memory.outbox.strike(task_id)
        self.fresh.set()

    def prune(self) -> None:
        """Forget tasks that are over. Blocks for the disk."""
        self._learnt_tasks.prune()
