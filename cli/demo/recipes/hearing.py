"""What a discovery asks next, heard as devices hear it: from the shuffler's catalogue, by the feed
of an agent, every step verified.
"""

from __future__ import annotations

import asyncio
import time

from shoal.clients.feeds.grpc_feed import GrpcFeed
from shoal.crypto.discovery_steps import SignedStep, trust_step
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.task import Task

_LOOK_S, _DEADLINE_S, _PATIENCE_S = 0.2, 10.0, 300.0


class HeardSteps:
    """The ``steps`` that were heard of a task, by window."""

    def __init__(self, task: Task, task_id: TaskId) -> None:
        self.steps: dict[int, SignedStep] = {}
        self._task, self._task_id = task, task_id
        self._feed = GrpcFeed(
            task.shuffler_address, task.shuffler_ca, lambda *_: None, every_s=60.0, step=self._take
        )

    def _take(self, data: bytes) -> None:
        trusted = trust_step(data, self._task, self._task_id)
        self.steps[trusted.step.window] = trusted

    async def after(self, window: int) -> SignedStep | None:
        """The first step for a later window, once there is one. None: there will be none, for the
        task has no later window, or all of them are over: also of a discovery that ended with its
        last window, which nothing is said after. Raises UNAVAILABLE if it takes too long after the
        window is over.
        """
        plan = self._task.windows
        over_s = max(0.0, plan.deadline_of(window) - time.time())
        deadline = time.monotonic() + over_s + _PATIENCE_S
        while time.monotonic() < deadline:
            last = window + 1 >= plan.count or time.time() >= plan.end_of(plan.count - 1)
            try:
                await self._feed.once(_DEADLINE_S)
            except ShoalError:  # a service that is being started again
                await asyncio.sleep(_LOOK_S)
            later = [number for number in self.steps if number > window]
            if later:
                return self.steps[min(later)]
            if last:
                return None
            await asyncio.sleep(_LOOK_S)
        raise ShoalError(
            Kind.UNAVAILABLE,
            f"nothing is asked {_PATIENCE_S:.0f} s after window {window} was over: see "
            "shuffler.log and analyzer.log with --keep DIR",
        )
