"""Where a demo works: enough room before anything starts, and nothing left after Ctrl-C."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest

from shoal.cli.demo.command import _make_room
from shoal.cli.demo.folders import results_of
from shoal.cli.demo.made import Made
from shoal.errors import Kind, ShoalError

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


async def _nothing(_: Path) -> Made:
    return Made({}, "", {})


def test_too_little_room_is_said_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: no look at the disk -> services that are never ready, and a minute's wait."""
    usage: Any = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100 << 20))
    assert results_of(None, _nothing, 1_000).results == {}
    with pytest.raises(ShoalError, match=r"100 MiB free, and 637 MiB are .* by TMPDIR") as caught:
        results_of(None, _nothing, 1_000_000)
    assert caught.value.kind is Kind.CONFIG
    with pytest.raises(ShoalError, match="--keep"):
        results_of(tmp_path / "kept", _nothing, 1_000_000)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_folder_in_place_of_the_results_file_is_said_before_anything_starts(
    tmp_path: Path,
) -> None:
    """Planted: not looked at -> it is found out when all is done, and fails."""
    out = tmp_path / "out"
    with pytest.raises(ShoalError, match="is a folder: give a file") as caught:
        _make_room(out, tmp_path)
    assert caught.value.kind is Kind.CONFIG
    assert not out.exists()
    _make_room(out, tmp_path / "results.json")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whoever_is_impatient_changes_nothing(
    number: signal.Signals, tmp_path: Path, capsys: Capture, request: pytest.FixtureRequest
) -> None:
    """A second and third signal while things are put away. Planted: each of them cancels -> the
    end of the work is not reached; no word of what is left -> fails.
    """
    # under nohup SIGHUP is ignored, and a demo leaves it so
    before = signal.signal(number, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(number, before))
    ended = []

    async def work(folder: Path) -> Made:
        (folder / "something").touch()
        os.kill(os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(2):
                os.kill(os.getpid(), number)
                for _ in range(3):
                    await asyncio.sleep(0)
            ended.append(True)
        raise AssertionError

    with pytest.raises(KeyboardInterrupt):
        results_of(None, work)
    assert ended == [True]
    assert list(tmp_path.iterdir()) == []
    assert "nothing of it runs any more" in capsys.readouterr().err


def test_an_end_of_another_kind_keeps_its_own_word(
    tmp_path: Path, capsys: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    """A closed pipe ends the command by SystemExit. Planted: every end taken for Ctrl-C -> a trace
    of a task that nobody waited for.
    """

    async def work(_: Path) -> Made:
        await asyncio.sleep(0)
        raise SystemExit(1)

    with pytest.raises(SystemExit):
        results_of(None, work)
    assert list(tmp_path.iterdir()) == []
    gc.collect()
    assert capsys.readouterr().err == ""
    assert not caplog.records
