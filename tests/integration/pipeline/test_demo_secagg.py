"""``shoal demo --secagg`` as a user runs it: real services, devices killed at every stage, sums
that are exact or a failure.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal.cli.demo.made import Made
from shoal.cli.demo.sums import run
from shoal.cli.demo.sums.devices import _times
from shoal.cli.main import main
from tests.sizes import FULL

DEVICES = 60
PROGRAM = "shoal.cli.main" if FULL else "tests.worlds.rounds.quick"


@pytest.mark.timeout(240)
def test_every_round_is_exact_and_the_release_adds_them_up(tmp_path: Path) -> None:
    """The demo itself fails if a sum is not that of its devices' integers. Here: it looked at all
    of them, and killed as it says. At reduced size its phases are shorter.

    Planted: a device's noise left out of what it masks -> the demo ends with exit status 1, "the
    sum is not that of its devices".
    """
    line = [
        sys.executable,
        "-m",
        PROGRAM,
        "demo",
        "--secagg",
        "--devices",
        str(DEVICES),
        "--json",
        "results.json",
    ]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    results = json.loads((tmp_path / "results.json").read_text())
    (task,) = results["tasks"]
    release, rounds = task["release"], results["rounds"]
    assert rounds
    assert all(one["exact"] for one in rounds)
    assert release["n"] == sum(one["survivors"] for one in rounds)
    assert release["rounds"]["rounds"] == len(rounds)
    killed = {
        outcome: count
        for outcome, count in results["outcomes"].items()
        if outcome.startswith("killed")
    }
    assert set(killed) == {
        "killed after joining",
        "killed after sharing",
        "killed after its masked vector",
        "killed after its shares",
    }
    assert sum(results["outcomes"].values()) == DEVICES
    assert release["withheld"] is None
    assert set(task["truth"]) == {estimate["label"] for estimate in release["estimates"]}
    assert (tmp_path / "shoal-demo" / "report.html").read_text().count("visit-sums") >= 1


def test_too_few_devices_are_refused_before_anything_starts(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "shoal.cli.main", "demo", "--secagg", "--devices", "10"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "50" in done.stderr  # the least that it takes


def test_too_many_devices_are_refused_before_anything_starts(tmp_path: Path) -> None:
    """Planted: no bound -> rounds of more than 1024 devices are asked for, and nothing says which
    number to change.
    """
    line = [sys.executable, "-m", "shoal.cli.main", "demo", "--secagg", "--devices", "8000"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "at most 2,000 devices" in done.stderr
    assert "--devices" in done.stderr


def test_more_devices_have_more_time() -> None:
    """One process does the work of all. Planted: the same seconds for 1000 devices -> every round
    of them is aborted on a small machine.
    """
    assert _times(60) == _times(200) == ((10, 8, 7, 7), 8)
    assert _times(1_000) == ((50, 40, 35, 35), 40)


def test_no_sum_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Planted: exit status 0 whatever came of it -> a script takes a demo without any sum for one
    that worked.
    """
    release = {
        "withheld": "no round of this window ended with a sum",
        "rounds": {"aborted": {"too few vectors came": 2}},
    }

    async def nothing(*_: object) -> Made:
        results: dict[str, Any] = {
            "tasks": [{"release": release}],
            "rounds": [],
            "devices": 60,
            "outcomes": {"too late": 60},
        }
        return Made(results, "", {})

    monkeypatch.setattr(run, "run_secagg", nothing)
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--secagg", "--devices", "60"]) == 1
    shown = capsys.readouterr()
    assert "withheld" in shown.out
    assert "fewer --devices" in shown.err
