"""Time behind a seam: services and agents ask a Clock, so tests set the time instead of sleeping.

Whatever only shows or schedules uses ``Clock``. Services decide by a ``SureClock``: what cannot be undone asks ``decide``, which
answers nothing while the wall clock is disputed (``shoal.timekeeper``). Devices have a ``DeviceClock`` (``shoal.clients.own_clock``).
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Unix seconds, as the wall clock says: for showing and for what may be done again."""
        ...


class SureClock(Clock, Protocol):
    """A clock that knows whether it may be believed. Every method may be called from any thread."""

    def decide(self) -> float | None:
        """Unix seconds for what cannot be undone (closing, expiring, deleting); None: the clock is disputed, decide nothing."""
        ...

    def earliest(self) -> float:
        """Unix seconds, the earliest that the wall clock or the time before it allow: for refusing what comes too early."""
        ...

    def steady(self) -> float:
        """Seconds that never jump, from any beginning: for pauses, patience and the phases of rounds."""
        ...


class DeviceClock(Clock, Protocol):
    """A device's clock. ``over`` and ``doubt`` may be called from any thread and block for the disk, but never raise."""

    def over(self) -> float:
        """Unix seconds that are surely over: for ending and deleting, which never rest on one reading. Never ahead of ``now``."""
        ...

    def steady(self) -> float:
        """Seconds that never jump, those asleep included, from any beginning."""
        ...

    def doubt(self) -> str:
        """Why nothing may be measured by this clock now, in a line; "": it may."""
        ...


class SystemClock:
    def now(self) -> float:
        return time.time()


class FakeClock:
    """A clock that a test moves by hand. ``disputed``: nothing may be decided by it."""

    def __init__(self, now: float = 0.0) -> None:
        self.time = now
        self.disputed = False

    def now(self) -> float:
        return self.time

    def decide(self) -> float | None:
        return None if self.disputed else self.now()

    def earliest(self) -> float:
        return self.now()

    def steady(self) -> float:
        return self.now()

    def over(self) -> float:
        return self.now()

    def doubt(self) -> str:
        return "the clock is disputed" if self.disputed else ""

    def advance(self, seconds: float) -> None:
        self.time += seconds
