"""One device's share of Skellam noise: the difference of two Poisson variables.

Poisson(a) + Poisson(b) is Poisson(a + b) for independent terms, so the sum of ``shares`` devices
that each add Poisson(v / (2 shares)) - Poisson(v / (2 shares)) is the Skellam law of variance v
(Agarwal, Kairouz and Liu, "The Skellam Mechanism for Differentially Private Federated Learning",
2021), and more devices add more of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from shoal.arrays import NDArray, np
from shoal.entropy import Entropy
from shoal.mechanisms.base import invalid
from shoal.mechanisms.noise.exact import ExactSampler, Weights
from shoal.task import MechanismSpec

NAME = "skellam"
# The table of Poisson(rate) has 18 sqrt(rate) entries: 1.7 million at most, 13 MB, made in seconds
# out of 120 MB. At a rate of 10^8 it is 181,000 entries and a tenth of a second.
MOST_RATE = 1 << 33
_SPREAD = 48  # bits: covers what rounding down takes from a weight, summed over a table


@dataclass(frozen=True, slots=True)
class Poisson:
    """Poisson(rate), rate a positive fraction up to ``MOST_RATE``. A ``Law``.

    F(k) is exp(-rate) times a rational, which is transcendental for rational rate > 0 (Lindemann):
    never a binary fraction.
    """

    rate: Fraction

    def weights(self, bits: int) -> Weights:
        """Weights c pmf(k) with c = 2^p / pmf(mode), found by walking away from the mode m =
        floor(rate).

        Upward pmf(k + 1) = pmf(k) rate / (k + 1), downward pmf(k - 1) = pmf(k) k / rate; each
        factor is at most 1, so a step that rounds down adds less than 1 to the shortfall: after j
        steps it is below j. A walk ends at a weight below 2^(p - bits); what follows is less than a
        geometric series with the next factor.
        """
        p = bits + _SPREAD
        a, b = self.rate.numerator, self.rate.denominator
        mode = a // b
        up, down = _upward(1 << p, mode, a, b), _downward(1 << p, mode, a, b)
        n, m = len(up), len(down)
        last, first = mode + n - 1, mode - m + 1
        error = (n * (n - 1) + m * (m - 1)) // 2  # what rounding took from the weights themselves
        # w q + w q^2 + ... = w q / (1 - q), q = rate / (last + 1) < 1
        error += (up[-1] + n) * a // (b * (last + 1) - a) + 1
        if first > 0:
            error += (down[-1] + m) * first * b // (a - first * b) + 1  # q = first / rate < 1
        down.reverse()
        return Weights(first, down + up[1:], error)


def _upward(weight: int, mode: int, a: int, b: int) -> list[int]:
    """Weights of mode, mode + 1, ... for the rate a / b, each rounded down, to the first below
    2^_SPREAD.
    """
    weights, below = [weight], b * mode
    while weight >> _SPREAD:
        below += b
        weight = weight * a // below
        weights.append(weight)
    return weights


def _downward(weight: int, mode: int, a: int, b: int) -> list[int]:
    """Weights of mode, mode - 1, ..., each rounded down, to the first below 2^_SPREAD or to that of
    0.
    """
    weights, above = [weight], b * mode
    while above and weight >> _SPREAD:
        weight = weight * above // a
        above -= b
        weights.append(weight)
    return weights


@lru_cache(maxsize=8)
def _sampler(rate: Fraction) -> ExactSampler:
    return ExactSampler(Poisson(rate))


@dataclass(frozen=True, slots=True)
class SkellamShare:
    """One device's share: Poisson - Poisson. Immutable; ``variance`` is that of the share, in grid
    steps squared.
    """

    spec: MechanismSpec
    rate: Fraction

    @property
    def sampler(self) -> ExactSampler:
        """The exact law of the share of one coordinate."""
        return _sampler(self.rate)

    @property
    def name(self) -> str:
        """The noise's name in tasks and in the registry."""
        return NAME

    @property
    def shares(self) -> int:
        """How many devices' shares add up to the certified law."""
        return self.spec.get("shares")

    @property
    def variance(self) -> float:
        """Twice the rate: a difference of two Poisson variables."""
        return float(2 * self.rate)

    def sample(self, count: int, entropy: Entropy) -> NDArray[np.int64]:
        """int64[count], independent. Draws 2 ``count`` words, or a few more with the probability
        that ``exact`` states.
        """
        drawn = np.zeros(count, dtype=np.int64)
        self.add_to(drawn, entropy)
        return drawn

    def add_to(self, vector: NDArray[np.int64], entropy: Entropy) -> None:
        """See ``VectorNoise.add_to``."""
        self.sampler.add_difference(vector, entropy)


def create(spec: MechanismSpec) -> SkellamShare:
    """From the integers ``variance`` and ``shares``, in range. Raises INVALID if a share is too
    large to tabulate.
    """
    rate = Fraction(spec.get("variance"), 2 * spec.get("shares"))
    if rate > MOST_RATE:
        raise invalid(
            'skellam: the parameter "variance" is at most 2^34 times "shares": choose a coarser '
            "grid, or more survivors per round"
        )
    return SkellamShare(spec, rate)
