"""The suite that a ``StepBook`` inherits: subclass ``StepBookSuite``, give ``make``, and name the
class Test*.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from shoal.ids import TaskId
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.steps import EnteredStep, StepBook

TASK, OTHER = TaskId(b"\x01" * 32), TaskId(b"\x02" * 32)


def entry(what: str, window: int = 1, task_id: TaskId = TASK) -> EnteredStep:
    """A step that asks ``what``: a book does not verify."""
    return EnteredStep(WindowId(task_id, window), what.ljust(32).encode(), what.encode() * 9)


class StepBookSuite:
    async def make(self, folder: Path) -> StepBook:
        """The book in this folder, as one more process finds it."""
        raise NotImplementedError

    async def test_the_first_step_is_the_one_for_all(self, tmp_path: Path) -> None:
        """Also when it is entered again, and for who comes later. Planted: the last one kept ->
        fails.
        """
        one, two = await self.make(tmp_path), await self.make(tmp_path)
        first, second = entry("first"), entry("second")
        assert await one.enter(first) == first
        assert await two.enter(second) == first
        assert await one.enter(first) == first
        for book in (one, two, await self.make(tmp_path)):
            assert await book.entered([TASK]) == [first]

    async def test_of_many_at_one_instant_one_is_told_to_all(self, tmp_path: Path) -> None:
        """Planted: a look before the entry instead of one statement -> several, fails."""
        books = [await self.make(tmp_path) for _ in range(4)]
        for window in range(1, 6):
            told = await asyncio.gather(
                *(book.enter(entry(f"of {at}", window)) for at, book in enumerate(books))
            )
            assert len({*told}) == 1
            assert await books[0].entered([TASK]) == sorted(
                await books[0].entered([TASK]), key=lambda one: one.window
            )
            assert (await books[1].entered([TASK]))[-1] == told[0]

    async def test_windows_and_tasks_do_not_mix(self, tmp_path: Path) -> None:
        """Planted: one row for a task -> fails; tasks not asked for among them -> fails."""
        book = await self.make(tmp_path)
        entries = [entry("a", 2), entry("b", 1), entry("c", 1, OTHER)]
        for one in entries:
            assert await book.enter(one) == one
        assert await book.entered([TASK]) == [entries[1], entries[0]]
        assert await book.entered([OTHER]) == [entries[2]]
        assert await book.entered([]) == []
        assert await book.entered([TASK, OTHER]) == [entries[1], entries[0], entries[2]]

    async def test_a_book_that_was_read_tells_what_came_since(self, tmp_path: Path) -> None:
        """Of the tasks that it is asked for, in whichever order. Planted: what was read before
        told again as all there is -> fails; asked for one, the others forgotten or told -> fails.
        """
        one, two = await self.make(tmp_path), await self.make(tmp_path)
        first, second, other = entry("a", 1), entry("b", 2), entry("c", 1, OTHER)
        await one.enter(first)
        await one.enter(other)
        assert await two.entered([TASK, OTHER]) == [first, other]
        await one.enter(second)
        assert await two.entered([TASK]) == [first, second]
        assert await two.entered([OTHER]) == [other]
        assert await two.entered([OTHER, TASK]) == [first, second, other]

    async def test_a_task_that_ended_leaves_nothing(self, tmp_path: Path) -> None:
        """Nor does another go with it, and what is entered later counts. Planted: one window alone
        deleted -> fails; all tasks -> fails; what was read before told once more -> fails.
        """
        one, two = await self.make(tmp_path), await self.make(tmp_path)
        first, second, other = entry("a", 1), entry("b", 2), entry("c", 1, OTHER)
        for step in (first, second, other):
            await one.enter(step)
        assert await two.entered([TASK, OTHER]) == [first, second, other]
        for _ in range(2):
            await one.forget(TASK)
            for book in (one, two, await self.make(tmp_path)):
                assert await book.entered([TASK, OTHER]) == [other]
        again = entry("d", 2)
        assert await one.enter(again) == again
        assert await two.entered([TASK, OTHER]) == [again, other]
