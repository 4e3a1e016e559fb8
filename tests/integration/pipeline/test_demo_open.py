"""``shoal demo --open``, as a person uses it: the console with its questions, until Ctrl-C."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

_USUAL_PORT = 7450


@pytest.mark.timeout(240)
def test_open_shows_the_questions_until_ctrl_c(tmp_path: Path) -> None:
    """Its usual port is taken, by this test or by whoever has it already. Planted: no second
    choice of a port -> exit status 2; no signed tasks left in the folder -> the page has the tasks'
    names for words; the console left running -> no end.
    """
    command = [sys.executable, "-m", "shoal.cli.main", "demo", "--devices", "50", "--open"]
    with socket.socket() as other, contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            other.bind(("127.0.0.1", _USUAL_PORT))
            other.listen()
        demo = stack.enter_context(
            subprocess.Popen(
                command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
        stack.callback(demo.kill)
        assert demo.stdout is not None
        lines: list[str] = []
        url = None
        while url is None and (line := demo.stdout.readline()):
            lines.append(line)
            url = re.search(r"Open (\S+) to look around", line)
        assert url is not None, "".join(lines)
        assert not url.group(1).endswith(f":{_USUAL_PORT}/")
        with urllib.request.urlopen(url.group(1), timeout=20) as page:  # noqa: S310 - our own
            assert "How many outpatient visits did you have this year?" in page.read().decode()
        demo.send_signal(signal.SIGINT)
        lines += demo.stdout.readlines()
        assert demo.wait() == 0, "".join(lines)
    assert "shoal console --releases shoal-demo/results.json" in lines[-1]
    assert not any("\x1b" in line for line in lines)
