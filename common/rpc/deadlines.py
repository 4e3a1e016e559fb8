"""When calls must be over: one look at all of them a few times a second, in place of a timer each.

A timer costs a call several microseconds each time that its limit moves, and nearly none ever
rings. Here a limit is a number; a call that is over it ends up to ``_LOOK_S`` late.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

_LOOK_S = 0.1  # seconds between two looks, while there are calls


class Limit:
    """One call's, from ``with`` on, in its task: once it is over the task is cancelled, and the
    block raises TimeoutError. As ``asyncio.timeout``, but not to be nested in one task.
    """

    __slots__ = ("_asked", "_cancelled", "_cancelling", "_deadlines", "_task", "when")

    def __init__(self, deadlines: Deadlines, when: float) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - gRPC runs every call as a task
        self._deadlines, self._task, self.when = deadlines, task, when
        self._cancelling, self._asked, self._cancelled = 0, False, False

    def move(self, when: float) -> None:
        """From now on it ends then, in the time of the event loop."""
        self.when = when

    def end(self) -> None:
        """It is over: the block is left once the event loop has had its turn, unless it was left
        before.
        """
        if not self._asked:
            self._asked = True
            asyncio.get_running_loop().call_soon(self._cancel)

    def _cancel(self) -> None:
        if self in self._deadlines.open:
            self._cancelled = True
            self._task.cancel()

    def __enter__(self) -> Limit:
        self._cancelling = self._task.cancelling()
        self._deadlines.enter(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del self._deadlines.open[self]
        # who was cancelled by somebody else too stays cancelled
        if (
            self._cancelled
            and self._task.uncancel() <= self._cancelling
            and kind is asyncio.CancelledError
        ):
            raise TimeoutError from error


class Deadlines:
    """Of the calls of one server, in one event loop."""

    def __init__(self) -> None:
        self.open: dict[Limit, None] = {}
        self.looking = False

    def within(self, seconds: float) -> Limit:
        """A limit for the task that runs, that many seconds from now."""
        return Limit(self, asyncio.get_running_loop().time() + seconds)

    def enter(self, limit: Limit) -> None:
        """From now on it is looked at."""
        self.open[limit] = None
        if not self.looking:
            self.looking = True
            asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for limit in self.open:
            if limit.when <= now:
                limit.end()
        self.looking = bool(self.open)
        if self.looking:
            loop.call_later(_LOOK_S, self._look)
