"""Clamped discrete Laplace noise keeps the suite: the table in rationals, from the law of the
noise.
"""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

import numpy as np

from shoal.domain import Numeric
from shoal.mechanisms import design
from shoal.task import MechanismSpec
from tests.conformance.mechanisms.checks.case import Case, Draw, Table
from tests.conformance.mechanisms.checks.rounding import middle, rounded
from tests.conformance.mechanisms.suite import MechanismSuite

WORDS = 1 << 64
LEVELS = Numeric(0, 20, 11)


def laplace(k: int, decay: int) -> MechanismSpec:
    return MechanismSpec.of("laplace", k=k, decay=decay)


class TestLaplace(MechanismSuite):
    """Planted: an end without its tail -> the laws fail. "No answer" as the low end -> the laws and
    the estimates fail. ``decay`` one less than designed -> the designs fail.
    """

    NAME = "laplace"
    CASES: ClassVar[tuple[Case, ...]] = (
        Case("5 levels", design("laplace", Numeric(0, 1, 5), 1.0), Numeric(0, 1, 5)),
        Case(
            "2 levels, huge unit",
            design("laplace", Numeric(-1e300, 7e300, 2), 2.0),
            Numeric(-1e300, 7e300, 2),
        ),
        Case("11 levels", design("laplace", LEVELS, 4.0), LEVELS, inputs=(0, 7, 10, 11)),
        Case("almost the truth", laplace(4, WORDS >> 30), Numeric(0, 1, 3)),
        Case("almost noise", laplace(5, WORDS - (1 << 40)), Numeric(0, 1, 4)),
    )

    def draws(self, case: Case) -> tuple[Draw, ...]:
        rows = self.table_of(case)
        return (
            Draw(
                8,
                tuple(
                    sum(row[:y])
                    for x, row in enumerate(rows)
                    if x in case.cells
                    for y in range(1, len(row))
                ),
            ),
        )

    def stated(self, case: Case) -> Table:
        """(1 - a) / (1 + a) a^|z| inside, a^d / (1 + a) at an end that is d away."""
        levels, a = case.domain.size - 1, Fraction(case.spec.get("decay"), WORDS)
        inside = [
            [(1 - a) / (1 + a) * a ** abs(y - x) for y in range(1, levels - 1)]
            for x in range(levels)
        ]
        rows = [
            [a**x / (1 + a), *inside[x], a ** (levels - 1 - x) / (1 + a)] for x in range(levels)
        ]
        return tuple(rounded(row) for row in (*rows, middle(rows)))

    def less_noise(self, spec: MechanismSpec) -> MechanismSpec | None:
        return laplace(spec.get("k"), spec.get("decay") - 1)

    def truth(self, case: Case, values: np.ndarray) -> np.ndarray:
        return mean_of_all(case, values)


def mean_of_all(case: Case, values: np.ndarray) -> np.ndarray:
    """With the middle for those without an answer. Not estimated under noise alone: the scores are
    beyond 10^8.
    """
    assert isinstance(case.domain, Numeric)
    levels = case.domain.levels
    places = np.where(values < levels, values, (levels - 1) / 2)
    return np.array(
        [
            case.domain.low + case.domain.step * places.mean()
            if case.name != "almost noise"
            else np.nan
        ]
    )
