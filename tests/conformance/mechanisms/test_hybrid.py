"""The hybrid mechanism keeps the suite: the tables of its two parts side by side."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from shoal.domain import Numeric
from shoal.mechanisms import design
from shoal.task import MechanismSpec
from tests.conformance.mechanisms.checks.case import Case, Draw, Table
from tests.conformance.mechanisms.suite import MechanismSuite
from tests.conformance.mechanisms.test_piecewise import covered, mean_of_all

WORDS = 1 << 64
LEVELS = Numeric(0, 20, 21)


def mixed(
    levels: int, piecewise: int, outputs: int, window: int, gain: int, slope: int
) -> MechanismSpec:
    return MechanismSpec.of(
        "hybrid",
        k=levels + 1,
        piecewise=piecewise,
        outputs=outputs,
        window=window,
        gain=gain,
        slope=slope,
    )


class TestHybrid(MechanismSuite):
    """Not conservative from epsilon0 of 0.61 on: the variance is nearly alike everywhere. Below it
    is one bit alone: test_one_bit_mean.py.

    Planted: the coin's other side for piecewise; the bits in the other order; the slope of a whole
    word for the bits' share -> the law fails. The score of the bit for its share of all words ->
    the estimates fail.
    """

    NAME = "hybrid"
    CASES: ClassVar[tuple[Case, ...]] = (
        Case("21 levels", design("hybrid", LEVELS, 4.0), LEVELS, inputs=(0, 7, 20, 21)),
        Case("one bit alone", design("hybrid", Numeric(-1, 1, 4), 0.6), Numeric(-1, 1, 4)),
        Case(
            "just more than one bit",
            design("hybrid", Numeric(-1, 1, 4), 0.62, "m=8"),
            Numeric(-1, 1, 4),
        ),
        Case(
            "2 levels",
            mixed(2, WORDS // 3 // 2 * 2, 5, 2, WORDS // 50, WORDS // 9),
            Numeric(0, 9, 2),
        ),
        Case(
            "almost the truth",
            mixed(5, WORDS // 2, 9, 1, (WORDS // 2 - 9) // 8, (WORDS // 4 - 1) // 4),
            Numeric(0, 1, 5),
        ),
        Case("almost noise", mixed(5, WORDS // 2, 9, 3, 1, 1), Numeric(0, 1, 5)),
    )

    def draws(self, case: Case) -> tuple[Draw, ...]:
        return (
            Draw(8, tuple(sum(row[:y]) for row in self.table_of(case) for y in range(1, len(row)))),
        )

    def stated(self, case: Case) -> Table:
        """Even steps of 2 S around one half of what is left for the bit; the bins before it."""
        get, levels = case.spec.get, case.domain.size - 1
        rest = WORDS - get("piecewise")
        ones = [
            *(rest // 2 + get("slope") * (2 * level - levels + 1) for level in range(levels)),
            rest // 2,
        ]
        bits = tuple((rest - one, one) for one in ones)
        if rest == WORDS:
            return bits
        left = covered(levels, get("outputs"), get("window"), get("gain"), WORDS - rest)
        return tuple((*row, *pair) for row, pair in zip(left, bits, strict=True))

    def less_noise(self, spec: MechanismSpec) -> MechanismSpec | None:
        get, levels = spec.get, spec.get("k") - 1
        slope = get("slope") + 1
        if slope * (levels - 1) >= (WORDS - get("piecewise")) // 2:
            return None
        return mixed(levels, get("piecewise"), get("outputs"), get("window"), get("gain"), slope)

    def truth(self, case: Case, values: np.ndarray) -> np.ndarray:
        """Under noise alone the scores are beyond 10^18."""
        assert isinstance(case.domain, Numeric)
        return (
            mean_of_all(case.domain, values) if case.name != "almost noise" else np.array([np.nan])
        )
