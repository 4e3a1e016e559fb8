"""A window claimed and answered as an agent does it, for tests that bring a report of their own."""

from __future__ import annotations

from collections.abc import Callable

from shoal.clients.core import SealedReport
from shoal.clients.memory.outbox import Outbox, Record
from shoal.ids import TaskId


def claim(
    outbox: Outbox, task_id: TaskId, window: int, make: Callable[[], SealedReport]
) -> tuple[Record, bool]:
    """The report of a window: the existing one and False, or ``make()``, queued, and True."""
    with outbox.transaction():
        known = outbox.claim(task_id, window)
        return (known, False) if known is not None else (outbox.add(make()), True)
