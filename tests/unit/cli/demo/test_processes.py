"""Starting a service of the demo: what ends before it runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shoal.cli.demo.processes import Process
from shoal.errors import Kind, ShoalError


class Doomed(Process):
    """Each start runs a line of Python instead of a service."""

    lines: list[str]

    def start(self) -> None:
        self._child = subprocess.Popen([sys.executable, "-c", self.lines.pop(0)])
        self._child.wait()


@pytest.mark.parametrize(
    ("lines", "text", "restarts"),
    [
        (["raise SystemExit(2)"], "the analyzer did not start (exit status 2)", 0),
        (
            ["import os; os.kill(os.getpid(), 9)", "raise SystemExit(1)"],
            "the analyzer did not start (exit status 1)",
            1,
        ),
    ],
)
async def test_a_service_that_a_signal_ended_is_started_again(
    tmp_path: Path, lines: list[str], text: str, restarts: int
) -> None:
    """And one that says no is not. Planted: the status not looked at -> the first is started again;
    never revived -> the second isn't.
    """
    service = Doomed("analyzer", tmp_path / "analyzer.toml", 1)
    service.lines = lines
    service.start()
    with pytest.raises(ShoalError, match=text.replace("(", r"\(").replace(")", r"\)")) as caught:
        await service.ready()
    assert caught.value.kind is Kind.UNAVAILABLE
    assert service.restarts == restarts
