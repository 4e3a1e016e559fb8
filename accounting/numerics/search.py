"""Find where a delta curve crosses a target, and return the end of the bracket that is safe for the
question asked.

A curve is evaluated at floats, and its values err to one side. So only values that were really
looked at are used: ``high`` was seen at or below the target, ``low`` above it. Nothing is concluded
from the shape of a curve, which may be bumpy by rounding; the shape decides how many steps it
takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from shoal.errors import Kind, ShoalError

# The bracket is closed to this share of its upper end: what bisection adds to an epsilon at most.
RESOLUTION = 1e-9
_MOST_STEPS = 200
_PATIENCE = 12


def crossing(curve: Callable[[float], float], delta: float, top: float) -> tuple[float, float]:
    """(low, high) in [0, top] with curve(low) > delta >= curve(high), at most RESOLUTION * high
    apart.

    Take ``high`` of an upper curve (the pair (high, delta) is proven) and ``low`` of a lower curve
    (the pair (low, delta) is refuted). If curve(0) <= delta both are 0. If curve(top) > delta both
    are ``top``: then ``top`` is refuted by a lower curve, and not proven by an upper one; callers
    pass a top that is proven already (epsilon0, or the best bound so far). The curve need not be
    monotone for either statement to hold. Raises ShoalError INVALID for a value that is NaN.
    """
    start, end = _value(curve, 0.0), _value(curve, top)
    if start <= delta:
        return 0.0, 0.0
    if end > delta:
        return top, top
    low, high = 0.0, top
    target = _score(delta)
    at_low, at_high = _score(start) - target, _score(end) - target
    before: bool | None = None
    for step in range(_MOST_STEPS):
        gap = RESOLUTION * high
        if high - low <= gap:
            break
        middle = _next(low, high, at_low, at_high, step)
        # Never closer to an end than half the resolution: once an end is that good, this step
        # closes the bracket.
        middle = min(max(middle, low + gap / 2.0), high - gap / 2.0)
        value = _value(curve, middle)
        unproven, score = value > delta, _score(value) - target
        if unproven:
            low, at_low = middle, score
            at_high = at_high / 2.0 if before is unproven else at_high
        else:
            high, at_high = middle, score
            at_low = at_low / 2.0 if before is unproven else at_low
        before = unproven
    return low, high


def _value(curve: Callable[[float], float], epsilon: float) -> float:
    """The curve's value. Raises INVALID for a NaN, which would compare as proven."""
    value = curve(epsilon)
    if math.isnan(value):  # it would compare as proven
        raise ShoalError(
            Kind.INVALID, f"a curve gave no number at epsilon {epsilon:g}: nothing is proven by it"
        )
    return value


def _score(delta: float) -> float:
    """sqrt(-ln delta), 0 from delta = 1 up: nearly linear in epsilon, since delta falls like
    exp(-epsilon^2 / ...).
    """
    return math.sqrt(-math.log(delta)) if 0.0 < delta < 1.0 else (0.0 if delta >= 1.0 else math.inf)


def _next(low: float, high: float, at_low: float, at_high: float, step: int) -> float:
    """The next point: false position (Illinois: an end that stays twice counts half), every fourth
    time the middle instead, and every other time once a curve has proved not to be smooth.

    While nothing is known below and the curve is 0 above, geometric steps: the answer may be orders
    of magnitude smaller.
    """
    if not math.isfinite(at_high):
        return high / 16.0 if low == 0.0 else (low + high) / 2.0
    if step % 4 == 3 or (step > _PATIENCE and step % 2) or at_high <= at_low:
        return (low + high) / 2.0
    return low + (high - low) * (-at_low) / (at_high - at_low)
