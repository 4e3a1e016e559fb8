"""One bit of the Hadamard transform: a random index, and the bit of the true cell's row there,
flipped now and then.

Bassily, Nissim, Stemmer, Thakurta, "Practical locally private heavy hitters", NIPS 2017; Nguyen,
Xiao, Yang, Hui, Shin, Shin, "Collecting and analyzing data from smart device users with local
differential privacy", arXiv 1606.05053, 2016.

With m bits, 2^m >= k, the device draws an index l of m bits and reports l and the parity of l & x,
x its cell, flipped with probability T / 2^64, T = ``flip``. A report is m + 1 bits however large k
is: l and then the bit, as one unsigned big-endian number in ceil((m + 1) / 8) bytes, whose unused
high bits are 0. The device draws l: an analyzer that chose it could single out a cell.

It is local hashing to g = 2 values, with a hash that is exactly uniform and independent on every
three cells. A report supports its own cell with probability p = 1 - T / 2^64 and any other with q =
1/2: even without noise an estimate has a variance of one per report. So it is for epsilon0 below 1
or so; beyond, ``hadamard_response`` has the same short reports and less error.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from shoal.arrays import NDArray, np
from shoal.domain import Domain
from shoal.entropy import Entropy
from shoal.limits import LIMITS
from shoal.mechanisms.base import Estimate, Family, Parameter, Tally, invalid, only
from shoal.mechanisms.categories.krr import check_k
from shoal.mechanisms.parts import cells, laws, numbered
from shoal.mechanisms.parts.draws import Draws, Field, Lane
from shoal.mechanisms.parts.hadamard_transform import order, walsh_hadamard
from shoal.mechanisms.parts.reports import many_reports, one_report
from shoal.mechanisms.parts.thresholds import WORDS, least_noise
from shoal.privacy import PureLaw, SymmetricLaw
from shoal.task import MechanismSpec

NAME = "hadamard"
PARAMETERS = (
    Parameter("flip", 1, WORDS // 2 - 1, "probability, out of 2^64, that the bit is flipped"),
    Parameter("k", 2, LIMITS.cells, "number of cells of the domain"),
)


@dataclass(frozen=True, slots=True)
class HadamardBit:
    """``labels``: one per cell, in the domain's order; ``flip``: T out of 2^64, below one half."""

    labels: tuple[str, ...]
    flip: int

    def __post_init__(self) -> None:
        if not 2 <= len(self.labels) <= 1 << 24:
            raise invalid("k is 2 to 2^24 cells")
        if not 1 <= self.flip < WORDS // 2:
            raise invalid("flip is 1 to 2^63 - 1")

    @property
    def k(self) -> int:
        """Cells of the domain, at least 2."""
        return len(self.labels)

    @property
    def order(self) -> int:
        """m: the bits of an index."""
        return order(self.k)

    @property
    def room(self) -> int:
        """How many reports there are: an index and a bit, 2^(m + 1)."""
        return 2 << self.order

    @property
    def name(self) -> str:
        """The family's name in tasks and in the registry."""
        return NAME

    @property
    def spec(self) -> MechanismSpec:
        """The name and the integers that a task carries: k and ``flip``."""
        return MechanismSpec.of(NAME, k=self.k, flip=self.flip)

    @property
    def report_size(self) -> int:
        """ceil((m + 1) / 8) bytes: an index of m bits and one bit."""
        return numbered.report_size(self.room)

    @property
    def messages(self) -> int:
        """1: a report is one message."""
        return 1

    @property
    def _chances(self) -> tuple[float, float, float]:
        """(p, q, p - q): a report supports the device's cell, another cell, and the difference
        without cancellation.
        """
        return (WORDS - self.flip) / WORDS, 0.5, (WORDS - 2 * self.flip) / (2 * WORDS)

    def draw(self, value: Lane, draws: Draws) -> Field:
        """A coin against the threshold, and an index."""
        flipped = draws.coin(self.flip)
        index = draws.below(1 << self.order)
        return draws.number(2 * index + (draws.odd(index & value) ^ flipped), self.report_size)

    def randomize_one(self, value: int, entropy: Entropy) -> tuple[bytes, ...]:
        """One report of one cell, as a tuple of one message. Draws a word of 8 bytes and an index.
        Raises INVALID for what is no cell.
        """
        return one_report(self.draw, value, self.k, entropy)

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> NDArray[np.uint8]:
        """uint8[n, 1, report_size] from cells int64[n]: the same draw for n devices, independently.
        Raises INVALID for what are no cells.
        """
        return many_reports(self.draw, values, self.k, entropy, self.report_size)

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """bool[rows]: nothing is set above the m + 1 bits."""
        return numbered.valid(reports, self.room)

    def supports(self, reports: NDArray[np.uint8], cell: int) -> NDArray[np.bool_]:
        """bool[rows]: the reports whose bit is the one that the cell would have, unflipped. Of
        valid reports.
        """
        numbers = numbered.decode(reports, self.room)
        supported: NDArray[np.bool_] = np.equal(
            np.bitwise_count((numbers >> np.uint32(1)) & np.uint32(cell)) & 1, numbers & 1
        )
        return supported

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """How often each index with each bit was reported: entry 2 l + bit of 2^(m + 1)."""
        return numbered.tally(reports, self.room)

    def estimate(self, tally: Tally) -> Estimate:
        """Numbers of devices, one per cell. A cell is supported by (rows + its transform) / 2
        reports: exact in integers.
        """
        counts = cells.counts_of(tally, self.room).astype("i8").reshape(-1, 2)
        transform = walsh_hadamard((counts[:, 0] - counts[:, 1]).reshape(1, -1))[0, : self.k]
        supported = (tally.rows + transform) / 2
        return cells.estimated(self.labels, supported, tally.rows, *self._chances)

    def expected_stderr(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """float64[k]: exact standard errors, in devices, when ``counts`` (int64[k]) hold each cell.
        Raises INVALID for another number of cells.
        """
        return cells.expected(counts, self.k, *self._chances)

    def privacy(self) -> SymmetricLaw:
        """The law of an index with its bit, exactly: e^epsilon0 = (2^64 - T) / T."""
        return laws.hadamard_bit(ratio(self.flip), self.k)


def ratio(flip: int) -> Fraction:
    """How much likelier the bit is as it is than flipped, exactly."""
    return Fraction(WORDS - flip, flip)


def least_flip(epsilon0: float) -> int:
    """The smallest T that keeps epsilon0. Raises INVALID if none below one half does."""
    return least_noise(lambda flip: PureLaw(ratio(flip)), WORDS // 2 - 1, epsilon0)


def _create(spec: MechanismSpec, domain: Domain) -> HadamardBit:
    check_k(spec, domain)
    return HadamardBit(domain.labels, spec.get("flip"))


def _design(domain: Domain, epsilon0: float) -> MechanismSpec:
    return MechanismSpec.of(NAME, k=domain.size, flip=least_flip(epsilon0))


FAMILY = Family(
    NAME,
    "one Hadamard bit: how many devices are in each cell, in the shortest reports",
    PARAMETERS,
    _create,
    only(_design),
)
