"""Turn the certificate around: the reports, the local epsilon or the delta that a central epsilon
needs.

Every answer is verified with the very bound that certifies: ``certify`` with the returned numbers
gives an epsilon_upper of at most the target. The searches themselves ask ``proves`` (one evaluation
of the curve at the target instead of an inversion), so what they assume about the shape of a bound
costs tightness at most, never soundness:

* ``smallest_n``: a bracket by fours, then halved; the proven end is returned. Exact up to 8192
  honest reports, else within 1/8192.
* ``largest_epsilon0``: the bracket [target, 40], halved to 0.05 % of itself; the proven end is
  returned.
* ``smallest_delta``: a curve built for some delta d bounds the divergence at *every* epsilon, so
  its value at the target is proven too, whatever d was. It is tight only near d (what lies outside
  the windows of a sum may reach 2e-8 of d), so the value takes the place of d until the two agree:
  a few evaluations over a hundred orders of magnitude. From there the bracket is halved to 0.05 %
  of itself.

Not assumed, and so checked at the end: that a smaller n, a larger epsilon0 or a smaller delta is
worse. The bounds are monotone up to 1e-8 of themselves (2e-5 where merging sets in,
docs/ACCOUNTING.md section 5), which is what "smallest" and "largest" can be off by beyond the
figures above.

Directions: a number of reports and a delta err upward, an epsilon0 downward. So whoever uses the
answer gets at most the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from shoal.accounting.accountant import LARGEST_EPSILON0, proves, simplest, upper_bound, upper_curve
from shoal.accounting.certificate import (
    SMALLEST_DELTA,
    check_delta,
    check_honest,
    check_n,
    count_honest,
)
from shoal.accounting.numerics.curve import DEFAULT_EFFORT, LARGEST_N, Effort
from shoal.errors import Kind, ShoalError
from shoal.privacy import LocalPrivacy, epsilon0_upper

# ``largest_epsilon0`` and the fallback of ``smallest_delta`` stop when the bracket is this share of
# its end: half of the 0.1 % promised.
_TIGHT = 5e-4
# How far a local epsilon lies above the one asked of a family at most, where the family rounds up
# (``PureLaw``).
_ULPS = 1e-12
# ``smallest_delta``: a value within this factor of the delta that its curve was built for is tight
# to 1e-6 of itself.
_NEAR = 0.1
_FAR = 1e-6
_MOST_ROUNDS = 20
_LARGEST_DELTA = 1.0 - 2.0**-20


def smallest_n(
    privacy: LocalPrivacy,
    target: float,
    delta: float,
    *,
    honest_fraction: Fraction | float = 1,
    most: int = LARGEST_N,
) -> int:
    """The smallest n found with ``certify(privacy, n, delta, honest_fraction=...).epsilon_upper <=
    target``.

    Errs upward: the n returned is checked with the very bound that certifies. Exactly the smallest
    up to 8192 honest reports, within 1/8192 of it beyond. ``target`` is an epsilon above 0; with a
    target of epsilon0 or more, 1 is enough. Raises ShoalError CONFIG for bad numbers, and if
    ``most`` honest reports do not reach it.
    """
    check_delta(delta)
    share = check_honest(honest_fraction)
    check_target(target)
    law = simplest(privacy)
    if upper_bound(law, 1, delta)[0] <= target:
        return 1
    honest = _smallest_honest(law, target, delta, most)
    # The smallest n with floor(share * n) >= honest.
    return -(-honest * share.denominator // share.numerator)


def _smallest_honest(law: LocalPrivacy, target: float, delta: float, most: int) -> int:
    """The least number of honest reports found that proves ``target``: exact up to 8192, then
    within 1/8192. Errs upward. Raises CONFIG if ``most`` do not.
    """
    low, high = 1, 2
    while not proves(law, high, delta, target):
        low, high = high, high * 4
        if low >= most:
            raise ShoalError(
                Kind.CONFIG,
                f"even {most} honest reports do not reach epsilon {target:g} at delta {delta:g}: "
                "lower epsilon0, accept a larger target, or accept a larger delta",
            )
        high = min(high, most)
    while high - low > max(1, high >> 13):
        # epsilon falls like 1 / sqrt(n): the geometric middle while the bracket is wide.
        middle = math.isqrt(low * high) if high > 2 * low else (low + high) // 2
        middle = min(max(middle, low + 1), high - 1)
        if proves(law, middle, delta, target):
            high = middle
        else:
            low = middle
    # The search above evaluates the curve at the target; the certificate bisects, and may stop 1e-9
    # above it.
    step = 1
    while upper_bound(law, high, delta)[0] > target:
        high += step
        step *= 2
    return high


def largest_epsilon0(
    family: Callable[[float], LocalPrivacy],
    target: float,
    delta: float,
    n: int,
    *,
    honest_fraction: Fraction | float = 1,
    effort: Effort = DEFAULT_EFFORT,
) -> tuple[float, LocalPrivacy]:
    """(epsilon0, ``family(epsilon0)``): the largest local epsilon found whose certificate is at
    most ``target``.

    ``family`` gives the law that is used at a local epsilon (for one mechanism and number of
    values), never one of more than that but for rounding; the law returned is the one to certify,
    and its own ``epsilon0_upper`` may be a little below the epsilon0 returned. Errs downward: the
    law is checked with the very bound that certifies, and epsilon0 lies within 0.1 % below the
    largest. Never below ``target`` (but for 1e-12 of it), since a report of that epsilon0 needs no
    shuffling. Searched up to ``LARGEST_EPSILON0`` = 40, above which no amplification is certified:
    40 is returned if even that reaches the target, and the target itself if that is larger.
    ``effort``: of the bound that is asked; a planner compares by a quicker one. Raises ShoalError
    CONFIG for bad numbers, and what ``family`` raises for an epsilon0 that it cannot
    serve.
    """
    check_delta(delta)
    check_n(n)
    share = check_honest(honest_fraction)
    check_target(target)
    n_honest = count_honest(n, share)

    def proven(epsilon0: float) -> bool:
        return proves(simplest(family(epsilon0)), n_honest, delta, target, effort)

    low, high = target, LARGEST_EPSILON0
    if low < high and n_honest > 1:
        if proven(high):
            low = high
        while high - low > _TIGHT * low:
            middle = (low + high) / 2.0
            if proven(middle):
                low = middle
            else:
                high = middle
    # The certificate bisects, and may stop 1e-9 above what one evaluation proves; a family may
    # round up by some ulps.
    step = _ULPS
    while True:
        law = family(low)
        if upper_bound(simplest(law), n_honest, delta, effort)[0] <= target:
            return low, law
        low, step = low * (1.0 - step), step * 4.0


def smallest_delta(
    privacy: LocalPrivacy, target: float, n: int, *, honest_fraction: Fraction | float = 1
) -> float:
    """The smallest delta found with ``certify(privacy, n, delta, honest_fraction=...).epsilon_upper
    <= target``.

    Errs upward, by at most 0.1 %: checked with the very bound that certifies. 0.0 if ``target`` is
    epsilon0 or more: that much holds with certainty (``certify`` itself wants a delta above 0).
    Otherwise never below 1e-100, the smallest delta that is computed with. Raises ShoalError CONFIG
    for bad numbers, and if no delta below 1 is proven, as with a single honest report.
    """
    check_n(n)
    share = check_honest(honest_fraction)
    check_target(target)
    law = simplest(privacy)
    if target >= epsilon0_upper(law):
        return 0.0
    n_honest = count_honest(n, share)
    high = _proven_above(law, n_honest, target, _fixed_point(law, n_honest, target))
    # A curve is made for many epsilons and may be looser than the certificate at this one: look
    # below, until it fails.
    low, factor = high / (1.0 + _TIGHT), 2.0
    while high > SMALLEST_DELTA and proves(law, n_honest, max(low, SMALLEST_DELTA), target):
        high = max(low, SMALLEST_DELTA)
        low, factor = high / factor, factor * factor
    low = max(low, SMALLEST_DELTA)
    while high > SMALLEST_DELTA and high / low > 1.0 + _TIGHT:
        middle = math.sqrt(low) * math.sqrt(high)
        if proves(law, n_honest, middle, target):
            high = middle
        else:
            low = middle
    return _proven_above(law, n_honest, target, high)


def _proven_above(law: LocalPrivacy, n_honest: int, target: float, delta: float) -> float:
    """``delta``, or as little more as the certifying bound needs: one part in a million covers the
    1e-9 of its inversion.
    """
    for step in (0.0, 1e-6, 1e-5, 1e-4):
        moved = delta * (1.0 + step)
        if moved <= _LARGEST_DELTA and upper_bound(law, n_honest, moved)[0] <= target:
            return moved
    return _smallest_delta_by_halving(law, n_honest, target)


def _fixed_point(law: LocalPrivacy, n_honest: int, target: float) -> float:
    """A delta whose own curve gives about that delta at the target: proven, and tight. At most
    ``_MOST_ROUNDS`` evaluations.
    """
    # Any delta would do as a start: each curve's value at the target is proven, and is the next
    # one's delta.
    built_for = 1e-8
    value = 1.0
    for _ in range(_MOST_ROUNDS):
        value = upper_curve(law, n_honest, built_for)(target)
        if value < SMALLEST_DELTA:
            return SMALLEST_DELTA
        if value >= _LARGEST_DELTA or _NEAR <= value / built_for <= 1.0 / _NEAR:
            break
        # Far below: what was seen is the outside of the windows. Twice as far down; too far costs
        # one more evaluation only.
        built_for = value if value > _FAR * built_for else max(value * value, SMALLEST_DELTA)
    return value


def _smallest_delta_by_halving(law: LocalPrivacy, n_honest: int, target: float) -> float:
    """Plain bisection in ln delta with the certifying bound, for the corners where the curve alone
    is not enough (delta near 1).
    """

    def proven(delta: float) -> bool:
        return upper_bound(law, n_honest, delta)[0] <= target

    low, high = SMALLEST_DELTA, _LARGEST_DELTA
    if not proven(high):
        raise ShoalError(
            Kind.CONFIG,
            f"no delta below 1 proves epsilon {target:g} with {n_honest} honest reports: give more "
            "reports, "
            f"or a target of epsilon0 = {epsilon0_upper(law):g}, which holds with certainty",
        )
    while high / low > 1.0 + _TIGHT:
        middle = math.sqrt(low) * math.sqrt(high)
        if proven(middle):
            high = middle
        else:
            low = middle
    return high


def check_target(target: float) -> float:
    """The same epsilon. Raises ShoalError CONFIG unless it is finite and above 0."""
    if not (math.isfinite(target) and target > 0.0):
        raise ShoalError(
            Kind.CONFIG,
            f"the target epsilon must be a finite number above 0, got {target}: give the central "
            "epsilon wanted",
        )
    return target
