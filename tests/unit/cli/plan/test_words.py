"""``shoal plan words``: the plan of ``shoal discover plan``, and what goes with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shoal.cli.main import main
from tests.cases import for_each

Capture = pytest.CaptureFixture[str]
SMALL = ("--n", "2000", "--epsilon", "8", "--delta", "1e-4", "--longest", "4", "--most", "8")


def ask(capsys: Capture, *arguments: str) -> dict[str, Any]:
    """The JSON of a command that works."""
    assert main([*arguments, "--json"]) == 0
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    return value


def test_it_is_the_plan_of_discover(capsys: Capture, tmp_path: Path) -> None:
    """The same figures, and a task file with the same integers that has the words it was told.
    Planted: no spare windows where nothing is said of them -> other figures, fails.
    """
    own, other = tmp_path / "own.toml", tmp_path / "other.toml"
    told = ("--question", "Which word?", "--length", "12h")
    one = ask(capsys, "plan", "words", *SMALL, "--emit", str(own), *told)
    two = ask(capsys, "discover", "plan", *SMALL, "--spare", "2", "--emit", str(other))
    assert one == two
    assert one["spare_windows"] == 2
    text = own.read_text()
    assert 'name = "which-word"' in text
    assert "length_s = 43200" in text
    assert "grace_s = 10800" in text
    integers = next(line for line in text.splitlines() if line.startswith("parameters"))
    assert integers in other.read_text()
    assert main(["plan", "words", *SMALL]) == 0
    assert f"{one['found_from']} devices that have the word" in capsys.readouterr().out


@for_each(
    "options, said",
    [
        (("--error", "5"), "--found-from"),
        (("--windows", "9"), "--spare"),
        (("--epsilon", "1", "--found-from", "90"), "leave one of them out"),
        (("--epsilon", "1", "--k", "9"), "--k"),
        (("--epsilon", "1", "--several-messages"), "--several-messages"),
        (("--found-from", "1"), "larger count"),
        (("--found-from", "0"), "from 1 to 2,000 devices"),
        (("--found-from", "2001"), "as many as there are"),
        ((), "--found-from"),
    ],
)
def test_what_does_not_go_with_words(capsys: Capture, options: tuple[str, ...], said: str) -> None:
    assert main(["plan", "words", "--n", "2000", *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@for_each("option", ["--longest", "--most", "--spare", "--found-from", "--leave-out"])
def test_what_is_of_words_alone(capsys: Capture, option: str) -> None:
    """Planted: such options are passed over in silence -> fails."""
    assert main(["plan", "yes_no", "--n", "2000", "--epsilon", "1", option, "5"]) == 2
    assert option in capsys.readouterr().err


def test_devices_that_answer_once(capsys: Capture, tmp_path: Path) -> None:
    """The plan of ``discover plan --fresh``, with spare windows, and figures of the whole fleet.
    Planted: the option is not handed on -> other figures; what is found is said of a window ->
    fails.
    """
    fleet = ("--n", "9000", *SMALL[2:], "--fresh")
    path = tmp_path / "words.toml"
    one = ask(capsys, "plan", "words", *fleet, "--emit", str(path))
    assert one == ask(capsys, "discover", "plan", *fleet, "--spare", "2")
    assert "fresh = true" in path.read_text()
    assert one["found_in_all"] > one["windows"] * one["found_from"]
    assert one["followed_in_all"] == one["windows"] * one["threshold"]
    assert main(["plan", "words", *fleet]) == 0
    said = capsys.readouterr().out
    assert f"{one['found_in_all']:,} devices that have the word" in said
    assert f"{one['stderr_in_all']:.1f} devices" in said


def test_what_is_to_be_found_is_of_the_whole_fleet(capsys: Capture) -> None:
    """Planted: the devices of a window -> some 600 devices are found from 100 or so, and cost
    several times as much.
    """
    asked = ("--n", "9000", *SMALL[4:], "--fresh", "--found-from", "600")
    made = ask(capsys, "plan", "words", *asked)
    assert made["found_in_all"] <= 600
    assert made["found_from"] < 600 / made["windows"] < 2 * made["found_from"]
