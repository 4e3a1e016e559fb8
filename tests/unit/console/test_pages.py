"""Every page of the operator's console over real releases: what it shows, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from shoal.analyzer.results.reading import read_releases
from shoal.console.operator.app import Sources, operator_app
from shoal.errors import Kind, ShoalError
from tests.cases import for_each
from tests.unit.analyzer.results.test_report_page import Page
from tests.worlds.console import EVIL, N, minutes, visits, write_data

HERE = "127.0.0.1:7450"
LATEST = 3


def client_of(places: Sources) -> TestClient:
    return TestClient(operator_app(places, HERE), base_url=f"http://{HERE}")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    data, tasks = write_data(tmp_path_factory.mktemp("console"))
    return Sources(data_dir=data, tasks_dir=tasks)


@pytest.fixture(scope="module")
def client(places: Sources) -> Iterator[TestClient]:
    with client_of(places) as client:
        yield client


def page(client: TestClient, path: str, status: int = 200) -> Page:
    answer = client.get(path)
    assert answer.status_code == status, (path, answer.text)
    return Page(answer.text)


PATHS = (
    "/releases",
    "/releases/visits",
    "/releases/visits/2",
    "/releases/minutes",
    "/promise",
    "/planner",
    "/running",
    "/budget",
)


@for_each("path", PATHS)
def test_a_page_loads_nothing_from_elsewhere_and_says_so(client: TestClient, path: str) -> None:
    """Planted: a style attribute in a plot, which the policy forbids; a font from a URL -> fails.
    Planted: the policy left to some pages -> fails.
    """
    answer = client.get(path)
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"
    assert EVIL not in answer.text
    for tag, attributes in Page(answer.text).tags:
        assert tag not in {"iframe", "object", "embed", "style"}
        for name, value in attributes.items():
            assert name != "style"
            assert not name.startswith("on")
            if name in {"src", "href", "action"}:
                assert (value or "").startswith(("/", "#"))
                assert not (value or "").startswith("//")


def test_a_question_shows_its_words_its_dates_and_its_figures(client: TestClient) -> None:
    """Planted: the first window for the latest -> fails. Planted: raw estimates alone -> no count
    of the processed ones, and this fails.
    """
    found = page(client, "/releases/visits")
    task = visits().task
    for text in (task.question, task.purpose, "15 Jan 2027", EVIL, "duplicate: 3"):
        assert text in found.text
    (release,) = json.loads(client.get(f"/download/visits/{LATEST}.json").text)
    for row, count in zip(release["estimates"], release["processed"]["counts"], strict=True):
        assert f"{round(row['value']):,}" in found.text
        assert f"{count:,}" in found.text
    assert found.text.count("Over the windows") == 1


def test_a_withheld_window_shows_why_and_no_estimate(client: TestClient) -> None:
    """Planted: the window's number ignored -> the latest is shown, and this fails."""
    found = page(client, "/releases/visits/2")
    assert "Withheld" in found.text
    assert "95 % interval" not in found.text


def test_a_line_has_a_gap_where_a_window_was_withheld(client: TestClient) -> None:
    """Windows 0, 1 and 3 have estimates: one step each, not two. Planted: neighbours in the list
    joined -> a line through the withheld window.
    """
    text = client.get("/releases/visits").text
    assert text.count('class="step"') == len(visits().task.domain.labels)


def test_the_promise_is_told_as_odds_that_are_the_accountants(client: TestClient) -> None:
    """Planted: epsilon_at_received_n, which nobody guarantees, for the odds -> fails."""
    from shoal.accounting.meaning import best_guess, percent_text

    (release,) = json.loads(client.get(f"/download/visits/{LATEST}.json").text)
    privacy = release["privacy"]
    found = page(client, "/promise?task=visits").text
    assert percent_text(best_guess(privacy["epsilon_upper"], privacy["delta"])) in found
    assert percent_text(best_guess(privacy["epsilon0"], privacy["delta"])) in found
    for line in privacy["assumptions"]:
        assert line in found


@for_each(
    "path, status, said",
    [
        ("/releases/nothing", 404, "No such question here"),
        ("/releases/visits/9", 404, "window 9 is not released"),
        ("/releases/visits/-1", 400, "a whole number from 0 on"),
        ("/releases/visits/99999999999999999999", 400, "a whole number from 0 on"),
        ("/promise?task=%3Cscript%3E", 404, "No such question here"),
        ("/promise?task=visits&held=much", 200, "Give a number from 0 to 100"),
        ("/promise?task=visits&held=101", 200, "Give a number from 0 to 100"),
        ("/promise?task=visits&held=nan", 200, "Give a number from 0 to 100"),
        ("/budget?limit=much", 200, "Give a number from 0.01 to 1000"),
        ("/budget?limit=0", 200, "Give a number from 0.01 to 1000"),
        ("/download/all.exe", 404, "choose one of csv"),
        ("/download/nothing.csv", 404, "No such question here"),
        ("/static/..%2fweb.py", 404, "There is no such page"),
        ("/nowhere", 404, "There is no such page"),
    ],
)
def test_wrong_input_is_refused_in_place(
    client: TestClient, path: str, status: int, said: str
) -> None:
    """Planted: a number compared the other way around -> nan passes for one, and this fails."""
    found = page(client, path, status)
    assert said.lower() in found.text.lower()
    assert "Releases" in found.text  # the frame, from which one gets on


def test_downloads_are_what_the_command_line_exports(client: TestClient, places: Sources) -> None:
    """Planted: all releases for those of one question -> fails."""
    exported = read_releases(places.data_dir, None)
    assert json.loads(client.get("/download/all.json").text) == exported
    rows = list(csv.DictReader(io.StringIO(client.get("/download/minutes.csv").text)))
    assert {row["name"] for row in rows} == {"minutes"}
    answer = client.get("/download/visits/0.html")
    assert (
        answer.headers["content-disposition"] == 'attachment; filename="shoal-visits-window-0.html"'
    )
    assert "default-src 'none'" in answer.text


def test_files_of_releases_show_the_same(client: TestClient, tmp_path: Path) -> None:
    """And a demonstration's truths. Planted: truths by name -> none is found, and this fails."""
    releases = json.loads(client.get("/download/minutes/0.json").text)
    shown = {"tasks": [{"name": "minutes", "truth": {"mean": 30.0}, "release": releases[0]}]}
    (tmp_path / "results.json").write_text(json.dumps(shown))
    with client_of(Sources(releases=tmp_path / "results.json")) as other:
        found = page(other, "/releases/minutes").text
        assert "truth" in found
        assert "not readable here" in found
        assert json.loads(other.get("/download/all.json").text) == releases


def test_a_console_without_its_store_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: nothing kept of the last reading -> an empty page. Planted: no word of it ->
    fails.
    """
    monkeypatch.setattr("shoal.console.operator.app._EVERY_S", 0.0)
    data, tasks = write_data(tmp_path, 1)
    with client_of(Sources(data_dir=data, tasks_dir=tasks)) as client:
        assert "was read" not in page(client, "/releases").text
        (data / "analyzer.db").unlink()
        found = page(client, "/releases").text
        assert "does not exist" in found
        assert visits().task.question in found
        assert "was read just now" in found


@for_each("places", [{}, {"data_dir": Path("/there/is/none"), "releases": Path("/there/is/none")}])
def test_a_console_wants_one_source(places: dict[str, Any]) -> None:
    """Planted: files preferred in silence -> fails."""
    with pytest.raises(ShoalError, match="either --analyzer") as caught:
        Sources(**places)
    assert caught.value.kind is Kind.CONFIG


def test_the_notebook_draws_the_figures_again(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its code is run, with a stand-in for Jupyter's display. Planted: releases written as Python
    and not as JSON -> ``null`` is no name, and this fails.
    """
    import sys
    from types import ModuleType

    shown: list[str] = []
    display = ModuleType("IPython.display")

    def displayed(data: dict[str, str], *, raw: bool) -> None:
        assert raw
        shown.append(data["text/html"])

    vars(display).update(display=displayed)
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    book = json.loads(client.get("/download/visits.ipynb").text)
    assert book["nbformat"] == 4
    names: dict[str, object] = {}
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)  # noqa: S102 - what the notebook would run
    told = capsys.readouterr().out
    assert f"visits, window 0: n = {N}" in told
    assert "withheld" in told
    assert "right at most" in told
    assert re.search(r"iframe srcdoc=.*95 % interval", shown[0], re.S)
    assert minutes().task.question  # another question is not in it
    assert "minutes" not in told
