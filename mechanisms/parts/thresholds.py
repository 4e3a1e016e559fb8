"""Choosing integers for an asked epsilon0: the search that every designer shares."""

from __future__ import annotations

import math
from collections.abc import Callable

from shoal.mechanisms.base import invalid
from shoal.privacy import LocalPrivacy, epsilon0_upper

WORDS = 1 << 64  # probabilities are integers out of this


def least_noise(law: Callable[[int], LocalPrivacy], highest: int, epsilon0: float) -> int:
    """The smallest noise t in [1, highest] whose epsilon0 (rounded up) is at most the one asked
    for.

    ``law(t)``: the output law at noise t; more noise, less epsilon0. The search keeps the upper end
    below the asked value all the way, so that the result is sound even if rounding made epsilon0
    uneven by an ulp somewhere. Raises INVALID if epsilon0 is not a number above 0, or is below what
    the finest integers can express.
    """
    if not (math.isfinite(epsilon0) and epsilon0 > 0):
        raise invalid("epsilon0 is a finite number above 0: give one, such as 2")

    def holds(noise: int) -> bool:
        return epsilon0_upper(law(noise)) <= epsilon0

    if not holds(highest):
        raise invalid(
            f"epsilon0 = {epsilon0:g} is smaller than 64-bit thresholds can express: ask for more"
        )
    low, high = 0, highest  # holds(high); low never holds (or is 0, no noise at all)
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high
