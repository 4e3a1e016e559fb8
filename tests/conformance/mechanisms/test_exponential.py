"""The exponential mechanism keeps the suite: the table in rationals, from distances that are
written out.
"""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

from shoal.domain import Categories, Numeric
from shoal.mechanisms import design
from shoal.task import MechanismSpec
from tests.conformance.mechanisms.checks.case import Case, Draw, Table
from tests.conformance.mechanisms.checks.ends import AuditOfTheEnds
from tests.conformance.mechanisms.checks.rounding import rounded
from tests.conformance.mechanisms.suite import MechanismSuite

WORDS = 1 << 64
SIZES = Categories(("S", "M", "L", "XL", "XXL"))
SIDES = Categories(("N", "E", "S", "W"))


def exponential(k: int, circle: int, decay: int) -> MechanismSpec:
    return MechanismSpec.of("exponential", k=k, circle=circle, decay=decay)


class TestExponential(AuditOfTheEnds, MechanismSuite):
    """Planted: the distance on a circle as on a line, "no answer" one step from all -> the laws
    fail. The general theorem's decay (half the epsilon0) -> the designs fail. The variances of cell
    0 for all cells -> the statistics fail.
    """

    NAME = "exponential"
    CASES: ClassVar[tuple[Case, ...]] = (
        Case("sizes", design("exponential", SIZES, 1.0, "line"), SIZES),
        Case("sides", design("exponential", SIDES, 3.0, "circle"), SIDES),
        Case("levels", design("exponential", Numeric(0, 1, 7), 8.0), Numeric(0, 1, 7)),
        Case("almost noise", exponential(4, 0, WORDS - (1 << 50)), Numeric(0, 1, 3)),
        Case("almost the truth", exponential(5, 1, 1 << 36), SIDES),
    )

    def draws(self, case: Case) -> tuple[Draw, ...]:
        rows = self.table_of(case)
        return (Draw(8, tuple(sum(row[:y]) for row in rows for y in range(1, len(row)))),)

    def stated(self, case: Case) -> Table:
        """On a circle a category comes again after all others, on both sides. "No answer" is as far
        as two categories can be.
        """
        categories, circle = case.domain.size - 1, case.spec.get("circle")
        a = Fraction(case.spec.get("decay"), WORDS)
        others = (-categories, 0, categories) if circle else (0,)
        steps = [
            [min(abs(y - x + other) for other in others) for y in range(categories)]
            for x in range(categories)
        ]
        most = max(map(max, steps))
        rows = [[*row, most] for row in steps] + [[most] * categories + [0]]
        return tuple(rounded([a**step for step in row]) for row in rows)

    def less_noise(self, spec: MechanismSpec) -> MechanismSpec | None:
        return exponential(spec.get("k"), spec.get("circle"), spec.get("decay") - 1)
