"""``shoal demo --near-central``: counts by several messages and by a single one, real services."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.cli.main import main
from tests.sizes import size

Capture = pytest.CaptureFixture[str]


@pytest.mark.timeout(size(240, 1_200))
def test_counts_by_several_messages_err_less_than_half_as_much(
    tmp_path: Path, capsys: Capture
) -> None:
    """At one central epsilon, in releases that say so, and in a table. Every count lies within 9 of
    its standard errors: a false alarm in 1e-5 of runs. Planted: the single message with the
    epsilon0 of the usual demo -> another epsilon, fails.
    """
    devices, out = size(2_000, 20_190), tmp_path / "out"
    arguments = ["--near-central", "--devices", f"{devices}", "--out", f"{out}"]
    assert main(["demo", *arguments, "--json", f"{tmp_path / 'results.json'}"]) == 0
    results = json.loads((tmp_path / "results.json").read_text())
    assert [one["release"]["n"] for one in results["tasks"]] == [devices] * 4
    for one in results["tasks"]:
        privacy = one["release"]["privacy"]
        assert 0.98 < privacy["epsilon_lower"] <= privacy["epsilon_upper"] <= 1.0
        assert (privacy["epsilon0"] is None) == one["name"].endswith("several")
        for estimate in one["release"]["estimates"]:
            truth = one["truth"][estimate["label"]]
            assert abs(estimate["value"] - truth) < 9 * estimate["stderr"]
    for question in results["near_central"]:
        errors = question["stderr"]
        assert errors["curator"] < errors["several"] < errors["single"] / 2
    said = capsys.readouterr().out
    assert "curator" in said
    assert f"{devices:,} devices" in said
    assert (
        "If shuffler and analyzer worked together, they would see"
        in (out / "report.html").read_text()
    )


@pytest.mark.parametrize("other", [("--secagg",), ("--mechanism", "krr"), ("--devices", "50")])
def test_what_does_not_go_with_it_is_one_line(
    other: tuple[str, ...], tmp_path: Path, capsys: Capture
) -> None:
    """Options of other demos, and too few devices for the target: nothing is started."""
    assert main(["demo", "--near-central", "--out", f"{tmp_path / 'out'}", *other]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()
