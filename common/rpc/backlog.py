"""Work that was admitted and is not done, in seconds: what decides whether a server takes more of
it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shoal.errors import Kind, ShoalError
from shoal.limits import KIB, LIMITS
from shoal.rpc.fair import fits

# what a finished call leaves of the weight of those before it: the last ten or so say how long work
# takes
_MEMORY = 0.9
# so many are told to come at a time that is enough for one: each comes a little later than it was
# told
_OVERBOOK = 1.5
# what is taken for the pace at first: 100 us for a frame of 512 bytes, in a call of 32
_FIRST_S, _FIRST_BYTES = 0.2e-6, 16 * KIB


class Backlog:
    """How much work waits. How long work takes is learnt from work that was done: nothing about the
    machine is configured.

    A call's work is taken to grow with the bytes of its message, which are known before anybody has
    parsed it. Seconds are those of the wall clock while anything waits: two workers halve them, a
    slow disk lengthens them. Once ``limit_s`` seconds wait, a call is refused before its message is
    read, which costs a hundredth of its work. A message that was on its way by then may make it
    twice as much, no more. Shared fairly (``fair``) between the connections. For one event loop.
    """

    def __init__(
        self, limit_s: float = LIMITS.backlog_s, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit_s, self._now = limit_s, now
        self._waiting, self._held = 0, dict[str, int]()  # bytes: of all, by connection
        # decaying sums
        self._busy_s, self._done, self._calls = _FIRST_S * _FIRST_BYTES, float(_FIRST_BYTES), 1.0
        self._mark = 0.0  # when work that waits was last finished, or began to wait
        # until when the server is taken, by what waits and by those who were told to come again
        self._booked = 0.0

    @property
    def seconds(self) -> float:
        """Until all that was admitted is done, at the pace of late."""
        return self._seconds(self._waiting)

    @property
    def share(self) -> float:
        """Of the most that may wait, what waits: 0 to 1 in quarters, rounded down. Coarse on
        purpose: it is shown, and no report is to be seen come and go.
        """
        return min(4, int(4 * self.seconds / self._limit_s)) / 4

    def look(self, who: str) -> None:
        """Before a message is read. Raises OVERLOADED, which says when to come again."""
        if (
            not fits(self._limit_s, self.seconds, self._seconds(self._held.get(who, 0)), 0.0)
            or self.seconds >= self._limit_s
        ):
            raise self._refusal()

    @contextmanager
    def admit(self, who: str, size: int) -> Iterator[None]:
        """While a message of ``size`` bytes is worked on. Raises OVERLOADED, which says when to
        come again.
        """
        held = self._held.get(who, 0)
        most = 2 * self._limit_s
        # Alone anything may be done, however long it takes: it would never fit otherwise.
        if self._waiting and not fits(most, self.seconds, self._seconds(held), self._seconds(size)):
            raise self._refusal()
        if not self._waiting:
            self._mark = self._now()
        self._waiting += size
        self._held[who] = held + size
        try:
            yield
            # not of what was refused: that says nothing about how long work takes
            self._learn(size)
        finally:
            self._release(who, size)

    def _learn(self, size: int) -> None:
        now = self._now()
        self._busy_s = self._busy_s * _MEMORY + (now - self._mark)
        self._done = self._done * _MEMORY + size
        self._calls = self._calls * _MEMORY + 1
        self._mark = now

    def _release(self, who: str, size: int) -> None:
        self._waiting -= size
        left = self._held.pop(who, 0) - size
        if left > 0:
            self._held[who] = left

    def _seconds(self, size: float) -> float:
        return size * self._busy_s / self._done

    def _refusal(self) -> ShoalError:
        """Everybody who is refused gets a time of his own, one behind the other, as if they
        queued.
        """
        now = self._now()
        self._booked = (
            max(self._booked, now + self.seconds) + self._busy_s / self._calls / _OVERBOOK
        )
        self._booked = min(self._booked, now + LIMITS.retry_after_most_s)
        return ShoalError(
            Kind.OVERLOADED,
            "more reports wait to be opened than can be opened soon: try again later",
            retry_after_s=self._booked - now,
        )
