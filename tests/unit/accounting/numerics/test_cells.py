"""From laws to sums: against the truth of every dataset at small n, in exact rational
arithmetic.
"""

from __future__ import annotations

import tracemalloc
from collections import defaultdict
from fractions import Fraction
from itertools import product

import pytest

from shoal.accounting.numerics import cells
from shoal.accounting.numerics.cells import Cell, CellSum, blanket_sums, dataset_sums, named_sums
from shoal.errors import Kind, ShoalError
from shoal.privacy import FiniteLaw, SymmetricLaw
from tests.cases import for_each
from tests.unit.accounting.brute import Truth, longer_sums, positive_part_expectation, whole

TABLES = {
    "skewed": FiniteLaw(((8, 3, 1), (2, 6, 4), (1, 2, 9))),
    "two outputs": FiniteLaw(((9, 3), (6, 6), (2, 10), (5, 7))),
    "third is least": FiniteLaw(((9, 9, 2), (6, 12, 2), (1, 1, 18))),
    "equal rows": FiniteLaw(((5, 3, 4), (5, 3, 4), (2, 6, 4))),
    "four outputs": FiniteLaw(((10, 2, 4, 4), (3, 9, 4, 4), (2, 2, 8, 8))),
    "one proportion, two leasts": FiniteLaw(((6, 12, 2), (1, 2, 17), (2, 1, 17))),
}
GROWTH = [Fraction(1), Fraction(9, 8), Fraction(3, 2), Fraction(3)]


def exact(cell_sum: CellSum, e: Fraction) -> Fraction:
    """E[(L_1 + ... + L_n)_+] / n by enumeration, in whole numbers."""
    masses, total = whole(cell.mass for cell in cell_sum.cells)
    steps, unit = whole(cell.first - e * cell.second for cell in cell_sum.cells)
    sums = {0: 1}
    for _ in range(cell_sum.n):
        sums = longer_sums(sums, masses, steps)
    above = sum(mass * at for at, mass in sums.items() if at > 0)
    return Fraction(above, total**cell_sum.n * unit * cell_sum.n)


def rows_of(law: FiniteLaw) -> list[list[Fraction]]:
    return [[Fraction(weight, law.total) for weight in row] for row in law.rows]


@for_each("name", TABLES)
@for_each("n", [1, 2, 3])
def test_blanket_above_and_datasets_below_the_truth(name: str, n: int) -> None:
    """Planted: the least weight over x and x' alone -> "third is least" fails; one direction of
    every pair -> "skewed" fails; n - 1 for n in a dataset's sum -> this fails.
    """
    law = TABLES[name]
    truth = Truth(rows_of(law), n)
    for e in GROWTH:
        real = truth.delta(e)
        assert max(exact(one, e) for one in blanket_sums(law, n)) >= real
        lower = [exact(one, e) for one in dataset_sums(law, n)]
        assert max(lower) <= real
        assert n > 1 or max(lower) == real


@for_each("name", TABLES)
def test_every_dataset_sum_is_an_identity(name: str) -> None:
    """Each is the divergence of one real pair of datasets, others all equal. Planted: masses
    of x instead of z -> this fails.
    """
    law, n = TABLES[name], 3
    truth, e = Truth(rows_of(law), n), Fraction(5, 4)
    inputs = range(len(law.rows))
    real = {
        truth.delta_at((z,) * (n - 1), (x, other), e)
        for x in inputs
        for other in inputs
        if x != other
        for z in inputs
    }
    assert {exact(one, e) for one in dataset_sums(law, n)} <= real
    named = {
        truth.delta_at((z,) * (n - 1), pair, e) for z in inputs[:3] for pair in ((0, 1), (1, 0))
    }
    three = FiniteLaw(law.rows[:3])
    assert {exact(one, e) for one in named_sums(three, n)} == named


def test_blanket_is_the_published_expectation() -> None:
    """Folding M ~ Bin(n, gamma) into one more cell changes nothing; of the six pairs some are never
    the largest and left out.

    Planted: the idle cell left out (validation), or given a value.
    """
    law, n, e = TABLES["skewed"], 4, Fraction(5, 4)
    least = [min(column) for column in zip(*law.rows, strict=True)]
    gamma = Fraction(sum(least), law.total)
    found = set()
    for x, other in product(law.rows, repeat=2):
        if x != other:
            values = [gamma * (a - e * b) / w for a, b, w in zip(x, other, least, strict=True)]
            found.add(
                positive_part_expectation(
                    n, gamma, [Fraction(w, sum(least)) for w in least], values
                )
            )
    kept = {exact(one, e) for one in blanket_sums(law, n)}
    assert kept <= found
    assert max(kept) == max(found)
    assert len(found) == 6


def test_a_smaller_least_weight_is_looser() -> None:
    """The proof needs w <= min, not equality. A larger w would be tighter, and unsound."""
    one, two = (6, 2, 2), (2, 6, 2)
    tight = blanket_sums(SymmetricLaw(one, two, least=(2, 2, 2)), 3)[0]
    loose = blanket_sums(SymmetricLaw(one, two, least=(1, 1, 1)), 3)[0]
    for e in GROWTH[:-1]:
        assert exact(loose, e) > exact(tight, e) > 0


def test_outputs_that_say_the_same_are_one_cell() -> None:
    (only,) = blanket_sums(
        FiniteLaw(((4, 4, 1, 1, 1, 1), (1, 1, 4, 4, 1, 1), (1, 1, 1, 1, 4, 4))), 5
    )
    assert only.cells == (
        Cell(Fraction(1, 2), Fraction(0), Fraction(0)),
        Cell(Fraction(1, 6), Fraction(1), Fraction(1)),
        Cell(Fraction(1, 6), Fraction(1), Fraction(4)),
        Cell(Fraction(1, 6), Fraction(4), Fraction(1)),
    )


def test_two_outputs_need_the_extreme_rows_only() -> None:
    assert len(blanket_sums(TABLES["two outputs"], 7)) == 2


def test_large_tables_are_left_to_clones() -> None:
    many = FiniteLaw(
        tuple(tuple(3 if x == y else 1 + (x * y) % 2 for y in range(20)) for x in range(1)) * 2
    )
    assert blanket_sums(many, 5)
    wide = FiniteLaw(tuple(tuple(50 if x == y else 1 for y in range(17)) for x in range(17)))
    assert blanket_sums(wide, 5) == ()
    assert dataset_sums(wide, 5)


@for_each("name", TABLES)
@for_each("n", [1, 2, 3])
def test_what_is_climbed_to_in_a_large_table_is_real(
    name: str, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every table taken for a large one: below the truth over all datasets, and here no less
    than four fifths of it for one report. Planted: n - 1 for n, or the victim's row left out of the
    others' -> above the truth; the first three rows whatever they are -> too small for "four
    outputs".
    """
    monkeypatch.setattr(cells, "_LARGE_TABLE", 0)
    law = TABLES[name]
    truth = Truth(rows_of(law), n)
    for e in GROWTH:
        found = [exact(one, e) for one in dataset_sums(law, n)]
        assert found
        assert max(found) <= truth.delta(e)
        assert n > 1 or max(found) >= Fraction(4, 5) * truth.delta(e)


def test_tables_beyond_all_bounds_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "_LARGEST_TABLE", 8)
    assert dataset_sums(TABLES["skewed"], 5) == ()


def test_refusals() -> None:
    for bad in (
        lambda: Cell(Fraction(0), Fraction(1), Fraction(1)),
        lambda: CellSum(0, (Cell(Fraction(1), Fraction(1), Fraction(1)),)),
        lambda: CellSum(1, (Cell(Fraction(1, 2), Fraction(1), Fraction(1)),)),
        lambda: SymmetricLaw((2, 1), (1, 2), (1, 2)),
        lambda: SymmetricLaw((2, 1), (1, 2), (1, 0)),
        lambda: SymmetricLaw((2, 1), (1, 3), (1, 1)),
        lambda: SymmetricLaw((3, 1, 2), (1, 2, 3), (1, 1, 1)),
        lambda: SymmetricLaw((2, 1), (1, 2), (1, 1), (1, 1)),
    ):
        with pytest.raises(ShoalError) as caught:
            bad()
        assert caught.value.kind is Kind.INVALID


@for_each("name", TABLES)
def test_cells_are_the_definition_in_fractions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blanket's sums are made of integers, and kept for a law whatever n is: against (w, P(y |
    x) / w, P(y | x') / w) output by output.

    Planted: outputs joined by a : b alone, not by a : b : w -> this fails; the first n that was
    asked kept with the cells -> this fails; n - 1 for n, which is only looser -> this fails.
    """
    # all pairs, those that another exceeds too
    monkeypatch.setattr(cells, "undominated", lambda sums, _: list(range(len(sums))))
    rows = TABLES[name].rows
    # a law of this test's own: cells are kept
    law = FiniteLaw(tuple(tuple(weight * 7 for weight in row) for row in rows))
    least = [min(column) for column in zip(*law.rows, strict=True)]
    for n in (3, 8):
        every = set()
        for one, two in product(set(law.rows), repeat=2):
            masses: dict[tuple[Fraction, Fraction], Fraction] = defaultdict(Fraction)
            for a, b, w in zip(one, two, least, strict=True):
                masses[Fraction(a, w), Fraction(b, w)] += Fraction(w, law.total)
            masses[Fraction(0), Fraction(0)] += 1 - sum(masses.values())
            every.add(
                CellSum(n, tuple(Cell(mass, *key) for key, mass in sorted(masses.items()) if mass))
            )
        found = blanket_sums(law, n)
        assert found
        assert set(found) <= every


def test_a_table_of_very_many_rows_takes_no_gigabytes() -> None:
    """The levels of a number: 6,000 rows in a straight line, whose ends are furthest apart. A
    device certifies its tasks too. Planted: all pairs of rows at once -> fails.
    """
    total, levels = 1 << 20, 6_000
    rows = tuple((100_000 + 100 * at, total - 200_000 - 100 * at, 100_000) for at in range(levels))
    tracemalloc.start()
    try:
        found = dataset_sums(FiniteLaw(rows), 1_000)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 100 << 20
    ends = dataset_sums(FiniteLaw((rows[0], rows[-1])), 1_000)
    assert set(found) <= set(ends)
    assert found
