"""Unary encoding keeps the suite: small domains whose 2^k reports can all be written out, named and
free settings, ends of the range.
"""

from __future__ import annotations

import itertools
import math
from typing import ClassVar

from shoal.domain import Categories, Domain, YesNo
from shoal.mechanisms import design
from shoal.task import MechanismSpec
from tests.conformance.mechanisms.checks.case import Case, Draw, Table
from tests.conformance.mechanisms.suite import MechanismSuite

WORDS = 1 << 64


def cells(k: int) -> Domain:
    return Categories(tuple("abcdefgh"[: k - 1])) if k > 2 else YesNo()


def unary(k: int, p: int, q: int) -> MechanismSpec:
    return MechanismSpec.of("unary", k=k, one_if_one=p, one_if_zero=q)


class TestUnaryEncoding(MechanismSuite):
    """Planted: a padding bit set at random -> shape, law and hostile rows fail; the true cell's bit
    not set apart (compared with q) -> the law fails; decided by the first device's word for all ->
    the estimates fail (by the neighbour's, which no law shows: tests/unit); <= for < at either
    threshold of ``OneDevice``, its words read big-endian -> the byte-identity fails; bits in the
    order of ``packbits(bitorder="little")`` -> the law fails; e^epsilon0 taken as P / Q alone (one
    bit's, not the report's) -> the designs fail.
    """

    NAME = "unary"
    CASES: ClassVar[tuple[Case, ...]] = (
        Case("oue, yes/no", design("unary", cells(2), 1.0), cells(2)),
        Case("oue, 4 cells", design("unary", cells(4), 3.0, "oue"), cells(4)),
        Case("sue, 3 cells", design("unary", cells(3), 2.0, "sue"), cells(3)),
        Case("free p, 5 cells", design("unary", cells(5), 5.0, "p=0.97"), cells(5), inputs=(0, 4)),
        Case("asymmetric, 3 cells", unary(3, 9 * WORDS // 10 + 7, WORDS // 20 + 12_345), cells(3)),
        Case("almost the truth", unary(3, WORDS - 1, 1), cells(3)),
        Case("almost noise", unary(3, 2, 1), cells(3)),
        Case("almost always set", unary(4, WORDS - 1, WORDS - 2), cells(4), inputs=(1, 3)),
    )

    def draws(self, case: Case) -> tuple[Draw, ...]:
        """One word per cell, for every device in the cells' order."""
        return (
            Draw(8, (case.spec.get("one_if_zero"), case.spec.get("one_if_one"))),
        ) * case.domain.size

    def less_noise(self, spec: MechanismSpec) -> MechanismSpec | None:
        zero = spec.get("one_if_zero") - 1
        return unary(spec.get("k"), spec.get("one_if_one"), zero) if zero else None

    def stated(self, case: Case) -> Table:
        """All 2^k bit vectors, cell 0 the first bit: the product of each bit's own probability, out
        of 2^(64 k).
        """
        one = [case.spec.get("one_if_zero"), case.spec.get("one_if_one")]

        def weight(cell: int, bits: tuple[int, ...]) -> int:
            return math.prod(
                one[at == cell] if bit else WORDS - one[at == cell] for at, bit in enumerate(bits)
            )

        vectors = list(itertools.product((0, 1), repeat=case.domain.size))
        return tuple(
            tuple(weight(cell, bits) for bits in vectors) for cell in range(case.domain.size)
        )

    def output(self, case: Case, index: int) -> bytes:
        """The bits of ``index`` from the top of the one byte."""
        return bytes([index << (8 - case.domain.size)])
