"""Places on a map keep the suite: its table in whole numbers, the larger grid cell by cell."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import isqrt
from typing import ClassVar

from shoal.mechanisms import design
from shoal.questions.places import Places
from shoal.task import MechanismSpec
from tests.conformance.mechanisms.checks.case import Case, Draw, Table
from tests.conformance.mechanisms.checks.ends import AuditOfTheEnds
from tests.conformance.mechanisms.suite import MechanismSuite

WORDS = 1 << 64
# cells of two microdegrees: some hundred millimetres, so that powers can be written out
ROOM = Places(48_100_000, 11_500_000, 48_100_004, 11_500_006, 2, 3)
ROAD = Places(-20, 7, -18, 15, 1, 4)


def planar(domain: Places, epsilon0: float, setting: str, **other: int) -> MechanismSpec:
    spec = design("planar", domain, epsilon0, setting)
    return MechanismSpec.of("planar", **{**dict(spec.parameters), **other})


def stated_table(spec: MechanismSpec) -> Table:
    """By the definition, over one denominator: every cell of the larger grid, moved to the map."""
    rows, columns, border = (spec.get(name) for name in ("rows", "columns", "border"))
    height, width, decay = (spec.get(name) for name in ("height", "width", "decay"))
    cells = list(product(range(rows), range(columns)))
    larger = list(product(range(-border, rows + border), range(-border, columns + border)))

    def apart(x: tuple[int, int], z: tuple[int, int]) -> int:
        return isqrt(((x[0] - z[0]) * height) ** 2 + ((x[1] - z[1]) * width) ** 2)

    furthest = max(apart(x, z) for x in cells for z in larger)
    power = {
        d: decay**d << 64 * (furthest - d) for d in {apart(x, z) for x in cells for z in larger}
    }
    table = []
    for x in cells:
        row = dict.fromkeys(cells, 0)
        for z in larger:
            row[min(max(z[0], 0), rows - 1), min(max(z[1], 0), columns - 1)] += power[apart(x, z)]
        table.append([Fraction(each, sum(row.values())) for each in row.values()])
    corner = [row[0] for row in table]
    ratio, kept = max(corner) / min(corner), sum(row[i] for i, row in enumerate(table))
    chance = (ratio - kept) / (ratio**2 - kept)
    shares = [[(1 - chance) * each for each in row] + [chance] for row in table]
    own = [row[i] / kept for i, row in enumerate(table)]
    shares.append([(1 - chance * ratio) * each for each in own] + [chance * ratio])
    return tuple(floored(row, true) for true, row in enumerate(shares))


def floored(shares: list[Fraction], true: int) -> tuple[int, ...]:
    """Down to whole numbers, 1 or more, what is left to the true cell."""
    weights = [max(1, int(share * WORDS)) for share in shares]
    weights[true] += WORDS - sum(weights)
    return tuple(weights)


class TestPlanar(AuditOfTheEnds, MechanismSuite):
    """Planted: the border's cells left out of Z -> the laws of "room, clamped" fail. Rows and
    columns exchanged -> "room" fails. Elsewhere as far as a corner from its opposite by the decay
    alone (q = a^diameter) -> all laws fail. What is left given to the largest output -> "road".
    """

    NAME = "planar"
    CASES: ClassVar[tuple[Case, ...]] = (
        Case("room, cut", planar(ROOM, 1.0, "cut"), ROOM),
        Case("room, clamped", planar(ROOM, 4.0, "clamped"), ROOM),
        Case("road", planar(ROAD, 2.0, "clamped", border=1), ROAD),
        Case("narrow cells", planar(ROOM, 2.0, "cut", width=20, height=90), ROOM),
        Case("almost the truth", planar(ROAD, 20.0, "cut"), ROAD),
    )

    def draws(self, case: Case) -> tuple[Draw, ...]:
        rows = self.table_of(case)
        return (Draw(8, tuple(sum(row[:y]) for row in rows for y in range(1, len(row)))),)

    def stated(self, case: Case) -> Table:
        return stated_table(case.spec)

    def less_noise(self, spec: MechanismSpec) -> MechanismSpec | None:
        values = dict(spec.parameters)
        return MechanismSpec.of("planar", **{**values, "decay": values["decay"] - 1})
