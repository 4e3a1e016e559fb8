"""The errors that ``accounting.numerics.tilted`` states, each at a size at which its absence shows,
against exact rationals.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from shoal.accounting.numerics import tilted
from tests.cases import for_each
from tests.unit.accounting.bounds.test_binary import exact_divergence, exact_law

PAIRS = [
    (Fraction(9, 10), Fraction(1, 10)),
    (Fraction(97, 100), Fraction(2, 5)),
    (Fraction(3, 100), Fraction(1, 100)),
]
COUNTS = ((30, 30), (0, 15))


def ends(
    top: Fraction, bottom: Fraction, counts: tuple[int, ...], excess: float
) -> tuple[Fraction, Fraction]:
    tilts = tilted.tilts(top, bottom, [top, bottom], [excess])
    lower, upper = tilted.divergences(tilts, np.zeros(1, np.int64), np.array([counts]))
    return Fraction(float(lower[0])), Fraction(float(upper[0]))


@cache
def truth(top: Fraction, bottom: Fraction, counts: tuple[int, ...], excess: float) -> Fraction:
    return exact_divergence(
        exact_law(list(counts), [top, bottom]), top, bottom, 1 + Fraction(excess)
    )


@for_each(
    "constant, value",
    [("_TAIL", 34.0), ("_TAIL", 5.0), ("_CUT", 4.0), ("_CUT", 8.0)],
    ids=["as it is", "tail", "cut", "less cut"],
)
def test_what_is_cut_off_is_paid_for_at_both_ends(
    monkeypatch: pytest.MonkeyPatch, constant: str, value: float
) -> None:
    """With so much cut off that it shows: outcomes outside the period, or frequencies.

    Planted: ``sums`` without ``error`` in ``low``, or in ``high``; either truncation left out of
    ``error``; the number of frequencies rounded down -> each fails.
    """
    monkeypatch.setattr(tilted, constant, value)
    for top, bottom in PAIRS:
        for counts in COUNTS:
            for share in (0.0, 0.05, 0.3, 0.6):
                excess = math.expm1(math.log(top / bottom) * share)
                lower, upper = ends(top, bottom, counts, excess)
                assert lower <= truth(top, bottom, counts, excess) <= upper


@pytest.mark.parametrize("excess", [4.9e9, 4.99e9])
def test_a_divergence_below_all_floats_has_an_upper_end(excess: float) -> None:
    """1e-402 and less: nobody but the victim ever says one. Planted: ``_LEAST`` left out, or taken
    off -> 0, or less, fails.
    """
    top, bottom, counts = Fraction(1, 2), Fraction(1, 10**10), (0, 40)
    lower, upper = ends(top, bottom, counts, excess)
    assert 0 < truth(top, bottom, counts, excess) < Fraction(1, 10**401)
    assert lower <= truth(top, bottom, counts, excess) <= upper
