"""Replicas of one database and the questions of a discovery: a window takes reports of the one
question that it was opened with, whatever a replica believes, also when the database was put back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from shoal import failpoints
from shoal.errors import Kind, ShoalError
from shoal.ids import TaskId
from shoal.shuffler.core import WindowId
from shoal.shuffler.stores.postgresql.replicas.steps import SharedSteps
from shoal.shuffler.stores.postgresql.store import PostgresStore
from shoal.shuffler.stores.steps import EnteredStep
from shoal.shuffler.stores.store import AdmittedReport
from tests.conformance.store.harness import OTHER, TASK, mine, reports, seal
from tests.worlds import postgres
from tests.worlds.replica_stores import Replicas, replica_stores

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)
ONE = WindowId(TASK, 1)
ELSE = TaskId(b"\x02" * 32)
X, Y = b"x" * 32, b"y" * 32


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[Replicas]:
    async with replica_stores(tmp_path) as make:
        yield make


def answers(name: bytes, count: int, device: bytes = b"") -> list[AdmittedReport]:
    return [AdmittedReport(ONE, (one,), device, name) for one in reports(count)]


async def enter(store: PostgresStore, name: bytes) -> bytes:
    """The question that the window has then."""
    return (await SharedSteps(store._db).enter(EnteredStep(ONE, name, b"signed"))).name


def unseeing(store: PostgresStore) -> None:
    assert store._looking is not None
    store._looking.cancel()


async def test_a_window_takes_answers_to_its_own_question_alone(replica: Replicas) -> None:
    """From a replica that opened it, from one that knows the row, and from one that does not;
    together with others in a commit, too. Whoever takes it over knows what they answer. Planted:
    the name not compared -> acknowledged, fails; not in the window's row -> None, fails.
    """
    one, two = await replica(), await replica()
    assert await enter(one, X) == await enter(two, Y) == X
    first = answers(X, 5)
    assert await one.append(first) == [None] * 5
    for store in (one, two):
        assert await store.append(answers(Y, 3)) == [Kind.UNKNOWN_TASK] * 3
        assert await store.append(answers(b"", 1)) == [Kind.UNKNOWN_TASK]
        assert await store.append([*answers(X, 1), *answers(Y, 1)]) == [None, Kind.INTERNAL]
    assert await two.append(first) == [None] * 5
    later = await replica()
    await mine(later, ONE)
    record = later.record(ONE)
    assert record is not None
    assert record.asked == X
    await mine(later, WindowId(TASK, 0), OTHER)
    assert (await seal(later, 1))[0].rows == 7


async def test_a_window_is_not_opened_with_a_question_that_the_database_has_not(
    replica: Replicas,
) -> None:
    """It may have been put back: the report may come again. Planted: opened with any -> taken,
    fails.
    """
    one = await replica()
    assert await one.append(answers(X, 2)) == [Kind.UNAVAILABLE] * 2
    assert await enter(one, X) == X
    assert await one.append(answers(Y, 2)) == [Kind.UNAVAILABLE] * 2
    assert await one.append(answers(X, 2)) == [None] * 2


@pytest.mark.parametrize("enrolled", [False, True])
async def test_after_a_restore_two_replicas_never_fill_one_window_with_two_questions(
    replica: Replicas, enrolled: bool
) -> None:
    """One of them was told another question before the database was put back, and has not looked
    since. The row that it knows has the number, epoch and keys of the new one. Planted: the name
    left out of ``STILL_OPEN`` and of the row under the lock -> acknowledged into the other's batch,
    fails.
    """
    server = postgres.shared()
    dsn, copy = server.database(), server.database().rpartition("/")[2]
    name, device = dsn.rpartition("/")[2], b"d" * 32 if enrolled else b""
    one = await replica(dsn=dsn)
    await one.settle()
    unseeing(one)
    await asyncio.to_thread(server.copy, name, copy)
    assert await enter(one, X) == X
    assert await one.append(answers(X, 1, device)) == [None]
    await asyncio.to_thread(server.sql, "DROP SCHEMA shoal CASCADE", name)
    await asyncio.to_thread(server.copy, copy, name)
    two = await replica(dsn=dsn)
    assert await enter(two, Y) == Y
    taken = answers(Y, 1, device)
    assert await two.append(taken) == [None]
    assert two._rows[ONE].id == one._rows[ONE].id
    for _ in range(3):
        late = answers(X, 1, b"e" * 32 if enrolled else b"")
        assert await one.append(late) in ([Kind.UNAVAILABLE], [Kind.UNKNOWN_TASK])
    assert await one.append(late) == [Kind.UNKNOWN_TASK]
    _, rows = await seal(two, 1)
    assert rows == [taken[0].sealed[0]]


async def test_a_window_of_before_goes_on(replica: Replicas) -> None:
    """One that was open when the program was replaced has no question in its row. Planted: no
    question taken for one that differs -> refused, fails.
    """
    one = await replica()
    assert await enter(one, X) == X
    assert await one.append(answers(X, 2)) == [None] * 2
    await one._db.execute("UPDATE win SET asked = NULL, epoch = epoch + 1, changed = now()")
    two = await replica()
    for store in (one, two):
        assert await store.append(answers(X, 2)) == [None] * 2
    record = two.record(ONE)
    assert record is not None
    assert record.asked is None
    assert (await seal(two, 1))[0].rows == 6


async def test_a_row_that_was_changed_is_read_again(replica: Replicas) -> None:
    """By whoever may write to the database, or puts it back: also one that is gone. Steps that
    were read are known by their hash. Planted: by task and window alone -> the old one, fails.
    """
    one = await replica()
    book = SharedSteps(one._db)
    await book.enter(EnteredStep(ONE, X, b"signed"))
    assert await book.entered([TASK]) == [EnteredStep(ONE, X, b"signed")]
    await one._db.execute("UPDATE step SET data = $1", b"forged")
    assert await book.entered([TASK]) == [EnteredStep(ONE, X, b"forged")]
    await one._db.execute("DELETE FROM step")
    assert await book.entered([TASK]) == []
    assert await book.enter(EnteredStep(ONE, Y, b"another")) == EnteredStep(ONE, Y, b"another")


@pytest.mark.parametrize(
    ("window", "name", "data"),
    [(0, X, b""), (-1, X, b""), (1, X[1:], b""), (1, X, bytes((1 << 20) + 1))],
)
async def test_the_table_takes_no_row_that_no_replica_writes(
    replica: Replicas, window: int, name: bytes, data: bytes
) -> None:
    """So that no replica reads one that is too large for it. Planted: without the checks ->
    entered, fails.
    """
    one = await replica()
    with pytest.raises(ShoalError):
        await one._db.execute(
            "INSERT INTO step VALUES ($1, $2, $3, $4)", TASK.raw, window, name, data
        )
    assert await SharedSteps(one._db).entered([TASK]) == []


@pytest.mark.parametrize("at", ["postgresql.step", "postgresql.step.done"])
async def test_a_step_whose_entry_is_doubtful_is_entered_again(replica: Replicas, at: str) -> None:
    """The connection broke before its commit, or before the answer. The first one stands if it was
    committed; else who comes next is the first. Planted: entered outside of a transaction -> X
    stands in the first case, fails.
    """
    one, two = await replica(), await replica()
    first, second = EnteredStep(ONE, X, b"signed"), EnteredStep(ONE, Y, b"another")
    failpoints.arm(f"{at}=eio@1")
    try:
        with pytest.raises((ShoalError, OSError)):
            await SharedSteps(one._db).enter(first)
    finally:
        failpoints.arm("")
    stands = second if at == "postgresql.step" else first
    assert await SharedSteps(two._db).enter(second) == stands
    assert await SharedSteps(one._db).enter(first) == stands


async def test_what_was_read_is_not_read_again(
    replica: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step may have a hundred kilobytes, and is asked for every second. Planted: without the
    version, or what is known forgotten where another task is asked for -> read twice, fails.
    """
    book, read = SharedSteps((await replica())._db), list[object]()

    async def counting(*given: Any) -> Any:
        read.append(given)
        return await reading(*given)

    reading = book._versions
    for task_id in (TASK, ELSE):
        await book.enter(EnteredStep(WindowId(task_id, 1), X, b"signed"))
    monkeypatch.setattr(book, "_versions", counting)
    assert len(await book.entered([TASK, ELSE])) == 2
    assert len(read) == 1
    for asked in ([TASK], [TASK, ELSE], [ELSE]):
        assert len(await book.entered(asked)) == len(asked)
    assert len(read) == 1
