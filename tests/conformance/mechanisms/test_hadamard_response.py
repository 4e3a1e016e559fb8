"""Hadamard response keeps the suite: the paper's block matrix, written out from Sylvester's
doubling.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import permutations, product
from typing import ClassVar

from shoal.accounting.bounds.clones import symmetric_clones
from shoal.accounting.numerics.cells import Cell, CellSum, blanket_sums
from shoal.domain import Categories, YesNo
from shoal.mechanisms import design
from shoal.mechanisms.categories.hadamard_response import two_blocks
from shoal.privacy import FiniteLaw, SymmetricLaw
from shoal.task import MechanismSpec
from tests.conformance.mechanisms.checks.case import Case, Draw, Table, every_case, uniform_draw
from tests.conformance.mechanisms.suite import MechanismSuite
from tests.unit.accounting.numerics.test_cells import exact

WORDS = 1 << 64


def cells(k: int) -> Categories:
    return Categories(tuple(f"label {i}" for i in range(k - 1)))


def response(k: int, blocks: int, include: int) -> MechanismSpec:
    return MechanismSpec.of("hadamard_response", k=k, blocks=blocks, include=include)


def designed(name: str, k: int, epsilon0: float, setting: str = "") -> Case:
    return Case(name, design("hadamard_response", cells(k), epsilon0, setting), cells(k))


def sylvester(order: int) -> list[list[int]]:
    """The Hadamard matrix of this order, a power of two, as signs."""
    rows = [[1]]
    while len(rows) < order:
        rows = [row + row for row in rows] + [row + [-sign for sign in row] for row in rows]
    return rows


def order_of(case: Case) -> int:
    """b: the least power of two with (b - 1) B >= k."""
    order = 2
    while (order - 1) * case.spec.get("blocks") < case.domain.size:
        order *= 2
    return order


class TestHadamardResponse(MechanismSuite):
    """Planted: the half's parity left out; the own half not left out of the others; rows numbered
    from 0 -> the law fails. Columns 0 to b - 2 of the
    transform for 1 to b - 1 -> the estimates fail. 2 B for 2 B - 1 in the ratio -> the law fails.
    """

    NAME = "hadamard_response"
    CASES: ClassVar[tuple[Case, ...]] = (
        Case("yes/no", design("hadamard_response", YesNo(), 1.0), YesNo()),
        designed("3 cells, 1 block", 3, 0.5, "B=1"),
        designed("5 cells, 1 block", 5, 1.0, "B=1"),
        designed("3 cells, 2 blocks", 3, 1.0),
        designed("5 cells, 2 blocks", 5, 1.0, "B=2"),
        designed("4 cells, 4 blocks of 2", 4, 3.0),
        Case("yes/no, 2 blocks", design("hadamard_response", YesNo(), 1.0, "B=2"), YesNo()),
        Case("3 cells, 3 blocks of 2", response(3, 3, WORDS // 2), cells(3)),
        Case("5 cells, 3 blocks", response(5, 3, WORDS // 3 + 12_345), cells(5)),
        Case(
            "17 cells, told by two blocks",
            design("hadamard_response", cells(17), 1.0),
            cells(17),
            inputs=(0, 1, 2, 13, 16),
        ),
        Case(
            "18 cells, told by three blocks",
            response(18, 3, WORDS // 2),
            cells(18),
            inputs=(0, 1, 2, 3, 17),
        ),
        Case("almost the truth", response(4, 2, WORDS - 1), cells(4)),
        Case("almost noise", response(4, 2, WORDS // 4 + 1), cells(4)),
    )

    def draws(self, case: Case) -> tuple[Draw, ...]:
        """The coin, one of the other halves of blocks, a place within a half."""
        halves = 2 * case.spec.get("blocks")
        return (
            Draw(8, (case.spec.get("include"),)),
            uniform_draw(halves - 1),
            uniform_draw(order_of(case) // 2),
        )

    def stated(self, case: Case) -> Table:
        """I of 2^64 falls evenly on the b / 2 outputs of the block where the cell's row is +1, the
        rest on all others.
        """
        blocks, include, order = case.spec.get("blocks"), case.spec.get("include"), order_of(case)
        matrix, outputs = (
            sylvester(order),
            [(block, at) for block in range(blocks) for at in range(order)],
        )
        inside, outside = include * (len(outputs) - order // 2), (WORDS - include) * (order // 2)
        return tuple(
            tuple(
                inside
                if block == cell % blocks and matrix[cell // blocks + 1][at] == 1
                else outside
                for block, at in outputs
            )
            for cell in range(case.domain.size)
        )

    def less_noise(self, spec: MechanismSpec) -> MechanismSpec | None:
        include = spec.get("include") + 1
        return response(spec.get("k"), spec.get("blocks"), include) if include < WORDS else None

    def alike(self, case: Case, count: int) -> Iterator[tuple[int, ...]]:
        """Cells of different blocks; with one block all."""
        blocks = case.spec.get("blocks")
        chosen = permutations(range(case.domain.size), count)
        return (
            cells
            for cells in chosen
            if blocks == 1 or len({cell % blocks for cell in cells}) == count
        )

    @every_case
    def test_the_accountant_is_told_as_much_as_it_can_use(self, case: Case) -> None:
        """One block, or one cell in each: classes, exact; up to 16 cells: the table, entry by
        entry; beyond: the classes of two blocks. Planted: rows numbered from 0 (the row of ones,
        which every output supports); ``cell // blocks`` for the block -> fails.
        """
        law, stated = case.mechanism.privacy(), self.table_of(case)
        blocks = case.spec.get("blocks")
        if blocks in {1, case.domain.size} or case.domain.size > 16:
            assert isinstance(law, SymmetricLaw)
            assert (law.third is not None) == (blocks > 2)
        else:
            assert law == FiniteLaw(stated)

    @every_case
    def test_cells_of_one_block_are_bounded_by_cells_of_two(self, case: Case) -> None:
        """In rationals, up to e = e^epsilon0: the blanket of every ordered pair, from the table, is
        at most that of the law of two blocks, and the largest is equal to it; the clones' sum of
        that law (r - e and 1 - e r with probability 1 / (r + 1) each) is no smaller.

        Planted: one half less outside the supports; the law of two cells of one block stated for it
        -> fails.
        """
        blocks = case.spec.get("blocks")
        if blocks == 1 or case.domain.size > 16:
            return
        law, stated = two_blocks(blocks, case.spec.get("include")), self.table_of(case)
        ratio = law.max_ratio
        assert symmetric_clones(law, 2).pair == 2 / (ratio + 1)
        share = 1 / (ratio + 1)
        clones = (
            Cell(share, ratio, Fraction(1)),
            Cell(share, Fraction(1), ratio),
            Cell(1 - 2 * share, Fraction(0), Fraction(0)),
        )
        for n, e in product(
            (1, 2, 4), {Fraction(1), (1 + ratio) / 2, ratio, min(ratio, Fraction(11, 10))}
        ):
            (bound,) = blanket_sums(law, n)
            pairs = [exact(each, e) for each in blanket_sums(FiniteLaw(stated), n)]
            assert max(pairs) == exact(bound, e) <= exact(CellSum(n, clones), e)
