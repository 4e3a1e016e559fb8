"""What a question spends, and how long a limit lasts: by composition, never by a straight line."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from shoal.accounting.meaning import bound_text
from shoal.analyzer.records import Spending
from shoal.analyzer.results.cumulative import compose_spendings
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.cli.main import main
from shoal.console.operator.app import Sources, operator_app
from shoal.console.operator.budget import versions
from shoal.console.operator.forecast import composed, forecast
from shoal.console.operator.holdings import from_files, from_store
from shoal.errors import Kind, ShoalError
from tests.unit.analyzer.results.test_report_page import Page
from tests.worlds.console import release, visits, write_data
from tests.worlds.services.analyzer import make_world


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_data(tmp_path_factory.mktemp("budget"), 2)


def spent(folders: tuple[Path, Path]) -> list[Spending]:
    store = AnalyzerStore(folders[0] / FILE_NAME, read_only=True)
    try:
        return [each for each in store.spendings() if each.task_id == visits().task_id]
    finally:
        store.close()


def test_what_is_spent_is_what_the_last_release_says(folders: tuple[Path, Path]) -> None:
    """Both windows of visits came first, so their last release composed nothing else. Planted: the
    sum of epsilons -> more, and this fails.
    """
    (question,) = [
        each for each in from_store(*folders).questions if each.task_id == visits().task_id.hex
    ]
    made = forecast(spent(folders), 2)
    privacy = question.latest["privacy"]
    assert made.spent.epsilon == privacy["epsilon_cumulative_upper"]
    assert made.spent.delta == privacy["delta_cumulative"]
    assert made.end == made.spent


def test_a_forecast_composes_and_is_below_a_straight_line(folders: tuple[Path, Path]) -> None:
    """Planted: epsilon of the last window times the windows -> the curve is no more below it."""
    known = spent(folders)
    made = forecast(known, 40)
    assert not made.upper
    assert made.end.windows == 40
    assert made.end.epsilon == compose_spendings([known[0]] * 40).epsilon_upper
    assert made.end.epsilon < 0.7 * 40 * known[0].epsilon_upper
    values = [each.epsilon for each in made.curve]
    assert values == sorted(values)
    assert {1, 2, 40} <= {each.windows for each in made.curve}


def test_a_limit_lasts_until_the_first_window_beyond_it(folders: tuple[Path, Path]) -> None:
    """Planted: the search one off, at either end -> fails."""
    known = tuple(spent(folders))
    for limit in (0.1, 2.0, 3.0, 4.0):
        made = forecast(known, 40, limit)
        assert made.lasts is not None
        assert made.lasts == 0 or composed(known, made.lasts).epsilon <= limit
        assert composed(known, made.lasts + 1).epsilon > limit
    assert forecast(known, 40, made.end.epsilon).lasts is None


def test_a_window_of_too_few_is_no_measure_of_those_to_come(folders: tuple[Path, Path]) -> None:
    """It is charged by what came, without a law. Planted: the last window for the typical one ->
    the forecast is an upper estimate far above.
    """
    known = spent(folders)
    dear = replace(known[0], epsilon_upper=3.0, law=None)
    made = forecast([*known, dear], 10)
    assert not made.upper
    assert made.end.epsilon == compose_spendings([*known, dear, *[known[0]] * 7]).epsilon_upper


def test_releases_from_files_err_up(folders: tuple[Path, Path], tmp_path: Path) -> None:
    """They hold no laws. Planted: the epsilon at the received n, which nobody guarantees, for the
    charge -> less than the store's, and this fails.
    """
    from shoal.analyzer.results.files.exports import Format, render

    whole = from_store(*folders)
    (tmp_path / "all.json").write_text(render(whole.releases, Format.json))
    files = from_files(tmp_path / "all.json", folders[1])
    told = [each for each in files.spendings if each.task_id == visits().task_id]
    made, exact = forecast(told, 20), forecast(spent(folders), 20)
    assert made.upper
    assert exact.end.epsilon < made.end.epsilon
    assert made.spent.epsilon >= exact.spent.epsilon


def test_nothing_is_promised_of_what_nobody_knows(folders: tuple[Path, Path]) -> None:
    """Planted: infinity left out of the sum -> a number that is no bound."""
    lost = Spending(visits().task_id, math.inf, 1e-6)
    assert forecast([*spent(folders), lost], 10, 5.0).spent.epsilon == math.inf
    with pytest.raises(ShoalError, match="nothing was spent") as caught:
        forecast([], 10)
    assert caught.value.kind is Kind.INVALID


def test_a_memoized_question_is_spent_once(folders: tuple[Path, Path]) -> None:
    """Planted: the lifetime forgotten in the forecast -> it grows, and this fails."""
    kept = [replace(each, lifetime=3.0) for each in spent(folders)]
    made = forecast(kept, 1_000, 4.0)
    assert made.end.epsilon == 3.0
    assert made.lasts is None


def test_the_page_shows_what_the_command_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two versions of visits, of which the second has a window too. Planted: by task and not by
    question -> two rows of visits with one version each, and this fails.
    """
    data, tasks = write_data(tmp_path, 2)
    second = make_world(name="visits", windows=3, min_batch=500)
    store = AnalyzerStore(data / FILE_NAME)
    store.sign_with(second.analyzer.public)
    release(store, second, 0)
    store.close()
    assert main(["results", "spent", "--data", str(data), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    held = from_store(data, tasks)
    assert versions(held) == told
    assert versions(held, "visits")[0] == told[1]
    assert [(row["question"], row["versions"], row["windows"]) for row in told] == [
        ("minutes", 1, 2),
        ("visits", 2, 3),
        ("all questions", 3, 5),
    ]
    here = "127.0.0.1:7450"
    client = TestClient(operator_app(Sources(data, None, tasks), here), base_url=f"http://{here}")
    budget = Page(client.get("/budget").text).text
    for row in told:
        assert row["question"] in budget
        assert bound_text(row["epsilon_upper"]) in budget
    question = Page(client.get(f"/releases/{visits().task_id.hex}").text).text
    assert "3 windows, 2 versions" in question
    assert bound_text(told[1]["epsilon_upper"]) in question
