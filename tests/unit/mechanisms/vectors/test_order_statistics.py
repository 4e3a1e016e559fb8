"""Means of the largest of normal numbers against closed forms, published values and other sums."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from shoal.errors import Kind, ShoalError
from shoal.mechanisms.vectors.order_statistics import largest
from tests.cases import for_each

# David and Nagaraja, table 3.2.1 and its sources: the largest of n.
KNOWN = [
    (2, 1 / math.sqrt(math.pi)),
    (3, 1.5 / math.sqrt(math.pi)),
    (4, 1.02937_53730),
    (5, 1.16296_44736),
    (10, 1.53875_27308),
]


@for_each("count, mean", KNOWN)
def test_the_largest_of_few(count: int, mean: float) -> None:
    """Planted: K for K - t in the Beta law -> fails."""
    assert largest(count, 1)[0] == pytest.approx(mean, abs=1e-9)


@for_each("count, inside", [(2, 1), (8, 4), (1_024, 512), (65_536, 32_768)])
def test_half_of_all_have_the_mean_square_of_all(count: int, inside: int) -> None:
    """By symmetry 1. Planted: the 1 left out -> fails."""
    assert largest(count, inside)[1] == pytest.approx(1.0, abs=1e-9)


def test_squares_of_the_largest_of_three() -> None:
    """1 + sqrt(3) / (2 pi), in closed form."""
    assert largest(3, 1)[1] == pytest.approx(1.0 + math.sqrt(3.0) / (2.0 * math.pi), abs=1e-9)


def test_all_but_one_are_what_the_least_leaves() -> None:
    """t = K - 1: the mean of all is 0, and the least is the largest's opposite."""
    for count in (2, 5, 64):
        assert largest(count, count - 1)[0] == pytest.approx(
            largest(count, 1)[0] / (count - 1), rel=1e-9
        )


def test_many_come_near_the_tail_of_the_law() -> None:
    """K to infinity at t / K = 1 / 16: phi(z) / q from below. Planted: t / K for K / t -> fails."""
    z = 1.5341205443525459
    limit = 16.0 * math.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi)
    found = [largest(16 * t, t)[0] for t in (1, 4, 64, 4_096)]
    assert all(a < b < limit for a, b in pairwise(found))
    assert found[-1] == pytest.approx(limit, rel=4e-5)


@for_each("count, inside", [(4, 0), (4, 4), (1 << 17, 1)])
def test_what_is_none_is_refused(count: int, inside: int) -> None:
    with pytest.raises(ShoalError) as caught:
        largest(count, inside)
    assert caught.value.kind is Kind.INVALID
