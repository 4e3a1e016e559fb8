"""Slots for calls, and room for the bytes of their messages: bounded for the server, shared fairly
by its connections.

Who holds what it was given and does not go on would leave less and less for those after it, however
fairly it was shared. So a call whose message has not come yet makes way where somebody who holds
less finds no room: it is told to come again.
"""

from __future__ import annotations

import asyncio

from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.rpc.deadlines import Deadlines, Limit
from shoal.rpc.fair import Fair
from shoal.rpc.memory import give_back

# a part of the bytes that, once it was in use and is free again, is worth giving back to the system
_MUCH = 8
_QUIET_S = 1.0  # after the last of them


class Slot:
    """One call's place, from its headers to the end of its reply."""

    __slots__ = ("_admission", "_bytes", "_gone", "_limit", "displaced", "who")

    def __init__(self, admission: CallAdmission, who: str) -> None:
        self._admission, self.who, self._bytes = admission, who, 0
        self._limit: Limit | None = None
        self.displaced, self._gone = False, False

    def reserve(self, size: int, limit: Limit) -> None:
        """Room for a message of that many bytes, before any of it is asked for. Raises OVERLOADED.
        Until ``keep`` the call may have to make way: ``limit`` then ends it, and it is
        ``displaced``.
        """
        if not self._admission.bytes.take(self.who, size) and not self._admission.make_room(
            self._admission.bytes, self.who, size
        ):
            raise busy()
        self._bytes += size
        self._limit = limit
        self._admission.reading(self)

    def keep(self, size: int) -> None:
        """The message came, and is so long: give back the rest of its room."""
        self._admission.done_reading(self)
        if self.displaced:
            raise busy()
        self._admission.bytes.give(self.who, self._bytes - size)
        self._admission.saw(self._admission.bytes.used)
        self._bytes = size

    def make_way(self) -> None:
        """What it holds is free at once; the call ends a moment later."""
        self.displaced = True
        if self._limit is not None:
            self._limit.end()
        self.leave()

    def leave(self, _: object = None) -> None:
        """Give back what is left. Idempotent."""
        if not self._gone:
            self._gone = True
            self._admission.done_reading(self)
            self._admission.left(self.who, self._bytes)


class CallAdmission:
    """For one event loop. A connection is known by a hash while it has calls open, and by nothing
    afterwards.
    """

    def __init__(self) -> None:
        self.deadlines = Deadlines()
        self.calls, self.bytes = Fair(LIMITS.concurrent_calls), Fair(LIMITS.call_bytes)
        # by connection, the oldest first: calls whose message has not come
        self._reading: dict[str, dict[Slot, None]] = {}
        self._much = False
        self._trim: asyncio.TimerHandle | None = None

    def enter(self, who: str) -> Slot:
        """A slot until the task of this call ends, its reply sent. Raises OVERLOADED."""
        task = asyncio.current_task()
        if not self.calls.take(who, 1) and not self.make_room(self.calls, who, 1):
            raise busy()
        slot = Slot(self, who)
        assert task is not None  # noqa: S101 - gRPC runs every call as a task
        task.add_done_callback(slot.leave)
        return slot

    def reading(self, slot: Slot) -> None:
        """From now on it may have to make way."""
        self._reading.setdefault(slot.who, {})[slot] = None

    def done_reading(self, slot: Slot) -> None:
        """It need not make way any more. Idempotent."""
        mine = self._reading.get(slot.who)
        if mine is not None and slot in mine:
            del mine[slot]
            if not mine:
                del self._reading[slot.who]

    def make_room(self, what: Fair, who: str, amount: int) -> bool:
        """Take ``amount`` for ``who`` from those who hold most, and more than ``who`` would; False:
        there are none.
        """
        while True:
            most = max(self._reading, key=what.held, default=None)
            if most is None or most == who or what.held(most) <= what.held(who) + amount:
                return False
            next(iter(self._reading[most])).make_way()
            if what.take(who, amount):
                return True

    def left(self, who: str, size: int) -> None:
        """A call has ended."""
        self.calls.give(who, 1)
        if size:
            self.bytes.give(who, size)
        if self._much and self.bytes.used <= self.bytes.total // (4 * _MUCH):
            self._much = False
            if self._trim is None:
                self._trim = asyncio.get_running_loop().call_later(_QUIET_S, self._give_back)

    def saw(self, used: int) -> None:
        """So many bytes are in use."""
        self._much = self._much or used > self.bytes.total // _MUCH

    def _give_back(self) -> None:
        self._trim = None
        if not self._much:  # otherwise it is needed again
            asyncio.get_running_loop().run_in_executor(None, give_back)


def busy() -> ShoalError:
    """OVERLOADED with a time to come back: for whoever finds no free slot."""
    return ShoalError(
        Kind.OVERLOADED,
        "too many calls are under way: try again later",
        retry_after_s=LIMITS.retry_after_s,
    )
