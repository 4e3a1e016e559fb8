"""Places on a map on the Planner's page: ways, the grid that is drawn, the file, refusals."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from pathlib import Path
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

from shoal.accounting.lint.task import lint
from shoal.accounting.meaning import bound_text
from shoal.analyzer.planner.frontier.maps import MapPlan, MapRequest, plan_map
from shoal.cli.task.file import read_task
from shoal.console.operator.planner.form import PlannerForm
from shoal.console.operator.planner.places import (
    PlacesAnswer,
    grid_of,
    lacking,
    places_answers,
    places_view,
)
from shoal.domain import Discovery, Places
from tests.cases import for_each
from tests.unit.analyzer.results.test_report_page import Page

MAP = Places(48_000_000, 11_300_000, 48_300_000, 11_800_000, 8, 9)
ASKED = {"kind": "places", "n": "3000", "rows": "8", "columns": "9", "honest": "100"}
REQUEST = MapRequest(MAP, 3_000, 1.0, 1e-8)
FINE = {**ASKED, "n": "20000", "rows": "80", "columns": "80", "epsilon": "2"}


@cache
def planned() -> MapPlan:
    return plan_map(REQUEST)


def whole(client: TestClient, asked: dict[str, str]) -> str:
    while True:
        text = client.get(f"/planner?{urlencode(asked)}").text
        if "data-more" not in text:
            return text


def test_the_page_says_what_the_command_says(client: TestClient) -> None:
    """Every way with its figures, the best one first and its grid drawn, 7 lines up and 8 across.
    Planted: blocks' lines from the north -> fails; ways sorted by the error of a cell -> fails.
    """
    plan = planned()
    source = whole(client, ASKED)
    shown = Page(source).text
    assert f"\u2264 {bound_text(plan.best.epsilon)}" in shown
    assert "8 x 9 cells of" in shown
    places = [shown.index(f"a device names: {way.shape}") for way in plan.ways]
    assert len(places) >= 3
    for way in plan.ways:
        assert f"{way.messages:.3g}, at most {way.slots}" in shown
    assert source.count('class="map-line"') + source.count('<line class="map-edge"') == 7 + 8
    blocks = next(way for way in plan.ways if way.name == "blocks")
    side = dict(blocks.spec.parameters)["side"]
    grid = grid_of(blocks, None)
    height = grid.frame.bottom - grid.frame.top
    strong = [y for y, edge in grid.level if edge]
    assert strong[0] == pytest.approx(grid.frame.bottom - height * side / 8, abs=0.01)
    assert len(strong) == (8 - 1) // side
    assert f"blocks of {side} x {side}" in grid.words


@for_each("way", ["", "krr", "blocks"])
def test_the_file_is_a_task_that_lint_takes(client: TestClient, tmp_path: Path, way: str) -> None:
    """Of the best way, or that which was chosen, with keys and addresses of the latest signed task.
    Planted: the best one whatever was chosen -> fails.
    """
    asked = ASKED | {"question": "Where do you park?", "way": way}
    answer = client.get(f"/download/planned.toml?{urlencode(asked)}")
    assert answer.status_code == 200
    (tmp_path / "map.toml").write_text(answer.text)
    (tmp_path / "ca.pem").write_bytes(client.get("/download/ca.pem").content)
    task = read_task(tmp_path / "map.toml")
    plan = planned()
    chosen = plan.named(way or None)
    assert (task.name, task.question, task.domain) == ("where-do-you-park", asked["question"], MAP)
    assert task.mechanism == chosen.spec
    found = lint(task)
    assert found.errors == ()
    assert found.guarantee is not None
    assert found.guarantee.epsilon_upper <= chosen.epsilon * (1 + 1e-6)


def test_a_fine_map_is_offered_part_by_part(client: TestClient, tmp_path: Path) -> None:
    """Its first level drawn, its file the task of a discovery. Planted: the flat map's grid for the
    tree's -> fails.
    """
    shown = whole(client, FINE | {"way": "tree"})
    assert "parts of parts, in" in shown
    assert "cells at level 0" in shown
    asked = FINE | {"way": "tree", "question": "Where do you park?"}
    answer = client.get(f"/download/planned.toml?{urlencode(asked)}")
    (tmp_path / "map.toml").write_text(answer.text)
    (tmp_path / "ca.pem").write_bytes(client.get("/download/ca.pem").content)
    task = read_task(tmp_path / "map.toml")
    assert isinstance(task.domain, Discovery)
    assert lint(task).errors == ()


def test_a_way_that_does_not_fit_is_said_in_place(client: TestClient) -> None:
    """A map of few rows has no tree, and few devices no cancelling. Planted: the best one written
    for it -> a file, fails.
    """
    assert lacking(planned(), "tree") is not None
    asked = ASKED | {"way": "tree", "question": "Where do you park?"}
    answer = client.get(f"/download/planned.toml?{urlencode(asked)}")
    assert "text/html" in answer.headers["content-type"]
    assert "asked for at once" in answer.text
    assert "asked for at once" in whole(client, ASKED | {"way": "tree"})


def test_answers_come_one_after_another() -> None:
    told = list(places_answers(REQUEST))
    assert [one.tried for one in told] == [1, 2, 3, 4, 4]
    assert [one.done for one in told] == [False] * 4 + [True]
    assert places_view(REQUEST, told[0], None, "")["again_ms"]
    assert places_view(REQUEST, told[-1], None, "")["again_ms"] is None
    assert places_view(REQUEST, PlacesAnswer(), "no", "")["again_ms"] is None


@for_each(
    "fields, wrong",
    [
        ({"map": "48, 11.3, 48.3"}, "map"),
        ({"map": "48.3, 11.3, 48, 11.8"}, "map"),
        ({"map": "48, 11.3, 48.3, east"}, "map"),
        ({"rows": "0"}, "rows"),
        ({"rows": "300", "columns": "300"}, "rows"),
        ({"columns": "1.5"}, "columns"),
        ({"epsilon": "0"}, "epsilon"),
        ({"epsilon": "1000"}, "epsilon"),
        ({"windows": "0"}, "windows"),
        ({"delta": "1"}, "delta"),
        ({"way": "planar"}, "way"),
        ({"n": "1"}, "n"),
        ({"n": "2", "honest": "60"}, "honest"),
    ],
)
def test_what_is_refused_in_place(fields: dict[str, str], wrong: str) -> None:
    """Planted: each check left out -> its case fails."""
    form = PlannerForm.of(ASKED | fields)
    assert form.places() is None
    assert list(form.wrong) == [wrong]


def test_what_belongs_to_other_kinds_is_not_looked_at() -> None:
    form = PlannerForm.of(ASKED | {"off": "x", "several": "yes", "cap": "z", "memoized": "yes"})
    assert form.places() == REQUEST


def test_an_honest_share_is_rounded_down() -> None:
    """To millionths, as a task has it. Planted: rounded up -> fails."""
    found = PlannerForm.of(ASKED | {"honest": "66.66669"}).places()
    assert found is not None
    assert found.honest == Fraction(666_666, 1_000_000)
