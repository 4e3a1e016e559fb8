"""Histograms whose noise the shuffler adds: a device sends its cell, as it is, in one message.

At the end of a window the shuffler adds messages of noise to every cell (``cell_noise``), sealed
like those of devices and mixed with them. The analyzer opens all, can't tell one kind from the
other, and subtracts the mean. The error is that of a trusted curator, but for truncation, and
devices send one message each.

**It trusts the shuffler.** A shuffler that adds nothing, or too little, leaves the analyzer with
the exact counts, and nobody can tell: neither a device nor the analyzer. The other mechanisms here
promise the same whatever the shuffler does short of telling the analyzer who sent what. So owners,
operators and readers of a release are told wherever they see such a task.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from shoal.arrays import NDArray, np
from shoal.entropy import Entropy, streamed
from shoal.limits import LIMITS
from shoal.mechanisms.base import Estimate, Tally, invalid
from shoal.mechanisms.parts import cells
from shoal.mechanisms.several.cell_noise import CellNoise
from shoal.mechanisms.several.protocol import Bundles
from shoal.task import SHUFFLER_NOISE, MechanismSpec

if TYPE_CHECKING:
    from shoal.domain import Domain


@dataclass(frozen=True, slots=True)
class ShufflerNoise:
    """``labels``: one per cell, in the domain's order; ``cell_noise``: what the shuffler adds to
    each. Raises INVALID for more messages than a shuffler adds to a batch.
    """

    labels: tuple[str, ...]
    cell_noise: CellNoise

    def __post_init__(self) -> None:
        if self.most_added > LIMITS.noise_rows:
            raise invalid(
                f"{SHUFFLER_NOISE}: the shuffler would add up to {self.most_added:,} messages to a "
                f"batch, and {LIMITS.noise_rows:,} are the most: give fewer answers to choose from,"
                " or a larger target"
            )

    @property
    def name(self) -> str:
        """The family's name."""
        return SHUFFLER_NOISE

    @property
    def spec(self) -> MechanismSpec:
        """The name with its integers."""
        law = self.cell_noise
        return MechanismSpec.of(self.name, k=len(self.labels), q=law.ratio, reach=law.reach)

    @property
    def report_size(self) -> int:
        """Bytes of a message: 1 for up to 256 cells, 2 for up to 65,536."""
        return cells.report_size(len(self.labels))

    @property
    def messages(self) -> int:
        """One."""
        return 1

    @property
    def fewest(self) -> int:
        """One."""
        return 1

    @property
    def mean_messages(self) -> Fraction:
        """One of each device: what the shuffler adds is not theirs."""
        return Fraction(1)

    @property
    def most_added(self) -> int:
        """Messages that the shuffler adds to a batch, at most."""
        return 2 * len(self.labels) * self.cell_noise.reach

    @property
    def epsilon0(self) -> float:
        """Infinite: the message is the value."""
        return math.inf

    @property
    def least_devices(self) -> int:
        """One: the noise does not depend on how many there are."""
        return 1

    def randomize_one(self, value: int, entropy: Entropy) -> tuple[bytes, ...]:
        """The cell as it is: nothing is drawn."""
        return (cells.check_value(value, len(self.labels)).to_bytes(self.report_size, "big"),)

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> Bundles:
        """See ``Several``."""
        checked = cells.check_values(cells.check_shape(values), len(self.labels))
        rows = checked.astype(f">u{self.report_size}").view(np.uint8)
        return Bundles(rows.reshape(-1, self.report_size), np.ones(len(checked), dtype=np.int64))

    def added(self, entropy: Entropy) -> list[bytes]:
        """The messages of noise of one batch, cell by cell."""
        drawn, entropy = list[bytes](), streamed(entropy)
        for cell in range(len(self.labels)):
            drawn += [cell.to_bytes(self.report_size, "big")] * self.cell_noise.draw(entropy)
        return drawn

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """bool[rows]: those that name a cell."""
        return cells.valid(reports, len(self.labels))

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """How often each cell came, devices' and the shuffler's messages together: int64[k]."""
        return cells.tally(reports, len(self.labels))

    def estimate(self, tally: Tally, reports: int) -> Estimate:
        """Numbers of devices, one per cell; of whole ones, since the noise has a whole mean."""
        values = cells.counts_of(tally, len(self.labels)) - float(self.cell_noise.reach)
        error = np.full(len(self.labels), self.expected_stderr(reports))
        within = self.cell_noise.within
        return Estimate(self.labels, values, error, values - within, values + within)

    def expected_stderr(self, reports: int) -> float:
        """In devices: the same in every cell, and for any number of devices."""
        return self.cell_noise.deviation


def shuffler_noise_of(spec: MechanismSpec, domain: Domain) -> ShufflerNoise:
    """Of a task that names it. Raises INVALID if its integers do not fit."""
    return ShufflerNoise(domain.labels, CellNoise(spec.get("q"), spec.get("reach")))
