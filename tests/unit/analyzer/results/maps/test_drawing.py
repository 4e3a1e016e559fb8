"""Maps as pictures and as text: every cell once, the north on top, unclear ones marked."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from shoal.analyzer.results.maps.drawing import SHADES, picture_of, shades_of, text_of
from shoal.analyzer.results.report_page import render_report
from shoal.domain import Places
from shoal.entropy import SeededEntropy
from tests.worlds.maps import MAP, released_map, town
from tests.worlds.services.analyzer import several_world

LARGE = replace(MAP, rows=60, columns=70)


def release_of(places: Places, values: list[float], error: float = 1.0, kept: float = 1.0) -> Any:
    """A release's parts that a picture reads, elsewhere 0."""
    rows = zip(places.labels, [*values, 0.0], strict=True)
    box = {name: getattr(places, name) / 1e6 for name in ("south", "west", "north", "east")}
    shown = {"rows": places.rows, "columns": places.columns, "side": 0, "noise_stderr": error}
    return {
        "n": 1_000,
        "estimates": [
            {"label": label, "value": v, "stderr": error, "ci_low": v - 2.0, "ci_high": v + 2.0}
            for label, v in rows
        ],
        "map": {**box, **shown, "kept": kept, "other": 0.0},
    }


def test_shades_are_of_clear_cells_alone() -> None:
    """Planted: clear from 1.5 standard errors on -> fails."""
    shades, starts = shades_of([-9.0, 0.0, 1.9, 2.0, 4.0, 64.0], [1.0] * 6)
    assert shades[:4] == [0, 0, 0, 1]
    assert shades[5] == SHADES == len(starts)
    assert starts[0] == 2.0
    assert 1 <= shades[4] < SHADES
    assert shades_of([1.0], [1.0]) == ([0], [])
    assert shades_of([5.0, 5.0], [1.0, 1.0]) == ([1, 1], [5.0])
    assert shades_of([5.0, 0.0], [0.0, 0.0])[0] == [1, 0]


def test_every_cell_is_drawn_once_the_south_west_below_on_the_left() -> None:
    """Planted: rows from the top -> fails."""
    values = [float(at * 10) for at in range(30)]
    picture = picture_of(release_of(MAP, values))
    assert picture is not None
    assert len(picture.cells) == 30
    first, last = picture.cells[0], picture.cells[-1]
    assert first.x == picture.left
    assert first.y + first.height == pytest.approx(picture.bottom, abs=0.02)
    assert last.y == picture.top
    assert last.x + last.width == pytest.approx(picture.right, abs=0.02)
    assert (first.shade, last.shade) == (0, SHADES)
    assert first.title.startswith("48.00 to 48.05, 11.3 to 11.4: 0 (95 %")
    assert (picture.south, picture.north) == ("48°", "48.3°")


def test_a_large_map_is_drawn_in_runs_of_one_shade() -> None:
    """Planted: the last cell of a row run into the next row -> fails."""
    values = [100.0 if at % 70 < 35 else 0.0 for at in range(4_200)]
    picture = picture_of(release_of(LARGE, values))
    assert picture is not None
    assert len(picture.cells) == 120
    area = sum(cell.width * cell.height for cell in picture.cells)
    whole = (picture.right - picture.left) * (picture.bottom - picture.top)
    assert area == pytest.approx(whole, rel=0.01)


def test_a_text_has_the_north_on_top_and_puts_cells_of_a_large_map_together() -> None:
    """Planted: the south on top -> fails."""
    values = [0.0] * 25 + [50.0] * 5
    lines = text_of(release_of(MAP, values))
    assert lines[1] == "|::::::::::|"
    assert lines[2:7] == ["|..........|"] * 5
    assert '"." below 2 standard errors' in lines[-1]
    # 4 cells of 1.5 each are together clear, at an error of 2
    lines = text_of(release_of(LARGE, [1.5] * 4_200))
    assert len(lines) == 1 + 30 + 2
    assert lines[1] == f"|{'::' * 35}|"
    assert "2 x 2 cells" in lines[-2]
    assert "too large" in text_of(release_of(LARGE, [1.5] * 4_200, kept=0.0))[0]
    assert text_of({"estimates": []}) == []


def test_the_page_has_the_map_and_the_largest_cells() -> None:
    """Its own patterns alone, no text of a label unescaped, nothing fetched; rectangles are named
    where they can be asked. Planted: a pattern without the section's id -> fails; rectangles of
    every map -> fails.
    """
    world = several_world("blocks", domain=MAP, min_batch=1_500)
    release = released_map(world, town(MAP, 1_500), SeededEntropy(1))
    page = render_report([release, {**release, "window": 1}])
    ids = re.findall(r'pattern id="([^"]+)"', page)
    assert len(ids) == len(set(ids)) == 4
    assert set(re.findall(r"url\(#([^)]+)\)", page)) == set(ids)
    assert page.count('class="edge"') == 4
    assert "Elsewhere, or no answer: " in page
    assert page.count("shoal results rectangle visits:") == 2
    unknown = {**release, "map": {**release["map"], "side": 0, "kept": 0.0}}
    assert "shoal results rectangle" not in render_report([unknown])
    assert 'href="http' not in page.replace("http://www.w3.org", "")
