"""The sum and mean of a number, split into shares that are mixed: every device adds its part of
discrete Laplace noise to its number, and splits the result into messages modulo 2^(8 ``size``), all
but the last of them uniform. The sum of all messages of a batch is the noisy sum; anything else
that their mixture shows is bounded by ``accounting.several_messages.splitting``, where the sources
are. The error is that of a trusted curator who adds the same noise.

**The number.** Level i of L counts 2 i, and no answer the middle, L - 1: half steps above the
domain's low end, whole numbers from 0 to 2 (L - 1). As ``numbers.means`` has it, the mean is over
all devices, those without an answer in the middle.

**The noise.** Of each device the difference of two negative binomials, drawn exactly
(``noise.polya``); those of ``shares`` devices add up to the discrete Laplace law.

**The modulus.** The sum of N reports lies within 0..2 (L - 1) N but for the noise. Of the numbers
that leave the same rest it is read as the one nearest to the middle of that range, so noise of up
to half of what the modulus has to spare does no harm: ``most_reports`` leaves room for it.

Two things that a histogram survives, a sum does not: a message that is lost or refused leaves a
uniform number, so nothing is released of a batch that is not whole; and one hostile device can move
the sum anywhere, unseen. Nothing here bounds that.

A message is uniform by itself, and so are any ``slots`` - 1 of a device. All of them together are
its number, hardly noised: against shuffler and analyzer together nothing is promised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from shoal.arrays import NDArray, np
from shoal.domain import Numeric
from shoal.entropy import Entropy, streamed
from shoal.mechanisms.base import Estimate, Tally, invalid
from shoal.mechanisms.noise.exact import SmallSampler
from shoal.mechanisms.noise.polya import UNIT, Polya, share_variance
from shoal.mechanisms.numbers.means import numeric
from shoal.mechanisms.parts import cells
from shoal.mechanisms.parts.sampling import blocks
from shoal.mechanisms.parts.tables import MEAN_OF_ALL
from shoal.mechanisms.several import noise_of_sum
from shoal.mechanisms.several.names import SPLIT_MIX
from shoal.mechanisms.several.protocol import Bundles
from shoal.task import MechanismSpec

_FAR = 20.0  # standard deviations of the noise for which the modulus has room
_BLOCK = 16_384  # rows whose bits are counted at once


@dataclass(frozen=True, slots=True)
class SplitMix:
    """``spec``: the integers scale (65536 times b of the Laplace law, in half steps), shares, slots
    (messages of a report) and bytes (of a message), each in its range. Raises INVALID for a domain
    that is none of numbers.
    """

    spec: MechanismSpec
    domain: Numeric

    def __post_init__(self) -> None:
        numeric(SPLIT_MIX, self.domain)

    @property
    def name(self) -> str:
        """The family's name."""
        return SPLIT_MIX

    @property
    def report_size(self) -> int:
        """Bytes of one share."""
        return self.spec.get("bytes")

    @property
    def messages(self) -> int:
        """Shares of every report."""
        return self.spec.get("slots")

    @property
    def fewest(self) -> int:
        """As many: the number of messages is constant."""
        return self.messages

    @property
    def mean_messages(self) -> Fraction:
        """As many."""
        return Fraction(self.messages)

    @property
    def epsilon0(self) -> float:
        """Infinite: one device's share of the noise hides nothing, and its messages add up."""
        return math.inf

    @property
    def least_devices(self) -> int:
        """As many as the noise is split over."""
        return self.spec.get("shares")

    @property
    def scale(self) -> int:
        """65536 times b of the discrete Laplace law, in half steps."""
        return self.spec.get("scale")

    @property
    def width(self) -> int:
        """2 (L - 1), half steps: the most that one device's number can be, and can change."""
        return 2 * (self.domain.levels - 1)

    @property
    def bits(self) -> int:
        """The modulus is 2 to this."""
        return 8 * self.report_size

    @property
    def variance(self) -> float:
        """Of one device's noise, in half steps squared."""
        return share_variance(self.scale, self.least_devices)

    @property
    def most_reports(self) -> int:
        """See ``Summed``: half of the modulus is left to the noise, a quarter at either side; that
        is 20 of its standard deviations at least, beyond which lies less than 1e-12.
        """
        deviations = 1 << self.bits - 2
        noise = math.floor((deviations / _FAR) ** 2 / self.variance)
        return min((1 << self.bits - 1) // self.width, noise)

    def randomize_one(self, value: int, entropy: Entropy) -> tuple[bytes, ...]:
        """See ``Several``."""
        return tuple(
            share.to_bytes(self.report_size, "big")
            for share in self._split(cells.check_value(value, self.domain.size), entropy)
        )

    def randomize(self, values: NDArray[np.int64], entropy: Entropy) -> Bundles:
        """See ``Several``."""
        checked = cells.check_values(cells.check_shape(values), self.domain.size)
        size, entropy = self.report_size, streamed(entropy)
        rows = b"".join(
            share.to_bytes(size, "big")
            for value in checked.tolist()
            for share in self._split(value, entropy)
        )
        return Bundles(
            np.frombuffer(rows, dtype=np.uint8).reshape(-1, size),
            np.full(len(checked), self.messages, dtype=np.int64),
        )

    def _split(self, value: int, entropy: Entropy) -> list[int]:
        """The shares of one device; as many words whatever its value is."""
        sampler, modulus = _sampler(self.least_devices, self.scale), 1 << self.bits
        noise = sampler.draw(entropy) - sampler.draw(entropy)
        size, count = self.report_size, self.messages - 1
        drawn = entropy.bytes(size * count)
        shares = [
            int.from_bytes(drawn[at : at + size], "little") for at in range(0, size * count, size)
        ]
        return [*shares, (self._number(value) + noise - sum(shares)) % modulus]

    def _number(self, cell: int) -> int:
        return 2 * cell if cell < self.domain.levels else self.domain.levels - 1

    def valid(self, reports: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """bool[rows]: all of them; every number below the modulus may be a share."""
        return np.ones(len(self._checked(reports)), dtype=np.bool_)

    def tally(self, reports: NDArray[np.uint8]) -> Tally:
        """int64[8 size]: in how many messages each bit is 1, the most significant first. The sum of
        all messages follows, and tallies add.
        """
        counts = np.zeros(self.bits, dtype=np.int64)
        checked = self._checked(reports)
        for part in blocks(len(checked), _BLOCK):
            counts += np.unpackbits(checked[part], axis=1).sum(axis=0, dtype=np.int64)
        return Tally(counts, len(checked))

    def estimate(self, tally: Tally, reports: int) -> Estimate:
        """The mean over all devices, those without an answer as the middle, in the domain's unit.
        The standard error has what rounding numbers to levels may add, at most.
        """
        if tally.counts.size != self.bits or tally.rows != reports * self.messages:
            raise invalid("a sum of shares is of all messages of whole reports")
        total = self._read(sum(int(n) << at for at, n in enumerate(tally.counts[::-1])), reports)
        half = self.domain.step / 2.0
        error, rounded = self.expected_stderr(reports), half / math.sqrt(reports)
        reach = half * noise_of_sum.reach(self.least_devices, self.scale, reports) / reports
        mean = self.domain.low + half * total / reports
        return Estimate(
            (MEAN_OF_ALL,),
            np.array([mean]),
            np.array([error]),
            np.array([mean - reach]),
            np.array([mean + reach]),
            rounding=(rounded,),
        )

    def _read(self, total: int, reports: int) -> int:
        """The number congruent to ``total`` that is nearest to the middle of what is possible."""
        modulus, middle = 1 << self.bits, self.width * reports // 2
        return (total - middle + modulus // 2) % modulus - modulus // 2 + middle

    def expected_stderr(self, reports: int) -> float:
        """Of the mean, in the domain's unit: the noise of all reports, and what rounding numbers to
        levels adds if all of them lie between two levels (half a step each, at most).
        """
        # f (1 - f) <= 1/4 of a step squared, which is 1 half step squared
        return self.domain.step / 2.0 * math.sqrt((self.variance + 1.0) / reports)

    def _checked(self, reports: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Raises INVALID for another shape."""
        size = self.report_size
        if reports.ndim != 2 or reports.shape[1] != size or reports.dtype != np.uint8:
            raise invalid(f"reports are uint8[rows, {size}]")
        return reports


@lru_cache(maxsize=4)
def _sampler(shares: int, scale: int) -> SmallSampler:
    return SmallSampler(Polya(shares, scale))


def unit_scale(width: int, epsilon: Fraction) -> int:
    """The smallest scale with which the noise of all shares is (epsilon, 0) for a change of
    ``width``.
    """
    return math.ceil(UNIT * width / epsilon)
