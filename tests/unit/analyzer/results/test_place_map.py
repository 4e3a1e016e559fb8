"""A map of what a discovery of places found: cells of different sizes, and each part once."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.analyzer.results.place_map import place_map
from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.analyzer.results.word_tree import word_tree
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.questions.discovery import DiscoveryLevel
from tests.worlds.maps import SMALL, places_of
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
