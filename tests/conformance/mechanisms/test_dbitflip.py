"""dBitFlip keeps the suite: all choices of buckets and all their bits, written out."""

from __future__ import annotations

import itertools
import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shoal.domain import Categories, Domain, YesNo
from shoal.mechanisms import Mechanism, design
from shoal.task import MechanismSpec
from tests.conformance.mechanisms.checks.case import Case, Draw, Table, uniform_draw
from tests.conformance.mechanisms.longitudinal import LongitudinalSuite

WORDS = 1 << 64


def cells(k: int) -> Domain:
    return Categories(tuple(f"label {i}" for i in range(k - 1))) if k > 2 else YesNo()


def spec(k: int, d: int, flip: int) -> MechanismSpec:
    return MechanismSpec.of("dbitflip", d=d, flip=flip, k=k)


def outputs(case: Case) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(chosen buckets in rising order, their bits)."""
    d = case.spec.get("d")
    chosen = itertools.combinations(range(case.domain.size), d)
    return [(buckets, bits) for buckets in chosen for bits in itertools.product((0, 1), repeat=d)]


class TestDBitFlip(LongitudinalSuite):
    """Planted: the first pick of Floyd's algorithm from 0..d - 1; buckets in the order in which
    they were drawn; the word of the bucket's place in the domain; a value outside of the choice
    taken for the first chosen bucket -> the law fails. n k / d for n / m in the estimate -> the
    errors fail. Least weights of all-ones outputs as under a chosen bucket when one is not chosen
    -> the law's classes fail. s instead of s^2 for d = 4 -> the designs of test_registry.py fail.
    """

    NAME = "dbitflip"
    CASES: ClassVar[tuple[Case, ...]] = (
        Case("1 of 2", design("dbitflip", cells(2), 1.0), cells(2)),
        Case("2 of 2", design("dbitflip", cells(2), 1.0, "d=2"), cells(2)),
        Case("1 of 4", design("dbitflip", cells(4), 2.0), cells(4), inputs=(0, 3)),
        Case("2 of 3", spec(3, 2, WORDS // 5 + 12_345), cells(3)),
        Case("all of 3", design("dbitflip", cells(3), 3.0, "d=3"), cells(3)),
        Case("almost the truth", spec(3, 1, 1), cells(3)),
        Case("almost noise", spec(3, 2, WORDS // 2 - 1), cells(3)),
    )

    def choice_draws(self, case: Case) -> tuple[Draw, ...]:
        """A uniform draw below k - d + 1, ..., k."""
        k = case.domain.size
        return tuple(uniform_draw(last + 1) for last in range(k - case.spec.get("d"), k))

    def permanent_draws(self, case: Case) -> tuple[Draw, ...]:
        flip = case.spec.get("flip")
        return (Draw(8, (flip, WORDS - flip)),) * case.spec.get("d")

    def report_draws(self, case: Case) -> tuple[Draw, ...]:
        return ()

    def less_noise(self, spec_: MechanismSpec) -> MechanismSpec | None:
        flip = spec_.get("flip") - 1
        return spec(spec_.get("k"), spec_.get("d"), flip) if flip else None

    def stated(self, case: Case) -> Table:
        """Every set alike; of its bits each is right with 1 - Q, out of 2^(64 d) per set."""
        flip = case.spec.get("flip")

        def weight(cell: int, buckets: tuple[int, ...], bits: tuple[int, ...]) -> int:
            return math.prod(
                WORDS - flip if bit == (bucket == cell) else flip
                for bucket, bit in zip(buckets, bits, strict=True)
            )

        return tuple(
            tuple(weight(cell, *output) for output in outputs(case))
            for cell in range(case.domain.size)
        )

    def output(self, case: Case, index: int) -> bytes:
        buckets, bits = outputs(case)[index]
        return bytes(buckets) + bytes([sum(bit << (7 - at) for at, bit in enumerate(bits))])

    def outcomes(
        self, mechanism: Mechanism, reports: NDArray[np.uint8], one: int, two: int
    ) -> NDArray[np.int64] | None:
        """Whether each of the two cells was chosen, and its bit: the rest has one law under
        both.
        """
        d = mechanism.spec.get("d")
        bits = np.unpackbits(reports[:, d:], axis=1, count=d).astype(np.int64)
        found = np.zeros(len(reports), dtype=np.int64)
        for cell in (one, two):
            found = 3 * found + ((reports[:, :d] == cell) * (1 + bits)).sum(axis=1)
        return found
