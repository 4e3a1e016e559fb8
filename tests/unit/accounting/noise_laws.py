"""The noise of sums, computed another way than the accountant does: whole probability tables, and
divergences of them.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]


def skellam_log_pmf(variance: float, reach: int) -> Table:
    """float64[2 reach + 1]: ln P(x) for x = -reach .. reach, by the downward recurrence of Bessel
    functions.
    """
    ratio, logs = 0.0, np.empty(reach)
    for x in range(reach + 200, -1, -1):
        ratio = 1.0 / (2.0 * (x + 1) / variance + ratio)  # I(x + 1) / I(x)
        if x < reach:
            logs[x] = math.log(ratio)
    right = np.concatenate([[0.0], np.cumsum(logs)])
    both = np.concatenate([right[:0:-1], right])
    return both - math.log(float(np.exp(both).sum()))


def skellam_renyi(alpha: int, variance: float, shift: int) -> float:
    """The Renyi divergence of one coordinate, to about 1e-12."""
    reach = int(200 + 20 * math.sqrt(variance) + 3 * shift * (alpha + 1))
    logs = skellam_log_pmf(variance, reach)
    terms = alpha * logs[: logs.size - shift] + (1 - alpha) * logs[shift:]
    top = float(terms.max())
    assert max(terms[0], terms[-1]) < top - 45  # nothing is cut off
    return (top + math.log(float(np.exp(terms - top).sum()))) / (alpha - 1)


def polya_pmf(scale: int, r: float, reach: int) -> Table:
    """float64[2 reach + 1]: P(x) of the difference of two negative binomials of exponent r, by its
    series, for x = -reach .. reach.
    """
    p = mpmath.exp(-mpmath.mpf(65536) / scale)
    right = []
    for x in range(reach + 1):
        first = mpmath.rf(r, x) / mpmath.factorial(x) * p**x * (1 - p) ** (2 * r)
        right.append(float(first * mpmath.hyp2f1(r, r + x, x + 1, p * p)))
    return np.array(right[:0:-1] + right)


def divergence(ours: Table, shift: tuple[int, ...], epsilon: float) -> float:
    """sum of (P(x - shift) - e^epsilon P(x))_+ over a table P of as many dimensions as ``shift``;
    what lies outside is left out.
    """
    moved, still = (
        ours[
            tuple(
                slice(max(0, -s if away else s), ours.shape[i] + min(0, -s if away else s))
                for i, s in enumerate(shift)
            )
        ]
        for away in (True, False)
    )
    return float(np.maximum(moved - math.exp(epsilon) * still, 0.0).sum())


def product(table: Table, dimension: int) -> Table:
    """The law of independent coordinates."""
    joint = table
    for _ in range(dimension - 1):
        joint = np.multiply.outer(joint, table)
    return joint


def true_epsilon(ours: Table, shift: tuple[int, ...], delta: float) -> float:
    """The epsilon at ``delta`` of that pair, by bisection to 1e-9."""
    low, high = 0.0, 1.0
    if divergence(ours, shift, 0.0) <= delta:
        return 0.0
    while divergence(ours, shift, high) > delta:
        low, high = high, 2.0 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if divergence(ours, shift, middle) > delta else (low, middle)
    return high
