"""Children end with their parent."""

from __future__ import annotations

import subprocess
import sys

_PARENT = """
import subprocess, sys
wanted = ["/bin/sh", "-c", "echo ready; exec sleep 600"]
subprocess.Popen([sys.executable, "-m", "shoal.services.parent", *wanted]).wait()
"""


def test_a_program_of_others_ends_with_the_process_that_started_it() -> None:
    """Also where that is killed and cleans nothing up. Planted: ``signalled_with_parent`` not
    called -> the program keeps the pipe open, and this fails after the time.
    """
    parent = subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "ready\n"
    parent.kill()
    rest, _ = parent.communicate(timeout=60)
    assert rest == ""
