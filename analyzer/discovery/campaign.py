"""Which window of a discovery asks what: the rule by which the analyzer goes on from one level to
the next.

The next level is asked in the first window that has not run for half its length, once a window with
the present level is released. Where such a window is withheld or given up, the level is asked
again. Where nothing is heard of it, because its shuffler withheld it or went away, the level is
asked again in the window after the next: until then its release may still come, and counts. A
discovery is over with its last level, when nothing is left to follow, or with the task's windows.

Pure. The same releases and the same moment give the same step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from shoal.crypto.discovery_steps import DiscoveryStep, first_level
from shoal.domain import Discovery
from shoal.ids import Digest, TaskId
from shoal.questions.discovery import DiscoveryLevel
from shoal.task import Task

_LATE = 0.5  # of a window, after which nobody begins to be asked in it


@dataclass(frozen=True, slots=True)
class ReleasedLevel:
    """What a window published. ``beginnings``: that were found, whole words among them;
    ``release``: SHA-256 of the Release bytes.
    """

    beginnings: tuple[bytes, ...]
    release: Digest


def level_asked(
    discovery: Discovery, steps: Collection[DiscoveryStep], window: int
) -> DiscoveryLevel | None:
    """What a window asks, by the steps that were made; None: nothing."""
    if window == 0:
        return first_level(discovery)
    return next((step.level for step in steps if step.window == window), None)


def due_step(
    task: Task,
    task_id: TaskId,
    steps: Collection[DiscoveryStep],
    released: Mapping[int, ReleasedLevel],
    ended: Collection[int],
    now: float,
) -> DiscoveryStep | None:
    """The step that is to be made ``now`` (Unix seconds); None: none is. ``steps``: that were made;
    ``released``: published windows; ``ended``: those and windows of which nothing is to come.
    """
    discovery, plan = task.domain, task.windows
    if not isinstance(discovery, Discovery) or any(step.is_over for step in steps):
        return None
    last = max((step.window for step in steps), default=0)
    level = level_asked(discovery, steps, last)
    if level is None:
        return None
    silent = last + 2 < plan.count and now >= plan.start_of(last + 2)
    if last not in ended and not silent:
        return None
    window = _open_window(task, last, now)
    if window is None:
        return None
    found = _newest(discovery, level, steps, released)
    if found is not None:
        return DiscoveryStep(task_id, window, level.after(found.beginnings), found.release)
    before = next((step for step in steps if step.window == last), None)
    return DiscoveryStep(task_id, window, level, None if before is None else before.release)


def _open_window(task: Task, last: int, now: float) -> int | None:
    """The first window after ``last`` that can still be asked; None: the task has none."""
    plan = task.windows
    current = plan.current(now)
    if current is None:
        return last + 1 if now < plan.start_s and last + 1 < plan.count else None
    if now - plan.start_of(current) > _LATE * plan.length_s:
        current += 1
    window = max(last + 1, current)
    return window if window < plan.count else None


def _newest(
    discovery: Discovery,
    level: DiscoveryLevel,
    steps: Collection[DiscoveryStep],
    released: Mapping[int, ReleasedLevel],
) -> ReleasedLevel | None:
    """Of the newest published window that asked the same level."""
    windows = [window for window in released if level_asked(discovery, steps, window) == level]
    return released[max(windows)] if windows else None
