"""A machine whose clocks a test moves: the true time, the wall clock and its error, the time since
the boot.
"""

from __future__ import annotations

from pathlib import Path

from shoal.clocks.timekeeper import Timekeeper
from shoal.clocks.timekeeping import Reading

DAY = 86_400.0


class Machine:
    """``Readings`` of a machine. rate: of its quartz, against true seconds."""

    def __init__(self, now: float, rate: float = 1.0) -> None:
        self.true, self.error, self.rate = now, 0.0, rate
        self.up, self.boots = 1_000.0, 1
        self.frozen = False

    def read(self) -> Reading:
        return Reading(self.true + self.error, self.up, f"boot-{self.boots}")

    def passes(self, seconds: float) -> None:
        self.true += seconds
        self.up += seconds * self.rate

    def jumps(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self.error += seconds

    def reboots(self, off: float = 90.0) -> None:
        """Off for so long, then up for ten seconds."""
        self.true += off + 10.0
        self.boots, self.up = self.boots + 1, 10.0 * self.rate

    def pauses(self, seconds: float) -> None:
        """A virtual machine that stands still; afterwards NTP sets the wall clock right."""
        self.true += seconds


def keeper(folder: Path, machine: Machine, over: float = float("inf")) -> Timekeeper:
    """Looked at once. ``over``: the time from which something would be closed."""
    folder.mkdir(exist_ok=True)
    made = Timekeeper(folder, "shoal shuffler clock", machine)
    made.watch(lambda now: now < over)
    made.look()
    return made
