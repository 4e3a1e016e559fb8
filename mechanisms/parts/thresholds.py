"""Choosing integers for an asked epsilon0: the search that every designer shares."""

from __future__ import annotations

import math
from collections.abc import Callable

from shoal.mechanisms.base import invalid
from shoal.privacy import LocalPrivacy, epsilon0_upper

WORDS = 1 << 64  # probabilities are integers out of this

Epsilon0At = Callable[[int], float]  # of noise
# How narrow a bracket floats are asked for, as a power of two of its place; and how many guesses
# they have for it.
_NARROW, _GUESSES = 50, 24
_ULPS = 4  # between the ends: there floats say no more
_DEEPEST = 10  # a guess below all that was looked at: so many halvings of it at most
_AHEAD = 0.98  # such a guess aims a little further, where epsilon0 should be too large


def least_noise(law: Callable[[int], LocalPrivacy], highest: int, epsilon0: float) -> int:
    """The smallest noise t in [1, highest] whose epsilon0 (rounded up) is at most the one asked
    for.

    ``law(t)``: the output law at noise t; more noise, less epsilon0. The search keeps the upper end
    below the asked value all the way, so that the result is sound even if rounding made epsilon0
    uneven by an ulp somewhere. Raises INVALID if epsilon0 is not a number above 0, or is below what
    the finest integers can express.

    It halves [0, highest]. Of a middle outside a bracket that floats found first nothing is
    computed, which spares two laws of three, and leads to the same integer.
    """
    if not (math.isfinite(epsilon0) and epsilon0 > 0):
        raise invalid("epsilon0 is a finite number above 0: give one, such as 2")
    known: dict[int, float] = {}

    def at(noise: int) -> float:
        if noise not in known:
            known[noise] = epsilon0_upper(law(noise))
        return known[noise]

    if at(highest) > epsilon0:
        raise invalid(
            f"epsilon0 = {epsilon0:g} is smaller than 64-bit thresholds can express: ask for more"
        )
    beyond, within = _narrowed(at, *_bracket(at, highest, epsilon0), epsilon0)
    low, high = 0, highest  # high holds; low never does (or is 0, no noise at all)
    while high - low > 1:
        middle = (low + high) // 2
        if middle >= within or (middle > beyond and at(middle) <= epsilon0):
            high = middle
        else:
            low = middle
    return high


def _bracket(at: Epsilon0At, highest: int, epsilon0: float) -> tuple[int, int]:
    """(beyond, within): noise that was looked at and is too little (or 0), and some that is enough.

    Downward from the middle: a line through the last two places in the logarithms of noise and of
    epsilon0, which is nearly straight, says how far.
    """
    within, noise = highest, highest // 2
    last: tuple[float, float] | None = None
    while noise > 0:
        value = at(noise)
        if value > epsilon0:
            return noise, within
        here = math.log(noise), math.log(max(value, 5e-324))
        within, noise = noise, noise // 2
        if last is not None and here[1] > last[1]:
            steps = (math.log(epsilon0) - here[1]) * (last[0] - here[0]) / (here[1] - last[1])
            share = _AHEAD * math.exp(-min(steps, 64.0))
            noise = max(min(int(within * share), within - 1), within >> _DEEPEST)
        last = here
    return 0, within


def _narrowed(at: Epsilon0At, beyond: int, within: int, epsilon0: float) -> tuple[int, int]:
    """The same by false position (Illinois): both ends looked at, and near one another where
    epsilon0 is smooth. Floats decide where is looked, and nothing else.
    """
    if beyond == 0:
        return beyond, within
    above, below = at(beyond) - epsilon0, at(within) - epsilon0
    before: bool | None = None
    last_place = math.ulp(epsilon0)
    for _ in range(_GUESSES):
        gap = within - beyond
        if gap <= max(1, within >> _NARROW) or above - below <= _ULPS * last_place:
            break
        # A share of the gap in whole numbers: places are too large for floats.
        step = gap * int(above / (above - below) * 2.0**53) >> 53
        noise = min(max(beyond + step, beyond + 1), within - 1)
        value = at(noise) - epsilon0
        holds = value <= 0.0
        if holds:
            within, below = noise, value
            above = above / 2.0 if before is holds else above
        else:
            beyond, above = noise, value
            below = below / 2.0 if before is holds else below
        before = holds
    return beyond, within
