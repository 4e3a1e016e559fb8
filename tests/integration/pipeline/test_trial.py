"""``shoal trial`` with real services: the estimates of one's own data beside their truth, and
nothing left behind.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.analyzer.results.release_files import read_release_files
from shoal.cli.main import main
from shoal.cli.trial import planning
from shoal.crypto.trust import TASK_SUFFIX
from tests.worlds.small_disk import small_disk

Capture = pytest.CaptureFixture[str]
ROWS = 300
COMMAND = [sys.executable, "-m", "shoal.cli.main", "trial"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    file = tmp_path / "answers.csv"
    lines = [
        f"{'yes' if row % 3 else 'no'},{'' if row % 5 == 0 else row % 4}" for row in range(ROWS)
    ]
    file.write_text("\n".join(["Fährt Rad?,kids", *lines]) + "\n")
    return file


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made: a trial's keys among them."""
    room = tmp_path / "tmp"
    room.mkdir()
    monkeypatch.setenv("TMPDIR", str(room))
    monkeypatch.setattr("tempfile.tempdir", None)
    return room


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose among two mechanisms: the comparison of all of them is the planner's own test."""
    monkeypatch.setattr(planning, "_fit", lambda _: ("binary_rr", "krr"))


@pytest.mark.timeout(240)
def test_the_truth_beside_the_estimates(
    table: Path, room: Path, few: None, capsys: Capture
) -> None:
    """An estimate is six standard errors off once in 10^8 runs. Planted: the values of one column
    for the other; empty cells left out -> 240 reports; the work folder kept -> fails.
    """
    out = room.parent / "out"
    columns = ("--column", "Fährt Rad?", "--column", "kids", "--epsilon", "4")
    assert main(["trial", str(table), *columns, "--out", str(out), "--json"]) == 0
    shown = capsys.readouterr()
    results = json.loads(shown.out)
    assert "whole numbers from 0 to 3, each counted; 60 empty" in shown.err
    cycling, kids = results["tasks"]
    assert cycling["truth"] == {"no": 100.0, "yes": 200.0}
    assert kids["truth"] == dict.fromkeys("0123", 60.0) | {"no answer": 60.0}
    for task in (cycling, kids):
        assert task["release"]["n"] == ROWS
        for estimate in task["release"]["estimates"]:
            off = abs(estimate["value"] - task["truth"][estimate["label"]])
            assert off <= 6 * estimate["stderr"], estimate
    assert results["composed"]["tasks"] == 2
    assert 3.5 < results["composed"]["epsilon_upper"] <= 4.0
    assert results["composed"]["delta"] == pytest.approx(1e-8)
    assert list(room.iterdir()) == []
    assert json.loads((out / "results.json").read_text()) == results
    assert len(read_release_files(out / "results.json").releases) == 2
    files = sorted((out / "releases").glob("*.release.json"))
    assert [json.loads(file.read_text())["release"]["name"] for file in files] == [
        "faehrt-rad",
        "kids",
    ]
    assert (out / "tasks" / f"kids{TASK_SUFFIX}").is_file()
    assert "keys.analyzer" in _refused(capsys, "task", "lint", str(out / "kids.toml"))


def _refused(capsys: Capture, *arguments: str) -> str:
    assert main(list(arguments)) == 2
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1
    return shown.err


@pytest.mark.timeout(120)
def test_ctrl_c_leaves_nothing(table: Path, room: Path) -> None:
    """Planted: the services' own session without a stop -> they go on; the folder kept -> fails."""
    trial = subprocess.Popen(
        [*COMMAND, str(table), "--column", "kids", "--devices", "100000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with trial:
        assert trial.stdout is not None
        seen = iter(trial.stdout.readline, "")
        next(line for line in seen if "behind relays" in line)
        pids = _service_pids(room)
        trial.send_signal(signal.SIGINT)
        rest = trial.stdout.read()
    assert trial.returncode == 130, rest
    assert "interrupted" in rest
    assert list(room.iterdir()) == []
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def _service_pids(room: Path) -> list[str]:
    """Of the services, as soon as both are started."""
    while True:
        pids = [file.read_text().strip() for file in room.glob("*/*/*.pid")]
        if len(pids) == 2 and all(pids):
            return pids


def test_nothing_is_started_for_what_is_refused(table: Path, room: Path, capsys: Capture) -> None:
    """Planted: the column read after the services' start -> a folder is made."""
    for arguments in (
        (),
        ("--column", "cars"),
        ("--column", "kids", "--column", "kids"),
        ("--column", "kids", "--epsilon", "nan"),
        ("--column", "kids", "--delta", "1"),
        ("--column", "kids", "--devices", "2", "--epsilon", "0.1"),
        ("--column", "kids", "--out", str(table)),
        ("--column", "kids", "--open"),
    ):
        assert main(["trial", str(table), *arguments]) == 2, arguments
        assert capsys.readouterr().err.count("\n") == 1
    assert list(room.iterdir()) == []


@pytest.mark.timeout(120)
def test_a_full_disk_is_one_line(
    table: Path,
    tmp_path: Path,
    few: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    """As of the demo. Planted: the folder for keys made elsewhere -> it runs."""
    with small_disk(tmp_path / "disk") as disk:
        monkeypatch.setattr("tempfile.tempdir", str(disk.folder))
        disk.fill()
        assert main(["trial", str(table), "--column", "kids", "--epsilon", "4"]) == 2
    shown = capsys.readouterr()
    assert "make room there" in shown.err
    assert shown.err.count("\n") == 1
