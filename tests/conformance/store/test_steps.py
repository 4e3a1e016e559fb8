"""The books of steps under their suite: the table of a database, and the one in memory that tests
of the shuffler use.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.replicas.steps import SharedSteps
from shoal.shuffler.stores.steps import StepBook
from tests.conformance.store.steps_suite import StepBookSuite
from tests.worlds import postgres
from tests.worlds.replica_stores import SHUFFLER
from tests.worlds.step_books import MemoryBook


class TestMemoryBook(StepBookSuite):
    @pytest.fixture(autouse=True)
    def _book(self) -> None:
        self.book = MemoryBook()

    async def make(self, folder: Path) -> StepBook:
        return self.book


@pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)
class TestSharedSteps(StepBookSuite):
    @pytest.fixture(autouse=True)
    async def _database(self) -> AsyncIterator[None]:
        self.dsn = postgres.shared().database()
        async with AsyncExitStack() as self.opened:
            yield

    async def make(self, folder: Path) -> StepBook:
        database = await Database.open(self.dsn, SHUFFLER, connections=4)
        return SharedSteps(await self.opened.enter_async_context(database))
