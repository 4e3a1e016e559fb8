"""What mechanisms have in common whose devices send one true message in each of several tables,
among dummies: the values themselves, with no epsilon0.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction

from shoal.arrays import NDArray, np
from shoal.entropy import Entropy
from shoal.mechanisms.base import Tally
from shoal.mechanisms.parts import cells
from shoal.mechanisms.several import noise_of_batch
from shoal.mechanisms.several.bundling import many_bundles, one_bundle
from shoal.mechanisms.several.noise_law import NoiseLaw
from shoal.mechanisms.several.protocol import Bundles
from shoal.privacy import KaryLaw


class InTables(ABC):
    """A member says what its noise is, how many answers there are, and which cells one has."""

    __slots__ = ()

    @property
    @abstractmethod
    def law(self) -> NoiseLaw:
        """Dummies in the cells of all tables, a true message in each."""

    @property
    @abstractmethod
    def answers(self) -> int:
        """How many there are: a device has one of 0 to this."""

    @abstractmethod
    def _truths(self, value: int, entropy: Entropy) -> Sequence[int]:
        """The cells of an answer, one in each table."""

    @property
    def report_size(self) -> int:
        """Bytes of a message, a cell: 1 for up to 256 of them, else 2."""
        return cells.report_size(self.law.cells)

    @property
    def messages(self) -> int:
        """Slots of a submission."""
        return self.law.slots

    @property
    def fewest(self) -> int:
        """The true messages alone."""
        return self.law.fewest

    @property
    def mean_messages(self) -> Fraction:
        """See ``Several``."""
        return self.law.mean_messages

    @property
    def truth_law(self) -> KaryLaw | None:
        """None: true messages are the value."""
        return None

    @property
    def epsilon0(self) -> float:
        """Infinite."""
        return math.inf

    @property
    def least_devices(self) -> int:
        """As many as the noise is split over."""
        return self.law.shares

    def randomize_one(self, value: int, entropy: Entropy) -> tuple[bytes, ...]:
        """See ``Several``."""
        truths = self._truths(cells.check_value(value, self.answers), entropy)
        return one_bundle(truths, self.law, self.report_size, entropy)

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> Bundles:
        """See ``Several``."""
        k, size = self.answers, self.report_size
        return many_bundles(values, k, self._truths, self.law, size, entropy)

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """bool[rows]: those that name a cell."""
        return cells.valid(reports, self.law.cells)

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """How often each cell came: int64[cells], table by table."""
        return cells.tally(reports, self.law.cells)

    def without_noise(self, tally: Tally, reports: int) -> NDArray[np.float64]:
        """float64[cells]: the counts less what dummies are expected to add."""
        return cells.counts_of(tally, self.law.cells) - noise_of_batch.mean(self.law, reports)
