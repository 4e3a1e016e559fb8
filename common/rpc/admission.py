"""Slots for calls, and room for the bytes of their messages: bounded for the server, shared fairly by its connections."""

from __future__ import annotations

import asyncio

from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.rpc.fair import Fair
from shoal.rpc.memory import give_back

_MUCH = 8  # a part of the bytes that, once it was in use and is free again, is worth giving back to the system
_QUIET_S = 1.0  # after the last of them


class Slot:
    """One call's place, from its headers to the end of its reply."""

    __slots__ = ("_admission", "_bytes", "who")

    def __init__(self, admission: Admission, who: str) -> None:
        self._admission, self.who, self._bytes = admission, who, 0

    def reserve(self, size: int) -> None:
        """Room for a message of that many bytes, before any of it is asked for. Raises OVERLOADED."""
        if not self._admission.bytes.take(self.who, size):
            raise _busy()
        self._bytes += size

    def keep(self, size: int) -> None:
        """The message came, and is so long: give back the rest of its room."""
        self._admission.bytes.give(self.who, self._bytes - size)
        self._admission.saw(self._admission.bytes.used)
        self._bytes = size

    def leave(self, _: object = None) -> None:
        self._admission.left(self.who, self._bytes)


class Admission:
    """For one event loop. A connection is known by a hash while it has calls open, and by nothing afterwards."""

    def __init__(self) -> None:
        self.calls, self.bytes = Fair(LIMITS.concurrent_calls), Fair(LIMITS.call_bytes)
        self._much = False
        self._trim: asyncio.TimerHandle | None = None

    def enter(self, who: str) -> Slot:
        """A slot until the task of this call ends, its reply sent. Raises OVERLOADED."""
        task = asyncio.current_task()
        if not self.calls.take(who, 1):
            raise _busy()
        slot = Slot(self, who)
        assert task is not None  # noqa: S101 - gRPC runs every call as a task
        task.add_done_callback(slot.leave)
        return slot

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


def _busy() -> ShoalError:
    return ShoalError(Kind.OVERLOADED, "too many calls are under way: try again later", retry_after_s=LIMITS.retry_after_s)
