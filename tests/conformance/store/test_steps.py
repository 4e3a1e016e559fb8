"""The books of steps under their suite: the table of a database, and the one in memory that tests
of the shuffler use.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.replicas.steps import SharedSteps
from shoal.shuffler.stores.steps import StepBook
from tests.conformance.store.steps_suite import TASK, StepBookSuite, entry
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

    async def test_a_row_is_read_once_while_it_is_the_same(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By its version: nothing is hashed, and one new row does not have the others read again. A
        row that somebody changed is another one, though it were changed back. Planted: all rows of
        a task read with each new one -> fails; versions not looked at -> fails.
        """
        book, entries = await self.make(tmp_path), [entry("a", 1), entry("b", 2), entry("c", 3)]
        assert isinstance(book, SharedSteps)
        read, whole = list[list[int]](), book._versions

        async def counted(connection: Any, keys: Any) -> Any:
            read.append([window for _, window, _ in keys])
            return await whole(connection, keys)

        monkeypatch.setattr(book, "_versions", counted)
        for step in entries[:2]:
            await book.enter(step)
        for _ in range(3):
            assert await book.entered([TASK]) == entries[:2]
        await book.enter(entries[2])
        for _ in range(2):
            assert await book.entered([TASK]) == entries
        assert read == [[1, 2], [3]]
        for data in (b"other", entries[1].data):
            await book._db.execute("UPDATE step SET data = $1 WHERE win = 2", data)
            changed = await book.entered([TASK])
            assert [step.data for step in changed] == [entries[0].data, data, entries[2].data]
        assert read[2:] == [[2], [2]]
