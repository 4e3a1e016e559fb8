"""The expectation behind clones, dummies and Gaussians: E[(X)_+] for a two-sided walk with a random
threshold.

Their divergences can be written

    delta(epsilon) = E[(X)_+] / n,      X = alpha (N - rho c) - Y,
    c ~ Bin(n, pair),   N | c ~ Bin(c, rho),   R | c ~ Bin(n - c, third),
    N and R independent given c,
    alpha = slope + (e^epsilon - 1) slope_e,
    Y = (e^epsilon - 1) (constant + per_pair c + per_third R).

c counts the reports that say anything about which of the two answers was given, N how many of them
speak for the first, and Y is the noise of everybody else. ``Walk`` holds those numbers exactly;
``clones``, ``dummies``, ``approximate`` and ``blanket`` derive them; ``curve`` evaluates the
expectation in a stated direction. Sums that are no walks: ``cells``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from shoal.errors import Kind, ShoalError

ZERO = Fraction(0)


@dataclass(frozen=True, slots=True)
class Walk:
    """The exact coefficients of one expectation. ``n`` reports; see the module's text for every
    other field.

    ``pair``: the probability that a report is one of c. ``rho``: that such a report speaks for the
    first answer. ``third``: that one of the others is counted in R. ``slope``, ``slope_e``: alpha =
    slope + (e^epsilon - 1) slope_e. ``constant``, ``per_pair``, ``per_third``: Y / (e^epsilon - 1)
    = constant + per_pair c + per_third R. All exact, so nothing is rounded before ``curve``. Raises
    INVALID unless n >= 1, 0 < pair <= 1, 0 < rho < 1 and 0 <= third < 1.
    """

    n: int
    pair: Fraction
    rho: Fraction
    slope: Fraction
    slope_e: Fraction
    third: Fraction = ZERO
    constant: Fraction = ZERO
    per_pair: Fraction = ZERO
    per_third: Fraction = ZERO

    def __post_init__(self) -> None:
        if self.n < 1 or not 0 < self.pair <= 1 or not 0 < self.rho < 1 or not 0 <= self.third < 1:
            raise ShoalError(
                Kind.INVALID, "a walk wants n >= 1, 0 < pair <= 1, 0 < rho < 1 and 0 <= third < 1"
            )
