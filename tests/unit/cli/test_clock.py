"""``shoal shuffler clock`` and ``shoal analyzer clock``: what an operator reads, and what a
confirmation does.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.cli.main import main
from shoal.clocks import timekeeper
from shoal.clocks.timekeeper import CONFIRM_NAME
from tests.worlds.clock import DAY, Machine, keeper
from tests.worlds.services import analyzer as analyzer_world
from tests.worlds.services import shuffler as shuffler_world

Capture = pytest.CaptureFixture[str]
NOW = 1_800_000_000.0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The command reads this machine's clocks."""
    made = Machine(NOW)
    monkeypatch.setattr(timekeeper, "SystemReadings", lambda: made)
    return made


def _config(folder: Path, service: str) -> Path:
    if service == "shuffler":
        return shuffler_world.World(folder).write_config()
    return analyzer_world.make_world().write_config(folder)


@pytest.mark.parametrize("service", ["shuffler", "analyzer"])
def test_a_dispute_is_shown_and_confirmed_once(
    tmp_path: Path, machine: Machine, capsys: Capture, service: str
) -> None:
    config = ["--config", str(_config(tmp_path, service))]
    assert main([service, "clock", *config]) == 2
    assert "start the service once" in capsys.readouterr().err
    one = keeper(tmp_path / "data", machine)
    assert main([service, "clock", *config]) == 0
    assert "believed" in capsys.readouterr().out
    assert main([service, "clock", *config, "--confirm"]) == 1
    assert "nothing to confirm" in capsys.readouterr().err
    machine.jumps(10 * DAY)
    one.look()
    assert main([service, "clock", *config]) == 0
    shown = capsys.readouterr().out
    assert "+10 d 0 h" in shown
    assert "disputed" in shown
    assert not (tmp_path / "data" / CONFIRM_NAME).exists()
    assert main([service, "clock", *config, "--confirm"]) == 0
    assert one.look() is None


def test_json_for_programs(tmp_path: Path, machine: Machine, capsys: Capture) -> None:
    config = ["--config", str(_config(tmp_path, "shuffler"))]
    one = keeper(tmp_path / "data", machine)
    machine.reboots(off=DAY)
    one = keeper(tmp_path / "data", machine)
    one.hear("abcd1234", machine.true - 7_200, 1.0, vouched=True)
    one.keep()
    assert main(["shuffler", "clock", *config, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["believed"], found["trouble"], found["same_boot"], found["confirmed"]) == (
        False,
        "off",
        False,
        False,
    )
    assert found["ahead"] == pytest.approx(DAY)
    assert found["peers"] == {"abcd1234": pytest.approx(-7_200)}
