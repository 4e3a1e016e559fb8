"""Medium n: certificates against the divergence of every dataset, by plain convolution (scipy,
floats).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy
from numpy.typing import NDArray

from shoal.accounting.accountant import certify
from shoal.privacy import FiniteLaw, KaryLaw
from tests.cases import for_each
from tests.sizes import size
from tests.unit.accounting.laws import kary

Floats = NDArray[np.float64]


def binary_views(n: int, m: int, if_one: float, if_zero: float) -> tuple[Floats, Floats]:
    """Law of the number of ones among n reports, m of the others having the answer 1; the victim
    answers 1 or 0.
    """
    ones = scipy.stats.binom.pmf(np.arange(m + 1), m, if_one)
    zeros = scipy.stats.binom.pmf(np.arange(n - m), n - 1 - m, if_zero)
    base = np.convolve(ones, zeros)
    return np.convolve(base, [1 - if_one, if_one]), np.convolve(base, [1 - if_zero, if_zero])


def worst(views: tuple[Floats, Floats], epsilon: float) -> float:
    p, q = views
    e = math.exp(epsilon)
    return max(float(np.maximum(p - e * q, 0).sum()), float(np.maximum(q - e * p, 0).sum()))


@for_each(
    "n, epsilon0, delta",
    [(50, 2.0, 1e-4), (200, 5.0, 1e-6), (200, 1.0, 1e-9), (700, 3.0, 1e-7)],
)
def test_binary_certificate_holds_every_dataset(n: int, epsilon0: float, delta: float) -> None:
    """m = 0 is not always the worst: all m are tried. Planted: ``epsilon_upper`` 15 % smaller ->
    this fails.
    """
    found = certify(kary(2, epsilon0), n, delta)
    answer = math.exp(epsilon0) / (math.exp(epsilon0) + 1)
    step = 1 if n <= 200 else size(20, 1)
    truths = [
        worst(binary_views(n, m, answer, 1 - answer), found.epsilon_upper)
        for m in range(0, n, step)
    ]
    assert max(truths) <= delta
    assert max(
        worst(binary_views(n, m, answer, 1 - answer), found.epsilon_lower)
        for m in range(0, n, step)
    ) >= delta * (1 - 1e-3)


@for_each("top, bottom", [(90, 20), (99, 97), (60, 1), (3, 1)])
@for_each("n, delta", [(40, 1e-3), (150, 1e-6)])
def test_asymmetric_certificate_holds_every_dataset(
    top: int, bottom: int, n: int, delta: float
) -> None:
    """Planted: one direction of ``binary_blanket`` alone -> this fails for (60, 1)."""
    law = FiniteLaw(((100 - bottom, bottom), (100 - top, top)))
    found = certify(law, n, delta)
    # where both ends meet either may be a hair smaller
    assert found.method in {"exact", "blanket", "local"}
    truths = [
        worst(binary_views(n, m, top / 100, bottom / 100), found.epsilon_upper) for m in range(n)
    ]
    assert max(truths) <= delta
    truths = [
        worst(binary_views(n, m, top / 100, bottom / 100), found.epsilon_lower) for m in range(n)
    ]
    assert found.epsilon_lower == 0.0 or max(truths) >= delta * (1 - 1e-7)


def ternary_base(counts: tuple[int, int, int], law: KaryLaw) -> Floats:
    """Law of (reports on 0, reports on 1) when counts[x] of the others answer x."""
    same, other = law.same / law.total, law.other / law.total
    base = np.ones((1, 1))
    for answer, count in enumerate(counts):
        zero = same if answer == 0 else other
        one = same if answer == 1 else other
        i = np.arange(count + 1)
        first = scipy.stats.binom.pmf(i, count, zero)
        second = scipy.stats.binom.pmf(i[None, :], (count - i)[:, None], one / (1 - zero))
        base = scipy.signal.convolve2d(base, first[:, None] * second)
    return base


def ternary_delta(base: Floats, law: KaryLaw, epsilon: float) -> float:
    same, other = law.same / law.total, law.other / law.total

    def view(zero: float, one: float) -> Floats:
        both: Floats = scipy.signal.convolve2d(base, np.array([[1 - zero - one, one], [zero, 0.0]]))
        return both

    return worst((view(same, other), view(other, same)), epsilon)


@pytest.mark.parametrize(("epsilon0", "delta"), [(1.0, 1e-3), (2.5, 1e-4), (4.0, 1e-2)])
def test_ternary_certificate_holds_every_dataset(epsilon0: float, delta: float) -> None:
    """k = 3, all ways of splitting the others. Planted: the projected divergence as the upper bound
    -> fails at epsilon0 = 4.
    """
    n = size(13, 24)
    law = kary(3, epsilon0)
    found = certify(law, n, delta)
    assert found.epsilon_lower > 0.0
    largest = 0.0
    for zeros in range(n):
        for ones in range(n - zeros):
            base = ternary_base((zeros, ones, n - 1 - zeros - ones), law)
            largest = max(largest, ternary_delta(base, law, found.epsilon_upper))
    assert largest <= delta
    alone = [
        ternary_delta(ternary_base(counts, law), law, found.epsilon_lower)
        for counts in [(0, 0, n - 1), (n - 1, 0, 0)]
    ]
    assert max(alone) >= delta * (1 - 1e-7)
