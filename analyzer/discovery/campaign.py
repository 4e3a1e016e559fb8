"""Which window of a discovery asks what: the rule by which the analyzer goes on from one level to
the next.

The next level is asked once a window with the present one is released, in the first window that has
not run for half its length. Where such a window is withheld or given up, its level is asked again.
Where nothing is heard of it, because its shuffler withheld it or went away, that happens in the
window after the next: until then its release may still come, and counts. A discovery is over with
its last level, when nothing is left to follow, or with the task's windows.

Pure. The same releases and the same moment give the same step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from shoal.crypto.discovery_steps import DiscoveryStep, first_level, level_asked
from shoal.domain import Discovery
from shoal.ids import Digest, TaskId
from shoal.task import Task

_LATE = 0.5  # of a window, after which nobody begins to be asked in it


@dataclass(frozen=True, slots=True)
class ReleasedLevel:
    """What a window published. ``level``: its number; ``beginnings``: that were found, whole words
    among them; ``release``: SHA-256 of the Release bytes.
    """

    level: int
    beginnings: tuple[bytes, ...]
    release: Digest


def due_step(
    task: Task,
    task_id: TaskId,
    steps: Mapping[int, DiscoveryStep],
    released: Mapping[int, ReleasedLevel],
    ended: Collection[int],
    now: float,
) -> DiscoveryStep | None:
    """The step that is to be made ``now`` (Unix seconds); None: none is. ``steps``: that were made,
    by window; ``released``: published windows; ``ended``: those, and windows of which nothing is to
    come.
    """
    discovery, plan = task.domain, task.windows
    if not isinstance(discovery, Discovery) or any(step.is_over for step in steps.values()):
        return None
    # steps that were lost with a disk are no reason to begin again: what was released stands
    last = max((0, *steps, *released))
    silent = last + 2 < plan.count and now >= plan.start_of(last + 2)
    if last not in ended and not silent:
        return None
    window = _open_window(task, last, now)
    if window is None:
        return None
    asked = level_asked(discovery, steps, last)
    highest = max((found.level for found in released.values()), default=-1)
    if asked is not None and highest < asked.number:  # its level is not known yet: once more
        before = steps.get(last)
        return DiscoveryStep(task_id, window, asked, None if before is None else before.release)
    if highest < 0:
        return DiscoveryStep(task_id, window, first_level(discovery), None)
    found = released[max(w for w, found in released.items() if found.level == highest)]
    return DiscoveryStep(
        task_id, window, discovery.after(found.level, found.beginnings), found.release
    )


def _open_window(task: Task, last: int, now: float) -> int | None:
    """The first window after ``last`` that can still be asked; None: the task has none."""
    plan = task.windows
    current = plan.current(now)
    if current is None:
        return None
    if now - plan.start_of(current) > _LATE * plan.length_s:
        current += 1
    window = max(last + 1, current)
    return window if window < plan.count else None
