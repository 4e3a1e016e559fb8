"""Privacy by distance: against fractions over all places and reports of small maps, and against
every dataset behind the shuffler.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations

import mpmath
import numpy as np
import pytest

from shoal.accounting.accountant import certify
from shoal.accounting.metric import (
    epsilon_per_km,
    epsilon_within,
    metric_guarantee,
    moves_upper,
    within,
)
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.maps.planar import PlanarResponse, designed, plane_of
from shoal.privacy import FiniteLaw
from shoal.questions.places import Places
from shoal.questions.plane import Plane
from tests.cases import for_each
from tests.unit.accounting.brute import Truth

KM = 1_000_000
MAPS = [Plane(2, 3, 400_000, 700_000), Plane(3, 3, KM, KM), Plane(1, 5, 150_000, 900_000)]


def made(plane: Plane, epsilon0: float, *, wide: bool) -> PlanarResponse:
    labels = tuple(f"cell {i}" for i in range(plane.cells + 1))
    return designed(labels, plane, epsilon0, wide=wide)


def log_ratio(law: FiniteLaw, x: int, other: int) -> mpmath.mpf:
    pairs = zip(law.rows[x], law.rows[other], strict=True)
    most = max(Fraction(a, b) for a, b in pairs)
    with mpmath.workdps(50):
        return mpmath.log(mpmath.mpf(most.numerator) / most.denominator)


@for_each("plane", MAPS)
@for_each("wide", [False, True])
@for_each("epsilon0", [0.1, 2.0, 9.0])
def test_per_kilometre_is_the_largest_over_all_places_and_reports(
    plane: Plane, wide: bool, epsilon0: float
) -> None:
    """In 50 digits: never below, and at most 1e-9 of itself above. Planted: the normalising sums
    left out (the decay itself) -> the maps without a border fail; neighbours alone -> fails;
    elsewhere among the pairs -> too large.
    """
    law = made(plane, epsilon0, wide=wide).privacy()
    most = max(
        log_ratio(law, x, other)
        / mpmath.sqrt(
            ((x // plane.columns - other // plane.columns) * plane.height) ** 2
            + ((x % plane.columns - other % plane.columns) * plane.width) ** 2
        )
        for x, other in permutations(range(plane.cells), 2)
    )
    stated = epsilon_per_km(law, plane)
    assert most * KM <= stated <= most * KM * (1 + mpmath.mpf(10) ** -9)


def test_a_border_promises_the_decay_and_none_up_to_twice_of_it() -> None:
    """What the module of weights proves. Planted: the border on one side alone -> fails."""
    plane = Plane(4, 4, KM, KM)
    for epsilon0 in (0.5, 2.0, 6.0):
        cut, wide = (made(plane, epsilon0, wide=each) for each in (False, True))
        rates = [-math.log(one.decay / 2**64) * KM for one in (cut, wide)]
        found = [epsilon_per_km(one.privacy(), plane) for one in (cut, wide)]
        # distances of millimetres are rounded down: by a millionth of the least
        assert rates[0] * 1.05 < found[0] <= 2 * rates[0] * (1 + 1e-5)
        assert rates[1] * (1 - 1e-5) <= found[1] < 1.2 * rates[1]
        assert found[0] / rates[0] > found[1] / rates[1]


@dataclass(frozen=True)
class Street:
    """Three places in a row, and elsewhere: not all are told apart from it as easily."""

    law: FiniteLaw
    plane: Plane

    def privacy(self) -> FiniteLaw:
        return self.law


@for_each(
    "rows, most",
    [
        (((6, 6, 6, 6), (3, 15, 3, 3), (6, 6, 6, 6), (6, 3, 6, 9)), 15 / 3),
        (((6, 6, 6, 6), (7, 7, 7, 3), (6, 6, 6, 6), (2, 2, 2, 18)), 18 / 3),
    ],
)
def test_elsewhere_is_told_apart_from_the_place_that_is_least_like_it(
    rows: tuple[tuple[int, ...], ...], most: float
) -> None:
    """By hand, both ways. Planted: the first place alone; places against elsewhere alone, or
    elsewhere against places -> each fails.
    """
    stated = metric_guarantee(
        Street(FiniteLaw(rows), Plane(1, 3, KM, KM)), 10, 1e-6, 2.0
    ).epsilon_elsewhere
    assert math.log(most) <= stated <= math.log(most) + 1e-11


@for_each("plane", MAPS)
def test_moves_are_about_all_points_within_the_radius(plane: Plane) -> None:
    """Exact, over all pairs of cells. Planted: distances of centres for those of nearest points ->
    fails: neighbours have points that touch.
    """
    law = made(plane, 4.0, wide=False).privacy()
    for radius in (0.0, 400.0, 700.0, 1500.0):
        asked = within(plane, radius)
        assert not asked[-1].any()
        assert not asked[:, -1].any()
        most = mpmath.mpf(0)
        for x, other in permutations(range(plane.cells), 2):
            down, across = (
                max(0, abs(a - b) - 1)
                for a, b in zip(divmod(x, plane.columns), divmod(other, plane.columns), strict=True)
            )
            near = (down * plane.height) ** 2 + (across * plane.width) ** 2 <= (radius * 1e3) ** 2
            assert asked[x, other] == near
            if near:
                most = max(most, log_ratio(law, x, other))
        stated = epsilon_within(law, asked)
        assert most <= stated <= most + mpmath.mpf(10) ** -11


def test_cells_end_at_whole_microdegrees() -> None:
    """The northern edge of row 2 and the southern one of row 4 are 999.93 m apart on the ground,
    and more than 1,000 m on the plane: edges are moved by up to a microdegree. Planted: gaps of the
    plane alone -> fails.
    """
    places = Places(-31_653, 10_000_000, 31_653, 10_095_000, 7, 10)
    plane = plane_of(places)
    assert plane.gap(2, 0) > KM
    south, north = places.row_edges[3:5]
    assert (north - south) / 1e6 * math.pi / 180 * 6_335_439.4 < 1_000.0
    assert within(plane, 1_000.0)[20, 40]
    assert not within(plane, 999.0)[20, 40]


# A map of 2 x 2 cells and elsewhere, in small integers that are their own mirror images.
SMALL = FiniteLaw(
    (
        (24, 12, 12, 6, 2),
        (12, 24, 6, 12, 2),
        (12, 6, 24, 12, 2),
        (6, 12, 12, 24, 2),
        (8, 8, 8, 8, 24),
    )
)
SQUARE = Plane(2, 2, KM, KM)
# Two neighbours whose reports somebody far away hardly ever makes.
ROAD = FiniteLaw(((30, 10, 4, 4), (10, 30, 4, 4), (1, 1, 42, 4), (2, 2, 4, 40)))
# A street with a wall between both sides of its middle: there a move shows more than at its ends.
WALL = FiniteLaw(
    (
        (18, 14, 4, 4, 2),
        (10, 22, 4, 4, 2),
        (4, 4, 22, 10, 2),
        (4, 4, 14, 18, 2),
        (2, 2, 2, 2, 34),
    )
)
STEPS = [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)]
SIDES = [(0, 1), (0, 2), (1, 0), (1, 3), (2, 0), (2, 3), (3, 1), (3, 2)]


@for_each(
    "law, plane, pairs",
    [
        (SMALL, SQUARE, SIDES),
        (ROAD, Plane(1, 3, KM, KM), [(0, 1), (1, 0)]),
        (WALL, Plane(1, 4, KM, KM), STEPS),
    ],
)
def test_a_move_gives_away_no_more_than_is_proven(
    law: FiniteLaw, plane: Plane, pairs: list[tuple[int, int]]
) -> None:
    """Three reports, every answer of the others, both places of every move, in fractions: the
    divergence at the stated epsilon is at most delta. And a short move is proven to give away less
    than any change does.

    Planted: the blanket of the two places alone, as if the others were near -> fails on the road;
    the ratio of the two places in the clones' theorem -> fails there too; moves from the first
    place alone -> fails where the middle shows more.
    """
    n, asked = 3, np.zeros((len(law.rows),) * 2, dtype=np.bool_)
    for pair in pairs:
        asked[pair] = True
    truth = Truth([[Fraction(each, law.total) for each in row] for row in law.rows], n)
    for delta in (0.3, 0.1, 0.02):
        whole = certify(law, n, delta).epsilon_upper
        local = epsilon_within(law, asked)
        stated = moves_upper(law, plane, asked, n, delta, min(local, whole))
        e = Fraction(math.exp(stated))
        worst = max(truth.delta_at(others, pair, e) for others in truth._views for pair in pairs)
        assert worst <= Fraction(delta) * (1 + Fraction(1, 10**9))
        assert stated < whole


def test_without_anybody_else_a_move_is_what_one_report_says() -> None:
    asked = within(SQUARE, 0.0)
    assert moves_upper(SMALL, SQUARE, asked, 1, 1e-6, 1.25) == 1.25


def test_a_guarantee_says_what_a_distance_buys() -> None:
    """Planted: the diagonal of a cell left out -> fails for two points on both sides of a line."""
    plane = Plane(6, 6, 500_000, 500_000)
    mechanism = made(plane, 6.0, wide=True)
    certificate = certify(mechanism.privacy(), 20_000, 1e-6)
    found = metric_guarantee(mechanism, 20_000, 1e-6, certificate.epsilon_upper)
    assert found.moves == tuple(sorted(found.moves, key=lambda move: move.radius_m))
    assert len(found.moves) >= 2
    for move in found.moves:
        assert move.epsilon_upper <= min(move.epsilon0, certificate.epsilon_upper)
        assert move.epsilon0 <= found.between(move.radius_m) + 1e-9
    assert found.moves[0].epsilon_upper < 0.6 * certificate.epsilon_upper
    law = mechanism.privacy()
    assert found.between(0.0) >= float(log_ratio(law, 0, 7))  # over a corner
    assert found.between(1e9) == found.epsilon0
    assert found.repeated(30) >= 30 * found.epsilon_per_km
    assert found.epsilon_elsewhere == pytest.approx(6.0, abs=1e-6)


def test_bad_numbers_are_refused() -> None:
    mechanism = made(SQUARE, 2.0, wide=True)
    for wrong in (-1.0, math.nan, math.inf):
        with pytest.raises(ShoalError, match="radius") as caught:
            metric_guarantee(mechanism, 10, 1e-6, 2.0, (wrong,))
        assert caught.value.kind is Kind.CONFIG
    with pytest.raises(ShoalError, match="distance"):
        metric_guarantee(mechanism, 10, 1e-6, 2.0).between(-1.0)
    with pytest.raises(ShoalError, match="delta"):
        metric_guarantee(mechanism, 10, 2.0, 2.0)
    with pytest.raises(ShoalError, match="a row for every cell"):
        epsilon_per_km(SMALL, Plane(3, 3, KM, KM))


def test_a_large_map_has_both_ends() -> None:
    """Of 13 x 13 cells and more all pairs are too many to be looked at: the upper end is that of
    any randomizer of its epsilon0, the lower one of datasets that are climbed to. Planted: tables
    of that size not searched -> 0, fails; the others with the victim's own place, and not with the
    best -> too low, fails.
    """
    certificate = certify(
        made(Plane(13, 13, 500_000, 500_000), 6.0, wide=True).privacy(), 100_000, 1e-6
    )
    assert 0.75 * certificate.epsilon_upper < certificate.epsilon_lower < certificate.epsilon_upper
