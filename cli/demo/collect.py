"""Waiting for the releases: progress from the analyzer's own status, the releases from its
store.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress

from shoal.analyzer.results.release import decode_release, to_json
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.cli.demo.processes import Process
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId

_LOOK_S = 0.2  # between two looks at the services
_PATIENCE_S = 600.0


async def released(data: Path, tasks: Sequence[TaskId], progress: Progress) -> list[dict[str, Any]]:
    """One release per task, in the tasks' order, from the analyzer's folder. Raises UNAVAILABLE if
    they don't come.
    """
    bar = progress.add_task("batches are released", total=len(tasks))
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        found = await asyncio.to_thread(_read, data)
        progress.update(bar, completed=len(found))
        if len(found) == len(tasks):
            return [found[task_id.hex] for task_id in tasks]
        await asyncio.sleep(_LOOK_S)
    raise ShoalError(
        Kind.UNAVAILABLE,
        f"no release after {_PATIENCE_S:.0f} s: see shuffler.log and analyzer.log with --keep DIR",
    )


async def shredded(shuffler: Process, tasks: int) -> None:
    """Until the shuffler has the analyzer's word for every batch and has destroyed its own copy."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(ShoalError):
            states = [
                task["states"].get("SHREDDED", 0) for task in (await shuffler.status())["tasks"]
            ]
            if len(states) == tasks and all(states):
                return
        await asyncio.sleep(_LOOK_S)
    raise ShoalError(
        Kind.UNAVAILABLE,
        f"the shuffler still holds batches after {_PATIENCE_S:.0f} s: see shuffler.log with --keep "
        "DIR",
    )


def _read(data: Path) -> dict[str, dict[str, Any]]:
    """Releases by task id; nothing while the analyzer hasn't made its store yet."""
    with contextlib.suppress(ShoalError, FileNotFoundError):
        store = AnalyzerStore(data / FILE_NAME, read_only=True)
        try:
            releases = [to_json(decode_release(stored.release)) for stored in store.releases()]
        finally:
            store.close()
        return {release["task_id"]: release for release in releases}
    return {}
