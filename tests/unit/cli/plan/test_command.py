"""``shoal plan``: what it prints, the task that it writes, and one line for every wrong
argument.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.accounting.lint.task import lint
from shoal.analyzer.planner import Frequencies, Request, plan
from shoal.analyzer.planner.curve import curve
from shoal.cli.main import main
from shoal.cli.task.file import read_task
from shoal.domain import Categories, Numeric, YesNo
from shoal.task import Task
from tests.cases import for_each

Capture = pytest.CaptureFixture[str]
COUNTING = ("categories", "--k", "5", "--n", "1000", "--epsilon", "1", "--delta", "1e-6")
FEW = ("--mechanism", "krr", "--mechanism", "unary")
YES_NO = ("yes_no", "--n", "500", "--epsilon", "1", "--mechanism", "binary_rr")
MEAN = (
    "mean",
    "--low",
    "0",
    "--high",
    "24",
    "--unit",
    "hours",
    "--levels",
    "3,5,8",
    "--n",
    "800",
    "--epsilon",
    "1",
    "--mechanism",
    "kmean",
)


def run(capsys: Capture, *arguments: str) -> tuple[int, str, str]:
    status = main(["plan", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def filled(path: Path) -> Task:
    """The emitted task with keys and a certificate file put in."""
    text = path.read_text()
    for number, key in enumerate(("key_authority", "shuffler", "analyzer"), 1):
        assert f'{key} = ""' in text
        text = text.replace(f'{key} = ""', f'{key} = "{str(number) * 64}"')
    path.write_text(text)
    (path.parent / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    return read_task(path)


def test_a_plan_for_people(capsys: Capture) -> None:
    status, out, err = run(capsys, *COUNTING, *FEW)
    assert (status, err.strip()) == (0, "")
    assert "5 cells, 1,000 devices: central epsilon <= 1 at delta = 1e-06" in out
    assert "Chosen: krr (k-ary randomized response" in out
    assert "Predicted standard error of a count:" in out
    assert "Guaranteed: epsilon <= 0.99" in out
    assert "unary oue: error " in out
    assert "of every count is thinned away" in out
    assert "If shuffler and analyzer work together, epsilon0 = " in out
    # eight alternatives: all of them are there
    assert "more, no better: --all shows them" not in out


def test_a_plan_for_programs(capsys: Capture) -> None:
    few = ("--mechanism", "krr", "--mechanism", "subset")
    status, out, _ = run(capsys, *COUNTING, *few, "--honest-fraction", "0.9", "--json")
    value = json.loads(out)
    assert status == 0
    assert value["choice"]["mechanism"] == "krr"
    assert value["choice"]["parameters"]["k"] == 5
    assert (value["certificate"]["n"], value["certificate"]["honest_fraction"]) == (1000, 0.9)
    assert value["certificate"]["epsilon_upper"] <= 1.0
    assert len(value["others"]) >= 2
    assert all(each["reason"] for each in value["others"])
    assert "simulation" not in value


@for_each(
    "arguments",
    [
        (*YES_NO, "--delta", "1e-6", "--min-batch", "400", "--honest-fraction", "0.9"),
        (
            "categories",
            "--labels",
            'red,"blue",groß',
            "--n",
            "1000",
            "--epsilon",
            "1",
            "--delta",
            "1e-6",
            "--mechanism",
            "krr",
        ),
        (*MEAN, "--delta", "1e-6", "--windows", "4", "--memoized"),
        (
            "categories",
            "--k",
            "4",
            "--n",
            "1000",
            "--error",
            "30",
            "--delta",
            "1e-6",
            "--mechanism",
            "krr",
        ),
        (
            "categories",
            "--k",
            "6",
            "--n",
            "1000",
            "--epsilon",
            "2",
            "--delta",
            "1e-6",
            "--mechanism",
            "unary",
        ),
    ],
)
def test_the_emitted_task_passes_lint(
    arguments: tuple[str, ...], tmp_path: Path, capsys: Capture
) -> None:
    """Planted: the target rounded down in error mode, or min_batch left at n -> this fails."""
    file = tmp_path / "task.toml"
    status, out, _ = run(capsys, *arguments, "--emit", str(file), "--json")
    value = json.loads(out)
    assert status == 0
    task = filled(file)
    found = lint(task)
    assert not found.errors
    assert found.guarantee is not None
    assert found.guarantee.epsilon_upper == value["certificate"]["epsilon_upper"]
    assert dict(task.mechanism.parameters) == value["choice"]["parameters"]
    assert (task.min_batch, task.memoized) == (value["min_batch"], "--memoized" in arguments)
    if isinstance(task.domain, Categories) and "--labels" in arguments:
        assert task.domain.names == ("red", '"blue"', "groß")
    if isinstance(task.domain, Numeric):
        assert (task.domain.low, task.domain.high, task.domain.unit) == (0.0, 24.0, "hours")
        assert task.windows.count == 4


def test_an_emitted_task_wants_its_blanks_filled_in(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "task.toml"
    assert run(capsys, *YES_NO, "--emit", str(file))[0] == 0
    assert main(["task", "lint", str(file)]) == 2
    assert "keys.key_authority" in capsys.readouterr().err
    before = file.read_bytes()
    status, _, err = run(capsys, *YES_NO, "--emit", str(file))
    assert status == 2
    assert "exists: move it away" in err
    assert file.read_bytes() == before


def test_a_simulation_states_its_own_uncertainty(capsys: Capture) -> None:
    status, out, _ = run(capsys, *YES_NO, "--simulate", "200", "--seed", "5")
    assert status == 0
    assert "Simulated: 200 batches of 500 devices: predicted " in out
    assert "95 % confidence, +-" in out
    again = [
        json.loads(run(capsys, *YES_NO, "--simulate", "50", "--seed", "5", "--json")[1])[
            "simulation"
        ]
        for _ in range(2)
    ]
    assert again[0] == again[1]
    assert again[0]["observed_low"] < again[0]["observed"] < again[0]["observed_high"]
    mean = json.loads(
        run(capsys, *MEAN, "--simulate", "50", "--seed", "5", "--value", "7", "--json")[1]
    )["simulation"]
    assert mean["predicted"] == pytest.approx(mean["observed"], rel=0.5)


def test_simulated_data_can_be_skewed(capsys: Capture) -> None:
    common = (*COUNTING, "--mechanism", "krr", "--simulate", "40", "--seed", "1", "--json")
    zipf, uniform = (
        json.loads(run(capsys, *common, "--data", data)[1]) for data in ("zipf", "uniform")
    )
    assert uniform["simulation"]["predicted"] == pytest.approx(uniform["choice"]["error"], rel=1e-9)
    assert zipf["simulation"]["observed"] != uniform["simulation"]["observed"]
    assert zipf["choice"] == uniform["choice"]


def test_counts_from_a_file_are_what_errors_are_ranked_at(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "counts.csv"
    file.write_text("bus, 900\ncar,80\n\nno answer,20\n", encoding="utf-8")
    status, out, _ = run(
        capsys,
        "categories",
        "--counts",
        str(file),
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--mechanism",
        "krr",
        "--json",
    )
    value = json.loads(out)
    assert status == 0
    assert value["n"] == 1000
    assert value["choice"]["parameters"]["k"] == 3
    like = run(
        capsys,
        "categories",
        "--k",
        "3",
        "--n",
        "1000",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--mechanism",
        "krr",
        "--json",
    )
    # What k-ary responses lose of a count they lose of any: the mean square over the cells is the
    # same wherever devices are.
    assert value["choice"]["error"] == pytest.approx(
        json.loads(like[1])["choice"]["error"], rel=1e-6
    )
    assert (
        value["choice"]["error_light"] < value["choice"]["error"] < value["choice"]["error_heavy"]
    )
    file.write_text("bus,900\ncar,many\n", encoding="utf-8")
    status, _, err = run(capsys, "categories", "--counts", str(file), "--epsilon", "1")
    assert status == 2
    assert "line 2: 'many' is no whole number" in err


def test_windows_are_told_apart(capsys: Capture) -> None:
    fresh = run(capsys, *YES_NO, "--windows", "5", "--per-window")[1]
    assert "Asked 5 times with fresh randomness: all releases together are epsilon <= " in fresh
    kept = run(capsys, *YES_NO, "--windows", "5", "--memoized")[1]
    assert "Asked 5 times, memoized: a value that does not change costs epsilon0 once" in kept


def test_the_other_direction(capsys: Capture) -> None:
    out = run(
        capsys,
        "yes_no",
        "--n",
        "500",
        "--error",
        "40",
        "--mechanism",
        "binary_rr",
        "--max-epsilon0",
        "4",
    )[1]
    assert "error <= 40 at delta = 1e-08" in out
    assert "epsilon" in out


@for_each(
    "arguments, words",
    [
        (("yes_no", "--epsilon", "1"), "--n is wanted"),
        (("yes_no", "--n", "100"), "either a target epsilon or a target error"),
        (("yes_no", "--n", "100", "--epsilon", "1", "--k", "4"), "--k is not for yes_no"),
        (
            ("categories", "--n", "100", "--epsilon", "1"),
            "categories want one of --k, --labels and --counts",
        ),
        (("categories", "--n", "100", "--epsilon", "1", "--k", "2"), "a whole number from 3 to"),
        (
            ("categories", "--n", "100", "--epsilon", "1", "--k", "4", "--low", "2"),
            "--low is not for categories",
        ),
        (
            ("categories", "--n", "100", "--epsilon", "1", "--k", "4", "--share", "2"),
            "--share must be above 0",
        ),
        (
            ("categories", "--n", "100", "--epsilon", "1", "--labels", "a,a"),
            "category labels are distinct",
        ),
        (("categories", "--epsilon", "1", "--counts", "nowhere.csv"), "cannot read nowhere.csv"),
        (("mean", "--n", "100", "--epsilon", "1", "--share", "0.2"), "--share is not for mean"),
        (("mean", "--n", "100", "--epsilon", "1", "--levels", "3,x"), "--levels: whole numbers"),
        (("mean", "--n", "100", "--epsilon", "1", "--low", "3"), "finite low < high"),
        (
            ("yes_no", "--n", "100", "--epsilon", "1", "--honest-fraction", "2"),
            "honest fraction must be above 0",
        ),
        (
            ("yes_no", "--n", "100", "--epsilon", "1", "--honest-fraction", "1e-9"),
            "at least 0.000001",
        ),
        (
            ("yes_no", "--n", "100", "--epsilon", "1", "--mechanism", "magic"),
            "there is no mechanism 'magic'",
        ),
        (("yes_no", "--n", "100", "--epsilon", "1", "--simulate", "1"), "--simulate wants 2 to"),
        (
            ("yes_no", "--n", "100", "--epsilon", "1", "--data", "zipf"),
            "--data goes with --simulate",
        ),
        (
            ("mean", "--n", "100", "--epsilon", "1", "--simulate", "50", "--data", "zipf"),
            "--data goes with --simulate",
        ),
    ],
)
def test_wrong_arguments_are_one_line(
    arguments: tuple[str, ...], words: str, capsys: Capture
) -> None:
    status, out, err = run(capsys, *arguments)
    assert status == 2
    assert out == ""
    assert words in err
    assert err.startswith("shoal: ")
    assert err.count("\n") == 1


def test_an_error_as_large_as_the_batch_is_called_that(capsys: Capture) -> None:
    words = "That is as good as no answer"
    assert (
        words
        in run(capsys, "yes_no", "--n", "10", "--epsilon", "0.01", "--mechanism", "binary_rr")[1]
    )
    assert words not in run(capsys, *YES_NO)[1]


def test_numbers_at_the_ends_of_the_floats_are_planned_for(capsys: Capture) -> None:
    """Nothing divides by an error that vanishes; what has no square is refused."""
    asked = ("--levels", "2,4", "--n", "100", "--epsilon", "1", "--mechanism", "kmean")
    status, out, _ = run(capsys, "mean", "--high", "1e-100", *asked)
    assert (status, "Chosen: kmean" in out) == (0, True)
    status, out, err = run(capsys, "mean", "--high", "1e-320", *asked)
    assert (status, out, "choose another unit" in err) == (2, "", True)
    status, out, _ = run(
        capsys,
        *YES_NO[:3],
        "--epsilon",
        "50",
        "--mechanism",
        "krr",
        "--mechanism",
        "binary_rr",
        "--json",
    )
    assert (status, json.loads(out)["choice"]["epsilon0"] <= 40.0) == (0, True)


def test_help_has_an_example(capsys: Capture) -> None:
    assert main(["plan", "--help"]) == 0
    assert "shoal plan categories --k 16" in capsys.readouterr().out


def test_the_picture_shows_what_shuffling_buys(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "error.svg"
    status, out, _ = run(capsys, *YES_NO, "--plot", str(file))
    assert status == 0
    assert f"error against epsilon: {file}" in out
    text = file.read_text()
    assert "<svg" in text
    assert "binary_rr, shuffled: epsilon is central" in text
    assert "best without shuffling: epsilon is local" in text
    status, _, err = run(capsys, *YES_NO, "--plot", str(tmp_path / "error.png"))
    assert (status, "give a name that ends in .svg" in err) == (2, True)


def test_the_curve_falls_and_lies_below_the_local_one() -> None:
    """Planted: the central search given the local epsilon -> this fails."""
    made = plan(Request(Frequencies(YesNo()), 2_000, 1e-6, epsilon=0.5, mechanisms=("binary_rr",)))
    points = curve(made)
    assert [point.epsilon for point in points] == sorted(point.epsilon for point in points)
    assert points[6].epsilon == pytest.approx(0.5)
    assert made.choice.errors is not None
    assert points[6].shuffled == pytest.approx(made.choice.errors.ranked, rel=5e-3)
    errors = [point.shuffled for point in points]
    assert errors == sorted(errors, reverse=True)
    assert all(point.shuffled < point.local for point in points)
    assert points[6].shuffled < points[6].local / 5
