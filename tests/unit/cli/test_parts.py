"""A command loads its own module and no other's; help and mistakes are answered as if all were
there.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer

from shoal.cli.main import PARTS, build, main, parts_for
from tests.cases import for_each

Capture = pytest.CaptureFixture[str]
_SERVED = """
import sys
from shoal.cli.main import main
main(["shuffler", "serve", "--config", "/there/is/none.toml"])
others = ("shoal.accounting", "shoal.mechanisms", "shoal.analyzer", "shoal.cli.demo")
wrong = [name for name in sys.modules if name.startswith(others)]
sys.exit(" ".join(wrong) or ("shoal.shuffler.service" not in sys.modules))
"""


@for_each("part", PARTS)
def test_every_part_registers_the_command_that_it_is_named_after(part: str) -> None:
    """Planted: a part under another name -> its command loads all the others, and this fails."""
    command = typer.main.get_command(build((part,)))
    (name,) = set(command.commands) - {"agent"}  # type: ignore[attr-defined] # a group
    assert parts_for([name, "--help"]) == (part,)


@for_each("arguments", [(), ("--help",), ("key",), ("demo.command",)])
def test_anything_else_is_answered_by_all(arguments: tuple[str, ...]) -> None:
    assert parts_for(arguments) == tuple(PARTS)


def test_the_version_wants_no_part(capsys: Capture) -> None:
    """Planted: every part loaded to print it -> half a second, and this fails."""
    assert parts_for(["--version"]) == ()
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("shoal ")


def test_help_names_every_command_and_a_wrong_one_is_an_error(capsys: Capture) -> None:
    """Planted: an unknown name looked for in no part at all -> nothing to choose from is shown."""
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f" {part} " in shown for part in (*PARTS, "agent"))
    assert main(["key"]) == 2
    assert "no such command 'key'" in capsys.readouterr().err


def test_a_shufflers_process_holds_nothing_that_understands_a_report() -> None:
    """The import law in the running service. Planted: every part loaded for every command ->
    accountant and mechanisms are there.
    """
    done = subprocess.run(
        [sys.executable, "-c", _SERVED], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 1  # the file that there is not


def test_a_command_whose_output_is_closed_does_its_work_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """``shoal ... >&-``: there is no sys.stdout then. Planted: flushed unasked -> a service that
    stopped cleanly says that it has a bug.
    """
    monkeypatch.setattr(sys, "stdout", None)
    assert (
        main(["epsilon", "--mechanism", "rr", "--epsilon0", "1", "--n", "100", "--delta", "1e-6"])
        == 0
    )
    assert capsys.readouterr().err == ""
