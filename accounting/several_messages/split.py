"""The privacy of a number that is split into shares: discrete Laplace noise of ``shares`` devices
on the sum, and what the mixture of the shares tells beyond that sum.

**From the view to the sum.** Take ``shares`` honest devices, the protected one among them. What all
others send is independent of these, or does not depend on the protected device's answer: adding it
is post-processing. Of these ``shares`` devices, given their noise, the view is within a distance A
of a law Sim of their sum alone (``splitting``), whatever the numbers are; so for every set S of
views, with the noise drawn, P and Q the laws of the view under two answers and P', Q' those of Sim,

    P(S) <= P'(S) + A <= e Q'(S) + delta' + A <= e Q(S) + delta' + (1 + e) A,

where delta' is that of the noisy sum, shifted by D = 2 (L - 1) half steps at most (reading it
modulo something only lowers it). So delta(epsilon) <= delta'(epsilon) + (1 + e) A.

**The noisy sum.** With u = 65536 / scale the loss of a shift by D is u (D - 2 x) at 0 <= x <= D,
u D below and -u D above. So delta' = 0 for epsilon >= u D, and below

    delta'(epsilon) = (1 - e^(epsilon - u D)) / (1 + p)
                      + (1 - p) / (1 + p) sum over x >= 1 of p^x (1 - e^(epsilon - u (D - 2 x)))_+.

A smaller shift is less; both directions are mirror images.

**Lower curve**, for n_honest = ``shares``: the sum modulo q is a function of the view, and from it
the numbers within q / 2 of the middle can be told but for the noise beyond: delta >= delta' - (1 +
e) P(noise beyond q / 2 - D). For more devices it is 0.

**Composition.** The law of losses is that of the noisy sum, with the charge for A put as
``loss_lattice`` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from shoal.accounting.certificate import check_delta, check_n
from shoal.accounting.numerics.curve import MARGIN, Direction
from shoal.accounting.several_messages.loss_lattice import cut_at, placed, step_of
from shoal.accounting.several_messages.messages import check_target, reaches
from shoal.accounting.several_messages.splitting import distance_of_split, fewest_messages
from shoal.arrays import np
from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.mechanisms.noise.polya import UNIT
from shoal.mechanisms.several.names import SPLIT_MIX
from shoal.mechanisms.several.noise_law import MOST_SHARES
from shoal.mechanisms.several.parameters import MOST_SPLIT_SCALE
from shoal.mechanisms.several.split_mix import SplitMix, unit_scale
from shoal.task import MechanismSpec

if TYPE_CHECKING:
    from shoal.accounting.composition.losses import LossLaw
    from shoal.accounting.numerics.binomial import Floats
    from shoal.domain import Numeric

METHOD = "split-and-mix"
_SHARE = 0.1  # of delta, over all windows, that the mixture may take in a design
_SAFE = 1e-12  # of a loss: what rounding may have taken from it, and more


@dataclass(frozen=True)
class SplitProtocol:
    """The account of ``made``."""

    made: SplitMix

    @property
    def name(self) -> str:
        """ "split-and-mix": the method in a bound."""
        return METHOD

    @property
    def messages_per_device(self) -> Fraction:
        """A constant."""
        return Fraction(self.made.messages)

    @property
    def epsilon0(self) -> float:
        """Infinite: the messages of one device add up to its value, hardly noised."""
        return math.inf

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the bound needs beyond the basic assumptions."""
        return (
            f"at least {self.made.least_devices} honest devices add noise, each its share for that "
            "many, drawn afresh and independent of everything",
            f"every device sends exactly {self.made.messages} messages, all uniform but for their "
            "sum",
        )

    @cached_property
    def distance(self) -> float:
        """A of the module's text. Direction: UPPER."""
        made = self.made
        return distance_of_split(made.least_devices, made.messages, made.bits)

    @property
    def pure(self) -> Fraction:
        """u D, exact: the epsilon of the noisy sum, at delta 0."""
        return Fraction(UNIT * self.made.width, self.made.scale)

    def curve(self, n_honest: int, direction: Direction, delta: float) -> Callable[[float], float]:
        """See ``SeveralMessages``: above 1 (UPPER) and 0 (LOWER) where nothing is proven."""
        least = self.made.least_devices
        if direction is Direction.LOWER:
            return self._lower if check_n(n_honest) == least else _nothing
        return _unproven if check_n(n_honest) < least else self._upper

    def losses(self, delta: float) -> LossLaw:
        """The law of losses of ``least_devices`` honest devices or more, in the order of ``delta``,
        the total that it will be composed to. Direction: UPPER.
        """
        check_delta(delta)
        p, losses, masses = self._shifted
        ends = np.array([1.0, math.exp(-float(self.pure))]) / (1.0 + p)
        losses = np.concatenate([losses, [float(self.pure), -float(self.pure)]])
        masses = np.concatenate([masses, ends])
        step = step_of(losses, masses)
        lattice = placed(losses, masses, 0.0, step, _SAFE, 0.0)
        return cut_at(lattice, step, self.distance, 0.0, delta)

    @cached_property
    def _shifted(self) -> tuple[float, Floats, Floats]:
        """p; the losses u (D - 2 x) and masses of x = 1..D - 1."""
        u = UNIT / self.made.scale
        places = np.arange(1, self.made.width, dtype=np.float64)
        masses = np.exp(-u * places) * math.tanh(u / 2.0)
        return math.exp(-u), u * (self.made.width - 2.0 * places), masses

    def _upper(self, epsilon: float) -> float:
        charge = (1.0 + math.exp(epsilon)) * self.distance * (1.0 + MARGIN)
        return min(1.0, self._of_sum(epsilon, 1.0 + MARGIN) + charge)

    def _lower(self, epsilon: float) -> float:
        made = self.made
        away = (1 << made.bits - 1) - made.width
        tail = 2.0 * math.exp(max(-700.0, -UNIT / made.scale * away))
        return max(
            0.0,
            self._of_sum(epsilon, 1.0 - MARGIN) - (1.0 + math.exp(epsilon)) * tail * (1.0 + MARGIN),
        )

    def _of_sum(self, epsilon: float, toward: float) -> float:
        """delta', times ``toward`` 1 + or - MARGIN, losses moved to the same side."""
        pure = self.pure
        if Fraction(epsilon) >= pure:
            return 0.0
        p, losses, masses = self._shifted
        safe = _SAFE * math.copysign(1.0, toward - 1.0)
        gap = float(pure - Fraction(epsilon))
        total = -math.expm1(-gap) / (1.0 + p)
        above = losses + safe * (1.0 + np.abs(losses)) - epsilon
        total += float(np.sum(masses * -np.expm1(-np.maximum(above, 0.0))))
        return total * toward


def design_split(
    domain: Numeric, n_honest: int, epsilon: float, delta: float, *, windows: int, most: int
) -> MechanismSpec:
    """The least noise with which ``n_honest`` devices reach (epsilon, delta) in each of
    ``windows``, the fewest messages whose mixture takes a tenth of delta over all of them, and the
    smallest modulus that holds ``most`` reports (those that ``LIMITS`` allows, where fewer).

    Raises CONFIG where the domain has too many levels for that noise, and for bad numbers.
    """
    check_target(epsilon, delta)
    check_n(n_honest)
    width = 2 * (domain.levels - 1)
    scale = unit_scale(width, Fraction(epsilon))
    if n_honest > MOST_SHARES:
        raise ShoalError(Kind.CONFIG, f"noise is split over {MOST_SHARES} devices at most")
    if scale > MOST_SPLIT_SCALE:
        levels = math.floor(MOST_SPLIT_SCALE / UNIT * epsilon / 2.0) + 1
        raise ShoalError(
            Kind.CONFIG,
            f"{SPLIT_MIX}: its noise would be too wide to draw: give the domain {levels} levels "
            "or fewer, or raise the target",
        )
    for size in range(2, 9):
        far = _SHARE * delta / (windows * (1.0 + math.exp(epsilon)))
        slots = fewest_messages(n_honest, 8 * size, far, LIMITS.messages)
        if slots is None:
            break
        held = min(max(most, n_honest), LIMITS.batch_rows // slots)
        found = _reaching(domain, scale, n_honest, slots, size, epsilon, delta)
        if held <= SplitMix(found, domain).most_reports:
            return found
    raise ShoalError(
        Kind.CONFIG,
        f"{SPLIT_MIX}: {LIMITS.messages} messages of a device do not hide it among {n_honest}: "
        "raise min_batch",
    )


def _reaching(
    domain: Numeric, scale: int, shares: int, slots: int, size: int, epsilon: float, delta: float
) -> MechanismSpec:
    """The spec; the certificate itself is asked, and noise is raised until it agrees."""
    more = 1
    while True:
        spec = MechanismSpec.of(SPLIT_MIX, scale=scale, shares=shares, slots=slots, bytes=size)
        if reaches(SplitProtocol(SplitMix(spec, domain)), shares, epsilon, delta):
            return spec
        scale, more = scale + more, 2 * more


def _unproven(_: float) -> float:
    return 2.0


def _nothing(_: float) -> float:
    return 0.0
