"""What a replica remembers of an open window, which its groups and a count share: what one of them
reads is complete, committed, and of the same memory, or it is not relied on.

The statements are the production's; the database is a dictionary, in which a test stops them.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from shoal.entropy import SYSTEM
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.shuffler.core import Capacity, WindowId, WindowState
from shoal.shuffler.stores.joined import digests_of
from shoal.shuffler.stores.postgresql.database import WAIT
from shoal.shuffler.stores.postgresql.group import group_of
from shoal.shuffler.stores.postgresql.inbox import OpenWindow
from shoal.shuffler.stores.postgresql.intake import SharedIntake
from shoal.shuffler.stores.postgresql.rows import WindowRow
from shoal.shuffler.stores.postgresql.window_keys import WindowKey
from shoal.shuffler.stores.store import AdmittedRows, WindowRecord

WINDOW, KEY = WindowId(TaskId(b"\1" * 32), 0), WindowKey(b"k" * 32)
CAPACITY = Capacity(1, 100, 10**6)
_PARSED = ("id", "epoch", "seats", "found", "emptied", "check_value", "batch_fence")
_RECORD = ("reports", "row_count", "row_size", "acked", "damaged")


class TablesInMemory:
    """Blocks, tags and the window's row. ``at``: what happens before a statement, by its name."""

    def __init__(self) -> None:
        self.blocks = dict[tuple[bytes, int], tuple[Any, ...]]()
        self.tags, self.waits = set[bytes](), 0
        self.at = dict[str, Callable[[], Awaitable[None]]]()
        record = WindowRecord(WindowState.OPEN)
        self.row = WindowRow(7, WINDOW, record, 1, 0, 0, 0, KEY.check_value, 0)

    async def _pass(self, name: str) -> None:
        if name in self.at:
            await self.at[name]()

    async def check_least(self, _: object) -> None:
        pass

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[TablesInMemory]:
        yield self
        await self._pass("commit")

    async def execute(self, sql: str, *values: Any) -> str:
        if sql == WAIT:
            self.waits += 1
        if sql.startswith("UPDATE win"):
            _, seats, epoch, found, *_ = values
            self.row = replace(self.row, seats=seats, epoch=epoch, found=found)
        if "INSERT INTO inbox" in sql:
            writer, number, *block = values[-6:]
            self.blocks[bytes(writer), number] = tuple(block)
        return "INSERT 0 1"

    async def fetchrow(self, sql: str, *_: Any) -> Any:
        if "FOR UPDATE" not in sql:
            return (1,)
        found = {name: getattr(self.row, name) for name in _PARSED}
        found |= dict.fromkeys(_RECORD, 0) | dict.fromkeys(("outcome", "rows_hash", "asked"))
        return {**found, "task_id": WINDOW.task_id.raw, "win": 0, "state": 1, "manifest": b""}

    async def fetch(self, sql: str, *values: Any) -> list[Any]:
        if "RECURSIVE" in sql:
            await self._pass("writers")
            return [(writer,) for writer in sorted({writer for writer, _ in self.blocks})]
        if "tag_7" in sql:
            here = [tag for tag in values[0] if tag in self.tags]
            new = [tag for tag in values[0] if tag not in self.tags]
            if sql.startswith("SELECT"):
                return [(tag,) for tag in here]
            self.tags.update(new)
            return [(tag,) for tag in new]
        wanted, at, known, most = values
        await self._pass("page")
        return [
            (number, *self.blocks[writer, number][:3])
            for writer, number in sorted(self.blocks)
            if writer == wanted and number > at and number not in known
        ][:most]


class LoneReplica(SharedIntake):
    """Of one window, without a service around it."""

    def __init__(self, database: TablesInMemory) -> None:
        told: Any = SimpleNamespace(of=lambda _: [], note=lambda _: None)
        refused: Any = SimpleNamespace(failed=lambda *_, **__: None)
        self._db, self._refused = database, refused  # type: ignore[assignment]
        self.box = OpenWindow(database.row, KEY, SYSTEM, told)

    async def _take(self, row: WindowRow) -> WindowRow:
        self.box.follow(row)
        return row

    async def store(self, *names: bytes, devices: Sequence[bytes] = ()) -> list[Kind | None]:
        parts = [hashlib.sha256(name).digest() for name in names]
        rows = AdmittedRows(WINDOW, b"".join(parts), len(parts), tuple(devices), digests_of(parts))
        for _ in range(5):
            self.box.follow(self._db.row)  # type: ignore[attr-defined]
            kinds = await self._try(self.box, group_of(self.box, rows), CAPACITY)
            if kinds is not None:
                return kinds
        raise AssertionError("counted again and again")

    def must_count(self) -> None:
        """All seats are given out, and none is this replica's."""
        self._db.row = replace(self._db.row, seats=100)  # type: ignore[attr-defined]
        self.box.seats.left = 0


async def all_of(database: TablesInMemory) -> int:
    told: Any = SimpleNamespace(of=lambda _: [], note=lambda _: None)
    box = OpenWindow(database.row, KEY, SYSTEM, told)
    await box.read(database)  # type: ignore[arg-type]
    return len(box.keys)


async def test_what_was_forgotten_while_a_count_is_committed_is_read_again() -> None:
    """Another group of the replica fails while the count waits for the standby. Planted: the count
    settles what is not known any more -> one key of eleven, for good, and 110 reports fit into a
    window of 100, fails.
    """
    database = TablesInMemory()
    one, other = LoneReplica(database), LoneReplica(database)
    await other.store(*(b"b%d" % number for number in range(10)))
    one.must_count()

    async def another_fails() -> None:
        database.at.clear()
        one.box.failed()

    database.at["commit"] = another_fails
    assert await one.store(b"a") == [None]
    await one.store(b"again")
    assert len(one.box.keys) == await all_of(database) == 12


async def test_a_count_during_which_all_is_forgotten_begins_again() -> None:
    """Two replicas stored; another group fails when one of them is read. Planted: counted what is
    left -> 41 where 81 are, fails.
    """
    database = TablesInMemory()
    one, *others = [LoneReplica(database) for _ in range(3)]
    for number, store in enumerate(others):
        await store.store(*(b"%d-%d" % (number, report) for report in range(40)))
    one.must_count()
    pages = list[int]()

    async def between_pages() -> None:
        pages.append(1)
        if len(pages) == 3:
            one.box.failed()

    database.at["page"] = between_pages
    assert await one.store(b"a") == [None]
    assert database.row.found == await all_of(database) == 81


async def test_what_fails_again_and_again_ends() -> None:
    """Each read is ended by another group's failure. Planted: begun without end -> hangs."""
    database = TablesInMemory()
    one, other = LoneReplica(database), LoneReplica(database)
    await other.store(b"b")
    one.must_count()

    async def always() -> None:
        one.box.failed()

    database.at["page"] = always
    before = database.row
    with pytest.raises(ShoalError) as failed:
        await one.store(b"a")
    assert failed.value.kind is Kind.UNAVAILABLE
    assert database.row == before


async def test_a_read_of_a_turn_that_ended_leaves_nothing_in_the_next() -> None:
    """Its page comes when another group has read all in the next turn and committed; on it is a
    block that became visible since, perhaps on one machine alone. Planted: it is remembered all the
    same -> known for certain, to be acknowledged without a wait, fails.
    """
    database = TablesInMemory()
    one, other = LoneReplica(database), LoneReplica(database)
    await other.store(b"b")

    async def another_turn() -> None:
        database.at.clear()
        one.box.failed()
        one.box.sure(await one.box.read(database))  # type: ignore[arg-type]
        await other.store(b"late")
        database.at["page"] = lost

    async def lost() -> None:
        raise ShoalError(Kind.UNAVAILABLE, "the connection is lost")

    database.at["page"] = another_turn
    with pytest.raises(ShoalError):
        await one.box.read(database)  # type: ignore[arg-type]
    assert (one.box.reading, len(one.box.keys)) == (True, 1)


async def test_a_device_is_known_no_sooner_than_its_report() -> None:
    """It sends the same bytes twice, to a replica that did not store them. Planted: its tag known
    while keys are still read -> CONFLICT for a report that is stored, fails.
    """
    database, device = TablesInMemory(), b"D" * 32
    one, other = LoneReplica(database), LoneReplica(database)
    assert await other.store(b"r", devices=[device]) == [None]
    assert await one.store(b"first", devices=[b"E" * 32]) == [None]
    answers = list[list[Kind | None]]()

    async def meanwhile() -> None:
        database.at.clear()
        answers.append(await one.store(b"r", devices=[device]))

    database.at["writers"] = meanwhile
    answers.append(await one.store(b"r", devices=[device]))
    assert answers == [[None], [None]]


async def test_what_others_read_is_acknowledged_when_the_standby_has_it() -> None:
    """A repeat comes while a group that read its key is not committed. Planted: acknowledged from
    memory -> no wait of its own, fails; and None though that can't be had.
    """
    database = TablesInMemory()
    one, other = LoneReplica(database), LoneReplica(database)
    await other.store(b"r")
    one.must_count()
    answers = list[list[Kind | None]]()

    async def meanwhile() -> None:
        database.at.clear()
        before = database.waits
        answers.append(await one.store(b"r"))
        assert database.waits == before + 1
        database.at["commit"] = away
        with pytest.raises(ShoalError):
            await one.store(b"r")

    async def away() -> None:
        database.at.clear()
        raise ShoalError(Kind.UNAVAILABLE, "the standby is away")

    database.at["commit"] = meanwhile
    assert await one.store(b"a") == [None]
    assert answers == [[None]]
    before = database.waits
    assert await one.store(b"a") == [None]
    assert database.waits <= before + 1


async def test_who_sent_what_anothers_refusal_left_out_comes_again() -> None:
    """Two devices send one report; the first is admitted elsewhere, with another. The second has no
    tag, so nothing conflicts, and by itself it is admitted. Planted: CONFLICT, which is final ->
    fails.
    """
    database, first, second = TablesInMemory(), b"D" * 32, b"E" * 32
    one, other = LoneReplica(database), LoneReplica(database)
    assert await other.store(b"r", devices=[first]) == [None]
    kinds = await one.store(b"k", b"k", devices=[first, second])
    assert kinds == [Kind.CONFLICT, Kind.OVERLOADED]
    assert await one.store(b"k", devices=[second]) == [None]
