"""kill -9 of shuffler and analyzer in the middle of the demo, restarted by it: every acknowledged
report counted exactly once.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.sizes import size

pytestmark = pytest.mark.campaign
DEVICES = size(500, 2_500, 20_190)
KILLS = size(3, 4, 12)
# 20,190 devices keep both cores of a small machine busy for minutes.
PATIENCE_S = size(240, 600, 2_400)


def _bytes_in(folder: Path) -> int:
    """Bytes of the files of a folder that services work in; files may come and go meanwhile."""
    total = 0
    for path in folder.glob("*") if folder.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def _kill(folder: Path, role: str) -> bool:
    """SIGKILL the service whose pid stands in its file; False if it is not running now."""
    try:
        os.kill(int((folder / role / f"{role}.pid").read_text()), signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return False
    return True


def _wreck(demo: subprocess.Popen[bytes], folder: Path) -> dict[str, int]:
    """Kill the shuffler each time the stored bytes grew by a share of a report's cost, the analyzer
    when a batch is sealed, and again.
    """
    killed = {"shuffler": 0, "analyzer": 0}
    data = folder / "shuffler" / "data"
    # a report costs at least 150 bytes of write-ahead log or file
    step = DEVICES * 3 * 150 // (KILLS + 1)
    mark, deadline = 0, time.monotonic() + PATIENCE_S
    while demo.poll() is None and time.monotonic() < deadline:
        stored = _bytes_in(data)
        if killed["shuffler"] < KILLS and stored > mark + step and _kill(folder, "shuffler"):
            killed["shuffler"] += 1
            mark = stored
        if killed["analyzer"] < 2 and list(data.glob("batch-*.rows")) and _kill(folder, "analyzer"):
            killed["analyzer"] += 1
        with contextlib.suppress(subprocess.TimeoutExpired):
            demo.wait(0.05)
    return killed


@pytest.mark.timeout(PATIENCE_S + 60)
def test_every_acknowledged_report_counts_once_through_kills_of_both_services(
    tmp_path: Path,
) -> None:
    """The demo fails by itself unless acknowledged <= counted <= acknowledged + unknown; here also
    the total must be whole.

    Planted: the shuffler's writer answering before it commits -> acknowledged reports are lost, the
    windows never fill and the demo ends without a release; the analyzer finishing a batch twice ->
    n above the number of devices.
    """
    kept = tmp_path / "kept"
    command = [
        sys.executable,
        "-m",
        "shoal.cli.main",
        "demo",
        "--devices",
        str(DEVICES),
        "--keep",
        str(kept),
        "--json",
        "results.json",
    ]
    with (tmp_path / "screen").open("wb") as screen:
        demo = subprocess.Popen(command, cwd=tmp_path, stdout=screen, stderr=screen)
        try:
            killed = _wreck(demo, kept)
            status = demo.wait(10)
        finally:
            demo.kill()
            demo.wait()
    assert status == 0, (tmp_path / "screen").read_text()
    results = json.loads((tmp_path / "results.json").read_text())
    assert killed["shuffler"] >= 1
    assert killed["analyzer"] >= 1
    assert [task["release"]["n"] for task in results["tasks"]] == [DEVICES] * 3
    assert results["reports"]["counted"] == 3 * DEVICES
    assert results["reports"]["acknowledged"] + results["reports"]["unknown"] == 3 * DEVICES
    assert results["reports"]["refused"] == {}
    left = [
        path.name
        for path in (kept / "shuffler" / "data").iterdir()
        if path.name.startswith(("inbox", "batch"))
    ]
    assert left == []
    assert list((kept / "shuffler" / "keys").iterdir()) == []
    assert list((kept / "analyzer" / "keys").iterdir()) == []
