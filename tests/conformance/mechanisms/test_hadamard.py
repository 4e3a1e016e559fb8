"""One Hadamard bit keeps the suite: every index with either bit, from a matrix made by Sylvester's
doubling.
"""

from __future__ import annotations

from typing import ClassVar

from shoal.domain import Categories, YesNo
from shoal.mechanisms import design
from shoal.task import MechanismSpec
from tests.conformance.mechanisms.checks.case import Case, Draw, Table, uniform_draw
from tests.conformance.mechanisms.suite import MechanismSuite

WORDS = 1 << 64


def cells(k: int) -> Categories:
    return Categories(tuple(f"label {i}" for i in range(k - 1)))


def bit(k: int, flip: int) -> MechanismSpec:
    return MechanismSpec.of("hadamard", k=k, flip=flip)


def sylvester(least: int) -> list[list[int]]:
    """The Hadamard matrix of the smallest order 2^m >= ``least``, m >= 1, as signs."""
    rows = [[1, 1], [1, -1]]
    while len(rows) < least:
        rows = [row + row for row in rows] + [row + [-sign for sign in row] for row in rows]
    return rows


class TestHadamardBit(MechanismSuite):
    """Planted: the cell's lowest bit left out of the parity -> the law fails. One bit more accepted
    -> the hostile rows fail. The sign of the transform turned -> the estimates fail. 2^64 - 2 T for
    2^64 - T in the ratio -> the law fails.
    """

    NAME = "hadamard"
    CASES: ClassVar[tuple[Case, ...]] = (
        Case("yes/no", design("hadamard", YesNo(), 1.0), YesNo()),
        *(
            Case(f"{k} cells", design("hadamard", cells(k), epsilon0), cells(k))
            for k, epsilon0 in ((3, 0.2), (4, 1.0), (5, 4.0))
        ),
        Case("9 cells", design("hadamard", cells(9), 1.0), cells(9), inputs=(0, 1, 8)),
        Case("almost the truth", bit(4, 1), cells(4)),
        Case("almost noise", bit(4, WORDS // 2 - 1), cells(4)),
    )

    def draws(self, case: Case) -> tuple[Draw, ...]:
        return Draw(8, (case.spec.get("flip"),)), uniform_draw(len(sylvester(case.domain.size)))

    def stated(self, case: Case) -> Table:
        """Column 2 l + b: the sign of entry (l, cell) is (-1)^b with 2^64 - T, and the other with
        T.
        """
        flip, matrix = case.spec.get("flip"), sylvester(case.domain.size)
        return tuple(
            tuple(WORDS - flip if row[cell] == sign else flip for row in matrix for sign in (1, -1))
            for cell in range(case.domain.size)
        )

    def less_noise(self, spec: MechanismSpec) -> MechanismSpec | None:
        flip = spec.get("flip") - 1
        return bit(spec.get("k"), flip) if flip else None
