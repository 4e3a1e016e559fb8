"""Places that nobody listed, found part by part by real services: a shuffler and an analyzer in
processes of their own, TLS, a fleet that follows from level to level by the shuffler's catalogue.

Devices are near five clusters of a city, or anywhere on its map. Every cell that a level asked for
is told, within 9 of its standard errors of the truth: dummies are Poisson, the chance of a false
alarm is below 1e-9 each. A cell that 6 standard errors more devices than the threshold have is
missed with a chance below 1e-8; half a false one is expected at most, and 6 or more have a chance
of 2e-5.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shoal.analyzer.results.maps.tree import PlaceMap, place_map
from shoal.analyzer.results.release_json import to_json
from shoal.cli.demo.workspace import prepare
from shoal.cli.main import main
from shoal.domain import Discovery, Places
from shoal.entropy import SeededEntropy
from shoal.mechanisms.several.levels import level_of
from shoal.mechanisms.several.registry import create
from shoal.protos.release_pb2 import Release
from shoal.questions.coordinates import MICRO
from shoal.questions.discovery import DiscoveryLevel
from tests.sizes import size
from tests.worlds import discoveries
from tests.worlds.place_trees import CITY, places_of
from tests.worlds.ports import free_port

DEVICES = size(2_000, 20_000)
LENGTH_S = size(20, 150)
EPSILON = float(size(3, 1))  # of one window
MOST_FALSE = 5


def check_level(asked: discoveries.Asked, level: DiscoveryLevel, release: Release) -> int:
    """All that is said of one level, against the truth. Returns cells that are followed and that
    nobody is in.
    """
    places = places_of(DEVICES, SeededEntropy("clusters"))
    truth = Counter(level.encode(place) for place in places)
    told = release.discovered
    assert (told.level, release.n, release.withheld) == (level.number, DEVICES, "")
    assert list(told.asked) == [level.beginning(cell) for cell in range(level.size - 1)]
    assert [row.label for row in release.estimates] == list(level.labels)
    for cell, row in enumerate(release.estimates):
        assert abs(row.value - truth[cell]) < 9 * row.stderr, row
    error = level_of(create(asked.task.mechanism, asked.discovery), level).expected_stderr(DEVICES)
    crowded = {
        level.beginning(cell)
        for cell, count in truth.items()
        if count >= told.threshold + 6 * error and cell != level.size - 1
    }
    assert told.no_room == 0
    assert len(crowded) > 0
    assert crowded <= set(told.beginnings)
    return sum(not truth[level.cell_of(one)] for one in told.beginnings)


def check_rectangles(
    found: PlaceMap, places: tuple[str, ...], data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the command says of a part of level 0, of one of its parts, of the southern half, and
    of edges that cut cells nobody was asked for the parts of: within 9 standard errors. Where
    cells are cut there is the interval's own room besides.
    """
    south, west, north, east = found.box
    part, cell = found.followed[0], found.found[0]
    boxes = [
        (part.south, part.west, part.north, part.east),
        (cell.south, cell.west, cell.north, cell.east),
        (south, west, (south + north) / 2, east),
        (south + (north - south) * 0.3217, west + (east - west) * 0.111, north, east),
    ]
    cut = list[int]()
    for box in boxes:
        told = rectangle(box, data, capsys)
        edges = [round(edge * MICRO) for edge in box]
        here = Places(edges[0], edges[1], edges[2], edges[3], 1, 1)
        truth = sum(here.encode(place) == 0 for place in places)
        slack = 9 * told["stderr"]
        assert told["ci_low"] - slack <= truth <= told["ci_high"] + slack, (told, truth)
        if not told["cut"]:
            assert abs(told["value"] - truth) < slack, (told, truth)
        cut.append(told["cut"])
    assert cut[:3] == [0, 0, 0]
    assert cut[3] > 0


def rectangle(
    box: tuple[float, ...], data: Path, capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    """As ``shoal results rectangle --json`` has it."""
    bounds = zip(("south", "west", "north", "east"), box, strict=True)
    asked = [word for side, edge in bounds for word in (f"--{side}", f"{edge:.6f}")]
    assert main(["results", "rectangle", "words", *asked, "--data", str(data), "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


@pytest.mark.timeout(size(300, 2_000))
async def test_places_are_found_part_by_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Planted: the fleet answers every window as level 0 -> cells of level 1 are wrong; a quarter's
    column and row exchanged at devices alone -> fails; only what reached the threshold is told ->
    fails.
    """
    site = prepare(tmp_path, free_port)
    discovery = Discovery(2, size(3, 4), size(40, 128), (), CITY)
    places = places_of(DEVICES, SeededEntropy("clusters"))

    def ask(pace: float) -> discoveries.Asked:
        return discoveries.ask(
            site,
            discovery,
            DEVICES,
            windows=discovery.levels + 6,
            length_s=round(LENGTH_S * pace),
            epsilon=EPSILON,
        )

    async with discoveries.asking(site, ask) as (asked, _, _):
        answered = await discoveries.follow(site, asked, places)
        releases = await discoveries.releases_of(site, asked)
    assert sorted(releases) == answered
    assert len(answered) == discovery.levels
    level: DiscoveryLevel | None = discovery.level(0)
    false = 0
    for window in answered:
        assert level is not None
        false += check_level(asked, level, releases[window])
        level = discovery.after(level.number, releases[window].discovered.beginnings)
    assert level is None
    assert false <= MOST_FALSE
    found = place_map([to_json(one) for one in releases.values()])
    assert found.found
    show = ["discover", "show", "words", "--data", str(site.analyzer_data)]
    assert main([*show, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["cells"]) == len(found.cells)
    assert main([*show, "--watch"]) == 0
    assert found.found[0].label in capsys.readouterr().out
    check_rectangles(found, places, site.analyzer_data, capsys)
    files, config = tmp_path / "files", str(site.analyzer_config)
    export = ["results", "export", "--format", "release", "--out", str(files)]
    assert main([*export, "--config", config]) == 0
    authority = ["--authority", site.authority.public.hex()]
    assert main(["verify", str(files), "--accept-open", *authority]) == 0
    assert "the cells are all that such a level asks for" in capsys.readouterr().out
