"""Projective spaces against lists of their vectors."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.parts.one_device import OneDevice
from shoal.mechanisms.parts.projective_space import MOST_VECTORS, Space
from tests.cases import for_each

SMALL = [(2, 2), (2, 4), (3, 3), (5, 3), (7, 2), (3, 4)]


def listed(space: Space) -> list[tuple[int, ...]]:
    every = product(range(space.field), repeat=space.width)
    return [each for each in every if next((x for x in each if x), 0) == 1]


def spelt(field: int, entries: tuple[int, ...]) -> int:
    number = 0
    for entry in entries:
        number = number * field + entry
    return number


def orthogonal(space: Space, one: tuple[int, ...], two: tuple[int, ...]) -> bool:
    return sum(a * b for a, b in zip(one, two, strict=True)) % space.field == 0


@for_each("field, width", SMALL)
def test_points_are_numbered_as_their_vectors_rise(field: int, width: int) -> None:
    """Every multiple of a point's vector is that point, alone and in an array. Planted: q - 1 for
    the exponent of the inverse; q - 1 for q - 2 in ``vector`` -> fails.
    """
    space = Space(field, width)
    points = listed(space)
    assert space.points == len(points)
    for number, point in enumerate(points):
        assert space.vector(number) == spelt(field, point)
        for factor in range(1, field):
            assert space.point(spelt(field, tuple(x * factor % field for x in point))) == number
    vectors = space.vector(np.arange(space.points))
    assert vectors.tolist() == [spelt(field, point) for point in points]
    assert space.point(vectors).tolist() == list(range(space.points))


@for_each("field, width", SMALL)
def test_hyperplanes_have_and_share_as_many_points_as_is_said(field: int, width: int) -> None:
    """Planted: the points of one entry more counted as ``shared`` -> fails."""
    space = Space(field, width)
    points = listed(space)
    planes = [{y for y in points if orthogonal(space, x, y)} for x in points]
    assert {len(plane) for plane in planes} == {space.support}
    assert len(points) - space.support == space.others
    shared = {len(planes[0] & plane) for plane in planes[1:]} | {
        len(planes[-1] & plane) for plane in planes[:-1]
    }
    assert shared == {space.shared}


@for_each("field, width", SMALL)
def test_each_point_inside_and_outside_has_one_number(field: int, width: int) -> None:
    """A bijection for every cell: uniform numbers make uniform points. Planted: ``low`` and the
    entries before the solved one exchanged; a product of 2 outside -> fails for odd fields.
    """
    space, draws = Space(field, width), OneDevice(SeededEntropy(1))
    points = listed(space)
    for cell, vector in enumerate(points):
        plane = {y for y, point in enumerate(points) if orthogonal(space, vector, point)}
        inside = [space.solution(draws, cell, True, each, 0) for each in range(space.support)]
        outside = [space.solution(draws, cell, False, 0, each) for each in range(space.others)]
        assert sorted(inside) == sorted(plane)
        assert sorted(outside) == sorted(set(range(space.points)) - plane)


@for_each("field, width", [*SMALL, (11, 3), (2, 9)])
def test_sums_are_those_over_hyperplanes(field: int, width: int) -> None:
    """Exactly, at counts for which rounding is needed. Planted: no mirroring of the last axis; the
    rows not added -> fails.
    """
    space = Space(field, width)
    points = np.array(listed(space))
    reported = (np.arange(space.points, dtype=np.int64) ** 3 * 7_919) % 1_000_003
    planes = (points @ points.T) % field == 0
    expected = planes @ reported
    sums = space.sums(reported.astype(np.float64), int(reported.sum()))
    assert sums.dtype == np.float64
    assert sums.tolist() == expected.tolist()


def test_sums_of_a_billion_reports_are_exact_in_the_largest_space() -> None:
    """One point has nearly all of 10^9 reports: the sum of a hyperplane is that, or not. Planted:
    single precision in the table -> fails.
    """
    space = Space(251, 3)
    reported = np.ones(space.points)
    reported[777] = 1e9
    sums = space.sums(reported, int(reported.sum()))
    vectors = space.vector(np.arange(space.points))
    meets = space.product(vectors, np.full_like(vectors, space.vector(777))) == 0
    assert sums.tolist() == np.where(meets, 1e9 + space.support - 1, space.support).tolist()


@for_each("k, field, width", [(2, 2, 2), (3, 2, 2), (4, 2, 3), (1024, 31, 4), (1024, 37, 3)])
def test_the_space_is_the_smallest_that_has_the_points(k: int, field: int, width: int) -> None:
    space = Space.of(field, k)
    assert space == Space(field, width)
    assert space.points >= k
    assert width == 2 or Space(field, width - 1).points < k


@for_each(
    "field, k, said",
    [(6, 20, "give a prime"), (1, 20, "give a prime"), (257, 300, "2\\^24"), (4099, 9, "2\\^24")],
)
def test_other_fields_are_refused(field: int, k: int, said: str) -> None:
    """Each says what to give. Planted: 6 taken for a prime -> fails."""
    assert not Space.fits(field, k)
    with pytest.raises(ShoalError, match=said) as caught:
        Space.of(field, k)
    assert caught.value.kind is Kind.INVALID
    assert MOST_VECTORS == 1 << 24


def test_a_space_has_two_entries_or_more() -> None:
    with pytest.raises(ShoalError, match="at most"):
        Space(3, 1)
