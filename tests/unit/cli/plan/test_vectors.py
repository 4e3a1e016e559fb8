"""``shoal plan vectors``: figures, limits, and a file that lint certifies at the plan's figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shoal.accounting.of_task import guarantee_of
from shoal.accounting.sums.windows import epsilon_of_task
from shoal.analyzer.planner.vectors.learning import HIDDEN
from shoal.cli.main import main
from shoal.cli.task.file import read_task
from shoal.questions.learning import ClipRule
from shoal.questions.models import Logistic, Model
from shoal.questions.network import Network
from shoal.questions.plan_words import plan_of
from shoal.task import Admission, Aggregator
from tests.cases import for_each

Capture = pytest.CaptureFixture[str]
PLAN = ("plan", "vectors", "--labels", "x, y", "--clip", "2.5", "--unit", "km", "--n", "600")
SET = ("--epsilon", "1", "--delta", "1e-6", "--honest-fraction", "0.9")


def run(capsys: Capture, *arguments: str, status: int = 0) -> str:
    assert main(list(arguments)) == status
    out, err = capsys.readouterr()
    return out if not status else err


def filled(path: Path) -> Path:
    """The file with the enrolment's key, which no option of a plan has."""
    text = path.read_text()
    path.write_text(text.replace('enrolment = ""', f'enrolment = "{"07" * 32}"'))
    return path


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> tuple[str, ...]:
    monkeypatch.chdir(tmp_path)
    run(capsys, "keys", "ca", "--out", "tls")
    # fmt: off
    return (
        "--question", "How far did you go?", "--length", "6h", "--shuffler", "localhost:7443",
        "--ca", "tls/ca.pem", "--authority", "01" * 32, "--shuffler-key", "02" * 32,
        "--analyzer-key", "03" * 32,
    )
    # fmt: on


@for_each(
    "way, windows",
    [("privunit", "1"), ("privunit", "3"), ("default", "1"), ("default", "12"), ("helper", "3")],
)
def test_lint_certifies_what_was_planned(
    told: tuple[str, ...], capsys: Capture, way: str, windows: str
) -> None:
    """Integers, noise and epsilons of the file are the plan's, and all windows keep the target."""
    options = (*PLAN, *SET, "--mechanism", way, "--windows", windows, "--drop-out", "0.1")
    emitted = f"{way}-{windows}.toml"
    plan = json.loads(run(capsys, *options, "--emit", emitted, *told, "--json"))
    choice: dict[str, Any] = plan["choice"]
    task = read_task(filled(Path(emitted)))
    assert (task.name, task.windows.count) == ("how-far-did-you-go", int(windows))
    assert task.domain.labels == ("x", "y")
    assert task.mechanism.name == choice["noise_or_mechanism"]
    assert dict(task.mechanism.parameters) == choice["parameters"]
    assert guarantee_of(task).epsilon_upper == choice["epsilon"] <= task.target_epsilon
    assert choice["epsilon_of_all_windows"] <= 1.0
    assert task.report_size == choice["report_bytes"]
    if way == "privunit":
        assert (task.aggregator, task.min_batch) == (Aggregator.SHUFFLED, 600)
    else:
        assert task.pairwise is not None
        assert (task.admission, task.pairwise.cohort_max) == (Admission.ENROLLED, 600)
        assert epsilon_of_task(task, int(windows), 1e-6) <= 1.0
    assert "guaranteed" in run(capsys, "task", "lint", emitted)


def test_a_model_is_planned(told: tuple[str, ...], capsys: Capture) -> None:
    """The task's question ends with the plan, which ``shoal results model`` reads again; epsilons
    grow from that of one round to the target. Planted: the gradient's clip as the vector's -> the
    task is not asked by its plan, fails.
    """
    learnt = ("--labels", "x, y", "--clip", "0.5", "--n", "600", "--learn", "8", "--windows", "4")
    options = (*PLAN[:2], *learnt, *SET)
    plan = json.loads(run(capsys, *options, "--emit", "m.toml", *told, "--json"))
    task = read_task(filled(Path("m.toml")))
    assert task.question == f"How far did you go? {plan['learning']}"
    found = plan_of(task)
    assert (found.rounds, found.step, found.clip) == (4, 8.0, 0.5)
    assert task.domain.labels == ("x", "y", "intercept")
    epsilons = plan["epsilon_by_round"]
    assert epsilons == sorted(epsilons)
    assert len(epsilons) == 4
    assert 0.98 < epsilons[-1] <= 1.0
    assert epsilon_of_task(task, 4, 1e-6) <= epsilons[-1]
    for more, said in (((), "--question"), (("--not-enrolled",), "--learn")):
        emit = ("--emit", "n.toml") if not more else ()
        assert said in run(capsys, *options, *more, *emit, status=2)


@for_each(
    "options, model, rule, names",
    [
        (("--adaptive",), Logistic(2), ClipRule(), 4),
        (("--model", "network"), Network(2, HIDDEN, 1), None, 65),
        (
            ("--model", "network", "--hidden", "3", "--adaptive"),
            Network(2, 3, 1),
            ClipRule(),
            14,
        ),
    ],
)
def test_a_clip_that_follows_and_a_network_are_planned(
    told: tuple[str, ...],
    capsys: Capture,
    options: tuple[str, ...],
    model: Model,
    rule: ClipRule | None,
    names: int,
) -> None:
    """As devices and analyzers read them again, the noise for the bound with the clip's own number;
    the release of a round comes early in the next window. Planted: the rule left out -> its word
    is missing, fails; the template's grace of a day -> lint refuses windows of 6 hours, fails.
    """
    asked = ("plan", "vectors", "--labels", "x,y", "--clip", "0.5", "--n", "600", "--learn", "8",
             "--windows", "4", *SET, *options)  # fmt: skip
    plan = json.loads(run(capsys, *asked, "--emit", f"{names}.toml", *told, "--json"))
    task = read_task(filled(Path(f"{names}.toml")))
    found = plan_of(task)
    assert (found.model, found.rule, found.clip, found.rounds) == (model, rule, 0.5, 4)
    assert len(task.domain.labels) == len(set(task.domain.labels)) == names == plan["dimension"]
    assert epsilon_of_task(task, 4, 1e-6) <= plan["epsilon_by_round"][-1] <= 1.0
    assert 4 * task.windows.grace_s <= task.windows.length_s
    run(capsys, "task", "lint", f"{names}.toml")
    shown = run(capsys, *asked)
    assert ("pip install 'shoal[network]'" in shown) == isinstance(model, Network)
    assert ("% larger" in shown) == (rule is not None)


@for_each("dimension, possible", [(str(1 << 20), True), (str((1 << 20) + 1), False)])
def test_helper_mode_has_no_segments(capsys: Capture, dimension: str, possible: bool) -> None:
    """A way that lint would refuse is not planned. Planted: planned all the same -> fails."""
    asked = ("plan", "vectors", "--dimension", dimension, "--n", "9000", *SET)
    alone = (*asked, "--mechanism", "helper")
    if possible:
        run(capsys, *alone)
    else:
        assert "go in segments" in run(capsys, *alone, status=2)
        assert "sum, default" in run(capsys, *asked).splitlines()[-1]


@for_each(
    "options, said",
    [
        (("--mechanism", "privunit"), "--mechanism"),
        (("--not-enrolled",), "--not-enrolled"),
        (("--hidden", "3"), "--hidden"),
        (("--model", "network", "--hidden", "0"), "--hidden"),
        (("--model", "network", "--hidden", "2000"), "--hidden"),
        (("--norm", "l1"), "--norm"),
        (("--clip", "1e50"), "--clip"),
        (("--learn", "0"), "--learn"),
        (("--learn", "nan"), "--learn"),
    ],
)
def test_what_does_not_go_with_a_model(
    capsys: Capture, options: tuple[str, ...], said: str
) -> None:
    """Each by its name, and none that was not given. Planted: one line for all -> --mechanism is
    not named, fails.
    """
    learnt = ("plan", "vectors", "--dimension", "2", "--n", "600", "--learn", "8", *SET)
    (line,) = run(capsys, *learnt, *options, status=2).splitlines()
    assert said in line
    named = {"--mechanism", "--not-enrolled", "--norm"} & set(line.replace(":", "").split())
    assert named <= {said}


@for_each("option", [("--model", "network"), ("--hidden", "3"), ("--adaptive",)])
def test_what_goes_with_a_model_alone(capsys: Capture, option: tuple[str, ...]) -> None:
    assert "--learn" in run(capsys, *PLAN, *SET, *option, status=2)


def test_the_clip_that_was_given_is_what_people_read(capsys: Capture) -> None:
    """Planted: that of the task alone, which is of gradients divided by it -> fails."""
    learnt = ("plan", "vectors", "--dimension", "2", "--n", "600", "--learn", "8", *SET)
    first = run(capsys, *learnt, "--clip", "0.125").splitlines()[0]
    assert "clip of 0.125" in first


def test_what_people_read(capsys: Capture) -> None:
    """The table has every way, and the last line which is recommended and what it wants."""
    out = run(capsys, *PLAN, *SET)
    assert out.splitlines()[-1].startswith("Recommended: sum, default")
    for title in ("sum, strict", "sum, helper", "privunit K=64"):
        assert title in out
    alone = run(capsys, *PLAN, *SET, "--not-enrolled")
    assert alone.splitlines()[-1].startswith("Recommended: privunit")
    assert "sum, strict, not possible" in alone


def test_a_sum_wants_the_key_of_the_enrolment(told: tuple[str, ...], capsys: Capture) -> None:
    out = run(capsys, *PLAN, *SET, "--mechanism", "strict", "--emit", "t.toml", *told)
    assert "keys.enrolment" in out.splitlines()[-1]
    assert "keys.enrolment" in run(capsys, "task", "lint", "t.toml", status=2)


@for_each("way", ["strict", "privunit"])
def test_the_key_of_the_enrolment_is_taken(
    told: tuple[str, ...], capsys: Capture, way: str
) -> None:
    """Of a file that nobody edits; reports that are shuffled are of enrolled devices then.
    Planted: the key alone, without the admission -> lint refuses it, fails.
    """
    key = ("--enrolment-key", "07" * 32)
    out = run(capsys, *PLAN, *SET, "--mechanism", way, "--emit", f"{way}.toml", *told, *key)
    assert "still to be filled in" not in out
    task = read_task(Path(f"{way}.toml"))
    assert (task.admission, task.enrolment_key) == (Admission.ENROLLED, bytes([7] * 32))
    run(capsys, "task", "lint", f"{way}.toml")


@for_each(
    "options, said",
    [
        (("--error", "5"), "--epsilon"),
        (("--epsilon", "1", "--k", "9"), "--k"),
        (("--epsilon", "1", "--several-messages"), "--several-messages"),
        (("--epsilon", "1", "--dimension", "3"), "--labels"),
        (("--epsilon", "1", "--drop-out", "1"), "--drop-out"),
        (("--epsilon", "1", "--drop-out", "nan"), "--drop-out"),
        (("--epsilon", "1", "--mechanism", "krr"), "privunit"),
        (("--epsilon", "1", "--min-batch", "700"), "--min-batch"),
        (("--epsilon", "1", "--clip", "-1"), "--clip"),
        (("--epsilon", "1", "--labels", "a,a"), "--labels"),
        (("--epsilon", "1", "--n", "1"), "--n"),
        (("--epsilon", "1", "--n", "200000001"), "--n: at most 200,000,000"),
        (("--epsilon", "1", "--n", "1" + "0" * 20), "--n: at most 200,000,000"),
        ((), "--epsilon"),
    ],
)
def test_what_does_not_go_with_vectors(
    capsys: Capture, options: tuple[str, ...], said: str
) -> None:
    (line,) = run(capsys, *PLAN, *options, status=2).splitlines()
    assert said in line


@for_each("option", ["--dimension", "--clip", "--drop-out"])
def test_what_is_of_vectors_alone(capsys: Capture, option: str) -> None:
    """Each is refused where something else is asked, by its name."""
    asked = ("plan", "yes_no", "--n", "2000", "--epsilon", "1", option, "0.5")
    asked = (*asked[:-1], "5") if option == "--dimension" else asked
    assert option in run(capsys, *asked, status=2)
    assert "--dimension" in run(capsys, "plan", "vectors", "--n", "9", "--epsilon", "1", status=2)
