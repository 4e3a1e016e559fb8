"""Chained unary encoding keeps the suite: two rounds of bits, small domains whose reports can all
be written out.
"""

from __future__ import annotations

import itertools
import math
from typing import ClassVar

from shoal.domain import Categories, Domain, YesNo
from shoal.mechanisms import design
from shoal.task import MechanismSpec
from tests.conformance.mechanisms.checks.case import Case, Draw, Table
from tests.conformance.mechanisms.longitudinal import LongitudinalSuite

WORDS = 1 << 64


def cells(k: int) -> Domain:
    return Categories(tuple("abcdefgh"[: k - 1])) if k > 2 else YesNo()


def spec(k: int, permanent: tuple[int, int], report: tuple[int, int]) -> MechanismSpec:
    return MechanismSpec.of(
        "l_unary",
        k=k,
        permanent_if_one=permanent[0],
        permanent_if_zero=permanent[1],
        report_if_one=report[0],
        report_if_zero=report[1],
    )


class TestChainedUnary(LongitudinalSuite):
    """Planted: the second round's p and q exchanged; the report's noise drawn on the true cell
    instead of the permanent bits; ``privacy`` of the permanent bits, or of the report's noise alone
    -> the law fails. The chain's q without (1 - q1) q2 -> nothing can be designed.
    """

    NAME = "l_unary"
    CASES: ClassVar[tuple[Case, ...]] = (
        Case("l_osue, yes/no", design("l_unary", cells(2), 1.0), cells(2)),
        Case("l_sue, yes/no", design("l_unary", cells(2), 2.0, "l_sue"), cells(2)),
        Case(
            "l_soue, 3 cells", design("l_unary", cells(3), 2.0, "l_soue"), cells(3), inputs=(0, 2)
        ),
        Case(
            "alpha 3/4, 4 cells",
            design("l_unary", cells(4), 3.0, "alpha=0.75"),
            cells(4),
            inputs=(1, 3),
        ),
        Case(
            "asymmetric, yes/no",
            spec(2, (9 * WORDS // 10 + 7, WORDS // 20 + 12_345), (WORDS // 3, WORDS // 7)),
            cells(2),
        ),
        Case("almost the truth", spec(2, (WORDS - 1, 1), (WORDS - 1, 1)), cells(2)),
        Case("almost noise", spec(2, (2, 1), (WORDS - 1, 1)), cells(2)),
    )

    def choice_draws(self, case: Case) -> tuple[Draw, ...]:
        return ()

    def permanent_draws(self, case: Case) -> tuple[Draw, ...]:
        return (
            Draw(8, (case.spec.get("permanent_if_zero"), case.spec.get("permanent_if_one"))),
        ) * case.domain.size

    def report_draws(self, case: Case) -> tuple[Draw, ...]:
        return (
            Draw(8, (case.spec.get("report_if_zero"), case.spec.get("report_if_one"))),
        ) * case.domain.size

    def less_noise(self, spec: MechanismSpec) -> MechanismSpec | None:
        """In the reports: the permanent bits' noise is fixed by alpha."""
        given = dict(spec.parameters)
        if given["report_if_zero"] == 1:
            return None
        return MechanismSpec.of(
            spec.name,
            **{
                **given,
                "report_if_one": given["report_if_one"] + 1,
                "report_if_zero": given["report_if_zero"] - 1,
            },
        )

    def stated(self, case: Case) -> Table:
        """All 2^k bit vectors: every permanent bit and every reported bit by its own probability,
        summed over the permanent ones.
        """
        get, k = case.spec.get, case.domain.size
        first = (
            (get("permanent_if_zero"), get("permanent_if_one")),
            (get("report_if_zero"), get("report_if_one")),
        )

        def bit(true: bool, seen: int) -> int:
            one, again = first[0][true], first[1]
            chance = one * again[1] + (WORDS - one) * again[0]
            return chance if seen else WORDS**2 - chance

        vectors = list(itertools.product((0, 1), repeat=k))
        return tuple(
            tuple(
                math.prod(bit(at == cell, seen) for at, seen in enumerate(bits)) for bits in vectors
            )
            for cell in range(k)
        )

    def output(self, case: Case, index: int) -> bytes:
        """The bits of ``index`` from the top of the one byte."""
        return bytes([index << (8 - case.domain.size)])
