"""Maps: every value has one cell, the same everywhere."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest

from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS
from shoal.questions.coordinates import MICRO
from shoal.questions.places import EARTH_RADIUS_M, ELSEWHERE, MOST_LATITUDE, Places
from tests.cases import for_each

SMALL = Places(-3, -5, 8, 9, 4, 3)  # 11 x 14 microdegrees
MUNICH = Places(48_000_000, 11_300_000, 48_300_000, 11_800_000, 32, 32)


def test_cells_part_the_box_by_enumeration() -> None:
    """Every microdegree of a small box and around it, against exact fractions and the edges.
    Planted: the northern edge inside -> fails.
    """
    seen = Counter[int]()
    for latitude in range(-6, 12):
        for longitude in range(-8, 13):
            cell = SMALL.cell_of(latitude, longitude)
            seen[cell] += 1
            inside = -3 <= latitude < 8 and -5 <= longitude < 9
            if not inside:
                assert cell == SMALL.size - 1
                continue
            row, column = divmod(cell, SMALL.columns)
            assert row == math.floor(Fraction(latitude + 3, 11) * 4)
            assert column == math.floor(Fraction(longitude + 5, 14) * 3)
            assert SMALL.row_edges[row] <= latitude < SMALL.row_edges[row + 1]
            assert SMALL.column_edges[column] <= longitude < SMALL.column_edges[column + 1]
    assert set(seen) == set(range(SMALL.size))
    assert sum(seen[cell] for cell in range(12)) == 11 * 14


@for_each("places", [SMALL, MUNICH, replace(MUNICH, rows=1, columns=1), replace(MUNICH, rows=7)])
def test_labels_are_distinct_and_every_cell_is_answered_by_its_middle(places: Places) -> None:
    """Planted: labels by columns -> fails on the small box."""
    assert len(set(places.labels)) == places.size == len(places.label_cells)
    assert places.labels[-1] == ELSEWHERE
    for cell in range(places.size - 1):
        middle = places.text_of(cell)
        assert places.understands(middle)
        assert places.encode(middle) == cell
        south, _, north, *_ = places.labels[cell].split(" ")
        latitude = Fraction(middle.split(",")[0])
        assert Fraction(south) <= latitude <= Fraction(north.rstrip(","))


def test_metres() -> None:
    """Against the great circle through the middle of a cell (haversine). Planted: the width at the
    southern edge -> fails.
    """
    middle = math.radians(48.15)
    step = math.radians(0.5 / 32)
    chord = math.cos(middle) * math.sin(step / 2)
    assert MUNICH.cell_width_m == pytest.approx(2 * EARTH_RADIUS_M * math.asin(chord), rel=1e-6)
    assert MUNICH.cell_height_m == pytest.approx(EARTH_RADIUS_M * math.radians(0.3 / 32))
    assert "32 x 32 cells of 1,042 m (north-south) x 1,159 m" in MUNICH.described


def test_what_is_understood() -> None:
    assert MUNICH.encode("0, 0") == MUNICH.encode(None) == MUNICH.encode("x") == 1024
    assert MUNICH.understands("0, 0")
    assert not MUNICH.understands("x")
    assert not MUNICH.understands(48.1)


@for_each(
    "changed",
    [
        {"south": 48_300_000},
        {"north": MOST_LATITUDE + 1},
        {"south": -MOST_LATITUDE - 1},
        {"west": 11_800_000},
        {"west": -180 * MICRO - 1},
        {"east": 180 * MICRO + 1},
        {"west": 170 * MICRO, "east": -170 * MICRO},  # over the date line
        {"rows": 0},
        {"columns": 0},
        {"rows": 256, "columns": 256},
        {"south": 48_299_990},  # 32 rows in 10 microdegrees
        {"east": 11_300_031},
    ],
)
def test_refused(changed: dict[str, int]) -> None:
    """Planted: no least number of rows; no most number of cells; cells below a
    microdegree -> fails."""
    with pytest.raises(ShoalError) as caught:
        replace(MUNICH, **changed)
    assert caught.value.kind is Kind.INVALID
    of_longitudes = changed.keys() & {"west"} or changed == {"east": 180 * MICRO + 1}
    assert ("two tasks" if of_longitudes else "choose") in caught.value.message


def test_as_many_cells_as_a_task_may_have() -> None:
    assert replace(MUNICH, rows=255, columns=257).size == LIMITS.cells
