"""Projective geometry response keeps the suite: the points listed as vectors, their products
written out.
"""

from __future__ import annotations

from itertools import product
from typing import ClassVar

from shoal.domain import Categories
from shoal.mechanisms import design
from shoal.task import MechanismSpec
from tests.conformance.mechanisms.checks.case import Case, Draw, Table, uniform_draw
from tests.conformance.mechanisms.suite import MechanismSuite

WORDS = 1 << 64


def cells(k: int) -> Categories:
    return Categories(tuple(f"label {i}" for i in range(k - 1)))


def response(k: int, field: int, include: int) -> MechanismSpec:
    return MechanismSpec.of("projective", k=k, field=field, include=include)


def points(field: int, k: int) -> list[tuple[int, ...]]:
    """The vectors whose first entry that is not 0 is 1, as they are read: of as many entries as k
    points want, 2 at least.
    """
    width, found = 1, list[tuple[int, ...]]()
    while width < 2 or len(found) < k:
        width += 1
        every = product(range(field), repeat=width)
        found = [each for each in every if next((x for x in each if x), 0) == 1]
    return found


class TestProjectiveResponse(MechanismSuite):
    """Planted: the point outside solved for a product of 0; the entries before and behind the
    solved one exchanged; no inverse taken for the first entry -> the law fails. The points of two
    supports counted as those of one -> "exactly what privacy says" fails.
    """

    NAME = "projective"
    CASES: ClassVar[tuple[Case, ...]] = (
        Case("3 cells of 3", design("projective", cells(3), 2.0), cells(3)),
        Case("4 cells of 7", design("projective", cells(4), 2.0), cells(4)),
        Case("5 cells of 7", design("projective", cells(5), 0.5, "q=2"), cells(5)),
        Case("7 cells of 7", response(7, 2, WORDS // 2 + 12_345), cells(7)),
        Case("4 cells of 6 on a line", response(4, 5, WORDS // 3), cells(4)),
        Case("6 cells of 13", design("projective", cells(6), 1.0, "q=3"), cells(6)),
        Case(
            "9 cells of 15, vectors of 4",
            design("projective", cells(9), 1.0, "q=2"),
            cells(9),
            inputs=(0, 1, 2, 4, 8),
        ),
        Case(
            "21 cells of 31",
            design("projective", cells(21), 1.5),
            cells(21),
            inputs=(0, 1, 5, 6, 20),
        ),
        Case("almost the truth", response(5, 2, WORDS - 1), cells(5)),
        Case("almost noise", response(5, 3, WORDS * 4 // 13 + 1), cells(5)),
    )

    def draws(self, case: Case) -> tuple[Draw, ...]:
        """The coin, a point of the support, a point outside."""
        field, include = case.spec.get("field"), case.spec.get("include")
        width = len(points(field, case.domain.size)[0])
        return (
            Draw(8, (include,)),
            uniform_draw((field ** (width - 1) - 1) // (field - 1)),
            uniform_draw(field ** (width - 1)),
        )

    def stated(self, case: Case) -> Table:
        """I of 2^64 falls evenly on the points whose product with the cell's is 0, the rest on all
        others.
        """
        field, include = case.spec.get("field"), case.spec.get("include")
        every = points(field, case.domain.size)

        def orthogonal(one: tuple[int, ...], two: tuple[int, ...]) -> bool:
            return sum(a * b for a, b in zip(one, two, strict=True)) % field == 0

        within = sum(orthogonal(every[0], point) for point in every)
        inside, outside = include * (len(every) - within), (WORDS - include) * within
        return tuple(
            tuple(inside if orthogonal(every[cell], point) else outside for point in every)
            for cell in range(case.domain.size)
        )

    def less_noise(self, spec: MechanismSpec) -> MechanismSpec | None:
        include = spec.get("include") + 1
        return response(spec.get("k"), spec.get("field"), include) if include < WORDS else None
