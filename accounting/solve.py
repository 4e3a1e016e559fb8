"""How many reports a task needs for the central epsilon it wants."""

from __future__ import annotations

import math
from fractions import Fraction

from shoal.accounting.accountant import LARGEST_N, proves, simplest, upper_bound
from shoal.accounting.certificate import check_delta, check_honest
from shoal.errors import Kind, ShoalError
from shoal.privacy import LocalPrivacy


def smallest_n(privacy: LocalPrivacy, target: float, delta: float, *, honest_fraction: Fraction | float = 1, most: int = LARGEST_N) -> int:
    """The smallest n found with ``certify(privacy, n, delta, honest_fraction=...).epsilon_upper <= target``.

    Errs upward: the n returned is checked with the very bound that certifies. Exactly the smallest up to 8192 honest reports,
    within 1/8192 of it beyond. ``target`` is an epsilon above 0; with a
    target of epsilon0 or more, 1 is enough. Raises ShoalError CONFIG for bad numbers, and if ``most`` honest reports do not reach it.
    """
    check_delta(delta)
    share = check_honest(honest_fraction)
    if not (math.isfinite(target) and target > 0.0):
        raise ShoalError(Kind.CONFIG, f"the target epsilon must be a number above 0, got {target}")
    law = simplest(privacy)
    if upper_bound(law, 1, delta)[0] <= target:
        return 1
    if share == 0:
        raise ShoalError(Kind.CONFIG, "with an honest fraction of 0 no batch is large enough: nothing hides an answer but epsilon0")
    honest = _smallest_honest(law, target, delta, most)
    # The smallest n with floor(share * n) >= honest.
    return -(-honest * share.denominator // share.numerator)


def _smallest_honest(law: LocalPrivacy, target: float, delta: float, most: int) -> int:
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
    # The search above evaluates the curve at the target; the certificate bisects, and may stop 1e-9 above it.
    step = 1
    while upper_bound(law, high, delta)[0] > target:
        high += step
        step *= 2
    return high
