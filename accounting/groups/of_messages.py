"""The group bound of protocols in which a device sends several messages, and of nearly private
reports: by their curves where they have one, by a ladder of certificates where not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from shoal.accounting.certificate import SMALLEST_DELTA, check_delta
from shoal.accounting.composition.basic import group
from shoal.accounting.groups.bound import (
    CHAIN,
    LADDER,
    LOCAL,
    GroupBound,
    chain_of_losses,
    check_group,
    last_share,
    least,
)
from shoal.accounting.groups.chain import chained
from shoal.accounting.groups.of_dummies import group_lower
from shoal.accounting.numerics.curve import Direction
from shoal.accounting.several_messages.messages import (
    LARGEST_EPSILON,
    SeveralMessages,
    epsilon_interval,
)
from shoal.accounting.several_messages.of_mechanism import losses_of, protocol_of
from shoal.errors import ShoalError
from shoal.mechanisms.several.protocol import Noisy, Several

_TRIES = 8


def group_of_several(
    made: Several, n_honest: int, delta: float, devices: int, windows: int = 1
) -> GroupBound:
    """The bound of a mechanism of several messages, of ``n_honest`` honest devices. Direction:
    UPPER. Raises CONFIG for numbers out of range, and where nothing is proven: noise that is cut
    off for one device says little about many.
    """
    check_group(devices, n_honest)
    check_delta(delta)
    alone = protocol_of(made).epsilon0 * devices * windows
    found = {
        LOCAL: math.nextafter(math.nextafter(alone, math.inf), math.inf),
        CHAIN: chain_of_losses(
            lambda small: losses_of(made, n_honest, small), delta, devices, windows
        ),
    }
    bound = least(found, delta, devices, windows)
    if not isinstance(made, Noisy) or made.truth_law is not None:
        return bound
    lower = group_lower(made.noise, n_honest, delta, devices, bound.epsilon_upper)
    return replace(bound, epsilon_lower=lower)


def group_of_protocol(
    protocol: SeveralMessages, n_honest: int, delta: float, devices: int, windows: int = 1
) -> GroupBound:
    """As ``group_of_several``, of a protocol without a law of losses: windows are added up, each
    with its share of epsilon and of delta. Direction: UPPER. Raises as it does.
    """
    check_group(devices, n_honest)
    check_delta(delta)
    interval = epsilon_interval(protocol, n_honest, delta / windows)
    if interval is None:
        return least({CHAIN: math.inf}, delta, devices, windows)
    one = interval[1] * windows
    small = max(SMALLEST_DELTA, last_share(one, delta, devices) / windows)
    curve = protocol.curve(n_honest, Direction.UPPER, small)

    def together(epsilon: float) -> float:
        # rounded down, as the curve falls
        each = min(math.nextafter(epsilon / windows, 0.0), LARGEST_EPSILON)
        return windows * curve(each) * (1.0 + 1e-15)

    return least({CHAIN: chained(together, devices, delta, one)}, delta, devices, windows)


def group_by_ladder(
    certified: Callable[[float], float],
    delta: float,
    devices: int,
    windows: int = 1,
    *,
    n_honest: int,
) -> GroupBound:
    """From certificates at smaller deltas alone: equal links (``basic.group``), windows added up.

    ``certified(delta)``: the epsilon of one device in one window. It may raise ShoalError where it
    has none. Direction: UPPER. Raises CONFIG where nothing is proven.
    """
    check_group(devices, n_honest)
    part = check_delta(delta) / devices / windows
    best = math.inf
    for _ in range(_TRIES):
        part = max(part, SMALLEST_DELTA)
        try:
            one = math.nextafter(certified(part) * windows, math.inf)
            epsilon, total = group(one, math.nextafter(part * windows, 1.0), devices)
        except ShoalError:  # no epsilon there, or a delta of the group that promises nothing
            part /= 1e3
            continue
        if total <= delta:
            best = epsilon
            break
        part *= 0.9 * delta / total
    return least({LADDER: best}, delta, devices, windows)
