"""Pairs of inputs that are left out of the blanket's sums: never the largest, by exact arithmetic
at small sizes.

Planted, in ``below``: only the ends of [1, r] compared, or only the points where two lines meet;
heights at these the other way round; no point where the first coordinate is negative; in
``undominated``: everything below the first, or sums compared only with those that they exceed; in
``_worst_rows``: rows dropped whatever the direction (``_between`` without the sign) -> each fails
below.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations_with_replacement, permutations
from math import factorial, prod

from shoal.accounting.numerics.cells import Cell, CellSum, blanket_sums
from shoal.accounting.numerics.convex_order import below, undominated
from shoal.entropy import SeededEntropy
from shoal.mechanisms.parts.sampling import uniform_below
from shoal.privacy import FiniteLaw
from tests.cases import for_each
from tests.sizes import size
from tests.unit.accounting.brute import whole

TABLES = size(40, 1_000)
POINTS = 9


def tables(label: str, count: int, rows: int, outputs: int, most: int) -> list[FiniteLaw]:
    """Random integer tables, their rows filled up to one sum."""
    found, entropy = [], SeededEntropy(label)
    for _ in range(count):
        drawn = [[1 + int(w) for w in uniform_below(most, outputs, entropy)] for _ in range(rows)]
        total = max(sum(row) for row in drawn)
        found.append(FiniteLaw(tuple((row[0] + total - sum(row), *row[1:]) for row in drawn)))
    return found


def largest(sums: Sequence[CellSum], points: Sequence[Fraction]) -> list[Fraction]:
    """The largest E[(L_1 + ... + L_n)_+] / n of any of the sums, at each e of ``points``."""
    curves = [divergences(cells, points) for cells in sums]
    return [max(values) for values in zip(*curves, strict=True)]


def divergences(cells: CellSum, points: Sequence[Fraction]) -> list[Fraction]:
    """E[(L_1 + ... + L_n)_+] / n at each e, all counts gone through, in whole numbers."""
    masses, total = whole(cell.mass for cell in cells.cells)
    values, unit = whole(value for cell in cells.cells for value in (cell.first, cell.second))
    lines = list(zip(masses, values[::2], values[1::2], strict=True))
    terms = []
    for chosen in combinations_with_replacement(range(len(lines)), cells.n):
        picked = [lines[at] for at in chosen]
        ways = factorial(cells.n) // prod(factorial(chosen.count(at)) for at in set(chosen))
        weight = ways * prod(mass for mass, _, _ in picked)
        first, second = (sum(line[place] for line in picked) for place in (1, 2))
        terms.append((weight, first, second))
    found = []
    for e in points:
        losses = [(w, a * e.denominator - b * e.numerator) for w, a, b in terms]
        above = sum(weight * loss for weight, loss in losses if loss > 0)
        found.append(Fraction(above, total**cells.n * unit * e.denominator * cells.n))
    return found


def grid(law: FiniteLaw) -> list[Fraction]:
    return [1 + (law.max_ratio - 1) * Fraction(step, POINTS) for step in range(POINTS)]


def every_pair(law: FiniteLaw, n: int) -> list[CellSum]:
    """The sums of all ordered pairs of rows, each made from a table of two rows and a third that
    carries the least weights.
    """
    least = [min(column) for column in zip(*law.rows, strict=True)]
    found = []
    for one, two in permutations(dict.fromkeys(law.rows), 2):
        weights = [
            (Fraction(w, law.total), Fraction(a, w), Fraction(b, w))
            for a, b, w in zip(one, two, least, strict=True)
        ]
        idle = Fraction(law.total - sum(least), law.total)
        merged: dict[tuple[Fraction, Fraction], Fraction] = {}
        for mass, first, second in [
            *weights,
            *([(idle, Fraction(0), Fraction(0))] if idle else []),
        ]:
            merged[first, second] = merged.get((first, second), Fraction(0)) + mass
        found.append(
            CellSum(n, tuple(Cell(mass, first, second) for (first, second), mass in merged.items()))
        )
    return found


@for_each("rows, outputs", [(3, 3), (4, 3), (3, 4)])
@for_each("n", [1, 2, 3])
def test_what_is_left_out_is_never_the_largest(n: int, rows: int, outputs: int) -> None:
    """At every epsilon of a grid the largest of what is kept is the largest of all pairs: not above
    it either.
    """
    left_out = 0
    for law in tables(f"{n} {rows} {outputs}", TABLES // 2, rows, outputs, 6):
        if law.max_ratio == 1:
            continue
        kept, everything = blanket_sums(law, n), every_pair(law, n)
        left_out += len(everything) - len(kept)
        assert largest(kept, grid(law)) == largest(everything, grid(law))
    assert left_out > TABLES // 4, "the test compared nothing"


def test_order_is_that_of_all_hinges() -> None:
    """What ``below`` says of two pairs of one table holds on a grid of (e, t), and it is said of
    nearly all of which it holds there.
    """
    ordered = agreed = 0
    for law in tables("hinges", TABLES // 8, 3, 3, 5):
        least = [min(column) for column in zip(*law.rows, strict=True)]
        rest = (0, 0, law.total - sum(least) + 1)
        points = [
            (1 + law.max_ratio * Fraction(i, 8), Fraction(j, 3))
            for i in range(8)
            for j in range(-12, 6)
        ]
        pairs = [
            (*zip(one, two, least, strict=True), rest) for one, two in permutations(law.rows, 2)
        ]
        heights = [
            [sum(max(a - e * b - t * w, Fraction(0)) for a, b, w in pair) for e, t in points]
            for pair in pairs
        ]
        for (one, low), (two, high) in permutations(zip(pairs, heights, strict=True), 2):
            holds = all(left <= right for left, right in zip(low, high, strict=True))
            ordered += holds
            if below(one, two, law.max_ratio + 1):
                assert holds
                agreed += 1
    assert agreed > 0.8 * ordered > 0


def test_sums_cross_between_the_ends() -> None:
    """At e = 1 and at e = 4 the first is nowhere above the second; in between it is."""
    one, two = ((2, 1, 1), (5, 5, 3), (1, 2, 1)), ((2, 1, 2), (4, 3, 1), (2, 4, 2))

    def height(lines: tuple[tuple[int, int, int], ...], e: Fraction, t: Fraction) -> Fraction:
        return sum((max(a - e * b - t * w, Fraction(0)) for a, b, w in lines), Fraction(0))

    levels = [Fraction(j, 6) for j in range(-60, 12)]
    assert all(
        height(one, Fraction(e), t) <= height(two, Fraction(e), t) for e in (1, 4) for t in levels
    )
    assert any(
        height(one, 1 + Fraction(i, 8), t) > height(two, 1 + Fraction(i, 8), t)
        for i in range(24)
        for t in levels
    )
    assert not below(one, two, Fraction(4))


def test_a_line_that_one_pair_has_twice() -> None:
    """Planted: lines of both left out however often each has them -> the first is said to be
    below.
    """
    one, two = ((2, 1, 1), (2, 1, 1), (1, 3, 1)), ((2, 1, 1), (1, 2, 1), (2, 2, 1))
    assert not below(one, two, Fraction(3))
    assert below(two, one, Fraction(3)) == below(
        ((1, 2, 1), (2, 2, 1)), ((2, 1, 1), (1, 3, 1)), Fraction(3)
    )


def test_one_of_equal_sums_is_kept() -> None:
    line = ((3, 1, 1), (1, 3, 1), (0, 0, 2))
    assert undominated([line, line, line], Fraction(3)) == [0]


def test_rows_on_a_straight_line_are_not_pairs() -> None:
    """Five levels whose probabilities rise in a straight line, and one that lies off it: three
    rows, and so six pairs at most.
    """
    rows = tuple((8 + 2 * i, 16 - i, 16 - i) for i in range(5))
    law = FiniteLaw((*rows, (10, 20, 10)))
    ends = FiniteLaw((rows[0], rows[-1], (10, 20, 10)))
    assert set(blanket_sums(law, 2)) == set(blanket_sums(ends, 2))
    assert len(blanket_sums(law, 2)) <= 6


def test_a_row_beyond_its_neighbours_is_no_mixture() -> None:
    """Up and down again in one direction: the middle one is the farthest, not between."""
    law = FiniteLaw(((10, 20, 10), (14, 18, 8), (12, 19, 9)))
    assert largest(blanket_sums(law, 2), grid(law)) == largest(every_pair(law, 2), grid(law))


def test_a_difference_too_small_for_floats_is_seen() -> None:
    """One of 2^70: floats leave it open, and integers are asked. Planted: what floats leave open
    taken for not above -> fails.
    """
    much, little, weight = 1 << 70, 1 << 68, 1 << 67
    plain = ((much, little, weight), (little, much, weight))
    wider = ((much + 1, little, weight), (little - 1, much, weight))
    assert below(plain, wider, Fraction(5))
    assert not below(wider, plain, Fraction(5))
