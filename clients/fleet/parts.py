"""One fleet on several machines: each has a part of its devices, and knows nothing of the others.

Part I of N has devices I - 1, I - 1 + N, ... of the fleet, and of each kind of client that share of
the fleet's which is its own: all parts together have what one load would have, neither fewer nor
more.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from shoal.clients.fleet.misbehaviour import Conduct
from shoal.errors import Kind, ShoalError

MOST_PARTS = 10_000


@dataclass(frozen=True, slots=True)
class LoadPart:
    """``number``: from 0. ``of``: so many. ``fleet``: devices of all. Raises CONFIG for a part that
    has none.
    """

    number: int
    of: int
    fleet: int

    def __post_init__(self) -> None:
        if not (1 <= self.of <= MOST_PARTS and 0 <= self.number < self.of):
            raise ShoalError(
                Kind.CONFIG, f"a part is 1/N to N/N, with N at most {MOST_PARTS}: 3/20 for example"
            )
        if self.fleet < self.of:
            raise ShoalError(
                Kind.CONFIG, f"{self.fleet} devices are too few for {self.of} parts: take fewer"
            )

    @property
    def devices(self) -> int:
        """How many are this part's."""
        return self._among(0, self.fleet)

    @property
    def share(self) -> float:
        """Of the fleet."""
        return self.devices / self.fleet

    def mix(self, fleet: Counter[Conduct]) -> Counter[Conduct]:
        """Clients of each kind, of those of the fleet: as if they stood in a row, sorted, and each
        part took every N-th.
        """
        counts, start = Counter[Conduct](), 0
        for conduct in Conduct:
            counts[conduct] = self._among(start, start + fleet[conduct])
            start += fleet[conduct]
        return +counts

    def _among(self, start: int, stop: int) -> int:
        """Of the places from ``start`` to ``stop``, those that are this part's."""
        first = start + (self.number - start) % self.of
        return len(range(first, stop, self.of))
