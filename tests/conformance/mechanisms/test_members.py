"""Every registered randomizer keeps the suite, over several specs each."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from shoal.domain import Categories, Numeric, YesNo
from shoal.mechanisms import design
from shoal.mechanisms.categories.binary_rr import two_coin
from shoal.task import MechanismSpec
from tests.conformance.mechanisms.checks.case import Case, Draw, uniform_draw
from tests.conformance.mechanisms.suite import MechanismSuite
from tests.sizes import size

WORDS = 1 << 64
VISITS = Categories(("0", "1", "2", "3-4", "5-9", "10+"), (0, 1, 2, 3, 5, 10))
MANY = Categories(tuple(f"label {i}" for i in range(299)))
BYTE = Categories(tuple(f"label {i}" for i in range(255)))
LEVELS = Numeric(0, 20, 21)


def binary(yes_if_yes: int, yes_if_no: int) -> MechanismSpec:
    return MechanismSpec.of("binary_rr", yes_if_yes=yes_if_yes, yes_if_no=yes_if_no)


class TestBinaryResponse(MechanismSuite):
    NAME = "binary_rr"
    MANY = size(40_000, 1_000_000)  # its blocks are the longest
    CASES: ClassVar[tuple[Case, ...]] = (
        Case("two coins", two_coin(), YesNo()),
        Case("symmetric 1", design("binary_rr", YesNo(), 1.0), YesNo()),
        Case("asymmetric", binary(9 * WORDS // 10, WORDS // 20 + 12_345), YesNo()),
        Case("sensitive yes", binary(WORDS // 3, 1), YesNo()),
        Case("almost the truth", binary(WORDS - 1, 1), YesNo()),
        Case("almost noise", binary(2, 1), YesNo()),
    )

    def draws(self, case: Case) -> tuple[Draw, ...]:
        return (Draw(8, (case.spec.get("yes_if_no"), case.spec.get("yes_if_yes"))),)

    def less_noise(self, spec: MechanismSpec) -> MechanismSpec | None:
        flip = spec.get("yes_if_no") - 1
        return binary(WORDS - flip, flip) if flip else None


class TestKaryResponse(MechanismSuite):
    NAME = "krr"
    CASES: ClassVar[tuple[Case, ...]] = (
        Case("7 cells", design("krr", VISITS, 4.0), VISITS),
        Case("yes/no", design("krr", YesNo(), 1.0), YesNo()),
        Case("22 levels", design("krr", LEVELS, 2.0), LEVELS, inputs=(0, 1, 11, 21)),
        Case("256 cells, one byte", design("krr", BYTE, 5.0), BYTE, inputs=(0, 255)),
        Case("300 cells, two bytes", design("krr", MANY, 6.0), MANY, inputs=(0, 299)),
        Case("almost the truth", MechanismSpec.of("krr", k=7, uniform=1), VISITS),
        Case("almost noise", MechanismSpec.of("krr", k=7, uniform=WORDS - 1), VISITS),
    )

    def draws(self, case: Case) -> tuple[Draw, ...]:
        return Draw(8, (case.spec.get("uniform"),)), uniform_draw(case.spec.get("k"))

    def less_noise(self, spec: MechanismSpec) -> MechanismSpec | None:
        uniform = spec.get("uniform") - 1
        return MechanismSpec.of(spec.name, k=spec.get("k"), uniform=uniform) if uniform else None


class TestKaryMean(TestKaryResponse):
    NAME = "kmean"
    CASES: ClassVar[tuple[Case, ...]] = (
        Case("21 levels", design("kmean", LEVELS, 4.0), LEVELS, inputs=(0, 7, 20, 21)),
        Case("2 levels", design("kmean", Numeric(-1, 1, 2), 1.0), Numeric(-1, 1, 2)),
        Case(
            "huge unit",
            design("kmean", Numeric(-1e300, 1e300, 11), 3.0),
            Numeric(-1e300, 1e300, 11),
            inputs=(0, 11),
        ),
        Case("almost the truth", MechanismSpec.of("kmean", k=6, uniform=1), Numeric(0, 1, 5)),
        Case("almost noise", MechanismSpec.of("kmean", k=6, uniform=WORDS - 1), Numeric(0, 1, 5)),
    )

    def truth(self, case: Case, values: np.ndarray) -> np.ndarray:
        """The mean of the answering cells and the number of no answers. Under noise alone the mean
        isn't estimated.
        """
        assert isinstance(case.domain, Numeric)
        answered = values[values < case.domain.levels]
        mean = (
            case.domain.low + case.domain.step * answered.mean()
            if case.name != "almost noise"
            else np.nan
        )
        return np.array([mean, float(len(values) - len(answered))])
