"""Randomized answers: what devices would send, and all that an analyzer ever sees of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.arrays import NDArray, np
from shoal.domain import Domain
from shoal.mechanisms.base import Mechanism, Tally
from shoal.study.frames import Library
from shoal.task import MechanismSpec

_BLOCK_BYTES = 1 << 24  # of reports that are counted at a time


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reports:
    """One report per person, in the order of the answers: shuffle them, or tally them, before
    anybody who knows the order sees them.

    ``array``: uint8[n, messages, bytes], read-only. ``simulated``: drawn from a seed, which
    protects nobody.
    """

    array: NDArray[np.uint8]
    spec: MechanismSpec
    domain: Domain
    simulated: bool = False
    library: Library = field(default=Library.NONE)

    def __len__(self) -> int:
        return int(self.array.shape[0])

    def __repr__(self) -> str:
        seeded = ", from a simulation seed: they protect nobody" if self.simulated else ""
        size = self.array.shape[1] * self.array.shape[2]
        return (
            f"<{len(self):,} reports of {size} byte{'' if size == 1 else 's'}, randomized by "
            f"{self.spec.name}{seeded}>"
        )


def tally_of(mechanism: Mechanism, array: NDArray[np.uint8]) -> Tally:
    """Counted in blocks: tallies add."""
    rows = array.reshape(-1, mechanism.report_size)
    block = max(1, _BLOCK_BYTES // mechanism.report_size)
    total = mechanism.tally(np.ascontiguousarray(rows[:block]))
    for start in range(block, rows.shape[0], block):
        total = total + mechanism.tally(np.ascontiguousarray(rows[start : start + block]))
    return total
