"""Several messages per device whose true one is drawn by k-ary randomized response: what that adds
to the mixture's privacy, and what remains without the mixture.

A device draws the cell y of its true message: the value with probability a = same / total, each
of the k - 1 others with b = other / total, a + (k - 1) b = 1 (``KaryLaw``). Its bundle is made of y
and of noise that depends on nothing: by itself it keeps epsilon0 = ln(a / b), whoever sees it.

**The mixture.** Give the adversary more than it has: what the others drew. Let V_y be the law of
the view where the protected device drew y (the noise does not depend on y, full submissions
included), and delta_V(epsilon) an upper curve for every ordered pair of these: ``NoiseProtocol``'s,
charges and all. (What is said here holds of any view in which a device shows its drawn cell alone:
the analyzer's, and that of a shuffler that reads the release.) For answers x, x' and e = e^epsilon
>= 1, on any set of views,

    P = a V_x + b sum_{y != x} V_y,        Q = a V_x' + b sum_{y != x'} V_y,
    P - e Q = (a - e b) V_x - (e a - b) V_x' - (e - 1) b sum_{y != x, x'} V_y.

For e >= a / b nothing is above 0: the divergence is 0. Else let g = a - e b > 0. The weights that
are taken off add up to

    w = (e a - b) + (k - 2)(e - 1) b = g + (e - 1)(a + (k - 1) b) = g + e - 1.

With R = w / g, each of them is its share of w = g R, so P - e Q is an average over y != x of
g (V_x - R V_y), each at most g delta_V(ln R) on any set:

    delta(epsilon) <= g delta_V(ln(1 + (e - 1) / g)),        g = a - e b.

With gamma = k b the probability of a uniform cell, g = (1 - gamma) - (e - 1) b. Advanced joint
convexity (Balle, Barthe, Gaboardi, "Privacy amplification by subsampling", NeurIPS 2018, Theorem 2)
with the uniform part in common gives the same with 1 - gamma for g. That is never better: g times
the divergence of V_x and V_y at 1 + (e - 1) / g is sum (g (V_x - V_y) - (e - 1) V_y)_+, whose terms
above 0 have V_x > V_y and grow with g. For two cells the average has one term: equality, given what
the others drew.

**What is left out.** The others' draws are noise too, which the analyzer can't see: the truth is
below this curve. Lower curves count them (``randomized_lower``).

With fewer honest devices than shares nothing is proven by the mixture; epsilon0 remains.

**Losses.** Let a law of losses of the noise have the masses m at l, H_V(e) = sum m (1 - e x)_+ >=
delta_V(ln e) with x = exp(-l). Then for e >= 1

    g H_V(1 + (e - 1) / g) = sum m (g - (g + e - 1) x)_+
                           = sum m (a + (1 - a) x - e (b + (1 - b) x))_+:

mass m (a + (1 - a) x) at the loss ln of a + (1 - a) x over b + (1 - b) x. Losses above 0 stay so,
as all others stay below. So the law has these, each with its mirror image, mass times exp(-l) at
-l, and what is missing to a total of 1 at 0. Such a symmetric law of total T has H(e) = T (1 - e) +
e H(1/e) for e < 1, at least the release's 1 - e + e h(1/e) (``composition.losses``). What was at
infinity (x = 0) comes to epsilon0, mass a m. Where that is a small part of delta it stays at
infinity, which is more: so little so far out would spoil the tilting of ``compose``, for more than
it gives.

*Numbers.* g is rounded up and e down: both raise the bound. An epsilon' above 40 is taken as 40.

*Checked* against everything that devices can send, device by device, both for what the others drew
and with their draws in the mixture (tests/unit/accounting/several_messages/test_randomized.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from shoal.accounting.certificate import check_n
from shoal.accounting.composition.losses import LossLaw
from shoal.accounting.numerics.binomial import Floats, Ints
from shoal.accounting.numerics.curve import Direction
from shoal.accounting.several_messages.loss_lattice import placed
from shoal.accounting.several_messages.messages import LARGEST_EPSILON
from shoal.accounting.several_messages.noise import METHODS as NOISE_METHODS
from shoal.accounting.several_messages.noise import NoiseProtocol
from shoal.accounting.several_messages.noise_losses import noise_losses
from shoal.accounting.several_messages.randomized_lower import lower_curve
from shoal.arrays import np
from shoal.errors import Kind, ShoalError
from shoal.privacy import KaryLaw, epsilon0_upper

_PREFIX = "randomized-"
METHODS = tuple(f"{_PREFIX}{name}" for name in NOISE_METHODS)
"""Methods in bounds and in releases."""
_ROUNDING = 1e-13
_UNPROVEN = 2.0  # a divergence is at most 1
_MOST_INFINITY = 0.1  # of delta: what stays at an infinite loss
_BEYOND = 1e-8  # of delta: what a law of losses may put at infinity


@dataclass(frozen=True, slots=True)
class RandomizedTruth:
    """``noise`` with a true message whose cell is drawn from ``truth``; see the module's text."""

    noise: NoiseProtocol
    truth: KaryLaw

    @property
    def name(self) -> str:
        """ "randomized-" and the name of the noise: the method in a bound."""
        return _PREFIX + self.noise.name

    @property
    def messages_per_device(self) -> Fraction:
        """As the noise's."""
        return self.noise.messages_per_device

    @property
    def epsilon0(self) -> float:
        """Of the draw, from its integers. Direction: upper bound."""
        return epsilon0_upper(self.truth)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the bound needs beyond the basic assumptions."""
        return (
            *self.noise.assumptions,
            f"every honest device draws its true message by randomized response over {self.truth.k}"
            " cells, afresh",
        )

    def curve(self, n_honest: int, direction: Direction, delta: float) -> Callable[[float], float]:
        """See ``SeveralMessages``: above 1 (UPPER) and 0 (LOWER) where nothing is proven."""
        few = check_n(n_honest) < self.noise.law.shares
        if direction is Direction.LOWER:
            return _nothing if few else lower_curve(self.noise.law, self.truth, n_honest, delta)
        if few:
            return _unproven
        inner, epsilon0 = self.noise.curve(n_honest, direction, delta), self.epsilon0

        def at(epsilon: float) -> float:
            if epsilon >= epsilon0:
                return 0.0
            share, within = _drawn(self.truth, epsilon)
            return min(1.0, share * inner(within) * (1.0 + _ROUNDING))

        return at


def inner_target(truth: KaryLaw, epsilon: float, delta: float) -> tuple[float, float]:
    """(epsilon', delta') with which the noise has to be proven for its true message, so that one
    drawn from ``truth`` is proven with (epsilon, delta). Raises CONFIG where epsilon is so near to
    what the draw keeps by itself that no noise is wanted.
    """
    share, within = _drawn(truth, epsilon)
    if epsilon >= epsilon0_upper(truth) or within >= LARGEST_EPSILON or delta >= share:
        raise ShoalError(
            Kind.CONFIG,
            f"randomized response keeps epsilon {epsilon:g} nearly by itself: ask for a larger "
            "epsilon0_if_colluding, or take krr, which sends one message",
        )
    return within, delta / share


def randomized_losses(protocol: RandomizedTruth, n_honest: int, delta: float) -> LossLaw | None:
    """The law of losses of one release for ``n_honest`` honest devices, in the order of ``delta``,
    the total that it will be composed to; None where nothing is proven. Direction: UPPER.
    """
    noise = noise_losses(protocol.noise.law, n_honest, delta)
    if noise is None:
        return None
    truth = protocol.truth
    above = noise.losses > 0.0
    x, masses = np.exp(-noise.losses[above]), noise.masses[above]
    same, other = truth.same / truth.total, truth.other / truth.total
    rest, others = (
        (truth.total - truth.same) / truth.total,
        (truth.total - truth.other) / truth.total,
    )
    infinity = noise.infinity * same
    if infinity > delta * _MOST_INFINITY:
        x, masses, infinity = np.append(x, 0.0), np.append(masses, noise.infinity), 0.0
    kept: Floats = masses * (same + rest * x)
    losses: Floats = np.log((same + rest * x) / (other + others * x))
    mirrored: Floats = kept * np.exp(-losses)
    centre = max(0.0, 1.0 - float(np.sum(kept) + np.sum(mirrored)))
    both = placed(
        np.concatenate([losses, -losses, [0.0]]),
        np.concatenate([kept, mirrored, [centre]]),
        infinity,
        noise.step,
        _ROUNDING,
        delta * _BEYOND,
    )
    present = both.masses > 0.0
    indices: Ints = both.first + np.flatnonzero(present).astype(np.int64)
    infinity = min(both.infinity, 1.0)
    return LossLaw(noise.step, indices, both.masses[present], infinity, protocol.epsilon0)


def _drawn(truth: KaryLaw, epsilon: float) -> tuple[float, float]:
    """(g, epsilon') of the module's text at ``epsilon`` in [0, epsilon0): g rounded up, epsilon'
    down.
    """
    same, other = truth.same / truth.total, truth.other / truth.total
    share = min(1.0, max(same - math.exp(epsilon) * other, 0.0) + _ROUNDING)
    within = math.log1p(math.expm1(epsilon) / share * (1.0 - _ROUNDING)) * (1.0 - _ROUNDING)
    return share, min(within, LARGEST_EPSILON)


def _unproven(_: float) -> float:
    return _UNPROVEN


def _nothing(_: float) -> float:
    return 0.0
