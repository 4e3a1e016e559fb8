"""The page Releases draws the map of a question for places."""

from __future__ import annotations

from pathlib import Path

from starlette.testclient import TestClient

from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.console.operator.app import Sources, operator_app
from shoal.entropy import SeededEntropy
from tests.worlds.maps import MAP, prepared_map, town
from tests.worlds.services.analyzer import several_world
from tests.worlds.words import store_release

HERE = "127.0.0.1:7"


def test_the_map_is_on_the_page(tmp_path: Path) -> None:
    """Planted: the picture not handed to the page -> fails."""
    world = several_world("blocks", domain=MAP, min_batch=1_500)
    world.write(tmp_path)
    data = tmp_path / "data"
    data.mkdir()
    store = AnalyzerStore(data / FILE_NAME)
    store.sign_with(world.analyzer.public)
    store_release(store, world, prepared_map(world, town(MAP, 1_500), SeededEntropy(3)))
    store.close()
    shown = Sources(data_dir=data, tasks_dir=tmp_path / "tasks")
    with TestClient(operator_app(shown, HERE), base_url=f"http://{HERE}") as client:
        text = client.get("/releases/visits").text
    assert '<h2 id="map-h">Map</h2>' in text
    assert text.count('class="map-cell"') + text.count('fill="url(#map-hatch)"') >= 30
    assert "6 x 5 cells of 5,560 m" in text
    assert 'pattern id="map-hatch"' in text
    assert "style=" not in text
    assert "shoal results rectangle visits:0 --south" in text
