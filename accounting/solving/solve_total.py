"""What several releases about the same devices may cost *together*, turned around: the local
epsilon, the reports or the delta of each.

A budget is about a person, not about a window: who allows epsilon = 1 over a year means all 52
windows. The searches here ask what the composition of all rounds (``composition.compose``, at the
one delta of them all) proves, and return a point at which it was proven: what they assume about its
shape costs tightness at most, never soundness. Every evaluation builds the law of losses anew,
which takes a second or so where ``solve`` takes milliseconds, so they interpolate: epsilon of many
rounds is nearly a power of each of the three.

Directions are those of ``solve``: reports and delta err upward, epsilon0 downward.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from shoal.accounting.accountant import LARGEST_EPSILON0, simplest, upper_curve
from shoal.accounting.certificate import (
    SMALLEST_DELTA,
    check_delta,
    check_honest,
    check_n,
    count_honest,
)
from shoal.accounting.composition.compose import compose, release_law
from shoal.accounting.numerics.curve import LARGEST_N
from shoal.accounting.solving.solve import check_target
from shoal.errors import Kind, ShoalError
from shoal.privacy import LocalPrivacy

_TIGHT = 5e-4  # the brackets are closed to this share of their ends: half of the 0.1 % promised
_MOST_LOOKS = 60
_LARGEST_DELTA = 0.5


def total_epsilon(privacy: LocalPrivacy, n_honest: int, delta: float, rounds: int) -> float:
    """Epsilon at ``delta`` of ``rounds`` releases together, each of ``n_honest`` mutually hiding
    reports of this law. Direction: upper.
    """
    law = simplest(privacy)
    return compose([(release_law(upper_curve, law, n_honest, delta), rounds)], delta).epsilon_upper


def largest_epsilon0_of_rounds(
    family: Callable[[float], LocalPrivacy],
    target: float,
    delta: float,
    n: int,
    rounds: int,
    *,
    honest_fraction: Fraction | float = 1,
) -> float:
    """The largest local epsilon found with which ``rounds`` releases of n reports are at most
    ``target`` together, at ``delta``.

    ``family`` as for ``solve.largest_epsilon0``. Errs downward: composition proved the point that
    is returned; within 0.1 % of the largest. Raises ShoalError CONFIG for bad numbers, and what
    ``family`` raises.
    """
    check_delta(delta)
    check_n(n)
    check_target(target)
    n_honest = count_honest(n, check_honest(honest_fraction))

    def together(epsilon0: float) -> float:
        return total_epsilon(family(epsilon0), n_honest, delta, rounds)

    # Reports of target / rounds each need no shuffling. An ulp less: the sum of what they are
    # rounded up to.
    floor = target / rounds * (1.0 - 1e-9)
    return (
        boundary(together, floor, LARGEST_EPSILON0, target)
        if floor < LARGEST_EPSILON0
        else LARGEST_EPSILON0
    )


def smallest_n_of_rounds(
    privacy: LocalPrivacy,
    target: float,
    delta: float,
    rounds: int,
    *,
    honest_fraction: Fraction | float = 1,
    most: int = LARGEST_N,
) -> int:
    """The smallest n found with which ``rounds`` releases of n reports are at most ``target``
    together, within 0.1 %. Errs upward.

    Raises ShoalError CONFIG for bad numbers, and if ``most`` honest reports do not reach it.
    """
    check_delta(delta)
    check_target(target)
    share = check_honest(honest_fraction)

    def together(honest: float) -> float:
        return total_epsilon(privacy, math.ceil(honest), delta, rounds)

    if together(1.0) <= target:
        return 1
    if together(float(most)) > target:
        reason = (
            f"even {most} honest reports in each of {rounds} rounds do not reach epsilon "
            f"{target:g} at delta {delta:g}"
        )
        raise ShoalError(Kind.CONFIG, f"{reason}: lower epsilon0, ask less often, or accept more")
    honest = math.ceil(boundary(together, float(most), 1.0, target))
    return -(-honest * share.denominator // share.numerator)


def smallest_delta_of_rounds(
    privacy: LocalPrivacy,
    target: float,
    n: int,
    rounds: int,
    *,
    honest_fraction: Fraction | float = 1,
) -> float:
    """The smallest delta found at which ``rounds`` releases of n reports are at most ``target``
    together, within 0.1 %. Errs upward.

    Never below 1e-100. Raises ShoalError CONFIG for bad numbers, and if no delta below one half is
    proven.
    """
    check_n(n)
    check_target(target)
    n_honest = count_honest(n, check_honest(honest_fraction))

    def together(delta: float) -> float:
        return total_epsilon(privacy, n_honest, delta, rounds)

    if together(SMALLEST_DELTA) <= target:
        return SMALLEST_DELTA
    if together(_LARGEST_DELTA) > target:
        reason = (
            f"no delta below one half proves epsilon {target:g} for {rounds} rounds of {n_honest} "
            "honest reports"
        )
        raise ShoalError(
            Kind.CONFIG, f"{reason}: give more reports, a smaller epsilon0 or a larger target"
        )
    return boundary(together, _LARGEST_DELTA, SMALLEST_DELTA, target)


def boundary(
    value: Callable[[float], float], inside: float, outside: float, target: float
) -> float:
    """A point between ``inside`` and ``outside`` (both above 0) with ``value`` <= target, next to
    where that ends.

    ``inside`` is proven by the caller. What is returned was looked at itself, or is ``inside``;
    within 0.05 % of a point that was looked at and is above the target. Interpolates on logarithmic
    scales, and halves where that is slow.
    """
    near, far = math.log(inside), math.log(outside)
    below, above = _height(value(inside), target), _height(value(outside), target)
    if above <= 0.0:
        return outside
    best = inside
    for look in range(_MOST_LOOKS):
        if abs(far - near) <= _TIGHT:
            break
        middle = (near + far) / 2.0
        if look % 3 != 2 and math.isfinite(below) and math.isfinite(above) and below < above:
            # Not quite at the crossing, so that both ends come closer: an interpolation alone moves
            # one of them for ever.
            at = near + (far - near) * min(0.98, max(0.02, -below / (above - below)))
            aside = _TIGHT / 3.0 * (1.0 if far > near else -1.0)
            middle = at - aside if look % 3 == 0 else at + aside
            middle = min(max(middle, min(near, far)), max(near, far))
        point = math.exp(middle)
        height = _height(value(point), target)
        if height <= 0.0:
            near, below, best = middle, height, point
        else:
            far, above = middle, height
    return best


def _height(epsilon: float, target: float) -> float:
    """How far ``epsilon`` lies above the target, on a logarithmic scale; negative where it is
    proven.
    """
    return math.log(epsilon / target) if epsilon > 0.0 else -math.inf
