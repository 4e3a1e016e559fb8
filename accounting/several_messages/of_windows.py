"""Several releases of a mechanism of several messages about the same devices, together: their exact
laws of losses composed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from shoal.accounting.composition.compose import compose
from shoal.accounting.several_messages.of_mechanism import losses_of
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.several.protocol import Several

_NEAR = 1.01  # how near to the largest the epsilon of one of several releases is found
_STEP = 1.4


def epsilon_together(made: Several, n_honest: int, delta: float, windows: int) -> float:
    """Epsilon of ``windows`` releases together at ``delta``, for all of them; math.inf where
    nothing is proven. Direction: upper bound.
    """
    losses = losses_of(made, n_honest, delta)
    return math.inf if losses is None else compose([(losses, windows)], delta).epsilon_upper


def epsilon_of_each(
    design: Callable[[float], Several], n_honest: int, total: float, delta: float, windows: int
) -> float:
    """The largest epsilon (to 1 %) of one release whose ``design`` keeps all ``windows`` together
    at (``total``, ``delta``).

    ``design`` may refuse an epsilon with a ShoalError: then smaller ones are tried. Raises CONFIG
    where not even the plain share of each will do, with what ``design`` said of it.
    """
    refusal = ""

    def keeps(epsilon: float) -> bool:
        nonlocal refusal
        try:
            made = design(epsilon)
        except ShoalError as error:
            refusal = f" ({error.message})"
            return False
        return epsilon_together(made, n_honest, delta, windows) <= total

    low, least = total, 0.9 * total / windows
    while not keeps(low):
        if low <= least:
            raise ShoalError(
                Kind.CONFIG,
                f"no noise of it keeps {windows} releases together at {total:g}{refusal}",
            )
        low = max(least, low / _STEP)
    high = min(total, low * _STEP)
    while high > low * _NEAR:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low
