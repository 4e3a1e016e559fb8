"""``release.rectangle`` and ``shoal results rectangle`` of a discovery of places."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.analyzer.results.maps.parted import PartedCount
from shoal.cli.main import main
from shoal.study.releases import ReleaseTable
from tests.unit.analyzer.results.maps.test_tree import released

RELEASES = released(3)
NAME = RELEASES[0]["name"]


@pytest.mark.parametrize("task", [NAME, f"{NAME}:2"])
def test_all_windows_count_together(task: str) -> None:
    """Whichever is named. Planted: the window alone -> refused, as it has no map of its own."""
    cell = RELEASES[2]["discovered"]["cells"][5]
    bounds = {side: cell[side] for side in ("south", "west", "north", "east")}
    found = ReleaseTable(tuple(RELEASES)).rectangle(task, **bounds)
    assert isinstance(found, PartedCount)
    assert found.value == pytest.approx(RELEASES[2]["estimates"][5]["value"])


def test_the_command_says_what_is_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """For people and for programs. Planted: the words of cut cells left out -> fails."""
    monkeypatch.setattr("shoal.cli.results.command.read_releases", lambda *_: RELEASES)
    monkeypatch.setattr("shoal.cli.results.command.check_damage", lambda *_: None)
    asked = ["results", "rectangle", NAME, "--south", "48.1001", "--data", str(tmp_path)]
    assert main(asked) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "95 % interval from" in out
    assert "nobody knows how many of their devices are inside" in out
    assert main([*asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["cut"] > 0
    assert told["ci_low"] <= told["value"] <= told["ci_high"]
    assert main(["results", "rectangle", NAME, "--south", "10", "--data", str(tmp_path)]) == 2
    assert "is on the map" in capsys.readouterr().err
