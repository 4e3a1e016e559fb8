"""What audits of running services have in common: a device's side of a task, what the analyzer
opens, and an attack on statistics that were gathered beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from shoal.accounting.audit.audit import AuditResult, audit
from shoal.clients.core import Assignment, assign
from shoal.crypto.envelope import NONCE_SIZE, open_report, report_info
from shoal.crypto.trust import trust_schedule, trust_task
from tests.worlds.services.shuffler import Published, World


def assignment_of(world: World, published: Published) -> Assignment:
    """From the task's files, as a device checks them."""
    stem = world.tasks_dir / published.task_id.short
    trusted = trust_task(stem.with_suffix(".task").read_bytes(), {world.authority.public})
    return assign(trusted, trust_schedule(stem.with_suffix(".keys").read_bytes(), trusted))


def opened(published: Published, rows: Iterable[bytes]) -> list[bytes]:
    """The messages in rows of window 0."""
    key = published.analyzer_keys[0]
    info = report_info(published.task_id, 0, key.config.key_id)
    return [open_report(key, info, row)[NONCE_SIZE:] for row in rows]


def audited(
    statistics: Mapping[str, NDArray[np.float64]], epsilon: float, delta: float
) -> AuditResult:
    """Of one number per victim. Victims with even numbers gave one answer, the others the other."""
    taken = [0, 0]

    def views(which: int, trials: int) -> dict[str, NDArray[np.float64]]:
        start, taken[which] = taken[which], taken[which] + trials
        return {name: one[which::2][start : start + trials] for name, one in statistics.items()}

    return audit(views, epsilon, delta, len(next(iter(statistics.values()))) // 2)
