"""Group commit over a network, on the event loop: calls are gathered for a few milliseconds and
stored together, and several groups are under way at a time, because a group waits for a round trip
and a standby rather than for this machine.

As ``GroupCommit`` does with a thread: a cancelled caller undoes nothing, and beyond a number of
waiting items calls are refused at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.log import get_log

log = get_log("shuffler")
Item = TypeVar("Item")
Outcomes = list[Kind | None]  # for each item None: stored; or why it isn't
_Call = tuple[asyncio.Future[Outcomes], Sequence[Item], int]  # how many outcomes it has
_AT_ONCE = 4  # groups under way: more of them would only be smaller


class AsyncCommits(Generic[Item]):
    """``append``: stores a group and returns an outcome for each item, or the ``count`` of them
    where an item is many. Belongs to the event loop of
    the first call. ``group_items``, ``wait_s``, ``queue_items``: as for ``GroupCommit``.
    """

    def __init__(
        self,
        append: Callable[[list[Item]], Awaitable[Outcomes]],
        *,
        group_items: int = LIMITS.commit_rows,
        wait_s: float = LIMITS.commit_ms / 1000,
        queue_items: int = LIMITS.writer_queue_rows,
        at_once: int = _AT_ONCE,
    ) -> None:
        self._append = append
        self._group_items, self._wait_s, self._queue_items = group_items, wait_s, queue_items
        self._free = at_once
        self._calls: list[_Call[Item]] = []
        self._queued = 0  # items in ``_calls``
        self._items = 0  # those, and the ones under way
        self._timer: asyncio.TimerHandle | None = None
        self._ripe = False  # what waits has waited long enough
        self._running: set[asyncio.Task[None]] = set()
        self._stopping = False

    async def submit(self, items: Sequence[Item], count: int) -> Outcomes:
        """Store items, ``count`` outcomes long; for each None = stored, or the kind of failure.
        Raises OVERLOADED, UNAVAILABLE (stopping), and what ``append`` raises.
        """
        if self._stopping:
            raise ShoalError(Kind.UNAVAILABLE, "the service is stopping: try again")
        if self._items and self._items + count > self._queue_items:
            raise ShoalError(
                Kind.OVERLOADED,
                "too many reports wait for the database: try again later",
                retry_after_s=LIMITS.retry_after_s,
            )
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcomes] = loop.create_future()
        self._calls.append((future, items, count))
        self._queued += count
        self._items += count
        if self._queued >= self._group_items or self._wait_s <= 0:
            self._due()
        elif self._timer is None and not self._ripe:
            self._timer = loop.call_later(self._wait_s, self._due)
        return await future

    async def stop(self) -> None:
        """Store what waits, then refuse. What is under way ends first."""
        self._stopping = True
        self._due()
        while self._running:
            await asyncio.wait(list(self._running))

    def _due(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._ripe = True
        self._start()

    def _start(self) -> None:
        """Begin a group if one is ripe and there is room for it."""
        while self._free and self._calls and self._ripe:
            group: list[_Call[Item]] = []
            count = 0
            while self._calls and (not group or count < self._group_items):
                group.append(self._calls.pop(0))
                count += group[-1][2]
            self._queued -= count
            self._ripe = self._queued >= self._group_items or (self._stopping and self._queued > 0)
            if self._calls and not self._ripe and self._timer is None:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(self._wait_s, self._due)
            self._free -= 1
            task = asyncio.create_task(self._carry_out(group, count))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        if not self._calls:
            self._ripe = False

    async def _carry_out(self, group: list[_Call[Item]], count: int) -> None:
        """No exception leaves it: somebody waits for an answer."""
        failure: ShoalError | None = None
        outcomes: Outcomes = []
        try:
            outcomes = await self._append([item for _, items, _ in group for item in items])
        except ShoalError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - the boundary of the task
            log.error("the writer failed", error=error)
            failure = ShoalError(Kind.INTERNAL, "the report could not be stored: try again later")
        finally:
            self._free += 1
            self._items -= count
        at = 0
        for future, _, length in group:
            part, at = outcomes[at : at + length], at + length
            if future.done():  # cancelled by its caller; the write stands
                continue
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(part)
        self._start()
