"""Time behind a seam: services and agents ask a Clock, so tests set the time instead of sleeping.

Whatever only shows or schedules uses ``Clock``. Services decide by a ``SureClock``: what cannot be
undone asks ``decide``, which answers nothing while the wall clock is disputed
(``shoal.clocks.timekeeper``). Who lets devices in asks for a ``Moment``. Devices have a
``DeviceClock`` (``shoal.clients.device_clock``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from shoal.errors import Kind, ShoalError

UNKNOWN_TIME = "this service does not know what time it is: try again later"
# What a device gives its report up for, and a wrong clock can be the cause of.
_BY_CLOCK = frozenset({Kind.TOO_EARLY, Kind.WINDOW_CLOSED, Kind.UNAUTHENTICATED})


class Clock(Protocol):
    """What time it is, as the wall clock says."""

    def now(self) -> float:
        """Unix seconds, as the wall clock says: for showing and for what may be done again."""
        ...


class SureClock(Clock, Protocol):
    """A clock that knows whether it may be believed. Every method may be called from any thread."""

    def decide(self) -> float | None:
        """Unix seconds for what cannot be undone (closing, expiring, deleting); None: the clock is
        disputed, decide nothing.
        """
        ...

    def letting(self) -> float | None:
        """Unix seconds for letting in what is open; None: something speaks against the clock. At a
        first start nothing does, and nothing speaks for it either: ``decide`` may be None then, and
        nobody may be turned away for good.
        """
        ...

    def earliest(self) -> float:
        """Unix seconds, the earliest that the wall clock or the time before it allow: for refusing
        what comes too early.
        """
        ...

    def steady(self) -> float:
        """Seconds that never jump, from any beginning: for pauses, patience and the phases of
        rounds.
        """
        ...


@dataclass(frozen=True, slots=True)
class Moment:
    """When somebody asks to be let in. now: Unix seconds. sure: whether he may also be turned away
    by them.
    """

    now: float
    sure: bool

    @classmethod
    def of(cls, clock: SureClock) -> Moment:
        """Raises UNAVAILABLE while the clock is disputed: a refusal by it would make a device drop
        its report.
        """
        now = clock.decide()
        if now is not None:
            return cls(now, sure=True)
        now = clock.letting()
        if now is None:
            raise ShoalError(Kind.UNAVAILABLE, UNKNOWN_TIME)
        return cls(now, sure=False)

    def kind(self, kind: Kind) -> Kind:
        """What to say instead of a refusal: UNAVAILABLE, if a wrong clock may be its cause."""
        return kind if self.sure or kind not in _BY_CLOCK else Kind.UNAVAILABLE

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Around what raises refusals."""
        try:
            yield
        except ShoalError as error:
            if self.kind(error.kind) is error.kind:
                raise
            raise ShoalError(Kind.UNAVAILABLE, UNKNOWN_TIME) from None


class DeviceClock(Clock, Protocol):
    """A device's clock. ``over`` and ``doubt`` may be called from any thread and block for the
    disk, but never raise.
    """

    def over(self) -> float:
        """Unix seconds that are surely over: for ending and deleting, which never rest on one
        reading. Never ahead of ``now``.
        """
        ...

    def steady(self) -> float:
        """Seconds that never jump, those asleep included, from any beginning."""
        ...

    def doubt(self) -> str:
        """Why nothing may be measured by this clock now, in a line; "": it may."""
        ...


class SystemClock:
    """The machine's wall clock, believed whatever it says."""

    def now(self) -> float:
        """As ``Clock.now``."""
        return time.time()


class FakeClock:
    """A clock that a test moves by hand. ``disputed``: nothing may be decided by it. ``alone``:
    nor, but nothing speaks against it.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.time = now
        self.disputed = self.alone = False

    def now(self) -> float:
        """As ``Clock.now``: ``time``."""
        return self.time

    def decide(self) -> float | None:
        """As ``SureClock.decide``: None while ``disputed`` or ``alone``."""
        return None if self.disputed or self.alone else self.now()

    def letting(self) -> float | None:
        """As ``SureClock.letting``: None while ``disputed``."""
        return None if self.disputed else self.now()

    def earliest(self) -> float:
        """As ``SureClock.earliest``: ``time``."""
        return self.now()

    def steady(self) -> float:
        """As ``SureClock.steady``: ``time``, so a test that sets it back breaks the promise on
        purpose.
        """
        return self.now()

    def over(self) -> float:
        """As ``DeviceClock.over``: ``time``."""
        return self.now()

    def doubt(self) -> str:
        """As ``DeviceClock.doubt``: a line while ``disputed``."""
        return "the clock is disputed" if self.disputed else ""

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self.time += seconds
