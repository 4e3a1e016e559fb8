"""``shoal demo --mechanism``: the question that fits is randomized by it, the others as always; a
wrong name or setting is one line.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.cli.demo.survey import EPSILON0, questions
from shoal.cli.main import main
from shoal.domain import Categories, Numeric
from shoal.mechanisms import REGISTRY, create, design, serves
from shoal.privacy import epsilon0_upper
from tests.sizes import size

Capture = pytest.CaptureFixture[str]
DEVICES = 50  # the fewest that a demo takes


FITTING = sorted(set(REGISTRY) - {"planar"})  # the survey has no places


@pytest.mark.parametrize("name", FITTING)
def test_one_question_is_randomized_by_it(name: str) -> None:
    """Planted: the first question of the three, whatever fits; the epsilon0 of another -> fails."""
    usual, asked = questions(), questions(name)
    (changed,) = [one for one in asked if one.mechanism.name == name]
    assert [one for one in asked if one is not changed and one.name != changed.name] == [
        one for one in usual if one.name != changed.name
    ]
    if name not in {one.mechanism.name for one in usual}:
        assert isinstance(
            changed.domain, Categories if serves(name, Categories(("a", "b"))) else Numeric
        )
        assert changed.mechanism == design(name, changed.domain, EPSILON0)
    assert epsilon0_upper(create(changed.mechanism, changed.domain).privacy()) <= EPSILON0
    for setting in REGISTRY[name].settings(changed.domain):
        (again,) = [one for one in questions(name, setting.name) if one.mechanism.name == name]
        assert again.name == changed.name


def test_without_a_choice_nothing_changes() -> None:
    assert [one.mechanism.name for one in questions()] == ["binary_rr", "krr", "kmean"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--mechanism", "nothing"), ("--mechanism", "unary", "local_hash", "binary_rr")),
        (("--mechanism", "unary", "--setting", "olh"), ("--setting", "oue", "sue")),
        (("--setting", "oue"), ("--setting", "--mechanism")),
        (("--mechanism", "planar"), ("--mechanism planar", "shoal load")),
        (("--secagg", "--mechanism", "krr"), ("--secagg",)),
    ],
)
def test_a_wrong_choice_is_one_line_and_starts_nothing(
    arguments: tuple[str, ...], words: tuple[str, ...], tmp_path: Path, capsys: Capture
) -> None:
    assert main(["demo", "--out", str(tmp_path / "out"), *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert all(word in err for word in words), err
    assert not (tmp_path / "out").exists()


@pytest.mark.timeout(size(240, 1_200))
@pytest.mark.parametrize(
    ("name", "setting"),
    [("unary", "p=0.9"), *((one, "") for one in FITTING[: size(0, 99)])],
)
def test_the_demo_runs_with_it(name: str, setting: str, tmp_path: Path, capsys: Capture) -> None:
    """Real services. Planted: the mechanism left out of the results, or the task built with the
    usual one -> fails.
    """
    given = ("--setting", setting) if setting else ()
    arguments = (
        "--devices",
        str(DEVICES),
        "--workers",
        "1",
        "--json",
        str(tmp_path / "results.json"),
        "--out",
        str(tmp_path / "out"),
    )
    assert main(["demo", "--mechanism", name, *given, *arguments]) == 0
    out = " ".join(capsys.readouterr().out.split())
    results = json.loads((tmp_path / "results.json").read_text())
    (task,) = [task for task in results["tasks"] if task["name"] == results["chosen"]]
    (asked,) = [one for one in questions(name, setting) if one.name == results["chosen"]]
    assert task["mechanism"]["name"] == name
    assert task["mechanism"]["parameters"] == dict(asked.mechanism.parameters)
    assert f"{task['name']} is randomized by {name}" in out
    assert "reports acknowledged, 150 counted" in out
    assert [one["release"]["n"] for one in results["tasks"]] == [DEVICES] * 3
    law = create(asked.mechanism, asked.domain).privacy()
    assert task["release"]["privacy"]["epsilon0"] == epsilon0_upper(law)
