"""What a console has read of somebody else, kept for while it can't be read again.

A page never waits for a service that is away: it shows what was read last, and how long ago. One
reading is under way at a time, however many look.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from shoal.errors import Kind, ShoalError
from shoal.log import get_log

log = get_log("console")
_PATIENCE_S = 1.0  # a page waits so long for a reading that is under way; most take milliseconds

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LastRead(Generic[T]):
    """``value``: what was read last, None if nothing ever was. ``age_s``: seconds since then.
    ``trouble``: why it can't be read now, in one line; None while it can.
    """

    value: T | None
    age_s: float
    trouble: str | None


class Watched(Generic[T]):
    """``read`` blocks and raises ShoalError; it is called at most every ``every_s`` seconds, and
    only while somebody looks. ``first``: what was read just now.
    """

    def __init__(
        self,
        read: Callable[[], T],
        every_s: float,
        clock: Callable[[], float] = time.monotonic,
        patience_s: float = _PATIENCE_S,
        first: T | None = None,
    ) -> None:
        self._read, self._every_s, self._clock = read, every_s, clock
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._value: T | None = first
        self._trouble: str | None = None
        self._read_at = self._tried_at = -float("inf")
        if first is not None:
            self._read_at = self._tried_at = self._clock()
        self._done = threading.Event()  # set while no reading is under way
        self._done.set()

    def look(self) -> LastRead[T]:
        """What is known now. Waits ``patience_s`` at most, whatever becomes of the reading."""
        with self._lock:
            due = self._done.is_set() and self._clock() - self._tried_at >= self._every_s
            if due:
                self._done.clear()
        if due:
            threading.Thread(target=self._refresh, name="look", daemon=True).start()
        self._done.wait(self._patience_s)
        with self._lock:
            waiting = None if self._done.is_set() or self._value is not None else "no answer yet"
            age = max(0.0, self._clock() - self._read_at)
            return LastRead(self._value, age, self._trouble or waiting)

    def _refresh(self) -> None:
        try:
            value, trouble = self._read(), None
        except ShoalError as error:
            value, trouble = None, str(error)
        except Exception as error:  # noqa: BLE001 - a reading that fails is told, and tried again
            log.error("a reading failed", error=type(error).__name__)
            told = ShoalError(Kind.INTERNAL, f"unexpected {type(error).__name__}: a bug")
            value, trouble = None, str(told)
        with self._lock:
            now = self._clock()
            if trouble is None:
                self._value, self._read_at = value, now
            self._trouble, self._tried_at = trouble, now
            self._done.set()
