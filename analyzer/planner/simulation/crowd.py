"""Made-up devices of a simulation, so many at a time as are asked for: none of them holds more than
a few numbers for all of them together, however many they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from shoal.analyzer.planner.quantiles import Cut, rounded
from shoal.analyzer.planner.question import Spread
from shoal.arrays import NDArray, np
from shoal.entropy import Entropy
from shoal.mechanisms.parts.sampling import bernoulli


class Crowd(Protocol):
    """``n`` devices, numbered from 0."""

    @property
    def n(self) -> int:
        """How many."""
        ...

    def cells(self, among: range, entropy: Entropy) -> NDArray[np.int64]:
        """int64[len(among)]: the cells of those devices, each number rounded anew."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ByCounts:
    """``counts``: int64[cells], the devices that hold each cell, in this order."""

    counts: NDArray[np.int64]

    @property
    def n(self) -> int:
        """See ``Crowd.n``."""
        return int(self.counts.sum())

    def cells(self, among: range, entropy: Entropy) -> NDArray[np.int64]:
        """See ``Crowd.cells``: nothing is drawn."""
        ends = np.clip(np.cumsum(self.counts), among.start, among.stop)
        here = np.diff(ends, prepend=among.start)
        return np.repeat(np.arange(here.size, dtype=np.int64), here)


@dataclass(frozen=True, slots=True)
class AtValue:
    """All ``n`` devices between one of ``levels`` and the next: each is a level up with probability
    ``threshold`` / 2^64, as ``Numeric.encode`` rounds.
    """

    n: int
    below: int
    threshold: int
    levels: int

    @classmethod
    def of(cls, n: int, place: float, levels: int) -> AtValue:
        """At a place among levels counted from 0, such as 1.25."""
        below = min(int(place), levels - 1)
        return cls(n, below, int((place - below) * 2**64), levels)

    def cells(self, among: range, entropy: Entropy) -> NDArray[np.int64]:
        """See ``Crowd.cells``."""
        threshold = np.array([self.threshold], dtype=np.uint64)
        up = bernoulli(np.broadcast_to(threshold, len(among)), entropy)
        return np.minimum(self.below + up.astype(np.int64), self.levels - 1)


@dataclass(frozen=True, slots=True)
class Shaped:
    """``n`` devices spread as a shape says, over levels or over bins."""

    n: int
    shape: Spread
    cut: Cut

    def cells(self, among: range, entropy: Entropy) -> NDArray[np.int64]:
        """See ``Crowd.cells``."""
        return rounded(self.shape, self.cut, self.n, among, entropy)
