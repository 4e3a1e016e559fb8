"""One device's share of discrete Laplace noise: the difference of two Polya (negative binomial)
variables.

NB(r, p) has pmf(k) = (1 - p)^r p^k r (r + 1) ... (r + k - 1) / k!, and NB(r, p) + NB(s, p) is NB(r
+ s, p). So the sum of ``shares`` devices that each add NB(1 / shares, p) - NB(1 / shares, p) is the
difference of two geometric variables: the discrete Laplace law P(x) = (1 - p) / (1 + p) p^|x|, of
variance 2 p / (1 - p)^2 (the decomposition is that of Harrison and Manurangsi, "Infinitely
Divisible Noise for Differential Privacy", 2025). More devices add more independent noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from shoal.arrays import NDArray, np
from shoal.entropy import Entropy
from shoal.mechanisms.noise.exact import ExactSampler, Weights
from shoal.task import MechanismSpec

NAME = "discrete_laplace"
UNIT = 1 << 16  # a scale of 65536 is b = 1: p = exp(-1 / b)
# b from 1/16, where p is 1e-7 and nobody is protected any more, to 32768, where the table has 1.2
# million entries and takes seconds.
LEAST_SCALE, MOST_SCALE = UNIT >> 4, UNIT << 15
_SPREAD = 48  # bits: covers what rounding down takes from a weight, summed over a table


@dataclass(frozen=True, slots=True)
class Polya:
    """NB(1 / shares, exp(-65536 / scale)). A ``Law``.

    F(k) = (1 - p)^r Q(p) for a polynomial Q with rational, positive coefficients. Were it a
    rational y, (1 - p) Q(p)^shares = y^shares would make p algebraic; but p is e to a rational
    power other than 0, which is transcendental (Lindemann).
    """

    shares: int
    scale: int

    def weights(self, bits: int) -> Weights:
        """Weights c pmf(k) with c = 2^n / pmf(0): from one to the next times p (k + r) / (k + 1),
        which is below p.

        With 2^n p between P and P + 1, a step that rounds down twice adds less than 2 to the
        shortfall (one for the floor, one for P, as a weight is at most 2^n). The walk ends at a
        weight below 2^(n - bits); a geometric series bounds the rest.
        """
        n = bits + _SPREAD
        p = exp_floor(UNIT, self.scale, n)
        h = self.shares
        weight = 1 << n
        weights, above, below = [weight], p, h
        while weight >> _SPREAD:
            # times p (k h + 1) / ((k + 1) h), k = len(found) - 1
            weight = (weight * above >> n) // below
            above += p * h
            below += h
            weights.append(weight)
        k = len(weights) - 1
        error = k * (k + 1)  # 0 + 2 + 4 + ... + 2 k
        # w p + w p^2 + ... = w p / (1 - p)
        error += (weight + 2 * k) * (p + 1) // ((1 << n) - p - 1) + 1
        return Weights(0, weights, error)


def exp_floor(numerator: int, denominator: int, bits: int) -> int:
    """floor(2^bits exp(-numerator / denominator)), exact, for positive integers.

    exp(y) for y = numerator / (denominator 2^s) <= 1/2 by its series, each term rounded down: a
    term falls short by less than 2, the terms left out are below the last, so 2 per term and 4 more
    cover the error. Then s squarings and one division, each rounded outward. exp(-x) is irrational,
    so some precision decides its floor.
    """
    halvings = max(0, (2 * numerator // denominator).bit_length())
    guard = 32
    while True:
        n = bits + guard + 4 * halvings + math.ceil(2 * numerator / denominator)
        term, low, count = 1 << n, 1 << n, 1
        while term:
            term = term * numerator // (denominator * count << halvings)
            low += term
            count += 1
        high = low + 2 * count + 4
        for _ in range(halvings):
            low, high = low * low >> n, (high * high >> n) + 1
        floor, above = (1 << n + bits) // high, (1 << n + bits) // low
        if floor == above:
            return floor
        guard *= 2


def share_variance(scale: int, shares: int) -> float:
    """Of one device's share: 2 r p / (1 - p)^2, with 1 - p by expm1 so that a large scale loses no
    digits.
    """
    x = UNIT / scale
    return 2 * math.exp(-x) / math.expm1(-x) ** 2 / shares


@lru_cache(maxsize=8)
def _sampler(shares: int, scale: int) -> ExactSampler:
    return ExactSampler(Polya(shares, scale))


@dataclass(frozen=True, slots=True)
class PolyaShare:
    """One device's share: NB - NB. Immutable; ``variance`` is that of the share, in grid steps
    squared.
    """

    spec: MechanismSpec

    @property
    def sampler(self) -> ExactSampler:
        """The exact law of the share of one coordinate."""
        return _sampler(self.shares, self.spec.get("scale"))

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
        """See ``share_variance``."""
        return share_variance(self.spec.get("scale"), self.shares)

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


def create(spec: MechanismSpec) -> PolyaShare:
    """From the integers ``scale`` and ``shares``, in range."""
    return PolyaShare(spec)
