"""A process that starts warm is a process like any other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from shoal import __version__

COMMAND = [sys.executable, "-m", "shoal.cli.main"]


def test_its_streams_its_folder_and_its_exit_status_are_its_own(tmp_path: Path) -> None:
    """Planted: the folder left out of what the warm process is told -> the file is not found."""
    done = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"shoal {__version__}\n", "")
    (tmp_path / "here.toml").write_text("no")
    line = [*COMMAND, "agent", "status", "--config", "here.toml"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "cannot read" not in done.stderr


def test_it_is_the_child_of_whoever_started_it(tmp_path: Path) -> None:
    """Planted: no heir meanwhile -> it is somebody else's child, and nobody learns how it ended."""
    waiting = [sys.executable, "-m", "tests.faults.shuffler_child"]  # for orders
    with subprocess.Popen(waiting, cwd=Path(__file__).parents[3], stdin=subprocess.PIPE) as child:
        status = Path(f"/proc/{child.pid}/status")
        if status.exists():
            assert f"PPid:\t{os.getpid()}\n" in status.read_text()
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
