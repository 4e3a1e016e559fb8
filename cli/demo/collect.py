"""Waiting for the end of campaigns: their releases are read from the analyzer's own store."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shoal.analyzer.results.release_json import decode_release, to_json
from shoal.analyzer.store import FILE_NAME, AnalyzerStore
from shoal.cli.demo.processes import Process
from shoal.cli.load.progress import Bars
from shoal.crypto.campaign import Campaign
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.protos.release_pb2 import Release

_LOOK_S = 0.2  # between two looks at the services
_PATIENCE_S = 600.0


async def released(
    data: Path, campaigns: Sequence[Campaign], progress: Bars
) -> list[dict[str, Any]]:
    """The last release of each campaign, in their order, from the analyzer's folder, when all are
    over. Raises UNAVAILABLE if that takes too long.
    """
    bar = progress.add_task("batches are released", total=len(campaigns))
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        stored = await asyncio.to_thread(_read, data)
        over = [
            made for campaign in campaigns if (made := releases_of(campaign, stored)) is not None
        ]
        progress.tell(bar, len(over))
        if len(over) == len(campaigns):
            return [to_json(releases[-1]) for releases in over]
        await asyncio.sleep(_LOOK_S)
    raise ShoalError(
        Kind.UNAVAILABLE,
        f"no release after {_PATIENCE_S:.0f} s: see shuffler.log and analyzer.log with --keep DIR",
    )


async def windows_released(
    data: Path, wanted: Sequence[tuple[TaskId, int]], told: Callable[[int], None]
) -> list[Release]:
    """The releases of these windows, in their order, once all are there. ``told`` hears how many
    are. Raises UNAVAILABLE if that takes too long.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        stored = await asyncio.to_thread(_read_windows, data)
        found = [stored[each] for each in wanted if each in stored]
        told(len(found))
        if len(found) == len(wanted):
            return found
        await asyncio.sleep(_LOOK_S)
    raise ShoalError(
        Kind.UNAVAILABLE,
        f"no release after {_PATIENCE_S:.0f} s: see shuffler.log and analyzer.log with --keep DIR",
    )


def releases_of(campaign: Campaign, stored: Mapping[TaskId, Release]) -> list[Release] | None:
    """A campaign's releases, one per step; None while one is to come. Every campaign has a step."""
    releases: list[Release] = []
    while (step := campaign.next(releases)) is not None:
        if step.task_id not in stored:
            return None
        releases.append(stored[step.task_id])
    return releases


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


def _read(data: Path) -> dict[TaskId, Release]:
    """Releases by task, which have one window each; nothing while the analyzer hasn't made its
    store yet.
    """
    return {task_id: release for (task_id, _), release in _read_windows(data).items()}


def _read_windows(data: Path) -> dict[tuple[TaskId, int], Release]:
    with contextlib.suppress(ShoalError, FileNotFoundError):
        store = AnalyzerStore(data / FILE_NAME, read_only=True)
        try:
            releases = [decode_release(stored.release) for stored in store.releases()]
        finally:
            store.close()
        return {(TaskId(release.task_id), release.window): release for release in releases}
    return {}
