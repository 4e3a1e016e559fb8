"""What a service says of its CPU and memory: of itself and its workers, in steps too coarse to
count reports.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from shoal.rpc import admin
from shoal.rpc.process import Usage, usage
from shoal.services.conditions import Conditions


def stat(
    proc: Path, pid: int, times: tuple[int, int, int, int], pages: int, children: str = ""
) -> None:
    """proc(5): 13 fields from the state to utime, and so on; the name may hold anything."""
    folder = proc / str(pid)
    (folder / "task" / str(pid)).mkdir(parents=True)
    fields = ["S", *["0"] * 10, *map(str, times), *["0"] * 6, str(pages), "0"]
    (folder / "stat").write_text(f"{pid} (a) b) c) {' '.join(fields)}\n")
    (folder / "task" / str(pid) / "children").write_text(children)


def test_workers_are_in_the_sum(tmp_path: Path) -> None:
    """Two generations, and a worker that ended between two looks. Planted: this process alone ->
    fails.
    """
    stat(tmp_path, os.getpid(), (100, 20, 3, 4), 50, "71 72 ")
    stat(tmp_path, 71, (1_000, 0, 0, 0), 7, "73")
    stat(tmp_path, 73, (10_000, 0, 0, 0), 1)
    found = usage(tmp_path)
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    assert found.cpu_s == (127 + 1_000 + 10_000) / ticks
    assert found.resident_bytes == 58 * page


def test_without_proc_there_is_the_process_itself(tmp_path: Path) -> None:
    found = usage(tmp_path / "nothing")
    assert found.cpu_s > 0
    assert found.resident_bytes == 0


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_a_real_child_counts() -> None:
    """It holds 64 MiB. Planted: children are not looked up -> fails."""
    before = usage().resident_bytes
    code = "import sys; held = b'x' * (64 << 20); print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        during = usage().resident_bytes
        child.communicate()
    assert during - before > 60 << 20


def test_metrics_are_coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole seconds and MiB: finer ones would count reports of an open window. Planted: the value
    as it is -> fails.
    """
    monkeypatch.setattr(admin, "usage", lambda: Usage(12.9, (5 << 20) + 17, 1_800_000_000.0))
    one = admin.Admin("127.0.0.1:0", Conditions(), dict, CollectorRegistry())
    samples = {
        sample.name: sample.value for metric in one._process.collect() for sample in metric.samples
    }
    assert samples == {
        "process_cpu_seconds_total": 12.0,
        "process_resident_memory_bytes": 5 << 20,
        "process_start_time_seconds": 1_800_000_000.0,
    }
