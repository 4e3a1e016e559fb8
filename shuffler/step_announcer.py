"""What discoveries ask, told to devices that a broker reaches: a retained message for each, under
one topic per task.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from shoal.clocks.backoff import Backoff
from shoal.crypto.discovery_steps import task_of_step
from shoal.errors import ShoalError
from shoal.ids import TaskId
from shoal.limits import LIMITS
from shoal.log import get_log
from shoal.mqtt.topics import step_topic

log = get_log("shuffler")
_LOOK_S = 1.0  # between two looks at what is listed
_AGAIN_S = 600.0  # after which all is published again: a broker may have lost what it retained
_RETRY = Backoff(LIMITS.mqtt_retry_first_s, LIMITS.mqtt_retry_most_s)

Publish = Callable[[str, bytes], Awaitable[None]]
"""(topic, payload), retained. Raises ShoalError where the broker did not take it."""


class StepAnnouncer:
    """``listed``: the SignedDiscoverySteps that devices are to have. ``monotonic``: seconds, for
    tests.
    """

    def __init__(
        self,
        listed: Callable[[], tuple[bytes, ...]],
        publish: Publish,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listed, self._publish, self._monotonic = listed, publish, monotonic
        self._told: dict[TaskId, tuple[bytes, float]] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Until ``stop``. A broker that is away is tried again with growing pauses."""
        failures = 0
        while not stop.is_set():
            try:
                await self.look()
                failures = 0
            except ShoalError as error:
                failures += 1
                if failures == 1:
                    log.warning("what a discovery asks can't be told to the broker", error=error)
            pause = _RETRY.length(failures) if failures else _LOOK_S
            try:
                await asyncio.wait_for(stop.wait(), pause)
            except TimeoutError:
                continue

    async def look(self) -> None:
        """Publish what is new, or was published long ago. Raises what ``publish`` raises."""
        now, first = self._monotonic(), dict[TaskId, bytes]()
        for data in self._listed():
            # a topic holds one: of the window that runs, until it is over
            first.setdefault(task_of_step(data), data)
        for task_id, data in first.items():
            before, at_s = self._told.get(task_id, (b"", now))
            if before != data or now >= at_s + _AGAIN_S:
                await self._publish(step_topic(task_id), data)
                self._told[task_id] = (data, now)
