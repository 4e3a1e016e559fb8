"""What this service takes of its machine: CPU and memory of the process and of the worker processes
below it.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

_STARTED = time.time()
# Of /proc/PID/stat behind the name, counted from 0 (proc(5) counts from 1 and has two fields
# before).
# utime, stime, and those of children that have ended and were waited for; clock ticks
_TIMES = slice(11, 15)
_RESIDENT = 21  # pages


@dataclass(frozen=True, slots=True)
class Usage:
    """``cpu_s``: since the start, workers that have ended included. ``resident_bytes``: pages that
    processes share count in each of them; 0 where the system doesn't say. ``started_s``: Unix
    seconds.
    """

    cpu_s: float
    resident_bytes: int
    started_s: float


def usage(proc: Path = Path("/proc")) -> Usage:
    """Of this process and all its descendants, as far as ``proc`` shows them."""
    ticks, pages, waiting, seen = 0, 0, [str(os.getpid())], 0
    while waiting:
        folder = proc / waiting.pop()
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[_TIMES]))
            pages += int(fields[_RESIDENT])
            seen += 1
            for thread in (folder / "task").iterdir():
                waiting += (thread / "children").read_text().split()
        except (OSError, ValueError, IndexError):
            continue  # it ended meanwhile, or this is not Linux
    if not seen:
        times = os.times()
        return Usage(
            times.user + times.system + times.children_user + times.children_system, 0, _STARTED
        )
    return Usage(ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE"), _STARTED)
