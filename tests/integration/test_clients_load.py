"""``shoal load`` against a real shuffler and a real analyzer: acknowledged = counted, and exit 1 when it is not."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from shoal.cli.demo.processes import Process
from shoal.cli.demo.survey import questions
from shoal.cli.demo.workspace import Workspace, build
from tests.sizes import size

DEVICES = size(80, 5_000)


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator[Workspace]:
    """The demo's tasks and services, for DEVICES reports per task."""
    workspace = build(tmp_path, questions(), DEVICES)
    running = [
        Process("analyzer", workspace.analyzer_config, workspace.analyzer_admin),
        Process("shuffler", workspace.shuffler_config, workspace.shuffler_admin),
    ]
    try:
        for one in running:
            one.start()
        for one in running:
            await one.ready()
        yield workspace
    finally:
        for one in reversed(running):
            one.stop()


async def load(workspace: Workspace, *arguments: str, counting: bool = True) -> tuple[int, Any, str]:
    """Exit status, what --json wrote (None if nothing), and the last line on standard error."""
    urls = (
        "--analyzer-status",
        f"http://127.0.0.1:{workspace.analyzer_admin}",
        "--shuffler-status",
        f"http://127.0.0.1:{workspace.shuffler_admin}",
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shoal.cli.main", "load", "--tasks-dir", str(workspace.folder / "tasks"), "--json", *arguments),
        *(urls if counting else ()),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    assert b"Traceback" not in err, err
    return process.returncode, json.loads(out) if out else None, err.decode().rstrip().rpartition("\n")[2]


async def test_acknowledged_is_counted(services: Workspace) -> None:
    """And a window that is over is refused before anything is sent."""
    code, result, err = await load(services, "--devices", str(DEVICES), "--rate", "2000")
    assert code == 0, err
    assert (result["sent"], result["acked"], result["unknown"], result["refused"]) == (3 * DEVICES, 3 * DEVICES, 0, {})
    assert [(task["acked"], task["counted"], task["rejected"], task["agrees"]) for task in result["tasks"]] == [
        (DEVICES, DEVICES, 0, True)
    ] * 3
    assert set(result["latency_ms"]) == {"p50", "p90", "p99", "max"}
    code, result, err = await load(services, "--devices", str(DEVICES))
    assert (code, result) == (2, None)
    assert f"is over, with {DEVICES} reports counted" in err


async def test_a_difference_is_an_exit_status_of_1(services: Workspace) -> None:
    """Relayed reports of somebody else in the same window. Planted: compare with sent, or drop the exit status -> 0."""
    code, result, _ = await load(services, "--devices", "5", "--relay", counting=False)
    assert (code, result["acked"]) == (0, 15)
    assert {task["counted"] for task in result["tasks"]} == {None}
    code, result, err = await load(services, "--devices", str(DEVICES - 5), "--relay", "--wait", "7200")
    assert (code, result is None) == (1, False), err
    assert [(task["acked"], task["counted"], task["agrees"]) for task in result["tasks"]] == [(DEVICES - 5, DEVICES, False)] * 3
    assert "acknowledged and counted reports differ" in err
