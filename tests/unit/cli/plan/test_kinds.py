"""``shoal plan`` for sums, quantiles, several windows and recipes: what it prints and writes, and
one line for every wrong argument.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from shoal.accounting.lint.task import lint
from shoal.analyzer.planner.deployments.recipes import RECIPES, Sought
from shoal.analyzer.planner.result import Option
from shoal.cli.plan.recipe import _alike
from shoal.domain import Categories
from tests.cases import for_each
from tests.unit.cli.plan.test_command import Capture, filled, run

SUM = (
    "sum",
    "--low",
    "0",
    "--high",
    "50",
    "--unit",
    "kWh",
    "--levels",
    "4,8",
    "--n",
    "800",
    "--epsilon",
    "1",
    "--mechanism",
    "kmean",
)
QUANTILES = (
    "quantiles",
    "--high",
    "24",
    "--unit",
    "hours",
    "--levels",
    "6,8",
    "--n",
    "2000",
    "--epsilon",
    "1",
    "--delta",
    "1e-6",
)
KARY = ("--mechanism", "krr", "--mechanism", "kmean")


def test_a_sum_says_what_a_silent_device_counts(capsys: Capture) -> None:
    status, out, _ = run(capsys, *SUM, "--simulate", "60", "--seed", "3")
    assert status == 0
    assert "sum, 800 devices: central epsilon <= 1" in out
    assert "Predicted standard error of the sum over all 800 devices: " in out
    assert "a device without an answer counts as 0." in out
    assert "kWh" in out
    assert "Simulated: 60 batches" in out
    assert "a device without an answer counts as 5." in run(capsys, *SUM[:2], "5", *SUM[3:])[1]


def test_quantiles_are_planned_simulated_and_drawn(tmp_path: Path, capsys: Capture) -> None:
    picture = tmp_path / "error.svg"
    common = (*QUANTILES, *KARY, "--quantiles", "0.5,0.9", "--shape", "skewed")
    status, out, _ = run(capsys, *common, "--plot", str(picture))
    assert status == 0
    assert "Predicted error of the quantiles 0.5, 0.9: " in out
    assert "spread like skewed" in out
    assert "Predicted error: quantiles" in picture.read_text()
    value = json.loads(run(capsys, *common, "--simulate", "60", "--seed", "3", "--json")[1])
    assert value["question"] == "quantiles"
    assert {"error", "error_least", "error_most"} <= value["choice"].keys()
    assert value["simulation"]["predicted"] == pytest.approx(
        value["simulation"]["observed"], rel=0.4
    )


@pytest.mark.parametrize("mechanism", ["krr", "kmean"])
def test_the_emitted_task_of_quantiles_passes_lint(
    mechanism: str, tmp_path: Path, capsys: Capture
) -> None:
    """Planted: the lower bounds of ordered bins left out -> this fails."""
    file = tmp_path / "task.toml"
    assert run(capsys, *QUANTILES, "--mechanism", mechanism, "--emit", str(file))[0] == 0
    task = filled(file)
    assert not lint(task).errors
    assert task.mechanism.name == mechanism
    if isinstance(task.domain, Categories):
        assert task.domain.lower_bounds[0] == 0
        assert len(task.domain.lower_bounds) == len(task.domain.names)


def test_windows_show_both_ways(capsys: Capture) -> None:
    yes_no = (
        "yes_no",
        "--n",
        "500",
        "--epsilon",
        "1",
        "--mechanism",
        "binary_rr",
        "--windows",
        "5",
        "--changes",
        "2",
    )
    fresh = run(capsys, *yes_no)[1]
    assert (
        "Asked 5 times, the value changing 2 times, with fresh randomness: all releases together "
        "are epsilon <= " in fresh
    )
    assert "If it were memoized: a value that does not change costs epsilon0 once" in fresh
    kept = run(capsys, *yes_no, "--memoized")[1]
    assert "memoized: a value that does not change costs epsilon0 once" in kept
    assert "Not memoized, with fresh randomness" in kept
    value = json.loads(run(capsys, *yes_no, "--json")[1])["repeated"]
    assert value["kept"]["values"] == 2
    assert value["fresh"]["lifetime_epsilon0"] > value["kept"]["lifetime_epsilon0"]


def test_recipes_are_listed(capsys: Capture) -> None:
    out = run(capsys, "--recipe", "list")[1]
    assert all(each.name in out for each in RECIPES)
    value = json.loads(run(capsys, "--recipe", "list", "--json")[1])
    assert [each["name"] for each in value["recipes"]] == [each.name for each in RECIPES]


def test_a_recipe_says_what_its_number_means(capsys: Capture) -> None:
    status, out, _ = run(capsys, "--recipe", "health-usage", "--n", "2000")
    assert status == 0
    assert "epsilon = 2 is claimed." in out
    assert "per report 2; with one report a day, per day 2, and over a year 730" in out
    assert "one batch of 2,000 reports, all honest, is epsilon <= " in out
    assert "At the same central epsilon Shoal would choose " in out
    assert "RECALLED, not checked: " in out


@for_each("name", [each.name for each in RECIPES if not isinstance(each.question, Sought)])
def test_the_emitted_task_of_a_recipe_passes_lint(
    name: str, tmp_path: Path, capsys: Capture
) -> None:
    file = tmp_path / "task.toml"
    status, out, err = run(capsys, "--recipe", name, "--n", "1000", "--emit", str(file), "--json")
    assert (status, err) == (0, "")
    value, task = json.loads(out), filled(file)
    found = lint(task)
    assert not found.errors
    assert dict(task.mechanism.parameters) == value["deployed"]["parameters"]
    assert found.guarantee is not None
    assert found.guarantee.epsilon_upper == pytest.approx(
        value["shuffled"]["epsilon_upper"], rel=1e-9
    )
    assert task.memoized == value["memoized"]
    assert task.windows.count == 365 * value["reports_per_day"]


def test_a_recipe_that_looks_for_words_plans_a_discovery(tmp_path: Path, capsys: Capture) -> None:
    """And has no task of the deployment's mechanism, which is not here. Planted: one of what stands
    in for it is written -> fails.
    """
    name, file = "new-words", tmp_path / "task.toml"
    status, out, _ = run(capsys, "--recipe", name, "--n", "20000", "--json")
    value = json.loads(out)
    assert status == 0
    assert value["instead"]["epsilon_upper"] <= 4.0 < value["claimed_epsilon"]
    assert value["instead"]["epsilon0"] is None
    status, out, _ = run(capsys, "--recipe", name, "--n", "20000")
    assert "letter by letter, a level in each of 6 windows" in out
    status, out, err = run(capsys, "--recipe", name, "--emit", str(file))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "shoal discover plan --emit" in err
    assert not file.exists()


@for_each(
    "arguments, words",
    [
        ((), "what is asked?"),
        (("--recipe", "soup"), "there is no recipe 'soup'"),
        (("mean", "--recipe", "list"), "leave out a question"),
        (("--recipe", "list", "--epsilon", "1"), "leave out --epsilon"),
        (("--recipe", "health-usage", "--delta", "1e-9"), "leave out --delta"),
        (("--recipe", "health-usage", "--plot", "x.svg"), "leave out --plot"),
        (("--recipe", "health-usage", "--windows", "1"), "leave out --windows"),
        (("--recipe", "list", "--emit", "x.toml"), "give its name instead of list"),
        (("--recipe", "health-usage", "--emit", "/"), "/ exists"),
        (
            ("yes_no", "--n", "100", "--epsilon", "1", "--emit", "/dev/null/x.toml"),
            "cannot write /dev/null/x.toml",
        ),
        (
            ("mean", "--n", "100", "--epsilon", "1", "--unit", "h\n[x]"),
            "--unit: one line without control characters",
        ),
        (
            ("categories", "--n", "100", "--epsilon", "1", "--labels", "a\x1b[2J,b"),
            "--labels: one line without control characters",
        ),
        (("sum", "--n", "100", "--epsilon", "1", "--high", "1e-320"), "too narrow or too wide"),
        (
            ("quantiles", "--n", "100", "--epsilon", "1", "--high", "1e200"),
            "too narrow or too wide",
        ),
        (
            ("sum", "--n", "100", "--epsilon", "1", "--quantiles", "0.5"),
            "--quantiles is not for sum",
        ),
        (("quantiles", "--n", "100", "--epsilon", "1", "--worst"), "--worst is not for quantiles"),
        (
            ("quantiles", "--n", "100", "--epsilon", "1", "--quantiles", "half"),
            "--quantiles: numbers between 0 and 1",
        ),
        (
            ("yes_no", "--n", "100", "--epsilon", "1", "--shape", "bell"),
            "--shape is not for yes_no",
        ),
        (("yes_no", "--n", "100", "--epsilon", "1", "--changes", "1"), "0 to 0 times in 1, got 1"),
    ],
)
def test_wrong_arguments_are_one_line(
    arguments: tuple[str, ...], words: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And before anything is computed. Planted: a file that exists found out when the plan is
    written -> this fails.
    """
    monkeypatch.setattr(
        "shoal.cli.plan.command.plan",
        lambda *_: pytest.fail("planned before the arguments were looked at"),
    )
    monkeypatch.setattr(
        "shoal.cli.plan.recipe.weigh",
        lambda *_: pytest.fail("weighed before the arguments were looked at"),
    )
    status, out, err = run(capsys, *arguments)
    assert status == 2
    assert out == ""
    assert words in err
    assert err.count("\n") == 1


def test_a_recipe_says_where_there_is_nothing_to_gain() -> None:
    """Planted: the sentence left out -> a choice that errs a little more reads like a mistake."""
    one, other, far = (
        SimpleNamespace(errors=SimpleNamespace(ranked=error)) for error in (46.0, 45.9, 40.0)
    )
    assert _alike(cast(Option, one), cast(Option, other)) == ", which is as accurate"
    assert _alike(cast(Option, one), cast(Option, far)) == ""
