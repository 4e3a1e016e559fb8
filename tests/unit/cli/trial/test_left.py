"""What a run leaves in a folder that somebody named: of what lies there, its own alone goes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.cli.demo.left import check_ours, remove_ours, write_private
from shoal.cli.main import main
from shoal.errors import ShoalError
from tests.cases import for_each


@for_each("command", [["trial", "answers.csv", "--column", "rides", "--out"], ["demo", "--out"]])
@for_each("strange", ["tasks/commute.task", "tasks/commute.keys", "releases/kept.release.json"])
def test_a_folder_of_a_deployment_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], strange: str
) -> None:
    """Planted: ``check_ours`` left out of the commands -> other words, or the whole run."""
    file = tmp_path / strange
    file.parent.mkdir()
    file.write_bytes(b"signed")
    assert main([*command, str(tmp_path)]) == 2
    shown = capsys.readouterr()
    assert file.name in shown.err
    assert shown.err.count("\n") == 1
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == [file]


def test_files_of_the_run_before_go_and_no_others(tmp_path: Path) -> None:
    """Planted: all of the folder removed, as before -> the others' file is gone. Planted: a name
    with a slash followed -> the file above is gone. Planted: the authority's key left -> it is
    there.
    """
    release = {"name": "rides", "task_id": "ab" * 32, "window": 0}
    outside = {"name": "../above", "task_id": "ab" * 32, "window": 0}
    ours = [
        tmp_path / "tasks" / "rides.task",
        tmp_path / "releases" / "rides-abababab-0.release.json",
        tmp_path / "authority",
    ]
    (tmp_path / "above.task").write_bytes(b"")
    for file in ours:
        file.parent.mkdir(exist_ok=True)
        write_private(file, b"")
        assert file.stat().st_mode & 0o777 == 0o600
    remove_ours(tmp_path)  # without results nobody knows whose these are
    assert all(file.exists() for file in ours)
    told = {"tasks": [{"release": release}, {"release": outside}]}
    (tmp_path / "results.json").write_text(json.dumps(told))
    check_ours(tmp_path)
    other = tmp_path / "tasks" / "other.task"
    other.write_bytes(b"")
    with pytest.raises(ShoalError, match=r"other[.]task"):
        check_ours(tmp_path)
    remove_ours(tmp_path)
    assert [file.exists() for file in ours] == [False, False, False]
    assert other.exists()
    assert (tmp_path / "above.task").exists()
