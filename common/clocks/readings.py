"""Readings of a machine's clocks: the wall clock's, and the seconds since the machine started,
which nobody sets.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Protocol

from shoal.clocks.timekeeping import Reading

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Readings(Protocol):
    """Where readings come from; tests give their own."""

    def read(self) -> Reading:
        """Both clocks of this machine, read one right after the other."""
        ...


class SystemReadings:
    """This machine's clocks.

    steady = CLOCK_MONOTONIC_RAW, which no time server steers (chrony may slew the others by 8 %),
    and the seconds asleep, which are CLOCK_BOOTTIME - CLOCK_MONOTONIC (clock_gettime(2), Linux).
    Elsewhere, or without a boot id, the process is taken for the machine.
    """

    def __init__(self) -> None:
        self._linux = hasattr(time, "CLOCK_BOOTTIME") and hasattr(time, "CLOCK_MONOTONIC_RAW")
        boot_id = ""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            boot_id = _BOOT_ID.read_text("ascii").strip()
        self._boot_id, self._began = boot_id, 0.0
        if not self._linux or not boot_id:
            self._boot_id, self._began = f"process-{os.urandom(8).hex()}", self._steady()

    def _steady(self) -> float:
        if not self._linux:
            return time.monotonic()
        asleep = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
        return time.clock_gettime(time.CLOCK_MONOTONIC_RAW) + asleep

    def read(self) -> Reading:
        """As ``Readings.read``."""
        return Reading(time.time(), self._steady() - self._began, self._boot_id)


def in_words(seconds: float) -> str:
    """ "10 d 3 h", "4 h 5 min", "12 s"."""
    whole = round(seconds)
    for size, name, below, then in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            return f"{whole // size} {name} {whole % size // below} {then}"
    return f"{whole} s"
