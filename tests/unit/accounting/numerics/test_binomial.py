"""Binomial probabilities against 60-digit arithmetic, windows against exact tails."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import scipy

from shoal.accounting.numerics.binomial import half_width, log_pmf, pmf, stirling_error
from tests.cases import for_each
from tests.sizes import size

CASES = [
    (n, p)
    for n in (1, 2, 17, 100, 10_000, 1_000_000, 10_000_000)
    for p in (0.5, 0.25, 1e-3, 1 - 1e-3, 1e-7, 0.999999)
]


def exact_log_pmf(x: int, n: int, p: float, q: float) -> float:
    with mpmath.workdps(60):
        lead = mpmath.loggamma(n + 1) - mpmath.loggamma(x + 1) - mpmath.loggamma(n - x + 1)
        # p and q are two roundings of one probability: the formula depends on their normalised
        # values only.
        total = mpmath.mpf(p) + mpmath.mpf(q)
        return float(
            lead
            + x * mpmath.log(mpmath.mpf(p) / total)
            + (n - x) * mpmath.log(mpmath.mpf(q) / total)
        )


def test_stirling_error_against_mpmath() -> None:
    """Planted: the sign of the 1/1260 term -> fails at n = 16 by 2e-9."""
    for n in [1, 2, 15, 16, 17, 100, 10**7]:
        with mpmath.workdps(40):
            exact = (
                mpmath.loggamma(n + 1)
                - (n + mpmath.mpf(1) / 2) * mpmath.log(n)
                + n
                - mpmath.log(2 * mpmath.pi) / 2
            )
        assert float(stirling_error(np.array([n]))[0]) == pytest.approx(
            float(exact), rel=1e-11, abs=1e-15
        )


@for_each("n, p", CASES)
def test_log_pmf_against_mpmath(n: int, p: float) -> None:
    """Absolute error of the logarithm below 1e-11, up to 40 standard deviations out, at n up to
    1e7.

    Planted: lgamma(n + 1) - lgamma(x + 1) - lgamma(n - x + 1) instead of Loader's form -> 1e-8 at n
    = 1e7, this fails.
    """
    sd = math.sqrt(n * p * (1 - p))
    count = size(15, 60)
    points = {round(n * p + z * sd) for z in np.linspace(-40, 40, count)} | {0, 1, n - 1, n}
    x = np.array(sorted(v for v in points if 0 <= v <= n), dtype=np.int64)
    found = log_pmf(x, n, p, 1 - p)
    for value, got in zip(x, found, strict=True):
        exact = exact_log_pmf(int(value), n, p, 1 - p)
        # Beyond -800 the probability is 0 in floats: only the relative error matters there.
        assert abs(got - exact) <= (1e-11 if exact > -800 else 1e-12 * abs(exact))


def test_outside_is_zero_and_all_sums_to_one() -> None:
    """Planted: no mask -> the entries outside are not 0."""
    x = np.arange(-3, 25)
    law = pmf(x, 20, 0.3, 0.7)
    assert law[:3].tolist() == [0.0] * 3
    assert law[24:].tolist() == [0.0] * 4
    assert math.fsum(law) == pytest.approx(1.0, abs=1e-14)


@for_each("log_tail", [-5.0, -40.0, -120.0])
@for_each("n, p", [(10, 0.5), (1000, 0.01), (10_000, 0.37), (100_000, 0.9), (10_000_000, 1e-6)])
def test_windows_lose_no_more_than_they_say(n: int, p: float, log_tail: float) -> None:
    """Bernstein against scipy's tails. Planted: half the width -> this fails."""
    reach = float(half_width(n, p, 1 - p, log_tail))
    assert scipy.stats.binom.logsf(math.ceil(n * p + reach) - 1, n, p) <= log_tail
    assert scipy.stats.binom.logcdf(math.floor(n * p - reach), n, p) <= log_tail
