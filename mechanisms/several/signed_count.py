"""A count of yes: every device sends + or -, hidden among singles and floods of both.

The sum of all messages is (yes) - (no) and the noise of the singles, so yes = (U - V + n) / 2, with
U messages of +, V of - and n devices: half the noise of a histogram's cell.

Two ways that look alike give everything away, and are not built: a visible message "0" for no (the
zeros alone are n less the yes), and no message at all for no (the shuffler counts messages). Here
every device sends one true message, and nobody can tell + from - but the analyzer, in the mixture.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from shoal.arrays import NDArray, np
from shoal.entropy import Entropy
from shoal.mechanisms.base import Estimate, Tally, invalid
from shoal.mechanisms.categories.krr import KaryResponse
from shoal.mechanisms.parts import cells
from shoal.mechanisms.several.bundling import many_bundles, one_bundle
from shoal.mechanisms.several.events import MINUS, PLUS, numbers_of
from shoal.mechanisms.several.names import SIGNED_COUNT
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

_PARTS = 2  # messages that an answer is worth: + in place of -


@dataclass(frozen=True, slots=True)
class SignedCount:
    """``labels``: of no and of yes; ``response``: what draws the true message's bit, or None.
    Raises INVALID for another law than that of a signed count.
    """

    labels: tuple[str, str]
    noise: NoiseLaw
    response: KaryResponse | None = None

    def __post_init__(self) -> None:
        if self.noise.truth is not Truth.SIGN:
            raise invalid("the noise of a signed count is one of a sign")
        if self.response is not None and self.response.k != len(self.labels):
            raise invalid("the true bit of a signed count is drawn from two")

    @property
    def name(self) -> str:
        """The family's name."""
        return SIGNED_COUNT

    @property
    def spec(self) -> MechanismSpec:
        """The name with its integers."""
        uniform = None if self.response is None else self.response.uniform
        return spec_of(self.name, self.noise, uniform)

    @property
    def report_size(self) -> int:
        """1 byte: the sign, or the empty message."""
        return cells.report_size(numbers_of(self.noise))

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
        """See ``Several``: of cell 0, no, or 1, yes."""
        truths = self._truths(cells.check_value(value, len(self.labels)), entropy)
        return one_bundle(truths, self.noise, self.report_size, entropy)

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> Bundles:
        """See ``Several``."""
        k = len(self.labels)
        return many_bundles(values, k, self._truths, self.noise, self.report_size, entropy)

    def _truths(self, value: int, entropy: Entropy) -> tuple[int]:
        """The true message as a number, alone."""
        return (PLUS if drawn_cell(self.response, value, entropy) else MINUS,)

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """bool[rows]: those that are + or -, and the empty one where sizes are hidden."""
        return cells.valid(reports, numbers_of(self.noise))

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """int64[2]: messages of + and of -; and of empty ones, a third, where there are any."""
        return cells.tally(reports, numbers_of(self.noise))

    def estimate(self, tally: Tally, reports: int) -> Estimate:
        """Numbers of devices that said no and yes."""
        plus, minus = cells.counts_of(tally, numbers_of(self.noise))[:2]
        yes = (plus - minus + reports) / 2.0
        values = np.array([reports - yes, yes])
        return estimated(self.labels, values, self.noise, self.response, reports, _PARTS)

    def expected_stderr(self, reports: int) -> float:
        """In devices: of both labels, whatever they answer."""
        return self.stderr_of(reports, reports)

    def stderr_of(self, reports: int, holders: float) -> float:
        """The same: with two answers the errors of both are those of all draws."""
        return deviation(self.noise, self.response, reports, holders, _PARTS)
