"""A Gaussian cut into cells is never more telling than the Gaussian, and nearly as telling."""

from __future__ import annotations

from itertools import pairwise

import mpmath
import pytest

from shoal.accounting import certify_approximate
from shoal.accounting.bounds import gaussian_cells as module
from shoal.accounting.bounds.approximate import approximate_lower
from shoal.accounting.bounds.gaussian_cells import gaussian_table
from shoal.approximate import GaussianLaw
from shoal.privacy import FiniteLaw
from tests.cases import for_each

SHIFTS = [0.001, 0.03, 0.2, 0.5, 1.0, 2.3, 4.0]


def made(m: float) -> FiniteLaw:
    found = gaussian_table(GaussianLaw(1.0, m))
    assert found is not None
    return found


def divergence(m: float, t: mpmath.mpf) -> mpmath.mpf:
    """sum (P - t Q)_+ of N(0, 1) against N(m, 1), in 50 digits."""
    shift, log = mpmath.mpf(m), mpmath.log(t)
    first, second = shift / 2 - log / shift, -shift / 2 - log / shift
    return mpmath.ncdf(first) - t * mpmath.ncdf(second)


@for_each("m", SHIFTS)
def test_it_is_a_post_processing(m: float) -> None:
    """At every t where the table's divergence bends, and at the ratios of the cells' edges, where
    nothing is lost but by rounding. Planted: p rounded down, and by 1e-9 -> fails.
    """
    table = made(m)
    with mpmath.workdps(50):
        pairs = [
            (mpmath.mpf(p) / table.total, mpmath.mpf(q) / table.total)
            for p, q in zip(*table.rows, strict=True)
        ]
        bends = sorted({p / q for p, q in pairs})
        middles = [(low + high) / 2 for low, high in pairwise(bends)]
        last = min(m / 2 + module._FAR, module._TELLING / m)
        steps = [mpmath.mpf(at) / module._CELLS for at in range(module._CELLS)]
        edges = [mpmath.exp(m * (module._MIDDLE + (last - module._MIDDLE) * at)) for at in steps]
        for t in (*bends, *middles, *edges, *(1 / edge for edge in edges), mpmath.mpf(1)):
            told = mpmath.fsum(max(mpmath.mpf(0), p - t * q) for p, q in pairs)
            assert told <= divergence(m, t) + mpmath.mpf(10) ** -45, float(t)


@for_each("m", [m for m in SHIFTS if m <= 1.0])
def test_little_is_lost(m: float) -> None:
    """Of the chi-squared information of one report, at most a twentieth. Planted: four cells a side
    -> fails.
    """
    table = made(m)
    told = sum((p - q) ** 2 / p for p, q in zip(*table.rows, strict=True)) / table.total
    assert told >= 0.95 * float(mpmath.expm1(m * m))


def test_values_too_far_apart_have_no_cells() -> None:
    """Planted: no limit -> fails."""
    assert gaussian_table(GaussianLaw(1.0, 4.1)) is None


@pytest.mark.parametrize("n", [1_000, 20_000])
def test_lower_ends_use_all_cells(n: int) -> None:
    """More than half as much again as a threshold shows, and never above the upper end. Planted:
    thresholds alone -> fails.
    """
    law = GaussianLaw(2.0, 1.0)
    found = certify_approximate(law, n, 1e-6)
    assert found.epsilon_lower == approximate_lower(law, n, 1e-6) < found.epsilon_upper
    thresholds = {1_000: 0.0425, 20_000: 0.0089}[n]
    assert found.epsilon_lower > 1.2 * thresholds
