"""Distributions: what they accept, and quantiles."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from shoal.domain import Numeric
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.numbers.distribution import Distribution, level_edges
from tests.cases import for_each

EDGES = np.array([0.0, 10.0, 20.0, 40.0, 50.0])
SHARES = np.array([0.25, 0.0, 0.5, 0.25])


def test_quantiles_are_linear_inside_a_bin() -> None:
    """Planted: the bin's middle for the linear rule -> this fails; the upper end of an empty
    stretch -> the second line fails.
    """
    spread = Distribution(EDGES, SHARES, "by hand", 0.9)
    assert spread.quantile(0.25) == 10.0
    assert [spread.quantile(q) for q in (0.0, 0.125, 0.5, 0.625, 0.75, 0.875, 1.0)] == [
        0.0,
        5.0,
        30.0,
        35.0,
        40.0,
        45.0,
        50.0,
    ]


def test_empty_ends_are_left_out() -> None:
    spread = Distribution(np.arange(6.0), np.array([0.0, 0.5, 0.5, 0.0, 0.0]), "by hand")
    assert (spread.quantile(0.0), spread.quantile(0.5), spread.quantile(1.0)) == (1.0, 2.0, 3.0)
    assert spread.answered is None


def test_quantiles_never_fall() -> None:
    """Over 1,001 shares, bins far apart in weight and in width."""
    spread = Distribution(
        np.array([-1.5e308, 0.0, 1.0, 1.5e308]), np.array([1e-12, 1.0 - 2e-12, 1e-12]), "by hand"
    )
    found = [spread.quantile(at / 1000) for at in range(1001)]
    assert all(a <= b for a, b in pairwise(found))
    assert all(math.isfinite(value) for value in found)
    assert found[-1] == 1.5e308


def test_the_arrays_are_copied_and_read_only() -> None:
    shares = SHARES.copy()
    spread = Distribution(EDGES, shares, "by hand")
    shares[0] = 9.0
    assert spread.shares[0] == 0.25
    with pytest.raises(ValueError, match="read-only"):
        spread.shares[0] = 9.0


@for_each("q", [-0.01, 1.01, math.nan, math.inf])
def test_impossible_shares_are_refused(q: float) -> None:
    with pytest.raises(ShoalError, match="share from 0 to 1") as caught:
        Distribution(EDGES, SHARES, "by hand").quantile(q)
    assert caught.value.kind is Kind.INVALID


@for_each(
    "edges, shares, method, answered, words",
    [
        (EDGES[:-1], SHARES, "m", None, "one edge more"),
        (np.array([0.0]), np.array([]), "m", None, "one edge more"),
        (EDGES[::-1], SHARES, "m", None, "increasing"),
        (np.append(EDGES[:-1], np.inf), SHARES, "m", None, "finite"),
        (np.array([-1.5e308, 1.5e308]), np.array([1.0]), "m", None, "finite widths"),
        (EDGES, SHARES * 1.1, "m", None, "sum to 1"),
        (EDGES, np.array([1.2, -0.2, 0.0, 0.0]), "m", None, "0 or more"),
        (EDGES, SHARES * np.nan, "m", None, "0 or more"),
        (EDGES, SHARES, "", None, "method"),
        (EDGES, SHARES, "m", 1.5, "share that answered"),
        (EDGES, SHARES, "m", math.nan, "share that answered"),
    ],
)
def test_anything_else_is_refused(
    edges: np.ndarray, shares: np.ndarray, method: str, answered: float | None, words: str
) -> None:
    with pytest.raises(ShoalError, match=words) as caught:
        Distribution(edges, shares, method, answered)
    assert caught.value.kind is Kind.INVALID


def test_bins_of_levels_meet_halfway() -> None:
    """A number spread evenly, rounded without bias, is spread evenly over the bins. Planted: bins
    of one width -> this fails.
    """
    assert level_edges(Numeric(10, 30, 3)).tolist() == [10.0, 15.0, 25.0, 30.0]
    edges = level_edges(Numeric(-0.3, 0.7, 11))
    assert (edges[0], edges[-1]) == (-0.3, 0.7)
    assert np.allclose(np.diff(edges), [0.05, *[0.1] * 9, 0.05])


def _walked(told: Distribution, q: float) -> float:
    """The quantile by walking through the bins, as if evenly spread."""
    reached, target = 0.0, q * math.fsum(told.shares.tolist())
    filled = [bin_ for bin_, share in enumerate(told.shares.tolist()) if share > 0.0]
    for bin_ in filled if q < 1.0 else ():
        share, low, high = (float(x[bin_]) for x in (told.shares, told.edges, told.edges[1:]))
        if reached + share >= target:
            return min(low + max(target - reached, 0.0) / share * (high - low), high)
        reached += share
    return float(told.edges[filled[-1] + 1])


def test_several_quantiles_at_once_are_the_same_to_the_bit() -> None:
    """Planted: the sums of all shares in place of those before a bin -> every quantile is off;
    levels read as bins -> those of levels are.
    """
    words = np.asarray(SeededEntropy("shares").words(40 * 12), dtype=np.uint64).reshape(40, 12)
    at = (0.0, 0.1, 0.25, 1 / 3, 0.5, 0.9, 0.999, 1.0)
    for row in words:
        raw = np.where(row % np.uint64(3) == 0, 0.0, (row >> np.uint64(11)).astype(np.float64))
        told = Distribution(np.arange(13.0) ** 1.5, raw / raw.sum(), "by hand")
        assert told.quantiles(at) == [_walked(told, q) for q in at]
        levels = Distribution(told.edges, told.shares, "by hand", of_levels=True)
        inside = [(q, levels.between(q)) for q in at[1:-1]]
        expected = [min(max(_walked(told, q), low), high) for q, (low, high) in inside]
        assert levels.quantiles(at)[1:-1] == expected
        assert [levels.quantile(q) for q in at] == levels.quantiles(at)
