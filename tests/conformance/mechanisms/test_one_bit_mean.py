"""One bit per device keeps the suite: probabilities written out from the paper's straight line,
ends of the range.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from shoal.domain import Numeric
from shoal.mechanisms import design
from shoal.task import MechanismSpec
from tests.conformance.mechanisms.checks.case import Case, Draw, Table
from tests.conformance.mechanisms.suite import MechanismSuite

WORDS = 1 << 64
LEVELS = Numeric(0, 20, 21)


def bit(levels: int, slope: int) -> MechanismSpec:
    return MechanismSpec.of("one_bit_mean", k=levels + 1, slope=slope)


class TestOneBitMean(MechanismSuite):
    """Conservative: the bit's probability is a straight line in the device's place, and the coin's
    variance is none over the three places low, middle and high, which every domain has
    (statistics.py).

    Planted: the bit for low and high exchanged -> the law and the estimates fail. "No answer" as
    low -> the law and the estimates fail. The slope one step more than keeps epsilon0 -> the
    designs fail.
    """

    NAME = "one_bit_mean"
    CONSERVATIVE = True
    CASES: ClassVar[tuple[Case, ...]] = (
        Case("21 levels", design("one_bit_mean", LEVELS, 4.0), LEVELS, inputs=(0, 7, 20, 21)),
        Case("2 levels", design("one_bit_mean", Numeric(-1, 1, 2), 1.0), Numeric(-1, 1, 2)),
        Case(
            "huge unit",
            design("one_bit_mean", Numeric(-1e300, 7e300, 4), 3.0),
            Numeric(-1e300, 7e300, 4),
        ),
        Case("almost the truth", bit(5, (WORDS // 2 - 1) // 4), Numeric(0, 1, 5)),
        Case("almost noise", bit(5, 1), Numeric(0, 1, 5)),
    )

    def draws(self, case: Case) -> tuple[Draw, ...]:
        return (Draw(8, tuple(zero for zero, _ in self.table_of(case))),)

    def stated(self, case: Case) -> Table:
        """Even steps of 2 S around one half, out of 2^64; one half without an answer."""
        levels, slope = case.domain.size - 1, case.spec.get("slope")
        ones = [WORDS // 2 + slope * (level - (levels - 1 - level)) for level in range(levels)]
        return tuple((WORDS - one, one) for one in (*ones, WORDS // 2))

    def less_noise(self, spec: MechanismSpec) -> MechanismSpec | None:
        levels, slope = spec.get("k") - 1, spec.get("slope") + 1
        return bit(levels, slope) if slope * (levels - 1) < WORDS // 2 else None

    def truth(self, case: Case, values: np.ndarray) -> np.ndarray:
        """The mean with the middle for those without an answer. Under noise alone the scores are
        beyond 10^18.
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
