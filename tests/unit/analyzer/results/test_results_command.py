"""``shoal results`` on a real store, through the command line's own entry point."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest

from shoal.analyzer.batches.opening import Opened
from shoal.analyzer.core import BatchState
from shoal.analyzer.results.processed import OUTSIDE, beside, readable_note
from shoal.analyzer.results.release import conclude, prepare
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.cli.main import main
from shoal.domain import Categories, Numeric
from shoal.mechanisms import Tally
from tests.cases import for_each
from tests.worlds.services.analyzer import World, make_world

Capture = pytest.CaptureFixture[str]
FORMULA = "=1+1"
WORLD = make_world(domain=Categories(("none", "[bold]some", FORMULA)))


def run(capsys: Capture, *arguments: str, status: int = 0) -> tuple[str, str]:
    code = main(["results", *arguments])
    shown = capsys.readouterr()
    assert code == status, shown.err
    assert "Traceback" not in shown.err
    return shown.out, shown.err


def add(store: AnalyzerStore, world: World, window: int, counts: list[int]) -> None:
    batch = store.accept(world.batch([bytes(world.row_size())] * 20, window).manifest_bytes)
    store.move(batch.manifest_hash, BatchState.RECEIVING, BatchState.PROCESSING)
    ready = prepare(
        world.served, batch, Opened(Tally(np.array(counts), sum(counts)), {"duplicate": 2})
    )
    assert store.finish(batch, lambda earlier: conclude(ready, earlier, world.analyzer))


@pytest.fixture
def data(tmp_path: Path) -> str:
    store = AnalyzerStore(tmp_path / FILE_NAME)
    add(store, WORLD, 0, [10, 20, 30, 40])
    add(store, WORLD, 1, [1, 0, 0, 0])
    store.close()
    return str(tmp_path)


@pytest.fixture
def empty(tmp_path: Path) -> str:
    AnalyzerStore(tmp_path / FILE_NAME).close()
    return str(tmp_path)


def test_list(data: str, capsys: Capture) -> None:
    out, _ = run(capsys, "list", "--data", data)
    assert out.count("visits") == 2
    assert "released" in out
    assert "withheld" in out
    found = json.loads(run(capsys, "list", "--data", data, "--json")[0])
    assert [(release["window"], release["n"]) for release in found] == [(0, 100), (1, 1)]


def test_nothing_released_yet(empty: str, capsys: Capture, tmp_path: Path) -> None:
    assert run(capsys, "list", "--data", empty)[0] == "nothing has been released yet\n"
    assert json.loads(run(capsys, "list", "--data", empty, "--json")[0]) == []
    assert (
        "nothing has been released yet"
        in run(capsys, "export", "--data", empty, "--out", str(tmp_path / "out.json"))[0]
    )
    assert json.loads((tmp_path / "out.json").read_text()) == []


@pytest.mark.parametrize(
    "name",
    ["visits", "visits:0", WORLD.task_id.hex, f"{WORLD.task_id.hex[:9]}:0"],
    ids=["name", "name and window", "id", "part of the id and window"],
)
def test_show_names_a_task_in_several_ways(data: str, capsys: Capture, name: str) -> None:
    out, _ = run(capsys, "show", name, "--data", data)
    assert "100 valid, distinct reports; rejected: 2 duplicate" in out
    assert "[bold]some" in out  # a label is text, not markup
    assert "not guaranteed" in out
    assert "do not collude" in out


def test_processed_counts_are_shown_after_the_estimates(data: str, capsys: Capture) -> None:
    """Table and JSON alike. Planted: shown for withheld windows, or in place of the estimate ->
    this or the next fails.
    """
    found = json.loads(run(capsys, "show", "visits:0", "--data", data, "--json")[0])
    made = found[0]["processed"]
    assert sum(made["counts"]) == made["total"] == 100
    out, _ = run(capsys, "show", "visits:0", "--data", data)
    assert f"processed ({made['method']}): {readable_note(made)}" in out
    row = next(line for line in out.splitlines() if line.startswith("none"))
    assert row.split()[1] == f"{found[0]['estimates'][0]['value']:,.6g}"
    assert row.split()[-1] == str(made["counts"][0])


def test_a_distribution_is_shown_by_its_quantiles(empty: str, capsys: Capture) -> None:
    store = AnalyzerStore(Path(empty) / FILE_NAME)
    add(store, make_world(domain=Numeric(0, 10, 3), mechanism="kmean"), 0, [20, 60, 20, 0])
    store.close()
    out, _ = run(capsys, "show", "visits:0", "--data", empty)
    assert re.search(r"(?m)^50%\s+\S+\s+\S+\s+\S+ *$", out)
    assert "post-processed" in out
    assert "processed (" not in out  # of a mean there are no counts
    quantiles = json.loads(run(capsys, "show", "visits:0", "--data", empty, "--json")[0])[0][
        "distribution"
    ]["quantiles"]
    assert list(quantiles) == ["0.25", "0.5", "0.75", "0.9"]
    assert quantiles["0.5"] == pytest.approx(5, abs=0.5)


def test_quantiles_have_intervals_for_machines_and_in_csv(
    empty: str, capsys: Capture, tmp_path: Path
) -> None:
    """Of levels and of bins, whose last one has no end. Planted: an infinite end in JSON -> fails;
    no quantiles of bins -> fails; the whole release's processed counts beside a quantile -> no
    column of numbers, and no Parquet, fails.
    """
    store = AnalyzerStore(Path(empty) / FILE_NAME)
    add(store, make_world(domain=Numeric(0, 10, 3), mechanism="kmean"), 0, [20, 60, 20, 0])
    bins = make_world(domain=Categories(("0 to 4", "5 and more"), (0, 5)), name="bins")
    add(store, bins, 0, [10, 90, 0])
    store.close()
    found = {
        each["name"]: each for each in json.loads(run(capsys, "list", "--data", empty, "--json")[0])
    }
    for row in found["visits"]["quantiles"]:
        assert 0 <= row["ci_low"] <= row["value"] <= row["ci_high"] <= 10
        known = found["visits"]["distribution"]["quantiles"].get(f"{row['share']:g}")
        assert known is None or known == row["value"]
    assert {row["share"]: row["ci_high"] for row in found["bins"]["quantiles"]}[0.9] is None
    assert "no end" in run(capsys, "show", "bins", "--data", empty)[0]
    out = tmp_path / "out.csv"
    run(capsys, "export", "--data", empty, "--format", "csv", "--out", str(out))
    rows = [
        row
        for row in csv.DictReader(io.StringIO(out.read_text()))
        if row["label"] == "quantile 0.5"
    ]
    assert [
        (row["stderr"], row["value"] != "", row["ci_low"] != "", row["processed"]) for row in rows
    ] == [("", True, True, "")] * 2
    run(capsys, "export", "--data", empty, "--format", "parquet", "--out", str(tmp_path / "all"))


def test_many_intervals_say_what_they_mean_and_nothing_below_0_stays_unexplained() -> None:
    """Planted: the line under every table, one interval or many -> fails; raw values replaced ->
    fails.
    """
    row = {"label": "mean", "value": 2.0, "stderr": 1.0, "ci_low": 0.0, "ci_high": 4.0}
    silent = {**row, "label": "no answer", "value": -3.0}
    assert beside({"estimates": [row]}) == []
    assert beside({"estimates": [row, row]}) == [OUTSIDE]
    assert [
        line for line in beside({"estimates": [row, silent]}) if "0" in line and "no answer" in line
    ]
    counts = {
        "estimates": [{**row, "label": "a"}, {**silent, "label": "b"}],
        "processed": {"counts": [2, 0]},
    }
    assert len(beside(counts)) == 2
    # totals of a vector may be below 0
    assert len(beside({"estimates": [row, silent], "rounds": {}})) == 1
    assert silent["value"] == -3.0


def test_show_a_withheld_window(data: str, capsys: Capture) -> None:
    out, _ = run(capsys, "show", "visits:1", "--data", data)
    assert "withheld: fewer valid, distinct reports" in out
    assert "estimate" not in out
    assert "processed" not in out


@pytest.mark.parametrize("name", ["unknown", "visits:7", "visits:x", "", ":0"])
def test_show_what_is_not_there(data: str, capsys: Capture, name: str) -> None:
    _, err = run(capsys, "show", name, "--data", data, status=2)
    assert err.count("\n") == 1


def test_one_name_for_two_tasks_wants_an_id(data: str, capsys: Capture) -> None:
    store = AnalyzerStore(Path(data) / FILE_NAME)
    add(store, make_world(), 0, [3] * 7)
    store.close()
    assert "several tasks" in run(capsys, "show", "visits", "--data", data, status=2)[1]
    run(capsys, "show", WORLD.task_id.hex, "--data", data)


def test_csv_has_one_line_per_estimate(data: str, capsys: Capture, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    run(capsys, "export", "--data", data, "--format", "csv", "--out", str(out))
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    listed = json.loads(run(capsys, "list", "--data", data, "--json")[0])
    assert [row["label"] for row in rows] == ["none", "[bold]some", f"'{FORMULA}", "no answer", ""]
    assert [float(row["value"]) for row in rows[:4]] == [
        row["value"] for row in listed[0]["estimates"]
    ]
    assert rows[4]["withheld"] != ""
    assert [row["processed"] for row in rows] == [*map(str, listed[0]["processed"]["counts"]), ""]
    assert float(rows[0]["epsilon_upper"]) == listed[0]["privacy"]["epsilon_upper"]
    assert all(None not in row and None not in row.values() for row in rows)


def test_html_and_json(data: str, capsys: Capture, tmp_path: Path) -> None:
    run(capsys, "export", "--data", data, "--format", "html", "--out", str(tmp_path / "out.html"))
    assert (tmp_path / "out.html").read_text().startswith("<!doctype html>")
    run(capsys, "export", "--data", data, "--task", "visits:0", "--out", str(tmp_path / "out.json"))
    assert [release["window"] for release in json.loads((tmp_path / "out.json").read_text())] == [0]


def test_export_to_stdout_is_the_file_and_nothing_else(data: str, capsys: Capture) -> None:
    """Planted: "1 release written to -" on stdout -> no JSON, and this fails."""
    shown = json.loads(run(capsys, "export", "--data", data, "--task", "visits:0", "--out", "-")[0])
    assert [release["window"] for release in shown] == [0]


def test_an_existing_file_is_left_alone(data: str, capsys: Capture, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    out.write_text("mine")
    run(capsys, "export", "--data", data, "--out", str(out), status=2)
    assert out.read_text() == "mine"


@for_each(
    "arguments",
    [
        (),
        ("--data", "nowhere"),
        ("--data", ".", "--config", "analyzer.toml"),
        ("--config", "nowhere.toml"),
    ],
)
def test_where_the_releases_are_must_be_said(
    capsys: Capture, arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, err = run(capsys, "list", *arguments, status=2)
    assert err.count("\n") == 1


def test_the_configuration_names_the_folder(capsys: Capture, tmp_path: Path) -> None:
    config = WORLD.write_config(tmp_path)
    (tmp_path / "data").mkdir()
    AnalyzerStore(tmp_path / "data" / FILE_NAME).close()
    assert "nothing" in run(capsys, "list", "--config", str(config))[0]
