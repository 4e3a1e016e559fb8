"""What binary accounting is compared with: rationals, and every dataset."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from shoal.accounting.numerics.binomial import pmf
from shoal.privacy import epsilon0_upper
from tests.unit.accounting.laws import kary

Floats = NDArray[np.float64]
Pair = tuple[Fraction, Fraction]
PAIRS: list[Pair] = [
    (Fraction(9, 10), Fraction(1, 10)),
    (Fraction(1, 2) + Fraction(1, 50), Fraction(1, 2)),
    (Fraction(97, 100), Fraction(2, 5)),
    (Fraction(3, 5), Fraction(1, 100)),
    (Fraction(3, 100), Fraction(1, 100)),
    (Fraction(999, 1000), Fraction(1, 10**6)),
]


def symmetric(epsilon0: float) -> tuple[Fraction, Fraction, float]:
    law = kary(2, epsilon0)
    return Fraction(law.same, law.total), Fraction(law.other, law.total), epsilon0_upper(law)


def local(top: Fraction, bottom: Fraction) -> float:
    return math.log(max(top / bottom, (1 - bottom) / (1 - top))) * (1 + 1e-15)


def float_views(n: int, m: int, top: float, bottom: float) -> tuple[Floats, Floats]:
    """As in exact rationals, by convolution of positive numbers: relative accuracy, sizes up to a
    few thousand.
    """
    ones = pmf(np.arange(m + 1), m, top, 1 - top) if m else np.ones(1)
    zeros = pmf(np.arange(n - m), n - 1 - m, bottom, 1 - bottom) if n - 1 - m else np.ones(1)
    base = np.convolve(ones, zeros)
    return np.convolve(base, [1 - top, top]), np.convolve(base, [1 - bottom, bottom])


def float_delta(n: int, m: int, top: float, bottom: float, epsilon: float) -> float:
    p, q = float_views(n, m, top, bottom)
    e = math.exp(epsilon)
    return max(float(np.maximum(p - e * q, 0).sum()), float(np.maximum(q - e * p, 0).sum()))
