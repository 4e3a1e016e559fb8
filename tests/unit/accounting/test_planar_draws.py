"""What a place on a map really tells: rows counted out from the words that a device's draw compares
with, against every promise by distance, and whole batches against the promise behind the shuffler.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations_with_replacement, pairwise, permutations

from shoal.accounting.accountant import certify
from shoal.accounting.metric import metric_guarantee
from shoal.arrays import NDArray, np
from shoal.mechanisms.maps.planar import PlanarResponse, designed
from shoal.questions.plane import Plane
from tests.cases import for_each
from tests.unit.accounting.brute import Law, add_one, divergence

KM = 1_000_000
WORDS = 1 << 64
PLANES = (Plane(2, 2, KM, 700_000), Plane(1, 4, 300_000, KM))


class OneWord:
    """Entropy that has one word."""

    def __init__(self, word: int) -> None:
        self._word = word

    def bytes(self, count: int) -> bytes:
        assert count == 8
        return self._word.to_bytes(8, "little")

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.full(count, self._word, dtype=np.uint64)


def counted(made: PlanarResponse, value: int) -> list[int]:
    """How many of all 2^64 words give each report, which rises with the word: by bisection."""

    def report(word: int) -> int:
        (one,) = made.randomize_one(value, OneWord(word))
        return int.from_bytes(one, "big")

    ends = [0]
    for output in range(made.response.table.outputs):
        low, high = ends[-1], WORDS  # the first word whose report is above
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if report(middle) <= output else (low, middle)
        ends.append(low)
    assert ends[-1] == WORDS
    cell = np.array([value], dtype=np.int64)
    for word in {*ends[:-1], *(end - 1 for end in ends[1:])}:  # a batch draws likewise
        assert made.randomize(cell, OneWord(word)).tobytes()[-1] == report(word)
    return [b - a for a, b in pairwise(ends)]


def made_of(plane: Plane, epsilon0: float, *, wide: bool) -> PlanarResponse:
    labels = tuple(f"cell {i}" for i in range(plane.cells + 1))
    return designed(labels, plane, epsilon0, wide=wide)


@for_each("plane", PLANES)
@for_each("wide", [False, True])
def test_promises_by_distance_hold_of_what_is_drawn(plane: Plane, wide: bool) -> None:
    """Of points anywhere in any two cells, the nearest two of them above all; elsewhere is as far
    from all as is said. Planted: the diagonal left out of ``between`` -> fails; a draw that gives
    the next report one word too early -> fails.
    """
    made = made_of(plane, 3.0, wide=wide)
    rows = [counted(made, value) for value in range(plane.cells + 1)]
    assert tuple(map(tuple, rows)) == made.privacy().rows
    certificate = certify(made.privacy(), 30, 1e-6)
    found = metric_guarantee(made, 30, 1e-6, certificate.epsilon_upper)
    for x, other in permutations(range(plane.cells + 1), 2):
        ratio = max(Fraction(a, b) for a, b in zip(rows[x], rows[other], strict=True))
        told = math.log(ratio) * (1 - 1e-14)
        assert told <= found.epsilon0
        if plane.cells in (x, other):
            assert told <= found.epsilon_elsewhere
            continue
        (row, column), (other_row, other_column) = plane.place(x), plane.place(other)
        gap = plane.gap(row - other_row, column - other_column) / 1000.0
        assert told <= found.between(gap)
        apart = math.hypot((row - other_row) * plane.height, (column - other_column) * plane.width)
        assert told <= found.epsilon_per_km * apart / KM * (1 + 1e-12)
        for move in found.moves:
            assert gap > move.radius_m or told <= move.epsilon0


@for_each("radius, delta", [(0.0, 0.05), (400.0, 0.05), (0.0, 0.01)])
def test_moves_behind_the_shuffler_hold_of_what_is_drawn(radius: float, delta: float) -> None:
    """Four reports, all answers of the others, elsewhere among them, in fractions. Planted: the
    bound of three times as many devices -> fails.
    """
    plane, n = Plane(1, 3, 500_000, KM), 4
    made = made_of(plane, 2.0, wide=True)
    rows = [[Fraction(each, WORDS) for each in counted(made, value)] for value in range(4)]
    certificate = certify(made.privacy(), n, delta)
    (move,) = metric_guarantee(made, n, delta, certificate.epsilon_upper, (radius,)).moves
    for others in combinations_with_replacement(rows, n - 1):
        base = Law({(0,) * 4: 1}, 1)
        for row in others:
            base = add_one(base, row)
        views = [add_one(base, row) for row in rows]
        for x, other in permutations(range(4), 2):
            gap = plane.gap(0, x - other) / 1000.0
            near = max(x, other) < 3 and gap <= radius
            stated = move.epsilon_upper if near else certificate.epsilon_upper
            e = Fraction(math.exp(stated)) * (1 + Fraction(1, 10**12))
            assert divergence(views[x], views[other], e) <= Fraction(delta)
