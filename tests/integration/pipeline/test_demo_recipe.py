"""``shoal demo --recipe``: deployments that people cite, by real services, TLS and devices with
memories of their own; the numbers shown are those of the run's own releases and ledgers.

Estimates lie within 9 of their standard errors of the truth: a false alarm in 1e-5 of runs.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from shoal.accounting.meaning import bound_text
from shoal.cli.demo.recipes.deployments import DEPLOYMENTS
from shoal.cli.main import main
from tests.sizes import FULL, size

Capture = pytest.CaptureFixture[str]

KEYS = {
    "recipe",
    "title",
    "made_up",
    "devices",
    "windows",
    "fresh",
    "window",
    "reports_per_day",
    "claimed",
    "matched",
    "ways",
    "trusted_server",
    "found",
    "tasks",
    "composed",
    "reports",
}
SPANS = ("window", "day", "run", "year")
NAMES = tuple(each.name for each in DEPLOYMENTS) if FULL else ("windows-app-usage",)


def ran(name: str, tmp_path: Path, *more: str) -> dict[str, Any]:
    path = tmp_path / "results.json"
    arguments = ["--recipe", name, "--out", f"{tmp_path / 'out'}", "--json", f"{path}", *more]
    assert main(["demo", *arguments]) == 0
    results: dict[str, Any] = json.loads(path.read_text())
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == results
    assert len(list((tmp_path / "out" / "releases").iterdir())) == len(results["tasks"])
    return results


def check_way(way: dict[str, Any], results: dict[str, Any]) -> None:
    """Its figures are those of its releases; none is below what holds of one window."""
    honest, claimed = way["honest"], results["claimed"]
    tasks = [one for one in results["tasks"] if one["name"] == way["task"]]
    assert len(tasks) == results["windows"]
    for one in tasks:
        privacy, release = one["release"]["privacy"], one["release"]
        assert (release["n"], release["withheld"]) == (results["devices"], None)
        assert privacy["epsilon0"] == honest["epsilon0"]
        assert privacy["epsilon_upper"] <= way["released"]["epsilon_upper"]
        assert privacy["n_certified"] == honest["n"] == results["devices"]
        for estimate in release["estimates"]:
            truth = one["truth"][estimate["label"]]
            assert abs(estimate["value"] - truth) < 9 * max(estimate["stderr"], 1e-9)
    assert way["released"]["epsilon_upper"] == pytest.approx(honest["apart"]["window"], rel=1e-6)
    for seen in ("apart", "together"):
        figures = [honest[seen][span] for span in SPANS]
        known = [math.inf if figure is None else figure for figure in figures]
        assert known[0] <= known[1]
        assert known[0] <= known[2] <= known[3]
    ledgers = way["ledgers"]
    assert 0.0 < ledgers["mean"] <= ledgers["most"]
    if honest["epsilon0"] is not None:  # devices pay no more than what is said
        assert ledgers["most"] <= honest["together"]["run"] * (1 + 1e-8)
    if way["memoized"]:
        assert honest["unchanged"]["run"] == way["released"]["epsilon_run"]
        assert honest["unchanged"]["run"] >= honest["epsilon0"]
        assert ledgers["most"] > honest["unchanged"]["run"]  # some value changed
        assert results["composed"]["epsilon_upper"] > honest["apart"]["run"]
    elif not claimed["central"] and way["way"] == "claimed":
        assert honest["epsilon0"] <= claimed["epsilon"]


@pytest.mark.timeout(size(240, 1_200))
@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_runs_end_to_end(name: str, tmp_path: Path, capsys: Capture) -> None:
    """Claimed and honest side by side, on the screen and for machines. Planted: answers drawn anew
    where devices keep them -> ledgers of every window, more than is said, fails; the figure of an
    unchanged value for a run -> below the ledgers, fails; one memory for all devices -> a refused
    window, fails.
    """
    words = name == "new-words"
    sizes = () if FULL else ("--devices", "150", "--windows", "2")
    results = ran(name, tmp_path, *sizes)
    assert results.keys() == KEYS
    assert [way["way"] for way in results["ways"]] == ["claimed", "planned"]
    assert results["claimed"]["sources"]
    for way in results["ways"]:
        if way["run"]:
            check_way(way, results)
    reports = results["reports"]
    assert reports["counted"] == results["devices"] * len(results["tasks"])
    assert (results["found"] is not None) == words
    if words:
        found = results["found"]
        assert found["words"]
        assert found["false"] <= 5
        assert results["ways"][0]["run"] is False
    said = capsys.readouterr().out
    for way in results["ways"]:
        for span in SPANS:
            figure = way["honest"]["apart"][span]
            assert ("none proven" if figure is None else bound_text(figure)) in said
    assert f"claimed: {results['claimed']['epsilon']:g}" in said


@pytest.mark.skipif(not FULL, reason="waits for windows to pass; SHOAL_FULL=1 runs it")
@pytest.mark.timeout(1_200)
def test_words_are_found_by_devices_that_answer_once(tmp_path: Path, capsys: Capture) -> None:
    """Nobody answers twice, each window has its own devices, and each is charged for one. Planted:
    every device asked in every window -> a window of all, fails.
    """
    results = ran("new-words", tmp_path, "--fresh")
    found, way = results["found"], results["ways"][-1]
    assert (results["fresh"], results["devices"], found["drawn"]) == (True, 6_000, 8)
    counts = [one["release"]["n"] for one in results["tasks"]]
    assert sum(counts) == results["reports"]["counted"] <= results["devices"]
    # 6 standard deviations: a false alarm in fewer than one of 10^7 runs
    assert all(abs(count - 750) < 6 * math.sqrt(750 * 7 / 8) for count in counts)
    assert way["honest"]["apart"]["run"] == way["honest"]["apart"]["window"]
    assert way["honest"]["apart"]["run"] <= results["matched"]["epsilon"]
    assert found["words"]
    assert found["false"] <= 5
    for one in results["tasks"]:
        for estimate in one["release"]["estimates"]:
            truth = one["truth"][estimate["label"]]
            assert abs(estimate["value"] - truth) < 9 * max(estimate["stderr"], 1e-9)
    assert "times 8 they are those of the whole fleet" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--recipe", "soup"), "no recipe 'soup' runs: choose among"),
        (("--recipe", "emoji-popularity", "--secagg"), "--recipe asks questions of its own"),
        (("--recipe", "emoji-popularity", "--mechanism", "krr"), "leave"),
        (("--windows", "3"), "--windows goes with --recipe"),
        (("--fresh",), "add --recipe new-words"),
        (("--recipe", "emoji-popularity", "--fresh"), "add --recipe new-words"),
        (("--recipe", "new-words", "--windows", "3"), "one for each level"),
    ],
)
def test_what_cannot_be_is_one_line(
    options: tuple[str, ...], words: str, tmp_path: Path, capsys: Capture
) -> None:
    """Nothing is started."""
    assert main(["demo", "--out", f"{tmp_path / 'out'}", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert words in err


def test_those_that_run_are_listed(tmp_path: Path, capsys: Capture) -> None:
    assert main(["demo", "--recipe", "list"]) == 0
    assert all(each.name in capsys.readouterr().out for each in DEPLOYMENTS[:1])
    assert main(["demo", "--recipe", "list", "--json", "-"]) == 0
    listed = json.loads(capsys.readouterr().out)["recipes"]
    assert [one["name"] for one in listed] == [each.name for each in DEPLOYMENTS]
    path = tmp_path / "listed.json"
    assert main(["demo", "--recipe", "list", "--json", f"{path}"]) == 0
    assert json.loads(path.read_text())["recipes"] == listed
