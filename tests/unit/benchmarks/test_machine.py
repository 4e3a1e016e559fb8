"""What is read from /proc is what happened. No figure is compared with a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks import machine

_BUSY = "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\ninput()"


def test_the_cpu_of_a_process_counts_its_descendants() -> None:
    """Planted: only the process itself counted -> this fails (the shell between us and the busy one
    uses nothing).
    """
    command = ["sh", "-c", f'"{sys.executable}" -c "{_BUSY}"; true']
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"done\n"
        assert len(machine.tree(child.pid)) == 2
        assert machine.cpu_s(child.pid) >= 0.25
        child.communicate(b"\n")


def test_a_process_that_is_gone_has_used_nothing_more() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert machine.peak_mb(child.pid) == 0.0
    assert machine.cpu_s(child.pid) == 0.0


def test_peak_memory_is_in_megabytes() -> None:
    """Planted: kB taken for bytes -> this fails."""
    assert 10 < machine.peak_mb(os.getpid()) < 100_000


def test_the_machine_is_described(tmp_path: Path) -> None:
    found = machine.describe(tmp_path)
    assert found["cores"] >= 1
    assert found["packages"]["cryptography"]
    assert found["fdatasync_ms"]["p50"] >= 0
    assert found["file_system"] != "unknown"
    assert list(tmp_path.iterdir()) == []


def test_others_never_use_less_than_nothing() -> None:
    assert machine.Others().cores() >= 0.0
