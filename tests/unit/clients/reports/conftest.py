"""What an answer is charged to, in memory and on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.clients.memory.commitments_memory import MemoryCommitments
from shoal.clients.memory.database import AgentStore


@pytest.fixture
def commitments() -> MemoryCommitments:
    return MemoryCommitments()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AgentStore]:
    opened = AgentStore(tmp_path / "outbox.db")
    yield opened
    opened.close()
