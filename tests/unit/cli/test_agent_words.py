"""What ``shoal agent`` says to an owner who made a mistake, or whose machine is in trouble."""

from __future__ import annotations

import pytest

from shoal.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--config", "agent.toml", "run"], "--config goes after the command: shoal agent run --config FILE ..."),
        (["--config=agent.toml", "status"], "--config goes after the command: shoal agent status --config FILE ..."),
        (["--json", "--config", "a\x1b.toml", "budget"], "--json goes after the command: shoal agent budget --config FILE ..."),
        (["--config", "agent.toml"], "--config goes after the command: shoal agent COMMAND --config FILE ..."),
    ],
)
def test_an_option_before_its_command_is_told_where_it_belongs(
    capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    """Planted: left to argparse, which takes the file for a command -> this fails."""
    assert main(["agent", *arguments]) == 2
    assert capsys.readouterr().err == f"shoal: {expected}\n"


@pytest.mark.parametrize("option", ["-h", "--help", "--he"])
def test_help_goes_anywhere(capsys: pytest.CaptureFixture[str], option: str) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["agent", option])
    assert stop.value.code == 0
    assert "examples:" in capsys.readouterr().out
