"""The command reference of the site says what the commands themselves say. That every link leads
somewhere is for `make docs`, which CI runs.
"""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

from shoal.cli.main import PARTS

ROOT = Path(__file__).resolve().parents[3]
reference = SimpleNamespace(**run_path(str(ROOT / "tools" / "site" / "commands.py")))


def test_every_command_is_in_the_reference_with_its_options() -> None:
    """Planted: groups left out, or the agent's parser not read -> fails."""
    found = {command.name: command for command in reference.commands()}
    assert {name.split()[1] for name in found} == {*PARTS, "agent"}
    assert {"shoal keys schedule", "shoal agent ledger"} <= found.keys()
    options = [names for names, _ in found["shoal load"].options]
    assert {"--devices", "--way", "--analyzer-status"} <= set(options)
    assert all(command.help and command.options for command in found.values())


def test_every_command_has_an_example() -> None:
    """Planted: the example of ``shoal results export`` taken out -> fails."""
    without = [one.name for one in reference.commands() if f"{one.name} " not in one.help]
    assert not without


def test_angle_brackets_and_bars_do_not_break_the_page() -> None:
    """Planted: text not escaped -> <int> is a tag, and a bar a column; fails."""
    page = reference.page()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    assert "<" not in page
    assert all(row.replace("\\|", "").split("` |")[1].count("|") == 1 for row in rows)
