"""``shoal plan`` with several messages per device: what it prints, recommends and simulates."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from shoal.analyzer.planner import Frequencies, Request, plan
from shoal.analyzer.planner.curve import curve, curve_of_several
from shoal.analyzer.planner.frontier.several import several_options
from shoal.cli.main import main
from shoal.domain import YesNo

Capture = pytest.CaptureFixture[str]


def run(capsys: Capture, *arguments: str) -> tuple[int, str, str]:
    status = main(["plan", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def test_several_messages_are_shown_beside_the_plan(capsys: Capture) -> None:
    """For people and for programs; a plan without the option says nothing of them."""
    asked = ("yes_no", "--n", "5000", "--epsilon", "1", "--mechanism", "binary_rr")
    status, out, _ = run(capsys, *asked, "--several-messages")
    assert status == 0
    told = " ".join(out.split())
    assert "Recommended: signed_count" in told
    assert "agree to that task by name" in told
    assert "target_epsilon = 1, and under [mechanism]" in told
    status, out, _ = run(capsys, *asked, "--several-messages", "--json")
    said = json.loads(out)
    first = said["several_messages"]["options"][0]
    assert (first["mechanism"], first["epsilon0"]) == ("signed_count", None)
    assert said["recommended"] == said["frontier"][0]
    assert said["recommended"]["title"] == "signed_count"
    assert "binary_rr" in [line["title"] for line in said["frontier"]]
    assert said["choice"]["mechanism"] == "binary_rr"
    _, out, _ = run(capsys, *asked, "--json")
    assert not {"several_messages", "frontier", "recommended"} & set(json.loads(out))
    status, out, _ = run(capsys, *asked, "--several-messages", "--epsilon0-if-colluding", "5")
    assert status == 0
    assert "poor trade" in " ".join(out.split())
    assert "and epsilon0_if_colluding = 5" in " ".join(out.split())
    status, _, err = run(capsys, *asked, "--epsilon0-if-colluding", "5")
    assert status == 2
    assert "goes with --several-messages" in err


def test_quantiles_and_ranges_are_one_release(capsys: Capture, tmp_path: Path) -> None:
    """The table, the sentence about ranges, and the task, whose noise is that of the plan. Planted:
    the sentence for every mechanism -> fails; the levels of the other choice in the file -> fails.
    """
    asked = ["quantiles", "--high", "96", "--n", "20000", "--epsilon", "1", "--several-messages"]
    asked += ["--mechanism", "kmean", "--delta", "1e-6"]
    status, out, _ = run(capsys, *asked, "--emit", str(tmp_path / "new.toml"))
    assert status == 0
    told = " ".join(out.split())
    assert "Recommended: ranges, 63 levels, which errs least within the limits" in told
    assert "ranges, 63 levels: one release answers quantiles and any range; how many" in told
    assert told.count("any range") == 1
    status, out, _ = run(capsys, *asked, "--json")
    (option,) = json.loads(out)["several_messages"]["options"]
    assert option["mechanism"] == "ranges"
    assert option["moved_by_one"] is None
    assert 10.0 < option["range_error"] < 20.0
    written = tomllib.loads((tmp_path / "new.toml").read_text())
    assert written["domain"]["levels"] == 63
    assert written["mechanism"]["name"] == "ranges"


def test_the_least_epsilon_for_an_error_is_told_of_several_messages(capsys: Capture) -> None:
    """What a task file would say is a number that the noise was designed for, not one below.

    Planted: the number cut to four places, as for an --epsilon -> not the option's, fails.
    """
    asked = ("yes_no", "--n", "500", "--error", "1", "--delta", "1e-4", "--mechanism", "binary_rr")
    status, out, _ = run(capsys, *asked, "--several-messages")
    assert status == 0
    told = " ".join(out.split())
    assert "Recommended: signed_count, which reaches that error with the least epsilon" in told
    assert "times the epsilon of binary_rr)" in told
    assert "dummies, not possible: its error stays above 1 at every" in told
    status, out, _ = run(capsys, *asked, "--several-messages", "--json")
    said = json.loads(out)
    lines = said["frontier"]
    assert said["target_epsilon"] is None
    assert said["recommended"]["title"] == "signed_count"
    assert [line["epsilon_upper"] for line in lines] == sorted(
        line["epsilon_upper"] for line in lines
    )
    assert all(line["error"] <= 1.0 for line in lines)
    least = said["recommended"]["epsilon_upper"]
    assert f"target_epsilon = {least:.4g}, and under" in told
    small = ("mean", "--high", "24", "--n", "20000", "--error", "0.05", "--levels", "101")
    status, out, _ = run(capsys, *small, "--mechanism", "kmean", "--several-messages", "--json")
    least = json.loads(out)["recommended"]["epsilon_upper"]
    assert f"{least:.4f}" != f"{least:.6f}".rstrip("0")
    status, out, _ = run(capsys, *small, "--mechanism", "kmean", "--several-messages")
    said_epsilon = float(" ".join(out.split()).split("target_epsilon = ")[1].split(",")[0])
    assert least <= said_epsilon <= least * 1.001


def test_what_is_recommended_is_simulated_beside_the_single_message(capsys: Capture) -> None:
    """By name, each with its own prediction; neither where too many messages would be drawn.

    Planted: the plan's choice simulated twice -> fails.
    """
    asked = (
        *("yes_no", "--n", "200", "--epsilon", "4", "--delta", "1e-4", "--several-messages"),
        *("--mechanism", "binary_rr", "--simulate", "40", "--seed", "1", "--processes", "1"),
    )
    status, out, _ = run(capsys, *asked)
    assert status == 0
    told = " ".join(out.split())
    assert "Simulated signed_count: 40 batches of 200 devices: predicted 0.3" in told
    assert "Simulated binary_rr: 40 batches of 200 devices: predicted 1." in told
    assert "Simulated: " not in told
    status, out, _ = run(capsys, *asked, "--json")
    said = json.loads(out)
    best, single = said["simulation_recommended"], said["simulation"]
    assert best["predicted"] == said["recommended"]["error"]
    assert single["predicted"] == pytest.approx(said["choice"]["error"], rel=0.01)
    assert best["observed"] != single["observed"]
    status, out, _ = run(capsys, *asked, "--max-messages", "1")
    assert status == 0
    assert "Simulated: 40 batches" in " ".join(out.split())
    status, out, err = run(capsys, *asked, "--n", "4000000")
    assert (status, out) == (2, "")
    assert "--simulate 12 works, or fewer devices" in err


def test_several_messages_are_not_simulated_elsewhere(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers elsewhere know single messages. Planted: no refusal -> the worker's, late, fails."""
    monkeypatch.setattr("shoal.cli.plan.simulating._cluster", lambda _: None)
    asked = ("yes_no", "--n", "200", "--epsilon", "4", "--delta", "1e-4", "--several-messages")
    status, _, err = run(capsys, *asked, "--simulate", "9", "--engine", str(tmp_path / "a.toml"))
    assert status == 2
    assert "--engine simulates one message per device" in err


def test_a_plan_of_one_message_says_in_a_sentence_what_several_would_do(capsys: Capture) -> None:
    """What it would ask of owners is in it. Not of those who won't be asked: a limit on epsilon0
    allows no such task; nor where mechanisms were named.

    Planted: the sentence without the limits -> fails; the choice itself of several messages ->
    fails.
    """
    asked = ("yes_no", "--n", "5000", "--epsilon", "1")
    _, out, _ = run(capsys, *asked)
    told = " ".join(out.split())
    assert "With several messages per device (signed_count) the error would be 1.56 devices" in told
    assert "agree by name" in told
    assert "Recommended" not in told
    for limit in (("--max-epsilon0", "4"), ("--mechanism", "binary_rr"), ("--max-messages", "1")):
        _, out, _ = run(capsys, *asked, *limit)
        assert "several messages" not in " ".join(out.split()), limit
    _, out, _ = run(capsys, *asked, "--json")
    said = json.loads(out)
    assert said["several_messages_would"]["mechanism"] == "signed_count"
    assert said["choice"]["epsilon0"] is not None


def test_the_picture_has_what_is_recommended_too(tmp_path: Path, capsys: Capture) -> None:
    """Its line falls with epsilon, below that of one message, and the mark is on it; without the
    option one message alone is drawn. A small epsilon that its design refuses is left out.

    Planted: the plan's choice drawn for it -> fails; the error at one epsilon for all -> fails; the
    mark of the single message -> fails.
    """
    asked = ("yes_no", "--n", "500", "--epsilon", "1", "--delta", "1e-4", "--several-messages")
    path = tmp_path / "a.svg"
    status, _, _ = run(capsys, *asked, "--mechanism", "binary_rr", "--plot", str(path))
    assert status == 0
    text = path.read_text()
    assert "signed_count, several messages, shuffled" in text
    assert "planned: 1.56 at epsilon 1" in text
    upper, lower = (
        re.findall(rf'<polyline class="line {style}" points="([^"]*)"', text)
        for style in ("upper", "lower")
    )
    assert len(upper) == len(lower) == 1
    assert float(lower[0].split(",")[-1]) > float(upper[0].split(",")[-1])  # downward
    status, _, _ = run(
        capsys, *asked[:-1], "--mechanism", "binary_rr", "--plot", str(tmp_path / "b.svg")
    )
    assert "several messages" not in (tmp_path / "b.svg").read_text()
    request = Request(Frequencies(YesNo()), 500, 1e-4, epsilon=1.0, mechanisms=("binary_rr",))
    (best, *_), _ = several_options(request)
    made = plan(request)
    points = curve(made)
    line = dict(curve_of_several(made, best, points))
    assert line[1.0] == best.error
    assert len(line) < len(points)  # those that are refused
    errors = list(line.values())
    assert errors == sorted(set(errors), reverse=True)
    assert all(error < point.shuffled for point in points if (error := line.get(point.epsilon)))
