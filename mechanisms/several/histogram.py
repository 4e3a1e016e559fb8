"""Histograms of several messages per device: every device sends its true cell, hidden among noise.

``cancelling``: noise of + and - in every cell, singles and floods (Ghazi, Kumar, Manurangsi, Pagh,
Sinha, "Differentially private aggregation in the shuffle model: almost central accuracy in almost a
single message", ICML 2021, for sums; here for every cell of a histogram, with floods in bundles).
The count of a cell is its messages of + less those of -: unbiased, and its noise is that of the
singles alone.

``dummies``: a Poisson number of dummies in every cell (with a fixed number per device: Luo, Wang,
Yi, "Frequency estimation in the shuffle model with almost a single message", CCS 2022). The count
of a cell is its messages less their mean.

Both are exact in the same sense: the noise is drawn from the law that is accounted for
(``events``). A hostile device can add ``slots`` messages to one cell, where one of a single message
can shift a count by about one.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from shoal.arrays import NDArray, np
from shoal.entropy import Entropy
from shoal.mechanisms.base import Estimate, Tally, invalid
from shoal.mechanisms.categories.krr import KaryResponse
from shoal.mechanisms.parts import cells
from shoal.mechanisms.several import noise_of_batch
from shoal.mechanisms.several.bundling import many_bundles, one_bundle
from shoal.mechanisms.several.events import numbers_of
from shoal.mechanisms.several.names import CANCELLING, DUMMIES
from shoal.mechanisms.several.noise_law import NoiseLaw, Truth
from shoal.mechanisms.several.parameters import spec_of
from shoal.mechanisms.several.protocol import Bundles
from shoal.mechanisms.several.true_message import (
    deviation,
    drawn_cell,
    epsilon0_of,
    estimated,
    law_of_truth,
)
from shoal.privacy import KaryLaw
from shoal.task import MechanismSpec


@dataclass(frozen=True, slots=True)
class BundledHistogram:
    """``labels``: one per cell, in the domain's order; ``noise``: of as many cells; ``response``:
    what draws the true message's cell, of as many too, or None. ``width``: bytes of a message, of a
    level whose task has more cells; 0: as few as they need. Raises INVALID for another law, or
    where they need more.
    """

    labels: tuple[str, ...]
    noise: NoiseLaw
    response: KaryResponse | None = None
    width: int = 0

    def __post_init__(self) -> None:
        one = self.noise.truth is Truth.CELL and self.noise.truths == 1
        if not one or self.noise.cells != len(self.labels):
            raise invalid(
                "the noise of a histogram is one of as many cells as it has labels, around one "
                "true message"
            )
        if self.response is not None and self.response.k != len(self.labels):
            raise invalid("the true cell of a histogram is drawn from as many as it has labels")
        if self.width not in (0, 1, 2, 4) or 0 < self.width < cells.report_size(self._numbers):
            raise invalid("messages of a histogram are wide enough for its cells, 1, 2 or 4 bytes")

    @property
    def name(self) -> str:
        """The family's name."""
        return CANCELLING if self.noise.signed else DUMMIES

    @property
    def spec(self) -> MechanismSpec:
        """The name with its integers."""
        uniform = None if self.response is None else self.response.uniform
        return spec_of(self.name, self.noise, uniform)

    @property
    def _numbers(self) -> int:
        """Messages that there are."""
        return numbers_of(self.noise)

    @property
    def report_size(self) -> int:
        """Bytes of a message: 1 for up to 256 different ones, 2 for up to 65,536, else 4; or
        ``width``.
        """
        return self.width or cells.report_size(self._numbers)

    @property
    def messages(self) -> int:
        """Slots of a submission."""
        return self.noise.slots

    @property
    def fewest(self) -> int:
        """1: the true message alone; all slots if submissions are full."""
        return self.noise.fewest

    @property
    def mean_messages(self) -> Fraction:
        """See ``Several``."""
        return self.noise.mean_messages

    @property
    def truth_law(self) -> KaryLaw | None:
        """See ``Noisy``."""
        return law_of_truth(self.response)

    @property
    def epsilon0(self) -> float:
        """Infinite where the true message is the value."""
        return epsilon0_of(self.response)

    @property
    def least_devices(self) -> int:
        """As many as the noise is split over."""
        return self.noise.shares

    def randomize_one(self, value: int, entropy: Entropy) -> tuple[bytes, ...]:
        """See ``Several``."""
        truths = self._truths(cells.check_value(value, len(self.labels)), entropy)
        return one_bundle(truths, self.noise, self.report_size, entropy)

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> Bundles:
        """See ``Several``."""
        k = len(self.labels)
        return many_bundles(values, k, self._truths, self.noise, self.report_size, entropy)

    def _truths(self, value: int, entropy: Entropy) -> tuple[int]:
        """The true message as a number, alone."""
        cell = drawn_cell(self.response, value, entropy)
        return (2 * cell if self.noise.signed else cell,)

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """bool[rows]: those that name a cell, and its sign, and the empty one."""
        return cells.valid(reports, self._numbers, self.width)

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """How often each message came: int64[k], or int64[2 k], of each cell + and then -, and
        then the empty one where sizes are hidden.
        """
        return cells.tally(reports, self._numbers, self.width)

    def estimate(self, tally: Tally, reports: int) -> Estimate:
        """Numbers of devices, one per cell."""
        counts = cells.counts_of(tally, self._numbers)
        if self.noise.signed:
            pairs = counts[: 2 * self.noise.cells].reshape(-1, 2)
            values = pairs[:, 0] - pairs[:, 1]
        else:
            values = counts - noise_of_batch.mean(self.noise, reports)
        return estimated(self.labels, values, self.noise, self.response, reports)

    def expected_stderr(self, reports: int) -> float:
        """In devices: the same in every cell, or that of a cell that all devices hold."""
        return self.stderr_of(reports, reports)

    def stderr_of(self, reports: int, holders: float) -> float:
        """In devices: of a cell that ``holders`` of them hold."""
        return deviation(self.noise, self.response, reports, holders)
