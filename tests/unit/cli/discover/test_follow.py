"""``shoal discover show``: a tree of what was released."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.cli.main import main
from shoal.crypto.step_folder import STEPS_FOLDER, StepFolder
from shoal.domain import Discovery
from shoal.questions.discovery import DiscoveryLevel
from shoal.services.given_up import GivenUp, add
from shoal.services.whole_files import replace_whole
from tests.worlds.services.analyzer import World, make_task
from tests.worlds.words import found_in, step_of, store_release, words_world

Capture = pytest.CaptureFixture[str]
ASKED = Discovery(first=1, longest=3, most=8)
WORLD = words_world(ASKED)
WORDS = ("cat",) * 150 + ("cow",) * 120 + ("a",) * 80 + ("",) * 50


class Analyzer:
    """A data folder in which one level after the other is released."""

    def __init__(self, folder: Path, world: World = WORLD, asked: Discovery = ASKED) -> None:
        self.folder, self.window = folder, 0
        self.world, self.asked = world, asked
        self.level: DiscoveryLevel | None = asked.level(0)
        self.store = AnalyzerStore(folder / FILE_NAME)
        self.store.sign_with(world.analyzer.public)

    def release(self) -> None:
        assert self.level is not None
        prepared = found_in(self.world, self.level, WORDS, self.window)
        assert prepared.found is not None
        store_release(self.store, self.world, prepared)
        self.level = self.asked.after(self.level.number, prepared.found.beginnings)
        self.window += 1


@pytest.fixture
def analyzer(tmp_path: Path) -> Analyzer:
    return Analyzer(tmp_path)


def test_a_tree_of_what_is_released(analyzer: Analyzer, capsys: Capture) -> None:
    """For people and for programs. Planted: the first release of a level in place of the last ->
    nothing here; branches left out -> fails.
    """
    for _ in range(2):
        analyzer.release()
    arguments = ["discover", "show", "words", "--data", str(analyzer.folder)]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    first, *rows = shown.splitlines()
    assert first.startswith("words: level 1 of 0 to 2, window 1: 1 word so far")
    labels = [row.lstrip("\u2502\u251c\u2514\u2500\u25cf ").split("  ")[0] for row in rows]
    assert labels[:5] == ["c\u2026", "ca\u2026", "co\u2026", "a\u2026", "a"]
    assert labels[5].startswith("of 400 devices; epsilon")
    assert len(labels) == 7
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["state"] == "going on"
    assert [word["label"] for word in found["words"]] == ["a"]
    assert [branch["label"] for branch in found["tree"]] == ["c\u2026", "a\u2026"]
    assert [child["label"] for child in found["tree"][0]["children"]] == ["ca\u2026", "co\u2026"]


def test_of_devices_that_answer_once_it_is_said_what_numbers_are_of(
    tmp_path: Path, capsys: Capture
) -> None:
    """By the releases alone, without the task. Planted: by the task alone -> not said, fails."""
    asked = replace(ASKED, fresh=True)
    world = words_world(asked)
    Analyzer(tmp_path, world, asked).release()
    windows = world.served.task.windows.count
    shown = ["discover", "show", "words", "--data", str(tmp_path)]
    assert main(shown) == 0
    assert f"Each device answers one of {windows} windows alone" in capsys.readouterr().out
    assert main([*shown, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["draws_one_of"] == windows


def test_watching_goes_on_until_nothing_is_left_to_follow(
    analyzer: Analyzer, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from before the first release. Planted: it ends with the first -> the last words are
    not there.
    """
    monkeypatch.setattr("shoal.cli.discover.follow.time.sleep", lambda _: analyzer.release())
    assert main(["discover", "show", "words", "--data", str(analyzer.folder), "--watch"]) == 0
    shown = capsys.readouterr().out
    assert "cat\u2026" in shown
    assert "nothing is left to follow" in shown
    assert analyzer.window == 3


def test_watching_ends_when_windows_ran_out(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the configuration, which knows the task: it waits while a window may be asked, tells
    what was withheld, and ends with what was found, exit code 0. Planted: the task's windows not
    looked at -> it sleeps for ever, which this test does not allow.
    """
    config = WORLD.config(tmp_path)
    config.data_dir.mkdir(exist_ok=True)
    analyzer = Analyzer(config.data_dir)
    path = str(tmp_path / "analyzer.toml")
    now = [float(WORLD.task.windows.start_s + 60)]
    slept = list[float]()

    def sleep(_: float) -> None:
        slept.append(now[0])
        assert len(slept) < 40
        if len(slept) == 2:
            analyzer.release()
        now[0] += WORLD.task.windows.length_s / 2

    monkeypatch.setattr("shoal.cli.discover.follow.time.sleep", sleep)
    monkeypatch.setattr("shoal.cli.discover.follow.time.time", lambda: now[0])
    assert main(["discover", "show", "words", "--config", path, "--watch"]) == 0
    shown = capsys.readouterr().out
    assert "windows are over, and not all levels were asked" in shown
    assert "0 words found" in shown
    assert slept[-1] < WORLD.task.windows.end_of(WORLD.task.windows.count)
    assert main(["discover", "show", "words", "--config", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "ran out"


def test_a_window_that_was_given_up_is_waited_for_no_more(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no release, and never will. Planted: releases alone looked at -> awaited, fails; also
    lines of other tasks -> not awaited, fails.
    """
    config, plan = WORLD.config(tmp_path), WORLD.task.windows
    config.data_dir.mkdir(exist_ok=True)
    analyzer = Analyzer(config.data_dir)
    analyzer.release()
    steps = StepFolder(config.data_dir / STEPS_FOLDER, replace_whole)
    step = step_of(WORLD, 1, analyzer.level)
    steps.take(WORLD.task, WORLD.task_id, step.data)
    now = plan.deadline_of(1) + 1.0
    monkeypatch.setattr("shoal.cli.discover.follow.time.time", lambda: now)
    show = ["discover", "show", "words", "--config", str(tmp_path / "analyzer.toml"), "--json"]
    add(config.data_dir, GivenUp("ab" * 32, 1, int(now), "somebody", "another's", "expected"))
    for state, count in (("awaited", 0), ("next", 1)):
        assert main(show) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["state"], len(told["withheld"])) == (state, count)
        line = GivenUp(WORLD.task_id.hex, 1, int(now), "somebody", "its key is lost", "expected")
        add(config.data_dir, line)


def test_a_task_that_is_no_discovery_is_said_to_be_none(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Released or not. Planted: a level of it waited for -> it sleeps, which fails."""

    def sleep(_: float) -> None:
        raise AssertionError("it waits")

    monkeypatch.setattr("shoal.cli.discover.follow.time.sleep", sleep)
    plain = [{"name": "words", "task_id": "ab" * 32, "window": 0, "withheld": None}]
    show = ["discover", "show", "words", "--config"]
    with monkeypatch.context() as released:
        released.setattr("shoal.cli.discover.follow.read_releases", lambda *_: plain)
        for more in ((), ("--watch",)):
            assert main([*show, str(tmp_path / "analyzer.toml"), *more]) == 2
            assert "shoal results show words" in capsys.readouterr().err
    World(make_task(name="plain", min_batch=100)).config(tmp_path).data_dir.mkdir(exist_ok=True)
    show[2] = "plain"
    assert main([*show, str(tmp_path / "analyzer.toml"), "--watch"]) == 2
    assert "shoal results show plain" in capsys.readouterr().err


def test_what_cannot_be_shown_is_said_in_a_line(analyzer: Analyzer, capsys: Capture) -> None:
    data = ["--data", str(analyzer.folder)]
    for arguments, said in (
        (["words", *data], "no such release"),
        (["words", *data, "--watch", "--json"], "--watch is for people"),
        (["words"], "say where the releases are"),
    ):
        assert main(["discover", "show", *arguments]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line


def test_watching_says_what_it_waits_for_and_waits_for_nothing_that_cannot_come(
    tmp_path: Path, analyzer: Analyzer, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistyped task of a configuration, or folder, ends it; before a first release a pipe hears
    why once. Planted: either waited for -> it sleeps, which this test does not allow; the reason
    left out, or the line for screens alone -> fails.
    """
    config = WORLD.config(tmp_path / "known")
    config.data_dir.mkdir(exist_ok=True)
    known, gone = tmp_path / "known" / "analyzer.toml", tmp_path / "gone"

    def sleep(_: float) -> None:
        raise AssertionError("it waits")

    monkeypatch.setattr("shoal.cli.discover.follow.time.sleep", sleep)
    for options, said in (
        (("wrods", "--config", str(known)), "no task of"),
        (("words", "--data", str(gone)), "does not exist"),
    ):
        assert main(["discover", "show", *options, "--watch"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line
    slept = list[float]()

    def release(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) > 2:
            analyzer.release()

    monkeypatch.setattr("shoal.cli.discover.follow.time.sleep", release)
    assert main(["discover", "show", "words", "--data", str(tmp_path), "--watch"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("nothing is released yet: words: no such release") == 1
