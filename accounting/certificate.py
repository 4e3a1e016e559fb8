"""The certificate: what may be said about one shuffled batch, with both ends of what is proven.

The numbers that all bounds share are checked here: n, delta and the honest fraction. What is
refused is refused as CONFIG, since a person typed it; a certificate that contradicts itself is
INVALID, since a program made it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from shoal.accounting.guarantee import Remaining
from shoal.errors import Kind, ShoalError

# The one neighbouring relation of every bound here: one device's answer is replaced by any other, n
# public and fixed.
RELATION = "replace-one"

# Below this a probability leaves the range in which float sums keep their digits. No release needs
# it: 2^-128 is 2.9e-39.
SMALLEST_DELTA = 1e-100


def check_n(n: int) -> int:
    """n itself, if it is an int >= 1; ShoalError CONFIG otherwise."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ShoalError(
            Kind.CONFIG,
            f"n must be a whole number of at least 1, got {n}: give the number of shuffled reports",
        )
    return n


def check_delta(delta: float) -> float:
    """delta itself, if it lies in [1e-100, 1); ShoalError CONFIG otherwise.

    Smaller ones are refused, not rounded: below 1e-100 the sums of the bounds would leave the range
    in which floats keep their digits.
    """
    if not 0.0 < delta < 1.0:
        raise ShoalError(
            Kind.CONFIG,
            f"delta must lie strictly between 0 and 1, got {delta}: 1e-6 or less is usual",
        )
    if delta < SMALLEST_DELTA:
        raise ShoalError(
            Kind.CONFIG,
            f"delta {delta} is below {SMALLEST_DELTA}, the smallest that is computed: give a "
            "larger one",
        )
    return delta


def check_honest(honest_fraction: Fraction | float) -> Fraction:
    """The honest fraction as an exact Fraction in (0, 1]; a float is taken at its exact binary
    value. ShoalError CONFIG otherwise.

    0 is refused rather than answered with epsilon0: whoever expects no honest device has no use for
    shuffling.
    """
    finite = not isinstance(honest_fraction, float) or math.isfinite(honest_fraction)
    exact = Fraction(honest_fraction) if finite else Fraction(0)
    if not 0 < exact <= 1:
        raise ShoalError(
            Kind.CONFIG,
            f"the honest fraction must be above 0 and at most 1, got {float(honest_fraction):g}: "
            "give the share of devices assumed to be honest",
        )
    return exact


def count_honest(n: int, honest_fraction: Fraction) -> int:
    """floor(honest_fraction * n), exactly: how many of n are assumed to hide one another.

    Whole numbers only: a float product could round up to a device that is not there.
    """
    return n * honest_fraction.numerator // honest_fraction.denominator


@dataclass(frozen=True, slots=True)
class Certificate:
    """(epsilon, delta) of one batch. The true epsilon at ``delta`` is proven to lie in
    [epsilon_lower, epsilon_upper].

    ``epsilon_upper`` is the guarantee; ``epsilon_lower`` is attained by a real pair of datasets, so
    it says how far any better accounting could ever go. ``epsilon0`` is what remains when shuffler
    and analyzer collude. ``n`` counts the shuffled reports, of which floor(honest_fraction * n) are
    assumed to hide one another. ``assumptions`` are plain sentences: the certificate is worth
    nothing without them. ``error_budget`` says in sentences where numbers were rounded and by how
    much; it is contained in both epsilons already, and so is not part of the JSON. Construction
    fails unless 0 <= lower <= upper <= epsilon0.

    A figure for one release: what several releases give away together is composed elsewhere, never
    read off several certificates. ``method`` is one of ``routes.METHODS``, or "approximate-clones".
    """

    epsilon_upper: float
    epsilon_lower: float
    epsilon0: float
    delta: float
    n: int
    honest_fraction: Fraction
    method: str
    assumptions: tuple[str, ...]
    relation: str = RELATION
    error_budget: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_n(self.n)
        check_delta(self.delta)
        object.__setattr__(self, "honest_fraction", check_honest(self.honest_fraction))
        if (
            not 0.0 <= self.epsilon_lower <= self.epsilon_upper <= self.epsilon0
            or not math.isfinite(self.epsilon0)
        ):
            raise ShoalError(
                Kind.INVALID,
                "a certificate wants 0 <= epsilon_lower <= epsilon_upper <= epsilon0, all finite",
            )
        if self.relation != RELATION:
            raise ShoalError(Kind.INVALID, f"a certificate is about {RELATION} neighbours only")
        if not self.method:
            raise ShoalError(Kind.INVALID, "a certificate names its method")

    @property
    def n_honest(self) -> int:
        """How many of the n reports are assumed to hide one another, the protected one among them;
        rounded down, exactly.
        """
        return count_honest(self.n, self.honest_fraction)

    @property
    def remaining(self) -> Remaining:
        """The analyzer alone sees a shuffled batch; with the shuffler it sees whose report is
        whose, and epsilon0 is left.
        """
        return Remaining(self.epsilon_upper, self.epsilon0)

    def to_json(self) -> dict[str, float | int | str | list[str]]:
        """The stable machine shape. Other programs rely on these keys: change them only with a new
        version.
        """
        return {
            "epsilon_upper": self.epsilon_upper,
            "epsilon_lower": self.epsilon_lower,
            "epsilon0": self.epsilon0,
            "delta": self.delta,
            "n": self.n,
            "honest_fraction": float(self.honest_fraction),
            "relation": self.relation,
            "method": self.method,
            "assumptions": list(self.assumptions),
        }
