"""What every benchmark is given: how much to do, where to write, processes to use, and deployments
that are made once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TypeVar

from benchmarks import machine
from benchmarks.site import Site
from shoal.services.workers import WorkerPool

T = TypeVar("T")


class Scale(Enum):
    """How much is measured."""

    TINY = "tiny"  # the tests: that it runs, nothing more
    QUICK = "quick"
    FULL = "full"


@dataclass
class Bench:
    """One run. ``folder`` is removed by whoever made it; ``close`` ends the processes."""

    scale: Scale
    folder: Path
    cores: int = field(default_factory=machine.cores)
    _pool: WorkerPool | None = None
    _sites: dict[int, Site] = field(default_factory=dict)

    def pick(self, tiny: T, quick: T, full: T) -> T:
        """That of the three which this scale has."""
        return {Scale.TINY: tiny, Scale.QUICK: quick, Scale.FULL: full}[self.scale]

    @property
    def repetitions(self) -> int:
        """How often a pair is measured: 1, 3 or 5 times."""
        return self.pick(1, 3, 5)

    @property
    def pool(self) -> WorkerPool:
        """One process per core, for sealing; idle while anything is measured."""
        if self._pool is None:
            self._pool = WorkerPool(self.cores)
            self._pool.warm()
        return self._pool

    def site(self, reports: int) -> Site:
        """The deployment for so many reports. The memory benchmark uses it up, so that one comes
        last.
        """
        if reports not in self._sites:
            self._sites[reports] = Site(self.folder / f"site-{reports}", reports)
        return self._sites[reports]

    def fresh_site(self, name: str, reports: int) -> Site:
        """A deployment of one's own."""
        return Site(self.folder / name, reports)

    def close(self) -> None:
        """End the worker processes, if any were begun."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
