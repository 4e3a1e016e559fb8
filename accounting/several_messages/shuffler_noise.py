"""The privacy of a histogram whose noise the shuffler adds (``mechanisms.several.cell_noise``).

**The view** is the number of messages in every cell, A_x + N_x: A_x of devices, N_x the noise.
What other devices send, honest or not, is a constant that can be subtracted; a device that answers
x or x' moves one message, all other cells have one law and drop out. So with X, Y independent and
of the law of one cell's noise,

    P = (X + 1, Y),    Q = (X, Y + 1),

for every dataset and any number of devices. Exchanging the cells exchanges P and Q: both directions
are one number. Rows that a disk damaged are left out by their place, which is uniform: that is
post-processing.

**The loss.** With Z = X - reach, P(Z = z) = q^|z| / W on -reach .. reach. The first cell shows
Z + 1 under P: its loss is ln(1 / q) for 0 <= Z < reach, -ln(1 / q) for Z < 0, and infinite for
Z = reach. The second shows Z' under P, Z' + 1 under Q: ln(1 / q) for -reach < Z' <= 0, -ln(1 / q)
for Z' > 0, infinite for Z' = -reach. With t = q^reach / W and h = (1 + q + ... + q^(reach - 1)) / W
the loss of both, under P, is

    infinite          1 - (1 - t)^2
    2 ln(1 / q)       h^2
    0                 2 h (1 - t - h)
    -2 ln(1 / q)      (1 - t - h)^2

and for epsilon >= 0

    delta(epsilon) = 1 - (1 - t)^2 + h^2 (1 - e^epsilon q^2)_+.

t and h are exact fractions of the task's integers. *Numbers.* A fraction becomes a float with a
relative error of 2^-53, exp one of 2^-52; e^epsilon is moved by 1e-14 and the sum by 1e-12 to the
side asked for.

Truncated discrete Laplace noise: Ghosh, Roughgarden, Sundararajan, "Universally utility-maximizing
privacy mechanisms", STOC 2009, for the law; noise of a trusted shuffler is folklore of the shuffle
model. The account is ours, held against all outcomes in exact fractions by tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from shoal.accounting.certificate import check_delta, check_n
from shoal.accounting.composition.losses import LossLaw
from shoal.accounting.numerics.curve import Direction
from shoal.accounting.several_messages.loss_lattice import cut_at, placed, step_of
from shoal.accounting.several_messages.messages import check_target, reaches
from shoal.arrays import np
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.several.cell_noise import MOST_REACH, Q_BITS, CellNoise

METHOD = "shuffler-noise"
_SAFE_E, _SAFE = 1e-14, 1e-12
_ALL_WINDOWS = 0.5  # of delta, that truncation may take of several windows together
_SPARE = 1e-9  # by which q is larger than epsilon asks for: bounds are found by bisection


@dataclass(frozen=True, slots=True)
class ShufflerNoiseProtocol:
    """One true message of each device, and ``law`` in every cell; see the module's text."""

    law: CellNoise

    @property
    def name(self) -> str:
        """The method in a bound."""
        return METHOD

    @property
    def messages_per_device(self) -> Fraction:
        """One."""
        return Fraction(1)

    @property
    def epsilon0(self) -> float:
        """Infinite: the message is the value."""
        return math.inf

    @property
    def assumptions(self) -> tuple[str, ...]:
        """That of this protocol alone: the shuffler is trusted for the noise."""
        return (
            "the shuffler is trusted for the noise: it adds to every batch what the task states, "
            "drawn afresh, and tells nobody what it drew; without it the analyzer sees exact "
            "counts, and neither a device nor the analyzer can tell whether it was added",
        )

    def curve(self, n_honest: int, direction: Direction, delta: float) -> Callable[[float], float]:
        """See ``SeveralMessages``: the same for any number of devices."""
        check_n(n_honest)
        check_delta(delta)
        certain, high, square = (float(part) for part in _parts(self.law))
        sign = 1.0 if direction is Direction.UPPER else -1.0

        def at(epsilon: float) -> float:
            e = math.exp(epsilon) * (1.0 - sign * _SAFE_E)
            total = certain + high * max(0.0, 1.0 - e * square)
            return min(1.0, total * (1.0 + sign * _SAFE))

        return at


@lru_cache(maxsize=64)
def _parts(law: CellNoise) -> tuple[Fraction, Fraction, Fraction]:
    """1 - (1 - t)^2, h^2 and q^2; exact."""
    t = law.probability(0)
    h = law.between(law.reach, 2 * law.reach)
    return 1 - (1 - t) ** 2, h * h, law.q**2


def shuffler_noise_losses(law: CellNoise, delta: float) -> LossLaw:
    """The law of losses of one release, in the order of ``delta``, the total that it will be
    composed to. Direction: UPPER.
    """
    check_delta(delta)
    certain, high, square = _parts(law)
    h = law.between(law.reach, 2 * law.reach)
    low = 1 - law.probability(0) - h
    most = -math.log(square)
    losses = np.array([most, 0.0, -most])
    masses = np.array([float(high), float(2 * h * low), float(low * low)])
    step = step_of(losses, masses)
    lattice = placed(losses, masses, float(certain), step, 1e-15, delta * 1e-8)
    return cut_at(lattice, step, 0.0, 0.0, delta)


def design_shuffler_noise(epsilon: float, delta: float, *, windows: int) -> CellNoise:
    """The noise with which every release is (epsilon, delta), cut as near as delta allows; where
    there are several ``windows``, their truncation together takes half of delta at most.

    Raises CONFIG for bad numbers, and where no reach is enough.
    """
    check_target(epsilon, delta)
    if windows < 1:
        raise ShoalError(
            Kind.CONFIG, f"windows must be at least 1, got {windows}: give how many are composed"
        )
    ratio = math.ceil(math.ldexp(math.exp(-epsilon / 2.0), Q_BITS) * (1.0 + _SPARE))
    most = Fraction(delta) if windows == 1 else Fraction(delta * _ALL_WINDOWS / windows)
    for reach in range(_nearly(epsilon, float(most)), MOST_REACH + 1):
        if not 0 < ratio < 1 << Q_BITS:
            break
        law = CellNoise(ratio, reach)
        if _parts(law)[0] <= most and reaches(ShufflerNoiseProtocol(law), 1, epsilon, delta):
            return law
    raise ShoalError(
        Kind.CONFIG,
        f"noise for epsilon {epsilon:g} at delta {delta:g} wants more than {MOST_REACH} messages "
        "on either side of its mean: give a larger target, or fewer windows",
    )


def _nearly(epsilon: float, delta: float) -> int:
    """A reach that is not too large: 2 q^reach (1 - q) / (1 + q) is about ``delta``."""
    s = epsilon / 2.0
    wanted = math.log(2.0 * math.tanh(s / 2.0) / delta) / s
    return max(1, math.floor(min(wanted, MOST_REACH + 1.0)) - 2)
