"""A record that each device answers in one marginal, which it draws: whole batches, the coin among
what is drawn, against the certificate of the cells.
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import combinations_with_replacement, permutations, product

import pytest

from shoal.accounting.accountant import certify
from shoal.accounting.numerics.curve import Direction
from shoal.accounting.several_messages.of_mechanism import protocol_of
from shoal.domain import AnswerRecord, Categories
from shoal.mechanisms.categories.krr import KaryResponse
from shoal.mechanisms.several.histogram import BundledHistogram
from shoal.mechanisms.several.noise_law import NoiseLaw, Truth
from shoal.questions import record as record_module
from shoal.questions.record import Attribute
from tests.cases import for_each
from tests.unit.accounting.brute import Law, add_one, divergence, rows_of_kary
from tests.unit.accounting.several_messages.real_bundles import (
    bundles,
    choose_everything,
    worst_curve,
)

RECORD = AnswerRecord(
    (Attribute("a", Categories(("x", "y"))), Attribute("b", Categories(("u", "v")))), ((0,), (1,))
)
# answers, none, and one of the two attributes alone
VALUES = (
    "{}",
    '{"a": "x", "b": "u"}',
    '{"a": "y", "b": "u"}',
    '{"a": "y", "b": "v"}',
    '{"b": "u"}',
)


def cells_of(value: str, monkeypatch: pytest.MonkeyPatch) -> dict[int, Fraction]:
    """How likely each cell is, by all ways that the coin can fall."""
    found = Counter[int]()
    for drawn in range(len(RECORD.marginals)):
        monkeypatch.setattr(record_module, "uniform_below", lambda bound, _, at=drawn: at % bound)
        found[RECORD.encode(value)] += 1
    return {cell: Fraction(times, len(RECORD.marginals)) for cell, times in found.items()}


@for_each("uniform", [1 << 62, 3 << 62])
def test_a_certificate_of_cells_holds_for_records(
    uniform: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three reports of ``krr``, in fractions: every dataset, every pair of records. Planted: the
    certificate of nine reports for three -> fails.
    """
    response = KaryResponse(RECORD.labels, uniform)
    law = response.privacy()
    kary = rows_of_kary(law.k, law.same, law.other)
    rows = [
        [
            sum((share * kary[cell][y] for cell, share in cells.items()), Fraction(0))
            for y in range(law.k)
        ]
        for cells in (cells_of(value, monkeypatch) for value in VALUES)
    ]
    stated = {delta: certify(law, 3, delta).epsilon_upper for delta in (0.2, 0.05, 0.01)}
    for others in combinations_with_replacement(rows, 2):
        base = Law({(0,) * law.k: 1}, 1)
        for row in others:
            base = add_one(base, row)
        views = [add_one(base, row) for row in rows]
        for (p, q), (delta, epsilon) in product(permutations(views, 2), stated.items()):
            assert divergence(p, q, Fraction(math.exp(epsilon))) <= Fraction(delta) * (
                1 + Fraction(1, 10**9)
            )


def test_dummies_of_cells_hide_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundles of one device, with its coin. Planted: a device that answers in both
    marginals -> fails.
    """
    choose_everything(monkeypatch)
    noise = NoiseLaw(Truth.CELL, RECORD.cells, 1, 10, dummies=Fraction(1, 2))
    made = BundledHistogram(RECORD.labels, noise)
    sent = []
    for value in VALUES:
        parts = [
            (share, bundles(made, cell)) for cell, share in cells_of(value, monkeypatch).items()
        ]
        total, views = 0, Counter[tuple[int, ...]]()
        for share, part in parts:
            # all of one total, as the noise is the same
            total = part.total * share.denominator
            for view, mass in part.weights.items():
                views[view] += mass * share.numerator
        sent.append(Law(dict(views), total))
        assert sum(views.values()) == total
    upper = protocol_of(made).curve(1, Direction.UPPER, 1e-6)
    truth = worst_curve(permutations(sent, 2))
    for epsilon in (0.0, 0.5, 2.0):
        assert truth(epsilon) <= upper(epsilon) * (1 + 1e-12)
