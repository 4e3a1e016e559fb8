"""An agent's memory as the tests of its file use it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.clients.core import SealedReport
from shoal.clients.memory.commitments_sqlite import SqliteCommitments
from shoal.clients.memory.database import AgentStore
from shoal.clients.memory.ledger import LedgerEntry, LedgerEvent
from shoal.clients.memory.outbox_sqlite import SqliteOutbox
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from tests.worlds.devices.outbox import claim

TASK = TaskId(b"t" * 32)


def entry(window: int = 0) -> LedgerEntry:
    return LedgerEntry(LedgerEvent.REPORTED, 1.0, TASK, "visits", window)


class Device:
    """An agent's memory: one file, outbox and book. Its head is noted after every commit, unless a
    pause is named.
    """

    def __init__(self, path: Path, head_pause_s: float = 0.0) -> None:
        self.store = AgentStore(path, head_pause_s)
        self.outbox, self.commitments = SqliteOutbox(self.store), SqliteCommitments(self.store)
        self.limit = 100

    def make(self, window: int, size: int = 512, task: TaskId = TASK) -> SealedReport:
        """As ``answering.answer`` does: charge, remember, enter, within the claim."""
        with self.commitments.transaction():
            self.commitments.charge(task, window, 1, self.limit)
            self.commitments.remember(task, window, b"report %d" % window)
            self.commitments.append(entry(window))
        return SealedReport(task, window, b"f" * size, b"k" * 32, 1)

    def claim(self, window: int, size: int = 512) -> bool:
        return claim(self.outbox, TASK, window, lambda: self.make(window, size))[1]

    def standing(self) -> tuple[int, int, int, int]:
        """Reports, charges, permanent reports, entries: together or not at all."""
        remembered = len([1 for window in range(20) if self.commitments.permanent(TASK, window)])
        return (
            len(self.outbox.records()),
            len(self.commitments.charges()),
            remembered,
            self.commitments.verify().count,
        )


def error_of(kind: Kind, step: Callable[[], object]) -> str:
    with pytest.raises(ShoalError) as caught:
        step()
    assert caught.value.kind is kind
    assert "\n" not in caught.value.message
    return caught.value.message
