"""Subset selection keeps the suite: every set of d cells listed, its weight from the paper."""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import ClassVar

from shoal.domain import Categories, YesNo
from shoal.mechanisms import design
from shoal.task import MechanismSpec
from tests.conformance.mechanisms.checks.case import Case, Draw, Table, uniform_draw
from tests.conformance.mechanisms.suite import MechanismSuite

WORDS = 1 << 64


def cells(k: int) -> Categories:
    return Categories(tuple(f"label {i}" for i in range(k - 1)))


def subset(k: int, d: int, include: int) -> MechanismSpec:
    return MechanismSpec.of("subset", k=k, d=d, include=include)


def designed(name: str, k: int, epsilon0: float, setting: str = "") -> Case:
    return Case(name, design("subset", cells(k), epsilon0, setting), cells(k))


class TestSubsetSelection(MechanismSuite):
    """Planted: the last draw, not the first, left out beside the true cell -> the law of "2 of 4"
    fails.
    """

    NAME = "subset"
    CASES: ClassVar[tuple[Case, ...]] = (
        Case("yes/no", design("subset", YesNo(), 1.0), YesNo()),
        designed("1 of 3", 3, 2.0),
        designed("1 of 4", 4, 1.0, "d=1"),
        designed("2 of 4", 4, 1.0, "d=2"),
        designed("2 of 5", 5, 0.3),
        designed("2 of 9, two bytes", 9, 1.5, "d=2"),
        Case("2 of 3", subset(3, 2, WORDS // 10 * 7), cells(3)),
        Case("3 of 5", subset(5, 3, WORDS // 10 * 9 + 12_345), cells(5)),
        Case("4 of 5", subset(5, 4, WORDS // 10 * 9), cells(5)),
        Case("almost the truth", subset(4, 2, WORDS - 1), cells(4)),
        Case("almost noise", subset(4, 2, WORDS // 2 + 1), cells(4)),
    )

    def draws(self, case: Case) -> tuple[Draw, ...]:
        """The coin, and d cells: of one cell more each time, up to the k - 1 others."""
        k, d = case.spec.get("k"), case.spec.get("d")
        return Draw(8, (case.spec.get("include"),)), *(
            uniform_draw(bound) for bound in range(k - d, k)
        )

    def stated(self, case: Case) -> Table:
        """I of 2^64 falls evenly on the C(k-1, d-1) sets with the true cell, the rest on the C(k-1,
        d) others.
        """
        k, d, include = case.spec.get("k"), case.spec.get("d"), case.spec.get("include")
        within, without = include * comb(k - 1, d), (WORDS - include) * comb(k - 1, d - 1)
        return tuple(
            tuple(within if cell in chosen else without for chosen in combinations(range(k), d))
            for cell in range(k)
        )

    def output(self, case: Case, index: int) -> bytes:
        k, d = case.spec.get("k"), case.spec.get("d")
        chosen = list(combinations(range(k), d))[index]
        bits = "".join("1" if cell in chosen else "0" for cell in range(k))
        return int(bits.ljust(-(-k // 8) * 8, "0"), 2).to_bytes(-(-k // 8), "big")

    def less_noise(self, spec: MechanismSpec) -> MechanismSpec | None:
        include = spec.get("include") + 1
        return subset(spec.get("k"), spec.get("d"), include) if include < WORDS else None
