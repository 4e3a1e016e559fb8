"""The operator's page of a discovery: what was found so far, as a tree."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.console.operator.app import Sources, operator_app
from shoal.domain import Discovery
from shoal.entropy import SeededEntropy
from shoal.questions.discovery import DiscoveryLevel
from tests.cases import for_each
from tests.worlds.place_trees import SMALL, places_of
from tests.worlds.services.analyzer import World
from tests.worlds.words import found_in, store_release, words_world

HERE = "127.0.0.1:7450"
ASKED = Discovery(first=1, longest=3, most=16)
LETTERS = "abcdefghijklmn"
WORLD = words_world(ASKED, devices=1_000)
# more beginnings than the page shows of one
WORDS = (
    ("cat",) * 150
    + ("cow",) * 120
    + ("a",) * 80
    + tuple(letter * 3 for letter in LETTERS[3:] for _ in range(50))
    + ("",) * 100
)


def client_of(
    folder: Path,
    levels: int,
    world: World = WORLD,
    asked: Discovery = ASKED,
    answers: tuple[str, ...] = WORDS,
) -> TestClient:
    world.write(folder)
    data = folder / "data"
    data.mkdir()
    store = AnalyzerStore(data / FILE_NAME)
    store.sign_with(world.analyzer.public)
    level: DiscoveryLevel | None = asked.level(0)
    for window in range(levels):
        assert level is not None
        prepared = found_in(world, level, answers, window)
        assert prepared.found is not None
        store_release(store, world, prepared)
        level = asked.after(level.number, prepared.found.beginnings)
    store.close()
    places = Sources(data_dir=data, tasks_dir=folder / "tasks")
    return TestClient(operator_app(places, HERE), base_url=f"http://{HERE}")


@for_each("levels, fresh", [(1, False), (3, False), (1, True), (3, True)])
def test_words_are_shown_below_their_beginnings(tmp_path: Path, levels: int, fresh: bool) -> None:
    """Of devices that answer every level, or one, which is said. Planted: the tree of the shown
    window alone -> no "cat"; all branches of one -> 13 of them at level 0; counts of a window
    without a word -> fails.
    """
    asked = replace(ASKED, fresh=fresh)
    world = words_world(asked, devices=1_000) if fresh else WORLD
    with client_of(tmp_path, levels, world, asked) as client:
        text = client.get("/releases/words").text
        assert client.get("/releases").status_code == 200
    assert "Words found so far" in text
    assert f"after level {levels - 1} of 0 to 2" in text
    assert "and 1 more" in text
    assert "Over the windows" not in text
    windows = world.served.task.windows.count
    told = f"Each device answers one of {windows} windows alone, so these numbers are of the"
    assert (told in text) == fresh
    if levels == 1:
        tree = text[text.index('<ul class="tree">') : text.index("and 1 more")]
        assert tree.count("<li>") == 12
        assert "The next level asks how 13 beginnings go on." in text
        assert "cat" not in text
    else:
        assert text.index("c\u2026 ") < text.index("ca\u2026 ") < text.index("cat\u2026 ")
        assert "<b>a</b>" in text
        assert "Nothing is left to follow." in text


@pytest.mark.parametrize("levels", [1, 3])
def test_places_are_drawn_as_a_map(tmp_path: Path, levels: int) -> None:
    """All of it, whatever window is shown. Planted: the map of the shown window alone -> a part of
    it is not drawn; words of a tree -> fails.
    """
    world = words_world(SMALL)
    places = places_of(400, SeededEntropy("places"))
    with client_of(tmp_path, levels, world, SMALL, places) as client:
        text = client.get("/releases/words").text
        assert client.get("/releases").status_code == 200
    assert "Places found so far" in text
    assert "Words found so far" not in text
    assert f"After level {levels - 1} of 0 to 2" in text
    tiles = text.count('class="tile"')
    assert tiles == 16 if levels == 1 else tiles > 40
    assert ("Nothing is left to follow." in text) == (levels == 3)
    picture = text[text.index('<svg class="map"') :]
    whole = [float(size) for size in re.findall(r'viewBox="0 0 (\S+) (\S+)"', picture)[0]]
    sizes = re.findall(r'class="tile"[^>]* width="(.*?)" height="(.*?)"', picture)
    drawn = sum(float(width) * float(height) for width, height in sizes)
    assert drawn == pytest.approx(whole[0] * whole[1], rel=0.01)
