"""Compound Poisson sums against fifty digits."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from shoal.accounting.numerics.compound import (
    LARGEST_SUM,
    at_least,
    highest,
    lowest,
    masses,
    tails,
)
from tests.cases import for_each

RATES = {
    "one size": [0.0, 482.4],
    "four sizes": [0.0, *[191.57 / 4] * 4],
    "rare and large": [0.0, 1e-3, 0.0, 0.0, 2e-4, 0.0, 0.0, 0.0, 0.0, 1e-7],
    "many": [0.0, 30.0, *[0.5] * 60],
    "more than floats hold": [0.0, 900.0, 400.0],
    "many, more than floats hold": [0.0, 900.0, *[10.0] * 20],
}


def exact_masses(rates: list[float], last: int) -> list[mpmath.mpf]:
    """P(S = s) by multiplying the Poisson laws of all sizes, one size after another."""
    with mpmath.workdps(50):
        found = [mpmath.mpf(1), *[mpmath.mpf(0)] * last]
        for size, rate in enumerate(rates):
            if size and rate:
                events = [
                    mpmath.exp(-mpmath.mpf(rate)) * mpmath.mpf(rate) ** k / mpmath.factorial(k)
                    for k in range(last // size + 1)
                ]
                found = [
                    mpmath.fdot((events[k], found[s - k * size]) for k in range(s // size + 1))
                    for s in range(last + 1)
                ]
        return found


@pytest.mark.parametrize("name", ["rare and large", "many"])
def test_masses_against_fifty_digits(name: str) -> None:
    """Within the error that is stated. Planted: ``at + 1`` for ``at`` below the fraction -> fails;
    the weights not reversed -> fails.
    """
    values, error = masses(np.array(RATES[name]), 120)
    assert error < 1e-10
    for value, truth in zip(values.tolist(), exact_masses(RATES[name], 120), strict=True):
        assert value == pytest.approx(float(truth), rel=error, abs=1e-280)


@for_each("name", list(RATES))
def test_windows_and_tails_hold_what_they_say(name: str) -> None:
    """Chernoff's windows lose no more than asked, and are not wide of it; tails are above the sums
    of the masses and meet them.

    Planted: t for -t in ``lowest``; a piece of few sizes scaled as the next one -> fails. Scaling
    left out of either recursion -> overflows.
    """
    rates = np.array(RATES[name])
    low, high = lowest(rates, math.log(1e-12)), highest(rates, math.log(1e-12))
    values, error = masses(rates, high + 3000)
    mean = float(np.sum(np.arange(len(rates)) * rates))
    variance = float(np.sum(np.arange(len(rates)) ** 2.0 * rates))
    assert math.fsum(values.tolist()) == pytest.approx(1.0, rel=2 * error)
    assert math.fsum(values[high + 1 :].tolist()) <= 1e-12
    assert math.fsum(values[:low].tolist()) <= 1e-12
    assert mean - 9 * math.sqrt(variance) - 30 <= low <= mean <= high
    assert high <= mean + 9 * math.sqrt(variance) + 12 * len(rates)
    bounds = tails(rates, 1, math.log(1e-30))
    for first in {1, int(mean) + 1, high}:
        truth = math.fsum(values[first:].tolist())
        assert truth <= bounds[first - 1] * (1 + 1e-12)
        assert bounds[first - 1] <= truth * (1 + 1e-9) + 1e-29
        assert at_least(rates, first, math.log(1e-30)) == pytest.approx(
            float(bounds[first - 1]), rel=1e-9
        )


def test_what_is_too_long_to_sum_is_bounded() -> None:
    """Planted: 0 beyond ``LARGEST_SUM`` -> fails."""
    rates = np.array([0.0, 2.0 * LARGEST_SUM])
    assert at_least(rates, 2 * LARGEST_SUM - 5000, -30.0) == 1.0
    # Ten standard deviations up: Chernoff's e^-50 and a little, the truth is 8e-24.
    assert 8e-24 < at_least(rates, 2 * LARGEST_SUM + 10_000, -30.0) < math.exp(-49.0)
