"""``shoal demo --secagg`` as a user runs it: real services, devices killed at every stage, sums that are exact or a failure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

DEVICES = 60


@pytest.mark.timeout(240)
def test_every_round_is_exact_and_the_release_adds_them_up(tmp_path: Path) -> None:
    """The demo itself fails if a sum is not that of its devices' integers. Here: it looked at all of them, and killed as it says.

    Planted: a device's noise left out of what it masks -> the demo ends with exit status 1, "the sum is not that of its devices".
    """
    command = [sys.executable, "-m", "shoal.cli.main", "demo", "--secagg", "--devices", str(DEVICES), "--json", "results.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    results = json.loads((tmp_path / "results.json").read_text())
    (task,) = results["tasks"]
    release, rounds = task["release"], results["rounds"]
    assert rounds
    assert all(one["exact"] for one in rounds)
    assert release["n"] == sum(one["survivors"] for one in rounds)
    assert release["rounds"]["rounds"] == len(rounds)
    killed = {outcome: count for outcome, count in results["outcomes"].items() if outcome.startswith("killed")}
    assert set(killed) == {"killed after joining", "killed after sharing", "killed after its masked vector", "killed after its shares"}
    assert sum(results["outcomes"].values()) == DEVICES
    assert release["withheld"] is None
    assert set(task["truth"]) == {estimate["label"] for estimate in release["estimates"]}
    assert (tmp_path / "shoal-demo" / "report.html").read_text().count("visit-sums") >= 1


def test_too_few_devices_are_refused_before_anything_starts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "shoal.cli.main", "demo", "--secagg", "--devices", "10"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "50" in done.stderr  # the least that it takes
