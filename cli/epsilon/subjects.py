"""A mechanism that ``shoal epsilon`` certifies: with a local epsilon, with Gaussian noise, or among
dummies.

A ``Subject`` is a mechanism with all its options but the three numbers that may be solved for
(epsilon0, n, delta).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from shoal.accounting.accountant import certify, certify_approximate
from shoal.accounting.certificate import Certificate
from shoal.accounting.several_messages.dummies import (
    BernoulliDummies,
    UniformDummies,
    solve_bernoulli,
    solve_uniform,
)
from shoal.accounting.several_messages.messages import MessagesBound, certify_messages
from shoal.approximate import GaussianLaw
from shoal.cli.epsilon.several import Mixture
from shoal.errors import Kind, ShoalError
from shoal.privacy import LocalPrivacy

Bound = Certificate | MessagesBound


@dataclass(frozen=True, slots=True)
class Pure:
    """A mechanism with a local epsilon. ``family``: its law at an epsilon0, never above it but for
    some units in the last place.

    ``assumed``: epsilon0 holds by assumption (nothing else is known of the randomizer), so it
    replaces the law's own, which lies those units above.
    """

    title: str
    family: Callable[[float], LocalPrivacy]
    assumed: bool = False

    def certify(self, epsilon0: float | None, n: int, delta: float, share: Fraction) -> Certificate:
        """The certificate at this epsilon0; where the law is assumed of a mechanism, epsilon0
        itself bounds it. Raises INVALID without an epsilon0.
        """
        if epsilon0 is None:
            raise ShoalError(Kind.INVALID, "this mechanism is certified at an epsilon0")
        certificate = certify(self.family(epsilon0), n, delta, honest_fraction=share)
        if not self.assumed:
            return certificate
        upper, lower = (
            min(certificate.epsilon_upper, epsilon0),
            min(certificate.epsilon_lower, epsilon0),
        )
        return replace(certificate, epsilon0=epsilon0, epsilon_upper=upper, epsilon_lower=lower)


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Each report is the value plus Gaussian noise: no finite epsilon0, but one at each delta."""

    law: GaussianLaw

    @property
    def title(self) -> str:
        """The law with its parameters, for people."""
        return f"Gaussian noise, sigma = {self.law.sigma:g}, sensitivity = {self.law.sensitivity:g}"

    def certify(self, _: float | None, n: int, delta: float, share: Fraction) -> Certificate:
        """The certificate of the noise, which has no epsilon0."""
        return certify_approximate(self.law, n, delta, honest_fraction=share)


@dataclass(frozen=True, slots=True)
class Dummies:
    """The true value in the clear, among dummies: no local guarantee at all. ``known``: False if
    their number is to be solved for.
    """

    protocol: UniformDummies | BernoulliDummies
    known: bool

    @property
    def title(self) -> str:
        """The protocol with its parameters, for people."""
        protocol = self.protocol
        if isinstance(protocol, UniformDummies):
            return f"{protocol.per_device} uniform dummies per device, {protocol.buckets} buckets"
        return (
            f"dummies with probability {float(protocol.probability):.3g} in each of "
            f"{protocol.buckets} buckets"
        )

    @property
    def option(self) -> str:
        """The option that says how many dummies there are, without its dashes."""
        return "per-device" if isinstance(self.protocol, UniformDummies) else "probability"

    def certify(self, _: float | None, n: int, delta: float, share: Fraction) -> MessagesBound:
        """The bound for these dummies. Raises CONFIG where so few prove nothing."""
        bound = certify_messages(self.protocol, n, delta, honest_fraction=share)
        if bound is None:
            reason = (
                f"so few dummies prove no epsilon up to 40 here: give a larger --{self.option} "
                f"(--solve {self.option} finds how large)"
            )
            raise ShoalError(Kind.CONFIG, reason)
        return bound

    def solved(self, n_honest: int, target: float, delta: float) -> tuple[Dummies, float | int]:
        """The fewest dummies for ``target``, and their number or probability; errs upward, checked
        by the bound itself.
        """
        buckets = self.protocol.buckets
        if isinstance(self.protocol, UniformDummies):
            uniform = solve_uniform(buckets, n_honest, target, delta)
            return Dummies(uniform, True), uniform.per_device
        # The float above the exact probability: what is printed is what is certified.
        shown = math.nextafter(
            float(solve_bernoulli(buckets, n_honest, target, delta).probability), 1.0
        )
        while True:
            protocol = BernoulliDummies(buckets, Fraction(shown))
            bound = certify_messages(protocol, n_honest, delta)
            if bound is not None and bound.epsilon_upper <= target:
                return Dummies(protocol, True), shown
            shown *= 1.0 + 1e-7


Subject = Pure | Gaussian | Dummies | Mixture
