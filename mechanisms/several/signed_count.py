"""A count of yes: every device sends + or -, hidden among singles and floods of both.

The sum of all messages is (yes) - (no) and the noise of the singles, so yes = (U - V + n) / 2, with
U messages of +, V of - and n devices: half the noise of a histogram's cell.

Two ways that look alike give everything away, and are not built: a visible message "0" for no (the
zeros alone are n less the yes), and no message at all for no (the shuffler counts messages). Here
every device sends one true message, and nobody can tell + from - but the analyzer, in the mixture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from shoal.arrays import NDArray, np
from shoal.entropy import Entropy
from shoal.mechanisms.base import Estimate, Tally, invalid
from shoal.mechanisms.parts import cells
from shoal.mechanisms.several import noise_of_batch
from shoal.mechanisms.several.bundling import many_bundles, one_bundle
from shoal.mechanisms.several.events import MINUS, PLUS
from shoal.mechanisms.several.histogram import estimated
from shoal.mechanisms.several.names import SIGNED_COUNT
from shoal.mechanisms.several.noise_law import NoiseLaw, Truth
from shoal.mechanisms.several.parameters import spec_of
from shoal.mechanisms.several.protocol import Bundles
from shoal.task import MechanismSpec

_NUMBERS = 2  # messages that there are


@dataclass(frozen=True, slots=True)
class SignedCount:
    """``labels``: of no and of yes. Raises INVALID for another law than that of a signed count."""

    labels: tuple[str, str]
    noise: NoiseLaw

    def __post_init__(self) -> None:
        if self.noise.truth is not Truth.SIGN:
            raise invalid("the noise of a signed count is one of a sign")

    @property
    def name(self) -> str:
        """The family's name."""
        return SIGNED_COUNT

    @property
    def spec(self) -> MechanismSpec:
        """The name with its integers."""
        return spec_of(self.name, self.noise)

    @property
    def report_size(self) -> int:
        """1 byte: the sign."""
        return cells.report_size(_NUMBERS)

    @property
    def messages(self) -> int:
        """Slots of a submission."""
        return self.noise.slots

    @property
    def fewest(self) -> int:
        """1: the true message alone."""
        return 1

    @property
    def mean_messages(self) -> Fraction:
        """See ``Several``."""
        return self.noise.mean_messages

    @property
    def epsilon0(self) -> float:
        """Infinite: the true message is the value."""
        return math.inf

    @property
    def least_devices(self) -> int:
        """As many as the noise is split over."""
        return self.noise.shares

    def randomize_one(self, value: int, entropy: Entropy) -> tuple[bytes, ...]:
        """See ``Several``: of cell 0, no, or 1, yes."""
        truth = _truth(cells.check_value(value, len(self.labels)))
        return one_bundle(truth, self.noise, self.report_size, entropy)

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> Bundles:
        """See ``Several``."""
        k = len(self.labels)
        return many_bundles(values, k, _truth, self.noise, self.report_size, entropy)

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """bool[rows]: those that are + or -."""
        return cells.valid(reports, _NUMBERS)

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """int64[2]: messages of + and of -."""
        return cells.tally(reports, _NUMBERS)

    def estimate(self, tally: Tally, reports: int) -> Estimate:
        """Numbers of devices that said no and yes."""
        plus, minus = cells.counts_of(tally, _NUMBERS)
        yes = (plus - minus + reports) / 2.0
        values = np.array([reports - yes, yes])
        return estimated(self.labels, values, self.noise, reports, scale=0.5)

    def expected_stderr(self, reports: int) -> float:
        """In devices: of both labels."""
        return noise_of_batch.deviation(self.noise, reports) / 2.0


def _truth(cell: int) -> int:
    return PLUS if cell else MINUS
