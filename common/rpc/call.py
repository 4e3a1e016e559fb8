"""What a handler is told of the call that it serves."""

from __future__ import annotations

import asyncio


class Call:
    """What a handler may know of a call: how long it has left. Nothing about who calls."""

    __slots__ = ("_ends",)

    def __init__(self, allowed_s: float) -> None:
        self._ends = asyncio.get_running_loop().time() + allowed_s

    def deadline_left(self) -> float:
        """Seconds; counted from LIMITS.default_deadline_s where the caller stated none."""
        return self._ends - asyncio.get_running_loop().time()
