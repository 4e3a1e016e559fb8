"""Windows that operators gave up, as far as something is left to do about them."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

from shoal.cli.operations import task_checks
from shoal.cli.operations.findings import Findings
from shoal.errors import ShoalError
from shoal.services import given_up
from shoal.services.given_up import GivenUp
from shoal.services.settings import RoleSettings
from shoal.shuffler.config import ShufflerConfig
from shoal.shuffler.stores.configured import read_given_up
from shoal.task import Task

_MOST_NAMED = 8  # windows of a task, the last
_MENDS = {
    "shuffler": "an analyzer that had one whole by then still releases it: its operator gives it "
    "up too, with `shoal analyzer window abandon`",
    "analyzer": "the shuffler keeps what it has of them until then: its operator gives them up "
    "too, with `shoal shuffler window abandon`",
}


def windows(
    findings: Findings, role: str, settings: RoleSettings, other: RoleSettings | None
) -> None:
    """How many, of which tasks, and what to do while retention goes on. ``other``: the other
    service, where it is looked at too: what it gave up as well is done with.
    """
    findings.about(role)
    with findings.checking("windows"):
        lines = [*given_up.read(settings.data_dir), *_elsewhere(settings)]
        lines = list({line.key: line for line in reversed(lines)}.values())[::-1]
        if not lines:
            findings.ok("windows", "none was given up")
            return
        tasks = _tasks(settings)
        there = set() if other is None else _there(other.data_dir)
        left = [each for each in lines if each.key not in there and _kept(each, tasks)]
        listed = f"who, when and why: `shoal {role} window list`"
        if left:
            findings.warn(
                "windows",
                f"{_counted(left, tasks)}, and retention goes on: {_MENDS[role]}; {listed}",
            )
        else:
            findings.ok("windows", f"{_counted(lines, tasks)}; nothing is left to do; {listed}")


def _elsewhere(settings: RoleSettings) -> list[GivenUp]:
    """What was given up at any replica of a shared database, as far as that can be asked: its own
    part says if not.
    """
    if not isinstance(settings, ShufflerConfig):
        return []
    with suppress(ShoalError):
        return [line for line, _ in asyncio.run(read_given_up(settings))]
    return []


def _tasks(settings: RoleSettings) -> dict[str, Task]:
    """By id. What is wrong with their files is told elsewhere."""
    served = task_checks.tasks(Findings(), settings.tasks_dir, settings.authority_keys)
    return {each.task_id.hex: each.task for each in served}


def _there(folder: Path) -> set[given_up.TaskWindow]:
    """What the other service gave up, as far as it can be read: its own part says if not."""
    try:
        return {each.key for each in given_up.read(folder)}
    except ShoalError:
        return set()


def _kept(line: GivenUp, tasks: dict[str, Task]) -> bool:
    """Whether the other service may still have something of it, as far as its task is known."""
    task = tasks.get(line.task_id)
    return task is not None and time.time() < task.windows.start_of(line.window) + task.retention_s


def _counted(lines: list[GivenUp], tasks: dict[str, Task]) -> str:
    """ "3 windows given up here (visits 3, 7; task 5f0c1234 0)"."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for line in lines:
        numbers[line.task_id].append(line.window)
    words = []
    for task_id, of_task in numbers.items():
        task = tasks.get(task_id)
        name = f"task {task_id[:8]}" if task is None else task.name
        last = sorted(of_task)[-_MOST_NAMED:]
        more = f" and {len(of_task) - len(last)} before" if len(of_task) > len(last) else ""
        words.append(f"{name} {', '.join(map(str, last))}{more}")
    count = "1 window" if len(lines) == 1 else f"{len(lines)} windows"
    return f"{count} given up here ({'; '.join(words)})"
