"""``shoal shuffler window`` and ``shoal analyzer window``: what is asked, refused and kept."""

from __future__ import annotations

import asyncio
import io
import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shoal.analyzer.store import FILE_NAME as STORE
from shoal.analyzer.store import AnalyzerStore
from shoal.cli.main import main
from shoal.cli.services import windows
from shoal.crypto.task_folder import load_task_folder
from shoal.errors import Kind, ShoalError
from shoal.services.given_up import FILE_NAME
from shoal.shuffler.core import Capacity, WindowId, row_size
from shoal.shuffler.stores.configured import open_embedded
from shoal.shuffler.stores.store import AdmittedReport
from tests.cases import for_each
from tests.worlds.operations import DAY, Site

Capture = pytest.CaptureFixture[str]
WHY = ("--reason", "the machine of its key burned")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    made = Site(tmp_path_factory.mktemp("site"))
    made.ask(name="other", count=3)
    (made.analyzer_dir / "data").mkdir(mode=0o700)
    AnalyzerStore(made.analyzer_dir / "data" / STORE).close()
    return made


def config(site: Site, service: str) -> str:
    return str(site.shuffler_toml() if service == "shuffler" else site.analyzer_toml())


def folder(site: Site, service: str) -> Path:
    return (site.data_dir if service == "shuffler" else site.analyzer_dir / "data") / FILE_NAME


@for_each("service", ["shuffler", "analyzer"])
def test_it_asks_and_a_mistyped_answer_changes_nothing(
    site: Site, service: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Planted: any answer taken for yes -> a line is written, fails."""
    command = [service, "window", "abandon", "test", "7", "--config", config(site, service), *WHY]
    for answer in ("", "\n", "yes\n", "test/8\n", "test\n"):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        assert main(command) == 1
        shown = capsys.readouterr()
        assert "window 7 of task test" in shown.err
        assert shown.err.splitlines()[-1].endswith("nothing was given up")
        assert not folder(site, service).exists()
    monkeypatch.setattr("sys.stdin", io.StringIO("test/7\n"))
    assert main(command) == 0
    assert "within a minute" in capsys.readouterr().out
    written = folder(site, service).read_bytes()
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main(command) == 0  # twice: nothing is asked, nothing changes
    assert "given up before" in capsys.readouterr().out
    assert folder(site, service).read_bytes() == written
    assert main([service, "window", "list", "--config", config(site, service)]) == 0
    assert "the machine of its key burned" in capsys.readouterr().out


@for_each(
    "arguments, said",
    [
        (("abandon", "nobody", "0", *WHY), "no such task"),
        (("abandon", "", "0", *WHY), "no such task"),
        (("abandon", "test", "40", *WHY), "windows 0 to 39"),
        (("abandon", "test", "0", "--reason", " "), "say why in one line"),
        (("abandon", "test", "0", "--reason", "a\nb"), "say why in one line"),
        (("abandon", "test", "zero", *WHY), "a valid integer"),
        (("abandon", "test", "0"), "--reason"),
        (("skip", "test", "0", *WHY), "has begun"),
    ],
)
def test_a_wrong_request_is_one_line_and_changes_nothing(
    site: Site, capsys: Capture, arguments: tuple[str, ...], said: str
) -> None:
    before = folder(site, "shuffler").exists() and folder(site, "shuffler").read_bytes()
    command = ["shuffler", "window", *arguments, "--config", config(site, "shuffler"), "--yes"]
    assert main(command) in (1, 2)
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert said in shown
    after = folder(site, "shuffler").exists() and folder(site, "shuffler").read_bytes()
    assert after == before


def test_a_program_says_yes_and_gets_json(site: Site, capsys: Capture) -> None:
    """By the beginning of an id, a window that has not begun, which is a skip."""
    task = site.published.task_id.hex
    more = ("--config", config(site, "shuffler"), "--yes", "--json", *WHY)
    assert main(["shuffler", "window", "skip", task[:9], "39", *more]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["task_id"], shown["window"], shown["was"]) == (task, 39, "not begun")
    assert (shown["name"], shown["before"], shown["reports"]) == ("test", False, None)
    assert main(["shuffler", "window", "skip", task[:9], "39", *more]) == 0
    assert json.loads(capsys.readouterr().out)["before"] is True


@for_each("service", ["shuffler", "analyzer"])
def test_a_window_that_ended_while_somebody_typed_is_not_given_up(
    site: Site, service: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Planted: no second look after the word was typed -> a line that stays for ever, fails."""
    words = iter(
        [windows.WindowNow("receiving", "all"), windows.WindowNow("released", over="it is")]
    )
    monkeypatch.setattr(windows, f"at_{service}", lambda *_: next(words))
    path = folder(site, service)
    before = path.exists() and path.read_bytes()
    part = getattr(windows, f"{service}_windows")()
    command = ["abandon", "test", "9", "--config", config(site, service), *WHY]
    answered = CliRunner().invoke(part, command, input="test/9\n")
    assert isinstance(answered.exception, ShoalError)
    assert answered.exception.kind is Kind.CONFLICT
    assert next(words, None) is None
    assert (path.exists() and path.read_bytes()) == before


async def test_a_window_with_reports_is_not_skipped_by_a_clock_that_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Planted: the clock alone asked -> acknowledged reports are deleted, fails."""
    site = Site(tmp_path)
    served = load_task_folder(site.tasks_dir, {site.authority.public}).served
    one = served[site.published.task_id]
    store = open_embedded(site.data_dir, commit_ms=1.0)
    try:
        size = row_size(one.task)
        store.reports.adopt(one.task_id, one.keys.digest, Capacity.of(one.task), size)
        row = AdmittedReport(WindowId(one.task_id, 0), (bytes(size),), b"")
        assert await store.reports.append([row]) == [None]
    finally:
        await store.close()
    real = time.time
    monkeypatch.setattr("shoal.cli.services.windows.time.time", lambda: real() - 10 * DAY)
    command = ["shuffler", "window", "skip", "test", "0", "--config", str(site.shuffler_toml())]
    assert await asyncio.to_thread(main, [*command, "--yes", *WHY]) == 1
    assert "has begun" in capsys.readouterr().err
    assert not (site.data_dir / FILE_NAME).exists()


def test_damaged_lines_are_told_and_nothing_is_added(site: Site, capsys: Capture) -> None:
    """Planted: lines written after a damaged one -> nobody can tell what was said, fails."""
    path = folder(site, "shuffler")
    whole = path.read_bytes() if path.exists() else b""
    path.write_bytes(whole + b"a torn line")
    try:
        command = ["shuffler", "window", "abandon", "test", "3"]
        assert main([*command, "--config", config(site, "shuffler"), "--yes", *WHY]) == 2
        assert "it is not what was written" in capsys.readouterr().err
        assert path.read_bytes() == whole + b"a torn line"
    finally:
        path.write_bytes(whole)
