"""The Square Wave mechanism keeps the suite: its places counted one by one."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from shoal.domain import Numeric
from shoal.mechanisms import design
from shoal.task import MechanismSpec
from tests.conformance.mechanisms.checks.case import Case, Draw, Table
from tests.conformance.mechanisms.suite import MechanismSuite

WORDS = 1 << 64
LEVELS = Numeric(0, 20, 11)


def square_wave(k: int, half: int, low: int) -> MechanismSpec:
    return MechanismSpec.of("square_wave", k=k, half=half, low=low)


class TestSquareWave(MechanismSuite):
    """Planted: "no answer" of the weight of one place, the likely places one level to the right ->
    the laws and the estimates fail. ``low`` one less than designed -> the designs fail. The mean's
    error without the devices' own levels -> the statistics fail.
    """

    NAME = "square_wave"
    CASES: ClassVar[tuple[Case, ...]] = (
        Case("11 levels", design("square_wave", LEVELS, 1.0), LEVELS, inputs=(0, 4, 10, 11)),
        Case(
            "4 levels, narrow",
            design("square_wave", Numeric(-1, 1, 4), 3.0, "half=1"),
            Numeric(-1, 1, 4),
        ),
        Case(
            "2 levels, huge unit",
            design("square_wave", Numeric(-1e300, 7e300, 2), 2.0),
            Numeric(-1e300, 7e300, 2),
        ),
        Case("almost the truth", square_wave(5, 0, 1), Numeric(0, 1, 4)),
        Case("almost noise", square_wave(4, 1, WORDS // 8 - 5), Numeric(0, 1, 3)),
    )

    def draws(self, case: Case) -> tuple[Draw, ...]:
        rows = self.table_of(case)
        return (Draw(8, tuple(sum(row[:y]) for row in rows for y in range(1, len(row)))),)

    def stated(self, case: Case) -> Table:
        """A level has 2 B + 1 places near it and shares what the others leave; "no answer" is 2 B +
        1 places that are one output.
        """
        levels, half, low = case.domain.size - 1, case.spec.get("half"), case.spec.get("low")
        places = [*range(-half, levels + half), *["silent"] * (2 * half + 1)]
        rows = []
        for x in [*range(levels), "silent"]:
            near = [
                at
                for at, place in enumerate(places)
                if place == x or (x != "silent" != place and abs(place - x) <= half)
            ]
            left = WORDS - low * (len(places) - len(near))
            weights = [low] * len(places)
            for at, place in enumerate(near):
                weights[place] = left // len(near) + (at < left % len(near))
            rows.append((*weights[: levels + 2 * half], sum(weights[levels + 2 * half :])))
        return tuple(rows)

    def less_noise(self, spec: MechanismSpec) -> MechanismSpec | None:
        low = spec.get("low") - 1
        return square_wave(spec.get("k"), spec.get("half"), low) if low else None

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
