"""The tables of docs/MECHANISMS.md about randomizers that are not built, and what they rest on."""

from __future__ import annotations

import math
from fractions import Fraction
from runpy import run_path
from types import SimpleNamespace

import pytest

from shoal.mechanisms.categories.krr import law as krr_law
from shoal.mechanisms.categories.krr import least_uniform
from tests.cases import for_each
from tests.worlds.modules import ROOT

missing = SimpleNamespace(**run_path(str(ROOT / "tools" / "missing_randomizers.py")))


def test_the_tables_are_up_to_date() -> None:
    """Planted: another delta -> fails."""
    assert missing.tables() in missing.PAGE.read_text()


@for_each("items, g", [(1, 4), (3, 2), (4, 8)])
def test_a_wheel_by_hand(items: int, g: int) -> None:
    """On a circle of items * g arcs of which the device's own are ``items``, in rationals: the
    weights of all points add up, and one own arc has what is said. Planted: g for g - 1 in
    ``wheel`` -> fails.
    """
    ratio = Fraction(5)
    arcs = items * g
    total = items * ratio + (arcs - items)
    p, q = missing.wheel(items, g, float(ratio))
    assert p == pytest.approx(float(ratio / total), rel=1e-12)
    assert q == pytest.approx(1 / arcs, rel=1e-12)


def test_one_drawn_item_by_hand() -> None:
    """Three items, chances 1/2 and 1/8: 1/3 of 1/2 and 2/3 of 1/8. Planted: q for each of the
    others left out -> fails.
    """
    assert missing.one_item(3, 0.5, 0.125) == (pytest.approx(0.25), 0.125)


def test_pckv_of_weight_1_is_randomized_response_over_two_cells_a_key() -> None:
    """The same table, in proportion, and the ratio that is asked for. Planted: the key of an answer
    by its remainder -> the other weights fail.
    """
    cells = 2 * missing.KEYS
    krr = krr_law(cells, least_uniform(cells, 2.0))
    law = missing.pckv_law(1, 2.0)
    assert law.rows[3][3] / law.total == pytest.approx(krr.same / krr.total, rel=1e-9)
    assert law.rows[3][2] == law.rows[3][9]
    other = missing.pckv_law(4, 2.0)
    assert other.rows[2][3] == 4 * other.rows[2][1] == 4 * other.rows[2][4]
    assert float(other.max_ratio) == pytest.approx(math.exp(2.0), rel=1e-9)
    assert float(other.max_ratio) <= math.exp(2.0)
