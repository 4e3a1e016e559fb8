"""What a local randomizer promises that is only approximately private: a curve instead of one
ratio.

A Gaussian, or a randomizer that gives its input away with a tiny probability, has no largest
likelihood ratio. What it has is a *local curve*: delta_at(epsilon), the largest over inputs x, x'
of the hockey-stick divergence sum (P(y | x) - e^epsilon P(y | x'))_+ of one report. These laws
deliberately have no ``max_ratio``: nothing that expects a pure law accepts them, so nobody can take
(epsilon0, delta0) for epsilon0.

``GaussianLaw`` is the *real-valued* Gaussian. A float implementation of it is something else (its
low-order bits can tell inputs apart, Mironov, CCS 2012), and a discrete sampler has its own curve:
give that one as a ``LocalCurve``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, runtime_checkable

from shoal.errors import Kind, ShoalError
from shoal.privacy import log_upper

# erfc, exp and a few products: 1e-15 each; what the rounding of their arguments does is added in
# ``_slack``.
_MARGIN = 1e-14
_ULP = 4.5e-16
# Below every delta that is computed with; keeps an underflow to 0 from being taken for a proof of
# 0.
_FLOOR = 1e-300
# Below 2.2e-308 floats have few digits left: a value there may be off by some of the smallest
# steps, 4.9e-324 each.
_STEPS = 1e-322
_LARGEST_EXPONENT = 700.0
_WIDEST, _NARROWEST = 1e9, 1e-9


@runtime_checkable
class LocalCurve(Protocol):
    """A bound on what one report gives away, as a function of epsilon."""

    def delta_at(self, epsilon: float) -> float:
        """max over inputs x, x' of sum (P(y | x) - e^epsilon P(y | x'))_+, for epsilon >= 0; in [0,
        1]. Direction: upper bound.

        Both directions are meant: the pair is ordered. Has to be non-increasing in epsilon up to
        rounding.
        """
        ...


@dataclass(frozen=True, slots=True)
class ApproximateLaw:
    """Nothing is known of the randomizer but that it is (ln ``ratio``, ``delta0``)-LDP. ratio >= 1,
    0 <= delta0 < 1.

    Raises ShoalError CONFIG for other numbers.
    """

    ratio: Fraction
    delta0: float

    def __post_init__(self) -> None:
        if self.ratio < 1:
            raise ShoalError(
                Kind.CONFIG,
                f"the ratio e^epsilon0 must be at least 1, got {self.ratio}: give e to the local "
                "epsilon",
            )
        if not 0.0 <= self.delta0 < 1.0:
            raise ShoalError(
                Kind.CONFIG,
                f"delta0 must lie in [0, 1), got {self.delta0}: give the delta of one report",
            )

    @property
    def epsilon0(self) -> float:
        """ln(ratio), rounded up."""
        return log_upper(self.ratio)

    def delta_at(self, epsilon: float) -> float:
        """delta0 from epsilon0 on; below it delta0 + (1 - delta0) (E - e) / (E + 1), the most that
        the class allows.

        Kairouz, Oh, Viswanath, "The Composition Theorem for Differential Privacy" (ICML 2015),
        Theorem 3.4: every member is a post-processing of "give the input away with probability
        delta0, else binary randomized response of ratio E". (It also follows from the lemma in
        ``shoal.accounting.bounds.approximate``.) Direction: upper bound.
        """
        check_epsilon(epsilon)
        top = self.epsilon0
        if epsilon >= top:
            return self.delta0
        # (E - e) / (E + 1) = (1 - e^(epsilon - epsilon0)) / (1 + e^-epsilon0): both parts grow with
        # epsilon0, which errs up.
        pure = -math.expm1(epsilon - top) / (1.0 + math.exp(-top)) * (1.0 + _MARGIN)
        return min(1.0, (self.delta0 + (1.0 - self.delta0) * pure) * (1.0 + _MARGIN))


@dataclass(frozen=True, slots=True)
class GaussianLaw:
    """value + N(0, sigma^2), drawn from the reals; |value - value'| <= ``sensitivity`` (for
    vectors: the L2 norm).

    ``sigma`` and ``sensitivity`` in the unit of the values, both finite and above 0, their quotient
    in [1e-9, 1e9]; ShoalError CONFIG otherwise.
    """

    sigma: float
    sensitivity: float

    def __post_init__(self) -> None:
        for name, value in (("sigma", self.sigma), ("sensitivity", self.sensitivity)):
            if not (math.isfinite(value) and value > 0.0):
                raise ShoalError(
                    Kind.CONFIG,
                    f"{name} must be a finite number above 0, got {value}: give it in the unit of "
                    "the values",
                )
        if not self.sigma * _NARROWEST <= self.sensitivity <= self.sigma * _WIDEST:
            raise ShoalError(
                Kind.CONFIG,
                "sensitivity / sigma must lie between 1e-9 and 1e9: check the units of the two",
            )

    @property
    def shift(self) -> float:
        """sensitivity / sigma, rounded up: how many standard deviations two inputs can lie
        apart.
        """
        return math.nextafter(self.sensitivity / self.sigma, math.inf)

    def delta_at(self, epsilon: float) -> float:
        """Phi(m/2 - epsilon/m) - e^epsilon Phi(-m/2 - epsilon/m) with m = sensitivity / sigma.
        Direction: upper bound.

        Balle, Wang, "Improving the Gaussian Mechanism for Differential Privacy" (ICML 2018),
        Theorem 8. It grows with m, so m errs upward and the largest distance is the worst. Each of
        the two terms is moved by a bound on its own rounding error *before* the subtraction: where
        they nearly cancel the result is too large by that error, never too small.
        """
        check_epsilon(epsilon)
        m = self.shift
        first, second = m / 2.0 - epsilon / m, -m / 2.0 - epsilon / m
        value = upper_phi(first, _slack(m, epsilon))
        if epsilon < _LARGEST_EXPONENT:
            value -= (
                math.exp(epsilon)
                * lower_phi(second, _slack(m, epsilon))
                * (1.0 - _MARGIN - epsilon * _ULP)
            )
        return min(1.0, max(value, _FLOOR))


def _slack(m: float, epsilon: float) -> float:
    """How far the argument of Phi may be off: two roundings of each part."""
    return (m + epsilon / m) * _ULP


def phi(x: float) -> float:
    """P(N(0, 1) <= x), to about 1e-15 of itself where the argument is exact: no cancellation in
    either tail.
    """
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def upper_phi(x: float, slack: float = 0.0) -> float:
    """P(N(0, 1) <= x + slack), rounded up. The division by sqrt(2) moves the argument by another
    4e-16 of itself.
    """
    return phi(x + slack + abs(x) * _ULP) * (1.0 + _MARGIN)


def lower_phi(x: float, slack: float = 0.0) -> float:
    """P(N(0, 1) <= x - slack), rounded down; 0 where it is below 1e-322."""
    return max(0.0, phi(x - slack - abs(x) * _ULP) * (1.0 - _MARGIN) - _STEPS)


def check_epsilon(epsilon: float) -> float:
    """epsilon itself, if it is a finite number >= 0; ShoalError INVALID otherwise."""
    if not (math.isfinite(epsilon) and epsilon >= 0.0):
        raise ShoalError(Kind.INVALID, f"a curve is asked at a finite epsilon >= 0, got {epsilon}")
    return epsilon
