"""The piecewise mechanism keeps the suite: its table written out bin by bin, by how much of each
bin the window covers, in fractions.
"""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

import numpy as np

from shoal.domain import Numeric
from shoal.mechanisms import design
from shoal.task import MechanismSpec
from tests.conformance.mechanisms.checks.case import Case, Draw, Table
from tests.conformance.mechanisms.suite import MechanismSuite

WORDS = 1 << 64
LEVELS = Numeric(0, 20, 21)


def bins(levels: int, outputs: int, window: int, gain: int) -> MechanismSpec:
    return MechanismSpec.of("piecewise", k=levels + 1, outputs=outputs, window=window, gain=gain)


def covered(levels: int, outputs: int, window: int, gain: int, total: int) -> Table:
    """Bin y is [y, y + 1). The window's left end goes from 0 to outputs - window; "no answer" is
    half way.
    """
    reach = outputs - window
    lefts = [*(Fraction(reach * level, levels - 1) for level in range(levels)), Fraction(reach, 2)]
    lift = 2 * (levels - 1) * gain
    base, over = divmod(total - window * lift, outputs)

    def weight(left: Fraction, y: int) -> int:
        share = max(Fraction(0), min(left + window, Fraction(y + 1)) - max(left, Fraction(y)))
        found = base + (y < over) + lift * share
        assert found.denominator == 1
        return int(found)

    return tuple(tuple(weight(left, y) for y in range(outputs)) for left in lefts)


def mean_of_all(domain: Numeric, values: np.ndarray) -> np.ndarray:
    """The mean with the middle for those without an answer."""
    places = np.where(values < domain.levels, values, (domain.levels - 1) / 2)
    return np.array([domain.low + domain.step * places.mean()])


class TestPiecewise(MechanismSuite):
    """Not conservative in the measured cases: the rows of 5 levels are independent, so the reports
    tell any function of the level.

    Planted: the window one bin to the right between anchors; what is left over given to the last
    bins; a bin's part taken from the bin that is entered -> the law fails. The scores without the
    pull of the first bins: too small to be seen here, test_piecewise.py of the unit tests has
    fractions. The sample variance for the fitted one -> the standard errors fail. One step more
    gain -> the designs fail.
    """

    NAME = "piecewise"
    CASES: ClassVar[tuple[Case, ...]] = (
        Case("21 levels", design("piecewise", LEVELS, 4.0), LEVELS, inputs=(0, 7, 20, 21)),
        Case("2 levels, even moves", bins(2, 6, 2, WORDS // 9), Numeric(-1, 1, 2)),
        Case("4 levels, odd moves", bins(4, 7, 2, WORDS // 40 + 5), Numeric(0, 9, 4)),
        Case(
            "huge unit",
            design("piecewise", Numeric(-1e300, 7e300, 4), 3.0, "m=8"),
            Numeric(-1e300, 7e300, 4),
        ),
        Case("two outputs", bins(3, 2, 1, WORDS // 8), Numeric(0, 1, 3)),
        Case("almost the truth", bins(5, 9, 1, (WORDS - 9) // 8), Numeric(0, 1, 5)),
        Case("almost noise", bins(5, 9, 3, 1), Numeric(0, 1, 5)),
    )

    def draws(self, case: Case) -> tuple[Draw, ...]:
        return (
            Draw(8, tuple(sum(row[:y]) for row in self.table_of(case) for y in range(1, len(row)))),
        )

    def stated(self, case: Case) -> Table:
        get = case.spec.get
        return covered(case.domain.size - 1, get("outputs"), get("window"), get("gain"), WORDS)

    def less_noise(self, spec: MechanismSpec) -> MechanismSpec | None:
        levels, outputs, window, gain = (
            spec.get("k") - 1,
            spec.get("outputs"),
            spec.get("window"),
            spec.get("gain") + 1,
        )
        return (
            bins(levels, outputs, window, gain)
            if 2 * (levels - 1) * gain * window <= WORDS - outputs
            else None
        )

    def truth(self, case: Case, values: np.ndarray) -> np.ndarray:
        """Under noise alone the scores are beyond 10^18."""
        assert isinstance(case.domain, Numeric)
        return (
            mean_of_all(case.domain, values) if case.name != "almost noise" else np.array([np.nan])
        )
