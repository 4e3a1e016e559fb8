"""Tails of the Skellam law from both sides, at any variance, and what they refute: the lower end of
certificates.

X is Skellam of variance v: ln E e^(z X) = K(z) = v (cosh z - 1). For a tilt a > 0, P(x) = e^(K(a) -
a x) P_a(x), where P_a has the characteristic function phi(w) = e^(v (cosh(a + i w) - cosh a)). Made
periodic with period N it is a sum over the N frequencies w = 2 pi k / N, and a geometric series
over x = t .. t + N - 1 gives

    S = e^(K(a) - a t) / N * sum over k of phi(w) e^(-i w t) (1 - e^(-a N)) / (1 - e^(-a - i w)).

In exact arithmetic S is the sum of P(y) over all y with weight 1 for t <= y < t + N, e^(-a N m) for
y that lies m periods below, and e^(a N j) for y that lies j periods above. So

    0 <= S - P(X >= t) <= e^(-a N) + sum over j >= 1 of e^(a N j) P(X >= t + j N),
    P(X >= z) <= e^(K(h) - h z) for every h > 0

(Chernoff), a geometric series again. Nothing else is approximated: frequencies left out are bounded
by 1 - cos w >= 2 w^2 / pi^2, and |1 - e^(-a - i w)| >= 1 - e^(-a). Rounding: phases and exponents
are sums of few terms of at most ``size`` in all, each with a relative error of a few 1e-16, so that
every term of the sum is off by less than 1e-14 (16 + size) of itself.

Tests compare tails with series, and the divergence of one coordinate with its exact sum
(tests/unit/accounting/sums/test_skellam.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from shoal.arrays import np

# Exponents at which something is small enough to be left out, though it is still added to the
# error.
_LEFT_OUT = 60.0
_IMAGES = 40.0
_RELATIVE = 1e-14
_LARGEST = 2.0**52
# Below e^-680 a tail is only said to be below 1e-290.
_NOTHING = -680.0
_TINY = 1e-290
_GROWTH = 1.5
# Blocks per standard deviation, and how many of them are looked at on either side of the best
# event.
_BLOCKS = 1000
_REACH = 8
_LARGEST_EXPONENT = 600.0


def skellam_tail(variance: float, t: int) -> tuple[float, float]:
    """(low, high) around P(X >= t) for Skellam noise of this variance > 0. Directions: proven from
    below and from above.

    Some 1e-10 apart, relative, for tails down to 1e-290, below which they are (0.0, 1e-290) and the
    like; (0.0, 1.0), which says nothing, for |t| or a variance above 2^52.

    ``variance`` in grid steps squared; ``t`` whole. float64 twice. The two ends never cross: each
    carries its own error term.
    """
    if not 0.0 < variance <= _LARGEST or abs(t) > _LARGEST:
        return 0.0, 1.0
    if t <= 0:
        low, high = _upper_tail(variance, 1 - t)
        return max(0.0, 1.0 - high - 2e-16), min(1.0, 1.0 - low + 2e-16)
    return _upper_tail(variance, t)


def _upper_tail(v: float, t: int) -> tuple[float, float]:
    """``skellam_tail`` for t >= 1."""
    deviation = math.sqrt(v)
    # The saddle point; near the middle a steeper tilt, for which few periods are enough.
    a = math.asinh(max(t, 3.0 * deviation) / v)
    k = _cumulant(v, a)
    if k - a * t < _NOTHING:  # by Chernoff's inequality
        return 0.0, _TINY
    period, images = _period(v, a, k, t)
    spread = v * math.cosh(a)
    decay = 8.0 * spread / (period * period)
    most = math.ceil(math.sqrt(_LEFT_OUT / decay))
    every = 2 * most + 1 >= period
    indices = np.arange(period // 2 + 1) if every else np.arange(most + 1)
    w = 2.0 * math.pi * indices / period
    turn = v * math.sinh(a) * np.sin(w) - t * w
    terms = np.exp(-2.0 * spread * np.sin(w / 2.0) ** 2 + 1j * turn) / (1.0 - np.exp(-a - 1j * w))
    # A frequency and its negative add to twice the real part; 0 has no partner, nor has pi where it
    # is one of them.
    doubled = np.where((indices == 0) | (2 * indices == period), 1.0, 2.0)
    total, absolute = float(np.sum(doubled * terms.real)), float(np.sum(doubled * np.abs(terms)))
    dropped = (
        0.0
        if every
        else 2.0
        * math.exp(-decay * most * most)
        / (-math.expm1(-2.0 * decay * most) * -math.expm1(-a))
    )
    size = v * math.sinh(a) * float(w[-1]) + t * float(w[-1]) + 4.0 * _LEFT_OUT + k + a * t
    error = dropped + _RELATIVE * (16.0 + size) * (absolute + dropped)
    scale = math.exp(k - a * t) / period * -math.expm1(-a * period)
    low = (total - error) * scale * (1.0 - _RELATIVE * (16.0 + size)) - images
    high = (total + error) * scale * (1.0 + _RELATIVE * (16.0 + size))
    return max(0.0, low), min(1.0, high)


def _cumulant(v: float, a: float) -> float:
    """K(a) = v (cosh a - 1), written so that a small a loses no digits."""
    return 2.0 * v * math.sinh(a / 2.0) ** 2


def _period(v: float, a: float, k: float, t: int) -> tuple[int, float]:
    """(N, bound on what the other periods add to the sum), N large enough that this hardly
    matters.
    """
    exponent = k - a * t
    period = math.ceil(9.0 * math.sqrt(v)) + 16
    while True:
        h = math.asinh((t + period) / v)
        below = -a * period
        above = _cumulant(v, h) - h * t - (h - a) * period
        if max(below, above) <= exponent - _IMAGES and (h - a) * period > 1.0:
            images = math.exp(below) + math.exp(above) / -math.expm1(-(h - a) * period)
            return period, images * (1.0 + 1e-9)
        period = math.ceil(period * _GROWTH)


def skellam_lower(variance: float, shift: int, delta: float) -> float:
    """The largest epsilon refuted at ``delta`` for Skellam noise of this variance and one
    coordinate moved by ``shift`` >= 1.

    Of the events X >= t, optimal as the law is log-concave: epsilon is at least ln((P(X >= t -
    shift) - delta) / P(X >= t)). The search over t costs tightness at most. At least 0. Direction:
    lower bound, rounded down.
    """
    return max(0.0, _best_event(variance, shift, delta)[0])


def skellam_one(variance: float, shift: int, delta: float) -> float:
    """An epsilon proven at ``delta`` for a single coordinate moved by at most ``shift`` >= 1, near
    the truth; math.inf if none was found.

    Usually within 1e-5 of ``skellam_lower``, relative. Direction: upper bound.
    """
    start, t = _best_event(variance, shift, delta)
    if start == -math.inf:
        return math.inf
    for step in (1e-7, 1e-6, 1e-5, 1e-4, 1e-3):
        epsilon = max(0.0, start) * (1.0 + step) + step * 1e-2
        if epsilon < _LARGEST_EXPONENT and skellam_divergence(variance, shift, epsilon, t) <= delta:
            return epsilon
    return math.inf


def skellam_divergence(v: float, shift: int, epsilon: float, near: int) -> float:
    """sup over t of f(t) = P(X >= t - shift) - e^epsilon P(X >= t): the divergence of the pair.
    ``near``: where it may be. Upper bound.

    Smaller shifts have smaller f, and the other direction is the mirror image. f(t + 1) - f(t) =
    P(t) (e^epsilon - r(t)), where r(t) = P(t - shift) / P(t) rises with t as the law is
    log-concave: f rises, then falls. Of a block of ``width`` points the mean of r, a ratio of
    differences of tails, is at most r at its end and at least r at its start. So the top lies at or
    above the start of a block whose mean is at most e^epsilon, at or below the end of one whose
    mean is at least that, and within a block f grows by at most the block's probability times
    e^epsilon minus the mean of the block before. 1.0 if no such blocks are found close by.
    """
    e_low, e_high = math.exp(epsilon) * (1.0 - 1e-14), math.exp(epsilon) * (1.0 + 1e-14)
    width = max(1, math.floor(math.sqrt(v) / _BLOCKS))
    first, last = near - _REACH * width, near + _REACH * width
    edges = list(range(first, last + 1, width))
    still = [skellam_tail(v, t) for t in edges]
    moved = [skellam_tail(v, t - shift) for t in edges]

    def mean(i: int) -> tuple[float, float]:
        """Of r over the block from edges[i] to edges[i + 1], from below and above."""
        shifted = moved[i][0] - moved[i + 1][1], moved[i][1] - moved[i + 1][0]
        fixed = still[i][0] - still[i + 1][1], still[i][1] - still[i + 1][0]
        return max(0.0, shifted[0]) / fixed[1] * (1.0 - 1e-14), shifted[1] / fixed[0] * (
            1.0 + 1e-14
        ) if fixed[0] > 0.0 else math.inf

    blocks = range(len(edges) - 1)
    starts = [i for i in blocks if mean(i)[1] <= e_low and i > 0]
    ends = [i for i in blocks if mean(i)[0] >= e_high]
    if not starts or not ends:
        return 1.0
    start, end = max(starts), min(ends) + 1
    top = max(moved[i][1] - e_low * still[i][0] for i in range(start, end + 1))
    if width == 1:
        return top * (1.0 + 1e-14) + 1e-300
    grown = max(
        (still[i][1] - still[i + 1][0]) * max(0.0, e_high - mean(i - 1)[0])
        for i in range(start, end)
    )
    return (top + grown) * (1.0 + 1e-14) + 1e-300


def _best_event(variance: float, shift: int, delta: float) -> tuple[float, int]:
    """(the largest epsilon refuted by an event X >= t that was met, its t); -inf if none refutes
    anything.
    """

    def refuted(t: int) -> float:
        shifted, fixed = skellam_tail(variance, t - shift)[0], skellam_tail(variance, t)[1]
        excess = (shifted - delta) * (1.0 - 1e-15)
        return (
            math.log(excess / fixed) * (1.0 - 1e-15) - 1e-15
            if excess > 0.0 and fixed > 0.0
            else -math.inf
        )

    deviations = math.sqrt(2.0 * variance * -math.log(delta)) + 2.0 * -math.log(delta)
    return _highest(refuted, -(-shift // 2), shift + math.ceil(deviations))


def _highest(value: Callable[[int], float], low: int, high: int) -> tuple[float, int]:
    """(largest value met, its place) in a search that finds the top of a function that rises and
    then falls.
    """
    best = -math.inf, low
    while high - low > 2:
        first = low + (high - low) // 3
        second = high - (high - low) // 3
        at_first, at_second = value(first), value(second)
        best = max(best, (at_first, first), (at_second, second))
        if at_first < at_second:
            low = first
        else:
            high = second
    return max([best, *((value(t), t) for t in range(low, high + 1))])
