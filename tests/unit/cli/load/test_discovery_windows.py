"""Which windows of a discovery are loaded."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.cli.main import main
from shoal.task import WindowPlan
from tests.cases import for_each
from tests.worlds.services.analyzer import World
from tests.worlds.words import SMALL, words_world


@for_each("fresh", [False, True])
def test_window_0_alone_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fresh: bool
) -> None:
    """Of either mode. Planted: no rule -> nothing refuses window 1 before the shuffler does, each
    report of it by itself.
    """
    task = words_world(replace(SMALL, fresh=fresh)).task
    plan = task.windows
    begun = int(time.time()) - 60
    windows = WindowPlan(begun, plan.length_s, plan.count, plan.grace_s, plan.skew_s)
    world = World(replace(task, windows=windows))
    (tmp_path / "words.task").write_bytes(world.signed_task)
    (tmp_path / "words.keys").write_bytes(world.signed_schedule)
    load = ["load", "--task", str(tmp_path / "words.task"), "--devices", "9", "--plan", "--json"]
    load += ["--address", task.shuffler_address]
    assert main([*load, "--window", "0"]) == 0
    assert json.loads(capsys.readouterr().out)
    assert main([*load, "--window", "1"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "load window 0" in line
