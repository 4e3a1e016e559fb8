"""``shoal agent learn``: what it shows of an answer, and that nothing is sent unless it is said."""

from __future__ import annotations

import io
import time
from pathlib import Path

import numpy as np
import pytest

from shoal.crypto import keyfiles
from shoal.crypto.admission.enrolment import issue
from shoal.crypto.signing import SigningKey
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


def enrolled(learner: Owner) -> str:
    """Its certificate and key, as lines of agent.toml."""
    key = SigningKey.generate()
    now = int(time.time())
    certificate = issue(learner.world.authority, key.public, now - WEEK, now + WEEK)
    (learner.folder / "device.cert").write_bytes(certificate)
    keyfiles.save_signing_key(learner.folder / "device.key", key)
    return '[enrolment]\ncertificate = "device.cert"\nkey = "device.key"\n'


def test_the_status_says_which_release_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a source that follows releases, in window 1; nothing of an owner who does not agree.
    Planted: the note left out -> fails.
    """
    start = int(time.time()) - 3_600 - WEEK
    learner = Owner(tmp_path, learning_world(start=start), capsys)
    source = '[sources.model]\nkind = "json"\nfile = "row.json"\nreleases = "releases"\n'
    source += enrolled(learner)
    (tmp_path / "releases").mkdir()

    def write(consent: str) -> None:
        learner.write(consent=consent, more=source, policy="sums_if_apart = true")
        config = tmp_path / "agent.toml"
        config.write_text(
            config.read_text().replace("min_batch_floor = 100", "min_batch_floor = 2")
        )

    def missing() -> bool:
        return any(
            "release of window 0 is not in" in line for line in learner.json("status")["notes"]
        )

    write("denied")
    assert not missing()
    write("allowed")
    assert missing()
    assert "the release of window 0 is not in" in learner.run("status")[1]
    release_file(learner.world, tmp_path / "releases" / "0.json", 0, TOTALS)
    assert learner.json("status")["notes"] == []
