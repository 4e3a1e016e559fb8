"""``shoal tables`` through the command line's own entry point."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.accounting.lint.task import lint
from shoal.cli.extras import PACKAGES
from shoal.cli.main import main
from shoal.cli.task.file import read_task
from shoal.domain import AnswerRecord
from tests.cases import for_each
from tests.worlds.filled_in import filled

Capture = pytest.CaptureFixture[str]
COLUMNS = "age,sex,health"


@pytest.fixture
def rows(tmp_path: Path) -> str:
    """1,200 people: health goes with age, and one in ten has no sex in the file."""
    lines = ["age,sex,health,id"]
    for person in range(1_200):
        age = ("18-34", "35-49", "50+")[person % 3]
        health = "good" if person % 3 == 0 or person % 7 == 0 else "poor"
        sex = "" if person % 10 == 0 else "fm"[person % 2]
        lines.append(f"{age},{sex},{health},{person}")
    file = tmp_path / "people.csv"
    file.write_text("\n".join(lines) + "\n")
    return str(file)


def run(capsys: Capture, *arguments: str, status: int = 0) -> tuple[str, str]:
    code = main(["tables", *arguments])
    told = capsys.readouterr()
    assert code == status, told.err
    assert "Traceback" not in told.err
    return told.out, told.err


def test_a_plan_for_people_and_for_programs(rows: str, capsys: Capture) -> None:
    """Planted: the answers of one column given to another -> labels differ."""
    out, _ = run(capsys, "plan", rows, "--columns", COLUMNS, "--n", "20000")
    assert "3 tables of 3 attributes" in out
    assert "20,000 devices" in out
    assert 'domain.together = true, mechanism.name = "marginals"' in out
    assert "owners are asked by name" in out
    found = json.loads(run(capsys, "plan", rows, "--columns", COLUMNS, "--json")[0])
    assert found["n"] == 1_200
    assert found["attributes"][0] == {
        "name": "age",
        "labels": ["18-34", "35-49", "50+", "no answer"],
    }
    assert found["marginals"] == [["age", "sex"], ["age", "health"], ["sex", "health"]]
    assert [way["epsilon0"] is None for way in found["ways"]][-1] is False


def test_a_release_is_played_with_the_truth_beside(rows: str, capsys: Capture) -> None:
    """The same seed gives the same figures. Planted: the seed not used -> fails."""
    arguments = ("simulate", rows, "--columns", COLUMNS, "--epsilon", "2", "--seed", "7", "--json")
    first, second = (json.loads(run(capsys, *arguments)[0]) for _ in range(2))
    assert first == second
    assert first["way"] == "marginals"
    assert 0.5 < first["error"] / first["plan"]["ways"][0]["error"] < 2.0
    assert first["covered"] > 0.8
    assert first["synthetic"]["triples"] < first["synthetic"]["triples_independent"]
    out, _ = run(
        capsys,
        "simulate",
        rows,
        "--columns",
        COLUMNS,
        "--table",
        "age,health",
        "--table",
        "sex",
        "--way",
        "krr",
        "--seed",
        "7",
    )
    assert "played (krr)" in out
    assert "in tables of three, which nobody was asked for" in out


def test_without_the_extra_counts_alone_are_compared(
    rows: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the packages not looked for -> a bug is reported in place of what to install."""
    monkeypatch.setitem(PACKAGES, "tables", ("no_such_package_of_ours",))
    out, _ = run(capsys, "simulate", rows, "--columns", "sex,health", "--way", "krr", "--seed", "1")
    assert "pip install 'shoal[tables]'" in out


@for_each("way", ["", "cancelling", "dummies", "krr"])
def test_a_plan_becomes_a_task_that_lint_certifies(
    rows: str, capsys: Capture, tmp_path: Path, way: str
) -> None:
    """The best way, or the one that is named; the guarantee that was planned, with the tables that
    were asked for. Planted: all pairs in place of the tables -> another domain; ``together`` of the
    request in place of the way's -> lint refuses.
    """
    path = tmp_path / "tables.toml"
    arguments = ["--columns", COLUMNS, "--n", "20000", "--honest-fraction", "0.9", "--json"]
    arguments += ["--table", "age,health", "--table", "sex"]
    chosen = ["--way", way] if way else []
    out, _ = run(capsys, "plan", rows, *arguments, *chosen, "--emit", str(path), "--length", "1d")
    planned = json.loads(out)
    (wanted,) = [
        one
        for one in planned["ways"]
        if one["mechanism"] == (way or planned["ways"][0]["mechanism"])
    ]
    task = read_task(filled(path))
    assert isinstance(task.domain, AnswerRecord)
    names = [one.name for one in task.domain.attributes]
    asked = [[names[at] for at in marginal] for marginal in task.domain.marginals]
    assert (asked, task.domain.together) == (planned["marginals"], wanted["together"])
    assert (task.mechanism.name, dict(task.mechanism.parameters)) == (
        wanted["mechanism"],
        wanted["parameters"],
    )
    assert (task.min_batch, task.windows.length_s) == (20_000, 86_400)
    found = lint(task)
    assert found.errors == ()
    assert found.guarantee is not None
    assert found.guarantee.epsilon_upper == pytest.approx(wanted["epsilon_upper"])
    assert "tables.toml" in run(capsys, "plan", rows, *arguments, "--emit", str(path), status=2)[1]


@for_each(
    "arguments, mends",
    [
        (("--columns", "age"), "two or more"),
        (("--columns", "age,size"), "size"),
        (("--columns", "age,id"), "give groups"),
        (("--columns", COLUMNS, "--table", "age,size"), "none of age, sex, health"),
        (("--columns", COLUMNS, "--table", "age,sex"), "asks for health"),
        (("--columns", COLUMNS, "--epsilon", "0"), "epsilon above 0"),
        (("--columns", COLUMNS, "--honest-fraction", "2"), "honest"),
        (("--columns", COLUMNS, "--way", "krr"), "add --emit"),
        (("--columns", COLUMNS, "--length", "1d"), "--emit"),
    ],
)
def test_what_can_not_be_planned_is_one_line(
    arguments: tuple[str, ...], mends: str, rows: str, capsys: Capture
) -> None:
    _, error = run(capsys, "plan", rows, *arguments, status=2)
    assert mends in error
    assert error.count("\n") == 1


def test_a_way_that_is_none_is_refused(rows: str, capsys: Capture) -> None:
    _, error = run(capsys, "simulate", rows, "--columns", COLUMNS, "--way", "oue", status=2)
    assert "--way oue: one of marginals" in error
