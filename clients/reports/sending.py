"""What waits on a device and when it is sent: in the background, or all of it now.

One attempt is ``shoal.clients.reports.attempts``; here is which report has one next. Reports are
tried one at a time each, with pauses after failures.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from shoal.clients.core import ReportState
from shoal.clients.reports.answering import AnswerRequest
from shoal.clients.reports.attempts import Attempted, Attempts, ReportKey
from shoal.clients.timetable import first_send
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.log import get_log

if TYPE_CHECKING:
    from shoal.clients.feeds.known_tasks import KnownTasks
    from shoal.clients.memory.device_memory import Memory
    from shoal.clients.memory.outbox import Record
    from shoal.clients.settings.config import AgentConfig
    from shoal.clocks.clock import DeviceClock
    from shoal.entropy import Entropy

log = get_log("agent")
_SENDERS = 4  # attempts under way at once
_SPARE_ATTEMPTS = 3  # of a window's time are kept for the first attempt and the ones after it


class Sender:
    """Sends what waits. For one event loop. ``gap_s``: mean seconds between the first attempts of
    two reports, 0: at once.
    """

    def __init__(
        self,
        config: AgentConfig,
        memory: Memory,
        tasks: KnownTasks,
        attempts: Attempts,
        clock: DeviceClock,
        entropy: Entropy,
        gap_s: float = 0.0,
    ) -> None:
        self._config, self._memory, self._tasks, self._attempts = config, memory, tasks, attempts
        self._clock, self._entropy, self._gap_s = clock, entropy, gap_s
        self._last_send = 0.0  # Unix seconds of the first attempt that was scheduled last
        self._wake = asyncio.Event()
        self._stopping = False
        self._failing = set[TaskId]()  # tasks of which the log said that reports don't arrive

    def wake(self) -> None:
        """There may be something to send."""
        self._wake.set()

    async def report(self, request: AnswerRequest) -> Attempted:
        """``Attempts.report``; what is not delivered is sent in the background."""
        record: Record | None = None
        try:
            attempted = await self._attempts.report(request)
            record = attempted.record
        finally:
            # also where the caller gave up: what was begun comes to its end all the same
            if record is None or record.state is ReportState.QUEUED:
                self.wake()
        return attempted

    async def queue(self, request: AnswerRequest) -> Attempted:
        """``Attempts.queue``, to be sent in the background."""
        try:
            return Attempted(*await self._attempts.queue(request), None)
        finally:
            self.wake()  # also where the caller gave up

    async def flush(self) -> list[Attempted]:
        """Try every report that waits once, now."""
        waiting = await self._waiting()
        places = asyncio.Semaphore(_SENDERS)

        async def resend(record: Record) -> Attempted:
            async with places:
                return await self._attempts.resend(record)

        results = await asyncio.gather(*(resend(record) for record in waiting))
        self.wake()
        return list(results)

    async def _waiting(self) -> list[Record]:
        return await self._memory.run(lambda: self._memory.outbox.records(queued=True))

    # --- in the background ------------------------------------------------------------------------

    async def run(self) -> None:
        """Whatever waits and is due, then sleep until something is. Ends after ``stop``."""
        loop = asyncio.get_running_loop()
        places = asyncio.Semaphore(_SENDERS)
        failing = False

        async def resend(record: Record) -> None:
            async with places:
                if not self._stopping:
                    self._log_change(await self._attempts.resend(record))

        while not self._stopping:
            self._wake.clear()
            try:
                waiting = {
                    (record.task_id, record.window): record for record in await self._waiting()
                }
                due = self._schedule(waiting, loop.time())
                now, busy = loop.time(), self._attempts.busy
                ready = [
                    record for key, record in waiting.items() if due[key] <= now and not busy(key)
                ]
                await asyncio.gather(*(resend(record) for record in ready))
                due = self._attempts.retry_at
                rest = [due[key] for key in waiting if key in due and not busy(key)]
                failing = False
            except Exception as error:  # noqa: BLE001 - what waits must not wait for ever
                if not failing and isinstance(error, ShoalError):
                    log.warning("outbox failed", kind=error.kind)
                elif not failing:
                    log.error("sending failed unexpectedly", error=error)
                ready, rest, failing = [], [loop.time() + self._config.retry_most_s], True
            if not ready and not self._stopping:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(min(rest, default=None)):
                        await self._wake.wait()

    def _log_change(self, attempted: Attempted) -> None:
        """A line when a task's reports begin to fail, and one when they arrive again; not one per
        try.
        """
        record, failure = attempted.record, attempted.failure
        if failure is not None:
            if (
                record.task_id not in self._failing
                and failure.kind is not Kind.REFUSED
                and not self._stopping
            ):
                self._failing.add(record.task_id)
                log.warning("reports are not delivered", task=record.task_id, error=failure)
        elif record.task_id in self._failing and record.state is ReportState.ACKED:
            self._failing.remove(record.task_id)
            log.info("reports are delivered again", task=record.task_id)

    def _schedule(self, waiting: dict[ReportKey, Record], now: float) -> dict[ReportKey, float]:
        """Give every report that waits the time of its next attempt, in event loop time."""
        due = self._attempts.retry_at
        for key in [key for key in due if key not in waiting]:
            del due[key]
        for key, record in waiting.items():
            if key in due:
                continue
            # tried before this start: come back spread out, not all devices at once after an outage
            if record.attempts:
                due[key] = now + self._attempts.pause_s(record.attempts)
            else:
                due[key] = now + self._first_attempt_s(record)
        return due

    def _first_attempt_s(self, record: Record) -> float:
        """Seconds until a report's first attempt."""
        assignment = self._tasks.get(record.task_id)
        if self._gap_s == 0.0 or assignment is None:
            return 0.0
        plan, clock = assignment.task.windows, self._clock.now()
        spare = plan.skew_s + _SPARE_ATTEMPTS * self._config.deadline_s
        at = first_send(
            clock,
            self._last_send,
            self._gap_s,
            plan.deadline_of(record.window),
            spare,
            self._entropy,
        )
        self._last_send = at
        return at - clock

    def stop(self) -> None:
        """Begin no further attempt in the background."""
        self._stopping = True
        self._wake.set()
