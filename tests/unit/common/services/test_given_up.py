"""The lines of windows that operators gave up: whole or not there, each once, none taken back."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from shoal import failpoints
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.services.given_up import (
    FILE_NAME,
    HEAD_NAME,
    GivenUp,
    GivenUpWindows,
    add,
    check_reason,
    read,
    whoever_asks,
)
from tests.cases import for_each

TASK = TaskId(bytes(range(32)))
LINE = GivenUp(TASK.hex, 3, 1_800_000_000, "alice", "its key is lost", "sealed", 20)
_CHILD = """
import sys
from pathlib import Path
from tests.unit.common.services.test_given_up import LINE, add
add(Path(sys.argv[1]), LINE)
"""


def test_a_window_is_given_up_once_and_the_first_word_stands(tmp_path: Path) -> None:
    """Planted: no look at the lines that are there -> two lines, fails."""
    assert add(tmp_path, LINE) is None
    assert add(tmp_path, replace(LINE, window=4, reports=None)) is None
    before = (tmp_path / FILE_NAME).read_bytes()
    assert add(tmp_path, replace(LINE, by="bob", reason="another")) == LINE
    assert (tmp_path / FILE_NAME).read_bytes() == before
    assert [line.window for line in read(tmp_path)] == [3, 4]
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600


def changed(data: bytes, how: str) -> bytes:
    lines = data.splitlines(keepends=True)
    return {
        "another reason": data.replace(b"its key is lost", b"its key is gone", 1),
        "the first line cut": b"".join(lines[1:]),
        "two lines in another order": lines[1] + lines[0] + lines[2],
        "half a line": data[:-20],
        "no UTF-8": data + b"\xff\xfe\n",
        "a line of another form": data + b"0" * 64 + b' {"window": 5}\n',
        "a window below 0": data.replace(b'"window": 5', b'"window":-5'),
        "deep": data + b"0" * 65 + b"[" * 100_000 + b"\n",
    }[how]


@for_each(
    "how, sound",
    [
        ("another reason", 0),
        ("the first line cut", 0),
        ("two lines in another order", 0),
        ("half a line", 2),
        ("no UTF-8", 3),
        ("a line of another form", 3),
        ("a window below 0", 2),
        ("deep", 3),
    ],
)
def test_what_was_changed_is_found_and_the_lines_before_it_hold(
    tmp_path: Path, how: str, sound: int
) -> None:
    """Planted: no hash of the line before in a line's -> a cut or another order is not seen,
    fails.
    """
    folder = tmp_path / how.replace(" ", "-")
    folder.mkdir()
    for window in (3, 4, 5):
        add(folder, replace(LINE, window=window))
    path = folder / FILE_NAME
    path.write_bytes(changed(path.read_bytes(), how))
    with pytest.raises(ShoalError) as error:
        read(folder)
    assert error.value.kind is Kind.CONFIG
    with pytest.raises(ShoalError, match=f"from line {sound + 1} on"):
        add(folder, replace(LINE, window=6))
    known = GivenUpWindows(folder)
    assert len(known) == sound
    (condition,) = known.conditions()
    assert (condition.code, condition.stops) == ("damage", False)
    assert str(TASK.hex) not in condition.message


def test_a_service_sees_a_new_line_and_forgets_none(tmp_path: Path) -> None:
    """Planted: what was known is replaced by what the file says -> a line that the disk lost is
    forgotten, fails.
    """
    known = GivenUpWindows(tmp_path)
    assert (known.look(), list(known)) == (False, [])
    add(tmp_path, LINE)
    assert (known.look(), known.look()) == (True, False)
    assert (TASK, 3) in known
    assert known.of(TASK) == [LINE]
    assert known.of(TaskId(bytes(32))) == []
    (tmp_path / FILE_NAME).unlink()
    assert (known.look(), list(known)) == (False, [(TASK, 3)])


def test_what_is_heard_holds_and_is_no_line_of_this_file(tmp_path: Path) -> None:
    """Planted: kept among the lines -> told as one that is gone, fails."""
    windows = GivenUpWindows(tmp_path)
    add(tmp_path, LINE)
    windows.look()
    windows.hear([replace(LINE, window=5), replace(LINE, by="bob")])
    windows.look()
    assert [(line.window, line.by) for line in windows.of(TASK)] == [(3, "alice"), (5, "alice")]
    assert windows.own() == (LINE,)
    assert ((TASK, 5) in windows, len(windows), sorted(w for _, w in windows)) == (True, 2, [3, 5])
    assert list(windows.conditions()) == []


def test_only_what_was_written_is_read_where_no_hash_proves_it() -> None:
    """Planted: any text taken for a reason -> an escape in a terminal, fails."""
    text = LINE.to_text()
    assert GivenUp.parse(text) == LINE
    for wrong in (
        text.replace("its key is lost", "\\u001b[2J"),
        text.replace("its key is lost", "x" * 201),
        text.replace('"window": 3', '"window": -3'),
        text.replace('"window": 3', '"window": true'),
        text.replace('"at": 1800000000', '"at": "soon"'),
        text.replace('"by": "alice"', '"by": 7'),
        text.replace(LINE.task_id, "00"),
        f"{text} ",
        "[]",
        "",
    ):
        assert GivenUp.parse(wrong) is None, wrong


@for_each("left", [0, 1])
def test_lines_that_are_gone_are_told(tmp_path: Path, left: int) -> None:
    """Cut at the end of a line, or the whole file. Planted: the chain alone asked -> fails."""
    folder = tmp_path / str(left)
    folder.mkdir()
    for window in (3, 4):
        add(folder, replace(LINE, window=window))
    known, path = GivenUpWindows(folder), folder / FILE_NAME
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:left]))
    if not left:
        path.unlink()
    known.look()
    (condition,) = known.conditions()
    assert (condition.code, condition.stops, len(known)) == ("damage", False, 2)
    path.write_bytes(b"".join(lines))
    known.look()
    assert list(known.conditions()) == []


@for_each("left", [0, 1])
def test_lines_that_were_cut_before_a_start_are_told(tmp_path: Path, left: int) -> None:
    """At the end of a line, where the chain holds. Planted: no number of lines written down, or not
    looked at -> fails. Planted: it is not caught up after a kill between line and number -> the
    last line can be cut unseen, fails.
    """
    folder = tmp_path / str(left)
    folder.mkdir()
    add(folder, replace(LINE, window=3))
    behind = (folder / HEAD_NAME).read_bytes()
    add(folder, replace(LINE, window=4))
    (folder / HEAD_NAME).write_bytes(behind)  # killed here
    assert list(GivenUpWindows(folder).conditions()) == []
    path = folder / FILE_NAME
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:left]))
    known = GivenUpWindows(folder)
    (condition,) = known.conditions()
    assert (condition.code, condition.stops, len(known)) == ("damage", False, left)
    with pytest.raises(ShoalError, match=f"it has {left} lines, and 2 were written"):
        add(folder, replace(LINE, window=5))
    (folder / HEAD_NAME).unlink()  # as the line says
    known.look()
    assert list(known.conditions()) == []
    add(folder, replace(LINE, window=5))
    assert len(read(folder)) == left + 1


@for_each(
    "euid, uid, user, said",
    [
        (0, "1", "daemon", "root (sudo by daemon)"),
        (0, "1", "bin", "root"),
        (0, "", "daemon", "root"),
        (1, "0", "root", "daemon"),
    ],
)
def test_sudo_is_believed_of_root_alone(
    monkeypatch: pytest.MonkeyPatch, euid: int, uid: str, user: str, said: str
) -> None:
    """Planted: SUDO_USER alone asked -> anybody names another, fails."""
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    monkeypatch.setenv("SUDO_UID", uid)
    monkeypatch.setenv("SUDO_USER", user)
    assert whoever_asks() == said


@pytest.mark.parametrize("point", ["given_up.rename", "given_up.renamed"])
@pytest.mark.parametrize("failure", ["eio", "exit"])
def test_a_line_is_there_whole_or_not_at_all(tmp_path: Path, point: str, failure: str) -> None:
    """Killed, or a failing disk, at each step. Planted: written in place -> half a file, fails."""
    add(tmp_path, replace(LINE, window=1))
    if failure == "exit":
        environment = {**os.environ, "SHOAL_FAILPOINTS": f"{point}=exit@1"}
        ended = subprocess.run(
            [sys.executable, "-c", _CHILD, str(tmp_path)], env=environment, check=False
        )
        assert ended.returncode < 0
    else:
        failpoints.arm(f"{point}=eio@1")
        try:
            with pytest.raises(ShoalError, match="cannot write"):
                add(tmp_path, LINE)
        finally:
            failpoints.arm("")
    there = [line.window for line in read(tmp_path)]
    assert there == ([1] if point == "given_up.rename" else [1, 3])
    add(tmp_path, LINE)
    assert [line.window for line in read(tmp_path)] == [1, 3]


def test_where_no_service_ran_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(ShoalError) as error:
        add(tmp_path / "missing", LINE)
    assert error.value.kind is Kind.NOT_FOUND
    assert not list(tmp_path.iterdir())


@for_each("text", ["", "  ", "a\nb", "a" * 201, "\x1b[31mred", "a\u2028b"])
def test_a_reason_is_one_line_of_text(text: str) -> None:
    with pytest.raises(ShoalError, match="--reason"):
        check_reason(text)
