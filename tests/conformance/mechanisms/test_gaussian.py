"""Clamped discrete Gaussian noise keeps the suite: the table from sums over the integers, in 100
digits.
"""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

import mpmath
import numpy as np
import pytest

from shoal.domain import Numeric
from shoal.mechanisms import design
from shoal.task import MechanismSpec
from tests.conformance.mechanisms import suite
from tests.conformance.mechanisms.checks.case import Case, Draw, Table
from tests.conformance.mechanisms.checks.ends import AuditOfTheEnds
from tests.conformance.mechanisms.checks.rounding import middle, rounded
from tests.conformance.mechanisms.suite import MechanismSuite
from tests.conformance.mechanisms.test_laplace import mean_of_all
from tests.sizes import size

UNIT = 1 << 32


def gaussian(k: int, margin: int, sigma: int) -> MechanismSpec:
    return MechanismSpec.of("gaussian", k=k, margin=margin, sigma=sigma)


class TestGaussian(AuditOfTheEnds, MechanismSuite):
    """Planted: the sum over all integers by the formula for sigma below 1, an end without its tail
    -> the laws fail. ``sigma`` one step less than designed -> the designs fail.
    """

    NAME = "gaussian"
    CASES: ClassVar[tuple[Case, ...]] = (
        Case("3 levels", design("gaussian", Numeric(0, 1, 3), 2.0), Numeric(0, 1, 3)),
        Case("4 levels, no margin", gaussian(5, 0, 9 * UNIT // 2), Numeric(-3, 9, 4)),
        Case("2 levels, narrow", gaussian(3, 1, UNIT // 4 + 12_345), Numeric(0, 1, 2)),
    )

    @pytest.fixture(autouse=True)
    def _fewer_designs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each is made of sums of 80 digits, many times over."""
        monkeypatch.setattr(suite, "ASKED", suite.ASKED[:: size(6, 1)])

    def draws(self, case: Case) -> tuple[Draw, ...]:
        rows = self.table_of(case)
        return (Draw(8, tuple(sum(row[:y]) for row in rows for y in range(1, len(row)))),)

    def stated(self, case: Case) -> Table:
        """Every output is the sum of the weights of all noise that leads to it, 24 sigma and 40
        levels far.
        """
        levels, margin = case.domain.size - 1, case.spec.get("margin")
        with mpmath.workdps(100):
            sigma = mpmath.mpf(case.spec.get("sigma")) / UNIT
            reach = int(24 * sigma) + 40
            bell = [
                int(mpmath.exp(-(mpmath.mpf(z) ** 2) / (2 * sigma**2)) * mpmath.mpf(2) ** 300)
                for z in range(reach)
            ]
        rows = []
        for x in range(levels):
            found = [Fraction(0)] * (levels + 2 * margin)
            for z in range(1 - reach, reach):
                found[min(max(x + z + margin, 0), len(found) - 1)] += bell[abs(z)]
            rows.append(found)
        return tuple(rounded(row) for row in (*rows, middle(rows)))

    def less_noise(self, spec: MechanismSpec) -> MechanismSpec | None:
        return gaussian(spec.get("k"), spec.get("margin"), spec.get("sigma") - 1)

    def truth(self, case: Case, values: np.ndarray) -> np.ndarray:
        return mean_of_all(case, values)
