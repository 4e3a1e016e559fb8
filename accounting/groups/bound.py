"""The bound of a group of devices: what one person's devices give away together, in one window or
in several.

A certificate is about one device. Whoever has several that answer the same question has a claim to
know what all of them say together. Their answers are replaced together, the rest as in a
certificate (replace-one, n public). Two ways; the least counts:

* ``chain``: the certificate's whole curve, link after link (``chain``). For every kind of report.
* ``local``: g epsilon0, of reports by themselves.

Sums have a third, ``shift`` (``of_task``): g vectors are one vector of g times the bounds.

**Windows.** The same devices in all of them. Two datasets that differ in one device in every window
have the composed curve; the chain goes over that.

**What is not used.** One certificate for g-tuples of reports (``basic.bundled``) tells which
reports are of one person. It was 3 to 200 times as large in all cases tried.

**Noise of the group.** A device's noise does not depend on its value. So the noise of the group's
devices hides as that of others does, and the number of honest devices stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from shoal.accounting.accountant import LARGEST_EPSILON0, simplest, upper_curve
from shoal.accounting.certificate import SMALLEST_DELTA, check_delta
from shoal.accounting.composition.compose import compose, composed_curve, epsilon_of, release_law
from shoal.accounting.composition.losses import LossLaw
from shoal.accounting.groups.chain import LARGEST_CHAIN, chained, check_devices
from shoal.accounting.sums.skellam import round_up
from shoal.errors import Kind, ShoalError
from shoal.privacy import LocalPrivacy, epsilon0_upper

CHAIN, LOCAL, SHIFT, LADDER = "chain", "local", "shift", "ladder"


@dataclass(frozen=True, slots=True)
class GroupBound:
    """(epsilon_upper, delta) of ``devices`` of one person, replaced together in all of ``windows``.
    Direction: UPPER.

    ``devices`` 1 to 1000, ``windows`` >= 1. ``method``: the way that gave the least.
    ``epsilon_lower``: that a real pair of datasets exceeds, where one is known (``of_dummies``);
    else 0.0, and a certificate's own is one, of a group of one. Raises CONFIG for numbers out of
    range, INVALID for an epsilon below 0 or infinite, or a lower one above it.
    """

    devices: int
    windows: int
    epsilon_upper: float
    delta: float
    method: str
    epsilon_lower: float = 0.0

    def __post_init__(self) -> None:
        check_devices(self.devices)
        check_delta(self.delta)
        if not 0.0 <= self.epsilon_upper < math.inf or self.windows < 1:
            raise ShoalError(
                Kind.INVALID, "a group's epsilon is finite and at least 0, its windows at least 1"
            )
        if not 0.0 <= self.epsilon_lower <= self.epsilon_upper:
            raise ShoalError(
                Kind.INVALID, "a group's lower epsilon is at least 0, and at most the upper one"
            )

    def to_json(self) -> dict[str, float | int | str]:
        """The stable machine shape."""
        return {
            "devices": self.devices,
            "windows": self.windows,
            "epsilon_upper": self.epsilon_upper,
            "epsilon_lower": self.epsilon_lower,
            "delta": self.delta,
            "method": self.method,
        }


def group_of_law(
    privacy: LocalPrivacy, n_honest: int, delta: float, devices: int, windows: int = 1
) -> GroupBound:
    """The bound of reports of one message with this law, ``n_honest`` of which hide one another,
    the group's among them. Direction: UPPER. Raises CONFIG for numbers out of range.
    """
    check_group(devices, n_honest)
    check_delta(delta)
    law = simplest(privacy)
    epsilon0 = epsilon0_upper(law)
    found = {LOCAL: round_up(Fraction(epsilon0) * devices * windows)}
    if epsilon0 <= LARGEST_EPSILON0:
        found[CHAIN] = chain_of_losses(
            lambda small: release_law(upper_curve, law, n_honest, small), delta, devices, windows
        )
    return least(found, delta, devices, windows)


def chain_of_losses(
    losses: Callable[[float], LossLaw | None], delta: float, devices: int, windows: int
) -> float:
    """The chain's epsilon, from the law of losses of one release; math.inf where nothing is proven.
    ``losses(small)``: the law, exact down to ``small``. Direction: UPPER.
    """
    first = losses(delta)
    if first is None:
        return math.inf
    one = (
        compose([(first, windows)], delta).epsilon_upper
        if windows > 1
        else epsilon_of(first, delta)
    )
    if not math.isfinite(one):
        return math.inf
    small = last_share(one, delta, devices)
    law = losses(small)
    if law is None:
        return math.inf
    # Of several windows a curve is tight near one delta, and inf far above it.
    near = {small} if windows == 1 else {delta, math.sqrt(delta) * math.sqrt(small), small}
    curves = [composed_curve([(law, windows)], each) for each in near]
    return chained(lambda epsilon: min(c(epsilon) for c in curves), devices, delta, one)


def last_share(one: float, delta: float, devices: int) -> float:
    """About what the last of a chain's links has of ``delta``, at least 1e-100: curves have to be
    exact down to there.
    """
    weight = math.exp(-min(one * (devices - 1), LARGEST_CHAIN))
    return max(SMALLEST_DELTA, delta * weight / devices)


def least(found: Mapping[str, float], delta: float, devices: int, windows: int) -> GroupBound:
    """The best of what was found. Raises CONFIG where nothing is proven."""
    method = min(found, key=lambda way: found[way])
    if not math.isfinite(found[method]):
        raise ShoalError(
            Kind.CONFIG,
            f"no epsilon up to {LARGEST_CHAIN:g} is proven for {devices} devices together: ask "
            "for fewer, or give noise that was designed for a smaller delta",
        )
    return GroupBound(devices, windows, found[method], delta, method)


def check_group(devices: int, n_honest: int) -> None:
    """Raises CONFIG unless a group of so many fits among the honest."""
    check_devices(devices)
    if devices > max(1, n_honest):
        raise ShoalError(
            Kind.CONFIG,
            f"{devices} devices of one person are more than the {n_honest} that are sure to be "
            "honest: give a smaller group, or more reports",
        )
