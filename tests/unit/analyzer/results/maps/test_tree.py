"""A map of what a discovery of places found: cells of different sizes, and each part once."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from shoal.analyzer.results.maps.tree import place_map
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.analyzer.results.report_page import render_report
from shoal.analyzer.results.word_tree import word_tree
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.pictures.maps import Tile, map_svg
from shoal.questions.discovery import DiscoveryLevel
from tests.worlds.place_trees import SMALL, places_of
from tests.worlds.words import found_in, release_of, words_world

WORLD = words_world(SMALL)
PLACES = places_of(400, SeededEntropy("places"))


def released(levels: int) -> list[dict[str, Any]]:
    level: DiscoveryLevel | None = SMALL.level(0)
    shown = list[dict[str, Any]]()
    for window in range(levels):
        assert level is not None
        prepared = found_in(WORLD, level, PLACES, window, f"window {window}")
        assert prepared.found is not None
        shown.append(to_json(decode_release(release_of(WORLD, prepared))))
        level = SMALL.after(level.number, prepared.found.beginnings)
    return shown


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_the_cells_are_the_whole_map_and_each_part_once(levels: int) -> None:
    """Planted: parts that are followed drawn too, or their cells left out -> fails."""
    releases = released(levels)
    found = place_map(releases)
    south, west, north, east = found.box
    areas = [(one.north - one.south) * (one.east - one.west) for one in found.cells]
    assert sum(areas) == pytest.approx((north - south) * (east - west), rel=1e-9)
    followed = {one.path for one in found.followed}
    assert all(one.path not in followed for one in found.cells)
    assert (found.level, found.levels, found.window) == (levels - 1, 3, levels - 1)
    assert bool(found.found) == (levels == 3)
    assert bool(found.going_on) == (levels < 3)
    assert len(found.cells) + len(found.followed) == sum(
        len(one["discovered"]["cells"]) for one in releases
    )
    reached = found.found or found.going_on
    assert [one.value for one in reached] == sorted((one.value for one in reached), reverse=True)
    assert all(one.value >= releases[-1]["discovered"]["threshold"] for one in reached)


def test_cells_of_a_part_sum_to_its_count() -> None:
    """At every level, so that the whole map sums to level 0. Planted: cells as they were counted
    -> fails; only the last level fitted -> the map sums to something else.
    """
    releases = released(3)
    found = place_map(releases)
    first = sum(row["value"] for row in releases[0]["estimates"][:-1])
    assert sum(cell.fitted for cell in found.cells) == pytest.approx(first)
    every = {cell.path: cell for cell in (*found.cells, *found.followed)}
    for part in found.followed:
        inside = [every[f"{part.path}{digit:x}"] for digit in range(16)]
        assert sum(cell.fitted for cell in inside) == pytest.approx(part.fitted)
        moved = {round(cell.fitted - cell.value, 6) for cell in inside}
        assert len(moved) == 1
    assert any(cell.fitted != cell.value for cell in found.cells)


def test_a_map_of_fewer_devices_is_scaled() -> None:
    """A window that half of the devices answered has half of a part's devices in its cells.
    Planted: the counts of the other window as they are -> fails.
    """
    releases = released(2)
    releases[1]["n"] //= 2
    found = place_map(releases)
    inside = [cell for cell in found.cells if cell.path.startswith(found.followed[0].path)]
    assert sum(cell.fitted for cell in inside) == pytest.approx(found.followed[0].value / 2)


def test_a_level_that_was_lost_leaves_the_others() -> None:
    """After a restore of an old copy. Planted: levels counted by their order, not their number ->
    cells of level 2 replace those of level 0 that they are not parts of -> fails.
    """
    first, _, last = released(3)
    found = place_map([first, last])
    assert len(found.cells) == len(first["discovered"]["cells"]) + len(last["discovered"]["cells"])


def test_words_and_places_are_not_taken_for_one_another() -> None:
    for draw in (place_map, word_tree):
        with pytest.raises(ShoalError) as caught:
            draw(released(1) if draw is word_tree else [{"window": 0}])
        assert caught.value.kind is Kind.NOT_FOUND


@pytest.mark.parametrize("levels", [1, 2])
def test_the_report_says_what_the_next_level_asks_for(levels: int) -> None:
    """As the console does: where the largest cells are, and that they are followed. Planted: the
    cells of the last level alone -> no table before it; words of the end at once -> fails.
    """
    found = place_map(released(levels))
    page = render_report(released(levels))
    assert f"asks for the parts of {len(found.going_on)} cells" in page
    assert "Nothing is left to follow" not in page
    assert "Cells of the last level with most devices" in page
    assert f'<tr><th scope="row">{found.going_on[0].label}</th>' in page
    assert "shoal results rectangle words --south" in page


def test_the_report_draws_every_cell_once_with_its_interval() -> None:
    """Planted: text that is not escaped -> a tag of the task's name is there."""
    releases = [{**one, "name": "<b>"} for one in released(3)]
    found = place_map(releases)
    page = render_report(releases)
    assert page.count('class="tile"') == len(found.cells)
    assert "&lt;b&gt;: where they are" in page
    assert "<b>: " not in page
    most = found.found[0]
    assert f"{most.label}: {most.value:,.0f} devices ({most.low:,.0f} to {most.high:,.0f})" in page


def test_the_picture_has_north_above_and_the_right_shape() -> None:
    """Two cells of a map at 60 degrees north, where a degree of longitude is half as wide: the
    northern one is above, and the darkest. Planted: south above -> fails; a degree as wide as high
    -> fails.
    """
    tiles = [Tile(60, 10, 60.5, 11, 0.25, "south"), Tile(60.5, 10, 61, 11, 1.0, "north")]
    picture = map_svg((60, 10, 61, 11), tiles, "a map", "2 cells")
    rows = re.findall(
        r'x="(.*?)" y="(.*?)" width="(.*?)" height="(.*?)" fill-opacity="(.*?)">', picture
    )
    (_, low, width, height, faint), (_, high, _, _, dark) = [tuple(map(float, row)) for row in rows]
    assert high == 0.0 < low
    assert (faint, dark) == (0.5, 1.0)
    assert width / height == pytest.approx(2 * math.cos(math.radians(60.5)), rel=1e-4)
