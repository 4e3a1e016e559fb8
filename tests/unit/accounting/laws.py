"""Laws by their epsilon0, as the tests write them."""

from __future__ import annotations

import math
from fractions import Fraction

from shoal.privacy import KaryLaw, LocalPrivacy, PureLaw

_WEIGHT = 1 << 60


def kary(k: int, epsilon0: float) -> KaryLaw:
    """k-ary randomized response with a ratio within 1e-16 of e^epsilon0 (up to epsilon0 = 50 and
    beyond).
    """
    return KaryLaw(k, same=int(Fraction(math.exp(epsilon0)) * _WEIGHT), other=_WEIGHT)


def pure(epsilon0: float) -> PureLaw:
    return PureLaw(Fraction(math.exp(epsilon0)))


def named(name: str, epsilon0: float) -> LocalPrivacy:
    """``pure`` or ``krr<k>``, as in tests/vectors/accounting."""
    return pure(epsilon0) if name == "pure" else kary(int(name.removeprefix("krr")), epsilon0)
