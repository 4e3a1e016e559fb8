"""``shoal agent learn``: what it shows of an answer, and that nothing is sent unless it is said."""

from __future__ import annotations

import io
import time
from pathlib import Path

import numpy as np
import pytest

from tests.cases import for_each
from tests.worlds.devices.clients import WEEK
from tests.worlds.devices.owner import Owner
from tests.worlds.learning import learning_world, release_file

ROW = '{"row": [0.6, -0.2], "yes": true}'
TOTALS = (9.0, -4.5, 1.8)


@pytest.fixture
def learner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Owner:
    made = Owner(tmp_path, learning_world(start=int(time.time()) - 3_600), capsys)
    made.write(consent="allowed")
    return made


def test_an_answer_is_shown_and_leaves_nothing_behind(learner: Owner) -> None:
    """No charge, no ledger entry of an answer, and the window stays open. Planted: a charge in the
    trial -> fails.
    """
    code, out, err = learner.run("learn", "model", ROW)
    assert (code, err) == (0, "")
    assert "task model, window 0: round 1 of 4" in out
    assert "longer than the clip of 0.5: shortened to it" in out
    assert "  the row: age, dose" in out
    assert "  age " in out
    assert "  intercept " in out
    assert out.splitlines()[-1].startswith("nothing was sent")
    told = learner.json("learn", "model", ROW)
    assert np.linalg.norm(told["vector"]) == pytest.approx(1.0)
    assert told["sent"] is None
    other = learner.json("learn", "model", ROW)
    assert other["vector"] == told["vector"]
    assert other["example"] != told["example"]  # each draw is a new one
    budget = learner.json("budget")
    assert (budget["spent"], budget["tasks"]) == (0.0, [])
    assert all(entry["event"] != "reported" for entry in learner.json("ledger")["entries"])


def test_a_row_comes_from_standard_input_too(
    learner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the releases of a round before. Planted: the option not handed on -> window 0, fails."""
    release_file(learner.world, learner.folder / "releases" / "0.json", 0, TOTALS)
    monkeypatch.setattr("sys.stdin", io.StringIO(ROW))
    told = learner.json("learn", "model", "-", "--releases", str(learner.folder / "releases"))
    assert told["window"] == 1


def test_nothing_is_sent_to_another_round_than_the_open_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model of window 1 in window 0, and of window 1 in window 2. Planted: no check -> a window
    is answered with the gradient of another one, fails.
    """
    for open_window, said in ((0, "goes on to window 0"), (2, "has 1 of them")):
        folder = tmp_path / f"{open_window}"
        folder.mkdir()
        start = int(time.time()) - 3_600 - open_window * WEEK
        learner = Owner(folder, learning_world(start=start), capsys)
        learner.write(consent="allowed")
        release_file(learner.world, folder / "releases" / "0.json", 0, TOTALS)
        releases = ("--releases", str(folder / "releases"))
        code, out, err = learner.run("learn", "model", ROW, *releases, "--send")
        assert (code, out) == (2, "")
        assert f"window {open_window} is open" in err
        assert said in err
        assert err.count("\n") == 1
        assert learner.run("learn", "model", ROW, *releases)[0] == 0


def test_an_owner_who_does_not_agree_sends_nothing(learner: Owner) -> None:
    """A trial is shown all the same. Planted: consent not asked -> a round is waited for."""
    learner.write(consent="denied")
    code, out, err = learner.run("learn", "model", ROW, "--send")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "denied" in err
    assert learner.run("learn", "model", ROW)[0] == 0


@for_each(
    "arguments, said",
    [
        (("model", "{}"), "a row is JSON"),
        (("model", '{"row": [1], "yes": true}'), "a row of 2 numbers (age, dose)"),
        (("model", ROW, "--releases", "nowhere.json"), "cannot read nowhere.json"),
        (("models", ROW), "models"),
    ],
)
def test_what_is_refused_is_one_line(learner: Owner, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = learner.run("learn", *arguments)
    assert (code != 0, out) == (True, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_task_that_learns_nothing_says_so(owner: Owner) -> None:
    code, out, err = owner.run("learn", "visits", ROW)
    assert (code, out) == (2, "")
    assert "learns no model" in err
