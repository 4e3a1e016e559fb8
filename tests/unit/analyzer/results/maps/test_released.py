"""Rectangles that are asked of a map's release afterwards: their errors, and what is refused."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.analyzer.results.maps.released import (
    law_of_rectangles,
    law_shown,
    places_of,
    rectangle_of,
)
from shoal.analyzer.results.release_files import read_release_files
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.arrays import np
from shoal.cli.main import main
from shoal.entropy import SeededEntropy
from shoal.errors import Kind, ShoalError
from shoal.mechanisms.base import Z
from shoal.mechanisms.maps.blocks import MapBlocks
from shoal.mechanisms.several.protocol import Several
from shoal.mechanisms.several.registry import create_of_cells
from tests.cases import for_each
from tests.sizes import size
from tests.worlds.maps import MAP, prepared_map, released_map, tally_of, town
from tests.worlds.services.analyzer import World, make_world, several_world
from tests.worlds.tapes import Poured
from tests.worlds.words import store_release

N = 1_500
HELD = town(MAP, N)
Capture = pytest.CaptureFixture[str]


def world_of(name: str) -> World:
    if name in ("krr", "subset"):
        return make_world(domain=MAP, mechanism=name, epsilon0=4.0, min_batch=N, target_epsilon=4.0)
    return several_world(name, domain=MAP, min_batch=N)


@for_each("name", ["blocks", "cancelling", "dummies", "krr"])
def test_rectangles_err_as_is_said(name: str) -> None:
    """30 batches (600 in full) with all draws made, all rectangles of a 6 x 5 map: the mean square
    error against the stated one (a share of the rectangles' spread, 5 standard deviations), and
    intervals hold 95.2 %, within 5 standard deviations too (rectangles of a batch share errors).
    False alarm 1e-6.

    Planted: the known sum not used; the draws of krr left out; no map in a release of one message
    -> each fails.
    """
    world, entropy = world_of(name), Poured(SeededEntropy(f"rectangles {name}"))
    made = create_of_cells(world.task.mechanism, MAP)
    release = released_map(world, HELD, entropy)
    assert not release["withheld"]
    law = law_shown(release["map"])
    assert law == law_of_rectangles(made, N)
    assert (law.side > 0) == isinstance(made, MapBlocks)
    spans = [
        ((a, b), (c, d))
        for a, b, c, d in product(range(6), range(1, 7), range(5), range(1, 6))
        if a < b and c < d
    ]
    table = HELD[:-1].reshape(6, 5)
    truth = np.array([table[a:b, c:d].sum() for (a, b), (c, d) in spans])
    squares, inside = list[float](), list[float]()
    for _ in range(size(30, 600)):
        tally = tally_of(made, HELD, entropy)
        values = (
            made.estimate(tally, N) if isinstance(made, Several) else made.estimate(tally)
        ).values
        rows = [{"value": float(each)} for each in values]
        asked = {**release, "estimates": rows}
        edges = MAP.row_edges, MAP.column_edges
        found = [
            rectangle_of(
                asked,
                *(edges[0][a] / 1e6, edges[1][c] / 1e6, edges[0][b] / 1e6, edges[1][d] / 1e6),
            )
            for (a, b), (c, d) in spans[::7]
        ]
        off = np.array([each.value for each in found]) - truth[::7]
        said = np.array([each.stderr for each in found])
        squares.append(float(np.mean((off / said) ** 2)))
        inside.append(float(np.mean(np.abs(off) <= Z * said)))
    spread = float(np.std(squares)) / math.sqrt(len(squares))
    assert abs(np.mean(squares) - 1.0) < 5.0 * spread
    assert spread < 0.15
    assert abs(np.mean(inside) - 0.952) < 5.0 * float(np.std(inside)) / math.sqrt(len(inside))
    assert np.std(inside) < 0.1


def test_a_mechanism_without_a_law_says_so() -> None:
    release = released_map(world_of("subset"), HELD, SeededEntropy(1))
    assert release["map"]["kept"] == 0.0
    with pytest.raises(ShoalError, match="does not tell how much a rectangle errs") as caught:
        rectangle_of(release)
    assert caught.value.kind is Kind.CONFIG


def test_bounds_are_edges_of_cells() -> None:
    """Planted: the nearest edge taken whatever was given -> fails."""
    release = released_map(world_of("blocks"), HELD, SeededEntropy(1))
    assert places_of(release["map"]) == MAP
    whole = rectangle_of(release)
    assert (whole.south, whole.west, whole.north, whole.east) == (48.0, 11.3, 48.3, 11.8)
    values = [row["value"] for row in release["estimates"]]
    assert whole.value == pytest.approx(sum(values[:-1]))
    part = rectangle_of(release, 48.1, 11.4, 48.2, 11.6)
    assert part.value == pytest.approx(sum(values[row * 5 + at] for row in (2, 3) for at in (1, 2)))
    for bounds, mends in (
        ((48.12,), "give 48.100000 or 48.150000"),
        ((None, 11.45), "got longitude 11.45"),
        ((48.2, None, 48.1), "larger latitude"),
        ((math.nan,), "edges of cells"),
        ((-48.1,), "give 48.000000"),
    ):
        with pytest.raises(ShoalError, match=mends) as caught:
            rectangle_of(release, *bounds)
        assert caught.value.kind is Kind.CONFIG
    bare = {key: value for key, value in release.items() if key != "map"}
    with pytest.raises(ShoalError, match="a question for places"):
        rectangle_of(bare)


def test_the_command_and_python_say_the_same(tmp_path: Path, capsys: Capture) -> None:
    """Of a store, and of an exported file. Planted: south for north -> fails."""
    world = world_of("blocks")
    store = AnalyzerStore(tmp_path / FILE_NAME)
    store_release(store, world, prepared_map(world, HELD, SeededEntropy(2)))
    store.close()
    data = str(tmp_path)
    asked = ("results", "rectangle", "visits:0", "--south", "48.1", "--east", "11.6")
    assert main([*asked, "--data", data, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["name"], told["n"], told["south"], told["north"]) == ("visits", N, 48.1, 48.3)
    file = tmp_path / "a.json"
    assert main(["results", "export", "--data", data, "--out", str(file)]) == 0
    capsys.readouterr()
    for where in (data, file):
        found = shoal.read_release(where).rectangle("visits", south=48.1, east=11.6)
        assert found.to_json() == {key: told[key] for key in found.to_json()}
    assert main([*asked, "--data", data]) == 0
    assert "visits, window 0: latitude 48.1 to 48.3, longitude 11.3 to 11.6" in (
        capsys.readouterr().out
    )
    assert main(["results", "show", "visits", "--data", data]) == 0
    shown = capsys.readouterr().out
    assert "map: 6 x 5 cells of 5,560 m" in shown
    assert "shoal results rectangle visits:0" in shown
    assert main(["results", "rectangle", "visits:0", "--south", "-1", "--data", data]) == 2
    assert "give 48.000000 or 48.050000" in capsys.readouterr().err
    with pytest.raises(TypeError, match="south: "):
        shoal.read_release(data).rectangle("visits", south="48")  # type: ignore[arg-type] # on purpose


def test_a_map_of_a_file_fits_its_estimates(tmp_path: Path) -> None:
    """Planted: the number of cells, or the blocks, not looked at -> fails."""
    release = released_map(world_of("blocks"), HELD, SeededEntropy(1))
    wrong: list[dict[str, Any]] = [
        {"rows": 7},
        {"side": 9},
        {"south": 89.0},
        {"kept": 2.0},
        {"noise_stderr": -1.0},
        {"columns": "5"},
    ]
    for at, changed in enumerate(wrong):
        file = tmp_path / f"{at}.json"
        file.write_text(json.dumps([{**release, "map": {**release["map"], **changed}}]))
        with pytest.raises(ShoalError, match=f"{at}.json.*map") as caught:
            read_release_files(file)
        assert "\n" not in caught.value.message


def test_a_withheld_release_has_no_map() -> None:
    release = released_map(world_of("blocks"), town(MAP, N // 2), SeededEntropy(1))
    assert release["withheld"]
    assert "map" not in release
