"""``shoal discover``: what it says, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shoal.accounting.lint.task import lint
from shoal.accounting.several_messages.of_windows import epsilon_together
from shoal.cli.discover.words import read_known
from shoal.cli.main import main
from shoal.cli.task.file import read_task
from shoal.domain import Discovery
from shoal.errors import ShoalError
from shoal.mechanisms.several.histogram import BundledHistogram
from shoal.mechanisms.several.registry import create
from shoal.questions.place_paths import PlacePaths
from shoal.questions.places import Places
from tests.cases import for_each
from tests.worlds.filled_in import filled

Capture = pytest.CaptureFixture[str]
SMALL = ("--epsilon", "8", "--delta", "1e-4", "--first", "1", "--longest", "5", "--most", "8")
CITY = ("--places", "48.06,11.36,48.25,11.72")
MAP = ("--epsilon", "4", "--delta", "1e-4", *CITY, "--cell", "1000", "--most", "8", "--across", "4")
WORDS = "salt,90\nsand,70\nSea,60\nshoals,80\nfish,50\n,40\nrare\n"


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """A file of 391 devices."""
    path = tmp_path / "words.txt"
    path.write_text(WORDS, encoding="utf-8")
    return path


def ask(capsys: Capture, *arguments: str | Path) -> dict[str, Any]:
    """The JSON of a command that works."""
    assert main(["discover", *map(str, arguments), "--json"]) == 0
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    return value


def refused(capsys: Capture, *arguments: str | Path) -> str:
    """The one line of a command that does not."""
    assert main(["discover", *map(str, arguments)]) == 2
    shown = capsys.readouterr()
    assert not shown.out
    (line,) = shown.err.splitlines()
    return line


def test_a_plan_says_before_anybody_is_asked_what_would_be_found(capsys: Capture) -> None:
    """For programs and for people. Planted: Infinity for epsilon0 -> no JSON."""
    made = ask(capsys, "plan", "--n", "2000", *SMALL)
    assert made["levels"] == made["levels_of_a_device"] == 5
    assert made["epsilon0"] is None
    assert 0 < made["epsilon_of_a_level"] < made["epsilon_upper"] <= 8
    assert made["threshold"] < made["found_from"] < 100
    assert main(["discover", "plan", "--n", "2000", *SMALL]) == 0
    shown = capsys.readouterr().out
    assert f"{made['found_from']} devices that have the word" in shown
    assert "consent" in shown


def test_a_simulation_shows_the_truth_beside_what_is_found(capsys: Capture, words: Path) -> None:
    """Levels grow on standard error, what was found is on standard output. Planted: counts of the
    file read as words -> fails.
    """
    made = ask(capsys, "simulate", words, *SMALL, "--seed", "3")
    found = {row["label"]: row["true"] for row in made["words"]}
    assert found == {"salt": 90, "shoal\u2026": 80, "sand": 70, "sea": 60, "fish": 50}
    assert [row["level"] for row in made["levels_done"]] == [0, 1, 2, 3, 4]
    assert made["levels_done"][0]["devices"] == 391
    assert made["missed"] == []
    assert main(["discover", "simulate", str(words), *SMALL, "--seed", "3"]) == 0
    shown = capsys.readouterr()
    assert "found: 5 words, 0 of them held by nobody" in shown.out
    assert "level 4: 391 devices" in shown.err


def test_known_words_are_left_out(capsys: Capture, words: Path, tmp_path: Path) -> None:
    known = tmp_path / "known.txt"
    known.write_text("SALT\nfish\n", encoding="utf-8")
    made = ask(capsys, "simulate", words, *SMALL, "--seed", "3", "--leave-out", known)
    assert {row["label"] for row in made["words"]} == {"shoal\u2026", "sand", "sea"}


@for_each(
    "content, says",
    [
        (b"salt,90\nsand,many\n", 'line 2: "many" is no number'),
        (b"salt,-1\n", 'line 1: "-1" is no number'),
        (b"salt\n\xff\n", "line 2: it is not UTF-8"),
        (b"", "has no line"),
        (b"a,99999999999\n", "1 to 1000000000 devices"),
        (b"a,900000000\n", "messages"),
    ],
)
def test_a_file_that_is_no_list_of_words_is_refused(
    content: bytes, says: str, capsys: Capture, tmp_path: Path
) -> None:
    """In a line that names the place. Planted: a bad count taken for a part of the word: fails."""
    path = tmp_path / "words.txt"
    path.write_bytes(content)
    assert says in refused(capsys, "simulate", path, *SMALL)


@for_each(
    "arguments, says",
    [
        (("plan", "--n", "0"), "1 to 1000000000 devices"),
        (("plan", "--n", "5"), ": give 4,900 devices or more, or a larger epsilon"),
        (("plan", "--n", "5000", "--most", "100"), "follow fewer beginnings than 100"),
        (("plan", "--n", "2000", "--epsilon", "0"), "epsilon"),
        (("plan", "--n", "2000", "--delta", "2"), "delta"),
        (("plan", "--n", "2000", "--first", "4"), "1 to 3 symbols"),
        (("plan", "--n", "2000", "--most", "0"), "follows one beginning"),
        (("plan", "--n", "20", "--fresh"), "leave --fresh out"),
        (("plan", "--n", "20000", "--fresh", "--honest-fraction", ".8"), "may lie"),
        (("plan", "--n", "2000", "--honest-fraction", "1.5"), "honest"),
        (("simulate", "/there/is/none.txt"), "cannot read"),
        (("plan", "--n", "2000", "--length", "1d"), "give --emit"),
        (("plan", "--n", "2000", "--cell", "50"), "give --places too"),
        (("plan", "--n", "2000", "--places", "48,11,49"), "four degrees"),
        (("plan", "--n", "2000", "--places", "48,11,49,x"), "--places"),
        (("plan", "--n", "2000", "--places", "49,11,48,12"), "south below its north"),
        (("plan", "--n", "2000", *CITY, "--cell", "0"), "--cell is a size in metres"),
        (("plan", "--n", "2000", *CITY, "--cell", "0.2"), "give larger ones"),
        (("plan", "--n", "2000", *CITY, "--across", "3"), "across = 2 or 4"),
        (("plan", "--n", "2000", *CITY, "--longest", "3"), "--longest is for words"),
        (("plan", "--n", "2000", *CITY, "--fresh"), "--fresh is for words"),
        (
            ("plan", "--n", "5", *CITY, "--across", "4", "--first", "1", "--most", "8"),
            "give 310 devices or more",
        ),
    ],
)
def test_bad_requests_are_refused_in_one_line(
    arguments: tuple[str, ...], says: str, capsys: Capture
) -> None:
    assert says in refused(capsys, *arguments)


def test_an_empty_line_among_known_words_is_refused(
    capsys: Capture, words: Path, tmp_path: Path
) -> None:
    known = tmp_path / "known.txt"
    known.write_text("salt\n\n", encoding="utf-8")
    line = refused(capsys, "simulate", words, *SMALL, "--leave-out", known)
    assert "line 2: no word stands there" in line


def test_a_plan_becomes_a_task_that_lint_certifies(capsys: Capture, tmp_path: Path) -> None:
    """Nobody is asked for more than was planned: all its windows together keep the epsilon.
    Planted: the epsilon of all for the target of each -> lint refuses; words left out that are
    spelled otherwise in the file -> another domain.
    """
    known = tmp_path / "known.txt"
    known.write_text("the\nr2d2\nroute 66\ns\u00f8k\n", encoding="utf-8")
    path = tmp_path / "words.toml"
    arguments = ["--n", "2000", *SMALL, "--leave-out", str(known), "--spare", "2"]
    made = ask(capsys, "plan", *arguments, "--emit", path, "--length", "1d")
    assert made["spare_windows"] == 2
    task = read_task(filled(path))
    assert task.domain == Discovery(1, 5, 8, tuple(sorted(read_known(known, 5))))
    assert (task.windows.count, task.windows.length_s, task.windows.grace_s) == (7, 86_400, 21_600)
    assert task.target_epsilon == pytest.approx(made["epsilon_of_a_level"], rel=1e-5)
    found = lint(task)
    assert found.errors == ()
    assert found.guarantee is not None
    assert found.guarantee.epsilon_upper <= made["epsilon_of_a_level"] * (1 + 1e-6)
    mechanism = create(task.mechanism, task.domain)
    assert isinstance(mechanism, BundledHistogram)
    together = epsilon_together(mechanism, 2_000, task.delta, 7)
    assert together == pytest.approx(made["epsilon_upper"])
    assert refused(capsys, "plan", *arguments, "--emit", path).count("words.toml") == 1


def test_a_plan_of_fresh_devices_becomes_a_task_too(capsys: Capture, tmp_path: Path) -> None:
    """Planted: all windows composed -> two epsilons; min_batch of all devices -> another."""
    path = tmp_path / "words.toml"
    arguments = ["--n", "9000", *SMALL, "--fresh", "--spare", "2"]
    made = ask(capsys, "plan", *arguments, "--emit", path, "--length", "1d")
    assert (made["windows"], made["levels_of_a_device"]) == (7, 1)
    assert made["epsilon_upper"] == made["epsilon_of_a_level"]
    assert 0.0 < made["chance_of_a_level_withheld"] < 1e-3
    task = read_task(filled(path))
    assert task.domain == Discovery(1, 5, 8, fresh=True)
    assert (task.windows.count, task.windows_of_a_device) == (7, 1)
    assert task.min_batch == made["devices_at_a_level"] < 9_000 / 7
    found = lint(task)
    assert found.errors == ()
    assert found.guarantee is not None
    assert found.guarantee.epsilon_upper <= made["epsilon_of_a_level"] * (1 + 1e-6)


def test_the_honest_share_of_all_devices_becomes_that_of_a_window(
    capsys: Capture, tmp_path: Path
) -> None:
    """In the file, in lint and for people. Planted: written as it was given -> more are certified
    than a batch of 450 who lie has.
    """
    path = tmp_path / "words.toml"
    arguments = ["--n", "9000", *SMALL, "--fresh", "--honest-fraction", "0.95"]
    made = ask(capsys, "plan", *arguments, "--emit", path, "--length", "1d")
    task = read_task(filled(path))
    assert task.n_certified == made["honest_at_a_level"] <= task.min_batch - 450
    assert task.n_certified >= task.min_batch - 451
    found = lint(task)
    assert found.errors == ()
    assert found.guarantee is not None
    assert found.guarantee.epsilon_upper <= made["epsilon_of_a_level"] * (1 + 1e-6)
    count = task.min_batch - task.n_certified
    liars = f"{count} devices may lie"
    assert any(liars in one for one in found.warnings)
    assert str(count) in path.read_text().splitlines()[2]
    assert main(["discover", "plan", *arguments]) == 0
    assert f"up to {liars}" in capsys.readouterr().out


def test_places_are_planned_played_and_drawn(capsys: Capture, tmp_path: Path) -> None:
    """Crowds of two places are found to the smallest cells, and the scattered are not. Planted:
    longitude first -> elsewhere, nothing is found; counts read as a third number of the place ->
    refused.
    """
    path = tmp_path / "places.csv"
    path.write_text(
        "48.137,11.575,150\n 48.2 , 11.6 ,100\n\n48.1,11.5\n48.07,11.7,3\n47,11,20\n",
        encoding="utf-8",
    )
    made = ask(capsys, "simulate", path, *MAP, "--first", "2", "--seed", "3")
    assert made["plan"]["levels"] == 2
    assert made["plan"]["across"] == 4
    assert sorted(row["true"] for row in made["words"]) == [100, 150]
    assert made["missed"] == []
    assert main(["discover", "simulate", str(path), *MAP, "--first", "2", "--seed", "3"]) == 0
    shown = capsys.readouterr().out
    assert "found: 2 places, 0 of them held by nobody" in shown
    assert "\u2588" in shown


@for_each(
    "content, says",
    [
        (b"48.137\n", 'line 1: "48.137" is no place'),
        (b"\nhere,there\n", "line 2:"),
        (b"48.1,11.5,many\n", 'line 1: "many" is no number'),
        (b"48.1,11.5,3,4\n", "line 1:"),
        (b"", "has no line"),
    ],
)
def test_a_file_that_is_no_list_of_places_is_refused(
    content: bytes, says: str, capsys: Capture, tmp_path: Path
) -> None:
    path = tmp_path / "places.csv"
    path.write_bytes(content)
    assert says in refused(capsys, "simulate", path, *MAP)


def test_a_plan_of_places_becomes_a_task(capsys: Capture, tmp_path: Path) -> None:
    """With the same map, to the microdegree. Planted: the box in the order of its options in the
    file, west before south -> another map.
    """
    path = tmp_path / "places.toml"
    arguments = ["--n", "2000", *MAP]
    made = ask(capsys, "plan", *arguments, "--emit", path, "--length", "1d")
    task = read_task(filled(path))
    box = Places(48_060_000, 11_360_000, 48_250_000, 11_720_000, 1, 1)
    assert task.domain == Discovery(made["first"], made["longest"], 8, (), PlacePaths(box, 4))
    assert lint(task).errors == ()
    path.write_text(path.read_text(encoding="utf-8").replace("48.06", "48.0600001"))
    with pytest.raises(ShoalError) as caught:
        read_task(path)
    assert "domain.places.south" in caught.value.message
