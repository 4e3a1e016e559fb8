"""The seam for protocols in which a device sends several messages, and the bound of one batch of
such a protocol.

What one device sends may then show its value (epsilon0 is infinite): privacy comes from the mixture
alone. So nothing here is a ``Certificate``, which promises a finite epsilon0 to whoever sees the
order; it is a ``MessagesBound``, whose first assumption says what is lost without the shuffler, and
which a device may only act on, where epsilon0 is infinite, with its owner's explicit consent.

**What a protocol has to prove** before it may implement ``SeveralMessages``:

1. *The view.* What the analyzer sees of a batch is the multiset of all messages. The divergence has
   to be that of the whole multiset (or of something it can be computed from), for the worst dataset
   of the others and the worst pair of answers, in both directions. A projection of the view is a
   lower bound, not an upper one.
2. *Honest noise only.* Noise and dummies are counted from ``n_honest`` devices, the protected one
   among them. Devices that do not follow the protocol contribute nothing: what they send is known
   to the adversary and can be subtracted, and the law of the honest noise must not depend on how
   many they are.
3. *Counts.* The number of messages of a device must not depend on its value, and whoever sees
   connections must not be able to tell two devices' bundles apart by it (a constant number, or
   padding). The shuffler counts messages, and reads the release: of both together the curve has to
   hold too, or an assumption says that it does not.
4. *Directions.* ``curve`` errs upward or downward as asked, at every epsilon in [0, 40], with the
   error budget in its module.

Split-and-mix (Ishai, Kushilevitz, Ostrovsky, Sahai 2006; Balle, Bell, Gascon, Nissim, CCS 2020)
would add a statistical distance eta between the view and a function of the noisy sum: delta <=
delta_central + (1 + e^epsilon) eta, as in ``bounds.approximate``, and its noise shares have to
be infinitely divisible with shape 1/n_honest, not 1/n. Cancelling +1/-1 noise (Ghazi, Kumar,
Manurangsi, Pagh, Sinha 2021) has the two-dimensional view (sum, number of messages): the divergence
of the sum alone does not bound it; ``noise`` accounts for both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, runtime_checkable

from shoal.accounting.certificate import RELATION, check_delta, check_honest, check_n, count_honest
from shoal.accounting.guarantee import Remaining
from shoal.accounting.numerics.curve import Direction
from shoal.accounting.numerics.search import crossing
from shoal.errors import Kind, ShoalError

# No epsilon above this is looked for: such a bound would promise nothing.
LARGEST_EPSILON = 40.0
_LADDER = (0.01, 0.1, 1.0, 2.0, 4.0, 8.0, 16.0, 24.0, LARGEST_EPSILON)
# Where none of these is proven: a curve with charges that grow with e^epsilon may be low in a short
# range only.
_FINE = (*(0.01 * 1.04**k for k in range(160)), *(5.0 + 0.2 * k for k in range(175)))

_EXPOSED = (
    "the shuffler and the analyzer do not collude: both together see the value itself (epsilon0 is "
    "infinite), so a device "
    "takes part only with its owner's explicit consent to that"
)
_RANDOMIZED = (
    "the shuffler and the analyzer do not collude: against both together a device keeps no more "
    "than epsilon0"
)
_BASIC = (
    "neighbouring datasets differ in one device's answer; the number of devices is public and does "
    "not depend on any answer",
    "every device takes part once in the batch, with fresh randomness, and all its messages arrive "
    "in the same batch",
)


@runtime_checkable
class SeveralMessages(Protocol):
    """A protocol with several messages per device; see the module for what it has to prove."""

    @property
    def name(self) -> str:
        """The method, as it appears in a bound."""
        ...

    @property
    def messages_per_device(self) -> Fraction:
        """The mean number of messages of one device, its true one among them."""
        ...

    @property
    def epsilon0(self) -> float:
        """What one device's messages promise by themselves, seen together; math.inf where one of
        them may be the value. Direction: upper bound.
        """
        ...

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the bound needs beyond the basic assumptions, in plain sentences."""
        ...

    def curve(self, n_honest: int, direction: Direction, delta: float) -> Callable[[float], float]:
        """delta(epsilon) of a batch with ``n_honest`` >= 1 honest devices, for epsilon in [0, 40],
        erring in ``direction``.

        ``delta`` is the value near which the curve has to be tight. A LOWER curve of constant 0 is
        always allowed.
        """
        ...


@dataclass(frozen=True, slots=True)
class MessagesBound:
    """(epsilon, delta) of one batch of several messages per device: the true epsilon lies in
    [epsilon_lower, epsilon_upper].

    ``n`` counts devices (not messages), of which floor(honest_fraction * n) are assumed honest.
    ``epsilon0``: what a device keeps without the mixture, mostly nothing (math.inf). Construction
    fails unless 0 <= lower <= upper, both finite, and epsilon0 > 0.
    """

    epsilon_upper: float
    epsilon_lower: float
    delta: float
    n: int
    honest_fraction: Fraction
    method: str
    messages_per_device: Fraction
    assumptions: tuple[str, ...]
    relation: str = RELATION
    epsilon0: float = math.inf

    def __post_init__(self) -> None:
        check_n(self.n)
        check_delta(self.delta)
        object.__setattr__(self, "honest_fraction", check_honest(self.honest_fraction))
        if not (
            0.0 <= self.epsilon_lower <= self.epsilon_upper and math.isfinite(self.epsilon_upper)
        ):
            raise ShoalError(
                Kind.INVALID, "a bound wants 0 <= epsilon_lower <= epsilon_upper, both finite"
            )
        if not self.epsilon0 > 0.0:
            raise ShoalError(Kind.INVALID, "a bound's epsilon0 is above 0, or infinite")
        if self.relation != RELATION or not self.method:
            raise ShoalError(
                Kind.INVALID, f"a bound is about {RELATION} neighbours only and names its method"
            )

    @property
    def n_honest(self) -> int:
        """How many of the n devices are assumed to hide one another; rounded down, exactly."""
        return count_honest(self.n, self.honest_fraction)

    @property
    def remaining(self) -> Remaining:
        """The analyzer alone sees a mixture; with the shuffler it sees what each device sent."""
        return Remaining(self.epsilon_upper, max(self.epsilon_upper, self.epsilon0))

    def to_json(self) -> dict[str, float | int | str | list[str] | None]:
        """The keys of a certificate, an infinite epsilon0 being null, and the mean number of
        messages per device.
        """
        return {
            "epsilon_upper": self.epsilon_upper,
            "epsilon_lower": self.epsilon_lower,
            "epsilon0": self.epsilon0 if math.isfinite(self.epsilon0) else None,
            "delta": self.delta,
            "n": self.n,
            "honest_fraction": float(self.honest_fraction),
            "relation": self.relation,
            "method": self.method,
            "assumptions": list(self.assumptions),
            "messages_per_device": float(self.messages_per_device),
        }


def epsilon_interval(
    protocol: SeveralMessages, n_honest: int, delta: float
) -> tuple[float, float] | None:
    """(epsilon_lower, epsilon_upper) at ``delta`` for ``n_honest`` honest devices; None where no
    epsilon up to 40 is proven.

    The first errs downward, the second upward.
    """
    check_delta(delta)
    if n_honest < 1:
        return None
    upper = protocol.curve(n_honest, Direction.UPPER, delta)
    # The smallest rung that is proven: margins of a curve grow with e^epsilon, so that the largest
    # need not be.
    top = next((rung for rung in (*_LADDER, *_FINE) if upper(rung) <= delta), None)
    if top is None:
        return None
    # What a device's own randomness promises holds of its place in the mixture too.
    high = min(crossing(upper, delta, top)[1], protocol.epsilon0)
    lower = protocol.curve(n_honest, Direction.LOWER, delta)
    return crossing(lower, delta, high)[0], high


def certify_messages(
    protocol: SeveralMessages, n: int, delta: float, *, honest_fraction: Fraction | float = 1
) -> MessagesBound | None:
    """The bound of a batch of ``n`` devices, floor(honest_fraction * n) of them honest; None where
    nothing is proven.

    ``n`` >= 1, ``delta`` in [1e-100, 1), ``honest_fraction`` in (0, 1]. Raises ShoalError CONFIG
    for bad numbers.
    """
    check_n(n)
    share = check_honest(honest_fraction)
    n_honest = count_honest(n, share)
    interval = epsilon_interval(protocol, n_honest, delta)
    if interval is None:
        return None
    honest = (
        f"at least {n_honest} of the {n} devices follow the protocol"
        if share < 1
        else f"all {n} devices follow the protocol"
    )
    return MessagesBound(
        epsilon_upper=interval[1],
        epsilon_lower=interval[0],
        delta=delta,
        n=n,
        honest_fraction=share,
        method=protocol.name,
        messages_per_device=protocol.messages_per_device,
        assumptions=(
            _EXPOSED if math.isinf(protocol.epsilon0) else _RANDOMIZED,
            *_BASIC,
            honest,
            *protocol.assumptions,
        ),
        epsilon0=protocol.epsilon0,
    )


def reaches(protocol: SeveralMessages, n_honest: int, epsilon: float, delta: float) -> bool:
    """Whether the bound that certifies, bisection and all, is at most ``epsilon``."""
    interval = epsilon_interval(protocol, n_honest, delta)
    return interval is not None and interval[1] <= epsilon


def check_target(epsilon: float, delta: float) -> None:
    """Raises CONFIG for a delta outside [1e-100, 1), or an epsilon outside (0, 40]."""
    check_delta(delta)
    if not 0.0 < epsilon <= LARGEST_EPSILON:
        raise ShoalError(
            Kind.CONFIG,
            f"the target epsilon must lie in (0, {LARGEST_EPSILON:g}], got {epsilon}: 1 is usual",
        )
