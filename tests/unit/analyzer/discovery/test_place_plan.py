"""Discoveries of places planned: how parts are cut, and how fine the first level is."""

from __future__ import annotations

import math

import pytest

from shoal.accounting.several_messages.of_windows import epsilon_together
from shoal.analyzer.discovery.place_plan import longest_for, paths_of, plan_places
from shoal.analyzer.discovery.plan import DiscoveryRequest
from shoal.analyzer.discovery.played import Population, simulate_discovery
from shoal.analyzer.planner.frontier.maps import MapRequest, plan_map
from shoal.domain import Places
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.questions.place_paths import PlacePaths
from tests.worlds.place_trees import CITY, CLUSTERS, places_of

BOX = CITY.box


def test_the_way_that_finds_less_crowded_cells_is_taken() -> None:
    """Both ways to cut are planned; every level within one epsilon. Planted: the way that finds
    more crowded ones -> fails; the epsilon of each level for that of all -> fails.
    """
    request = DiscoveryRequest(50_000, 2.0, 1e-8)
    found = plan_places(request, BOX, 50.0)
    plan = found.plan
    (other,) = found.others
    assert {paths_of(one).across for one in (plan, other)} == {2, 4}
    assert found.paths == PlacePaths(BOX, paths_of(plan).across)
    assert plan.found_from <= 1.05 * other.found_from
    levels = plan.discovery.levels
    together = epsilon_together(plan.made, 50_000, 1e-8, levels)
    assert plan.epsilon == together <= 2.0
    for one in (plan, other):
        paths = paths_of(one)
        widest = max(BOX.cell_height_m, BOX.cell_width_m) / paths.across**one.discovery.longest
        assert 50.0 / paths.across < widest <= 50.0


def test_a_coarse_first_level_where_few_devices_have_messages_for_a_fine_one() -> None:
    """Planted: the finest first level, whatever it costs -> refused."""
    plan = plan_places(DiscoveryRequest(400, 4.0, 1e-6, most=8), BOX, 1_000.0, across=4).plan
    assert plan.discovery.first < PlacePaths(BOX, 4).most_first
    assert plan.made.messages <= 200


def test_cells_are_as_small_as_is_asked() -> None:
    """Planted: height alone looked at -> fails, for this map is wider than it is high."""
    for across in (2, 4):
        paths = PlacePaths(BOX, across)
        for cell in (25.0, 400.0, 6_000.0):
            longest = longest_for(paths, cell)
            assert BOX.cell_width_m / across**longest <= cell
            assert longest == 1 or BOX.cell_width_m / across ** (longest - 1) > cell
    with pytest.raises(ShoalError) as caught:
        longest_for(CITY, 0.1)
    assert caught.value.kind is Kind.CONFIG


def test_the_tree_is_beside_the_flat_maps_of_one_epsilon() -> None:
    """Of a map that is finer than level 0 alone. Planted: the epsilon of a level -> fails."""
    fine = Places(BOX.south, BOX.west, BOX.north, BOX.east, 100, 100)
    tree = plan_map(MapRequest(fine, 100_000, 1.0, 1e-6)).tree
    assert tree is not None
    assert tree.plan.epsilon <= 1.0
    assert tree.rows >= 100
    first = paths_of(tree.plan).across ** tree.plan.discovery.first
    assert tree.rectangle == pytest.approx(tree.plan.stderr * (first + 2) / 3)
    coarse = Places(BOX.south, BOX.west, BOX.north, BOX.east, 8, 8)
    assert plan_map(MapRequest(coarse, 100_000, 1.0, 1e-6)).tree is None


def test_a_played_map_finds_its_clusters() -> None:
    """Every cell that more devices are in than the plan says, but for one in 20 at most, and none
    that nobody is in (seeded); among them those in which the largest clusters have their middles.
    Planted: west for south in ``path_of`` alone -> they are elsewhere, fails.
    """
    plan = plan_places(
        DiscoveryRequest(1_500, 4.0, 1e-6, most=32), BOX, 500.0, across=4, first=2
    ).plan
    places = places_of(1_500, SeededEntropy("played"))
    held = {place: places.count(place) for place in set(places)}
    population = Population.of(plan.discovery, held)
    done = simulate_discovery(plan, population, SeededEntropy("run"))
    last = done[-1]
    assert last.level.is_last
    found = {one.symbols for one in last.found}
    truth = population.cells(last.level)
    crowded = [cell for cell, count in enumerate(truth[:-1]) if count >= plan.found_from]
    missed = sum(last.level.beginning(cell) not in found for cell in crowded)
    assert len(crowded) >= 4
    assert missed <= math.ceil(0.05 * len(crowded))
    assert all(last.true(one) for one in last.found)
    boxes = [CITY.edges(symbols) for symbols in found]
    for latitude, longitude, _ in CLUSTERS[:3]:
        assert any(
            south <= latitude < north and west <= longitude < east
            for south, west, north, east in boxes
        )
