"""``shoal plan --emit`` with what a plan can't know: the file goes straight through lint and sign,
and wrong options are one line each.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shoal.cli.main import main
from shoal.cli.plan.told import name_of
from shoal.cli.task.file import read_task
from shoal.crypto.trust import trust_task
from tests.cases import for_each

Capture = pytest.CaptureFixture[str]
PLAN = ("plan", "yes_no", "--n", "500", "--epsilon", "1", "--mechanism", "binary_rr")
ASKED = "Schläfst du gut, überall?"


def run(capsys: Capture, *arguments: str, status: int = 0) -> tuple[str, str]:
    assert main(list(arguments)) == status
    out, err = capsys.readouterr()
    return out, err


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> tuple[str, ...]:
    """Keys that exist, in three forms, and the options that name them."""
    monkeypatch.chdir(tmp_path)
    authority = run(capsys, "keys", "signing", "--out", "authority.key")[0].strip()
    analyzer = run(capsys, "keys", "signing", "--out", "analyzer.key")[0]
    run(capsys, "keys", "signing", "--out", "shuffler.key")
    run(capsys, "keys", "ca", "--out", "tls")
    Path("analyzer.pub").write_text(analyzer)
    # fmt: off
    return (
        "--question", ASKED, "--shuffler", "localhost:7443", "--ca", "tls/ca.pem", "--authority",
        authority, "--shuffler-key", "shuffler.key", "--analyzer-key", "analyzer.pub",
    )
    # fmt: on


def test_a_task_that_needs_no_editing(desk: tuple[str, ...], capsys: Capture) -> None:
    """Planted: the CA's path as typed instead of as seen from the task's folder; grace of a day for
    an hour's window left and retention too -> a wrong file or moment; keys of shuffler and analyzer
    exchanged -> fails.
    """
    # fmt: off
    when = ("--start", "2027-01-31T08:00+02:00", "--length", "1h", "--max-batch", "600")
    out, _ = run(capsys, *PLAN, *desk, *when, "--emit", "tasks/sleep.toml")
    assert "shoal task sign tasks/sleep.toml" in out.splitlines()[-1]
    run(capsys, "task", "lint", "tasks/sleep.toml")
    run(capsys, "task", "sign", "tasks/sleep.toml", "--key", "authority.key", "--out", "a.task")
    # fmt: on
    task = trust_task(Path("a.task").read_bytes(), {bytes.fromhex(desk[7])}).task
    assert (task.name, task.question) == ("schlaefst-du-gut-ueberall", ASKED)
    assert task.purpose.endswith(ASKED)
    assert datetime.fromtimestamp(task.windows.start_s, UTC) == datetime(2027, 1, 31, 6, tzinfo=UTC)
    assert (task.windows.length_s, task.windows.grace_s, task.max_batch) == (3600, 3600, 600)
    assert task.shuffler_address == "localhost:7443"
    assert task.shuffler_ca == Path("tls/ca.pem").read_bytes()
    assert task.analyzer_key.hex() == Path("analyzer.pub").read_text().strip()
    assert "FILL IN" not in Path("tasks/sleep.toml").read_text()
    assert run(capsys, "keys", "signing", "--out", "x.key")  # and no private half is in the file
    assert "PRIVATE" not in Path("tasks/sleep.toml").read_text()


def test_what_is_left_is_named_at_once(desk: tuple[str, ...], capsys: Capture) -> None:
    """Planted: only the first blank named -> fails."""
    out, _ = run(capsys, *PLAN, "--emit", "bare.toml")
    _, err = run(capsys, "task", "lint", "bare.toml", status=2)
    assert err.count("\n") == 1
    # fmt: off
    for blank in (
        "name", "purpose", "question", "keys.key_authority", "keys.shuffler", "keys.analyzer",
        "shuffler.address", "shuffler.ca",
    ):
        assert blank in err
        assert blank in out.splitlines()[-1]
    # fmt: on
    run(capsys, *PLAN, *desk[:-2], "--emit", "half.toml")
    sign = ("task", "sign", "half.toml", "--key", "authority.key", "--out", "b.task")
    _, err = run(capsys, *sign, status=2)
    assert "keys.analyzer" in err
    assert "keys.shuffler" not in err
    assert "FILL IN" in Path("half.toml").read_text()


def test_a_recipe_takes_them_too(desk: tuple[str, ...], capsys: Capture) -> None:
    run(capsys, "plan", "--recipe", "windows-app-usage", "--n", "1000", *desk, "--emit", "w.toml")
    task = read_task(Path("w.toml"))
    assert (task.question, task.windows.length_s) == (ASKED, 21_600)


@for_each(
    "options, said",
    [
        (("--name", "Sound Sleep"), "not - first: sound-sleep"),
        (("--question", "a\nb"), "--question: one line of plain words"),
        (("--purpose", " "), "--purpose: one line"),
        (("--start", "tomorrow"), "--start"),
        (("--length", "a week"), "7d, 12h"),
        (("--length", "0s"), "--length"),
        (("--max-batch", "499"), "at least 500 is wanted"),
        (("--shuffler", "localhost"), "HOST:PORT"),
        (("--ca", "none.pem"), "cannot read none.pem"),
        (("--ca", "analyzer.pub"), "no certificate in PEM"),
        (("--authority", "abcd"), "64 hex digits"),
        (("--shuffler-key", "tls/ca.pem"), "or the file of a key"),
    ],
)
def test_wrong_options_are_named(
    options: tuple[str, ...], said: str, desk: tuple[str, ...], capsys: Capture
) -> None:
    """Planted: no check of --ca -> the file is written."""
    _, err = run(capsys, *PLAN, *options, "--emit", "x.toml", status=2)
    assert said in err
    assert err.count("\n") == 1
    assert not Path("x.toml").exists()
    _, err = run(capsys, *PLAN, *options, status=2)
    assert "give --emit" in err


@for_each("name", ["", "."])
def test_a_file_without_a_name_is_asked_for(capsys: Capture, name: str) -> None:
    """As a variable that is not set gives it. Planted: no check -> ". exists: move it away"."""
    _, err = run(capsys, *PLAN, "--emit", name, status=2)
    assert "an empty name" in err
    assert "exists" not in err


def test_names_of_questions() -> None:
    """Planted: the cut in the middle of a word -> fails."""
    assert name_of("Where's the café, L'été?") == "wheres-the-cafe-lete"
    assert name_of("どこ？") == ""
    assert name_of("word " * 40) == "-".join(["word"] * 8)
    assert len(name_of("x" * 100)) == 40


@for_each(
    "asked, mechanism, lossy",
    [
        (("yes_no", "--n", "500", "--epsilon", "1"), "signed_count", False),
        (("yes_no", "--n", "500", "--epsilon", "4", "--windows", "4"), "signed_count", False),
        (("mean", "--high", "24", "--n", "500", "--epsilon", "1"), "split_mix", False),
        (("yes_no", "--n", "500", "--error", "2"), "signed_count", False),
        (("yes_no", "--n", "500", "--epsilon", "1", "--max-bytes", "1"), "binary_rr", True),
    ],
)
def test_what_is_recommended_of_several_messages_is_written(
    desk: tuple[str, ...], capsys: Capture, asked: tuple[str, ...], mechanism: str, lossy: bool
) -> None:
    """The integers that were planned, which lint certifies at the target of one window; one message
    where the limits leave nothing else.

    Where an error is the target, the epsilon that its certificate proves is the file's.

    Planted: the plan's choice written whatever is recommended -> fails; its target with the
    integers of several messages, in several windows -> fails.
    """
    options = (*asked, "--delta", "1e-6", "--several-messages", *desk)
    file = f"{len(asked)}{asked[-2].lstrip('-')}{mechanism}.toml"
    out, _ = run(capsys, "plan", *options, "--emit", file, "--json")
    best = json.loads(out)["recommended"]
    run(capsys, "task", "lint", file)
    task = read_task(Path(file))
    assert task.mechanism.name == mechanism
    assert task.messages == best["messages"]
    if not lossy:
        assert task.target_epsilon == best["epsilon_upper"]
        assert "owners have to agree by name" in Path(file).read_text()
