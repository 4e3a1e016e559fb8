"""What replicas of one database see of one another: tasks that one lacks, one too many, a copied
data_dir, and keys on a machine that is away. Against a real server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from shoal.ids import Digest, TaskId
from shoal.shuffler.core import WindowState
from shoal.shuffler.stores.postgresql.database import Database
from shoal.shuffler.stores.postgresql.replicas.fellows import (
    FellowWatch,
    Tasks,
    look_around,
    name_of,
)
from shoal.shuffler.stores.postgresql.store import open_reports
from tests.conformance.store.harness import HASH, HOP_KEY, OPEN_ENDED, ROW, TASK, mine, reports
from tests.conformance.store.harness import submissions as rows
from tests.worlds import postgres

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)
ME = b"\x07" * 32
ONE, TWO = b"1" * 16, b"2" * 16
OTHER_TASK = TaskId(b"\x01" * 32)
BOTH: Tasks = {TASK: HASH, OTHER_TASK: HASH}
Watching = Callable[..., Awaitable[FellowWatch]]


@pytest.fixture
async def database() -> AsyncIterator[Database]:
    async with await Database.open(postgres.shared().database(), ME) as opened:
        yield opened


@pytest.fixture
async def begin(database: Database) -> AsyncIterator[Watching]:
    """Starts the watch of one more process."""
    async with AsyncExitStack() as stack:

        async def make(
            replica: bytes, owner: bytes, tasks: Tasks, waiting: Tasks | None = None, count: int = 2
        ) -> FellowWatch:
            watch = FellowWatch(database, replica, replicas=count)
            still = tasks if waiting is None else waiting
            await watch.start(owner, lambda: tasks, lambda: still)
            stack.push_async_callback(watch.close)
            return watch

        yield make


def told(watch: FellowWatch) -> list[tuple[str, bool]]:
    return [(one.subject, one.stops) for one in watch.conditions()]


async def test_a_replica_that_lacks_a_task_is_not_ready_and_others_are(begin: Watching) -> None:
    """Nor one with another schedule; a task whose windows are all decided is nobody's lack.
    Planted: what others wait for not looked at -> ready, fails. Planted: all that they serve looked
    at -> a task that is over keeps replicas out for ever, fails.
    """
    one = await begin(ONE, ONE, BOTH)
    two = await begin(TWO, TWO, {TASK: HASH})
    assert told(two) == [(OTHER_TASK.short, True)]
    await one.look()
    assert told(one) == []
    await one.close()
    await two.look()
    assert told(two) == []  # nobody serves it any more
    over = await begin(ONE, ONE, BOTH, {TASK: HASH})
    await two.look()
    assert told(two) == []
    await over.close()
    await begin(ONE, ONE, {TASK: Digest(b"\x02" * 32)})
    await two.look()
    assert told(two) == [(TASK.short, True)]


async def test_one_replica_too_many_is_told(begin: Watching) -> None:
    """Where one is configured it stops the service: no standby was asked for. Planted: others not
    counted -> ready, fails.
    """
    alone = await begin(ONE, ONE, {TASK: HASH}, count=1)
    assert told(alone) == []
    second = await begin(TWO, TWO, {TASK: HASH})
    assert told(second) == []
    third = await begin(b"3" * 16, b"3" * 16, {TASK: HASH})
    assert told(third) == [("replicas", False)]
    await alone.look()
    assert told(alone) == [("replicas", True)]
    await second.close()
    await third.close()
    await alone.look()
    assert told(alone) == []


async def test_a_copied_data_dir_is_found_and_a_restart_is_none(begin: Watching) -> None:
    """Planted: the process before not compared -> two of one id, fails; compared at the first word
    -> a restart stops the service, fails.
    """
    before = await begin(ONE, ONE, {TASK: HASH})
    await before.close()
    after = await begin(ONE, TWO, {TASK: HASH})
    assert told(after) == []
    copy = await begin(ONE, b"3" * 16, {TASK: HASH})
    await after.look()
    assert told(after) == [("replica-id", True)]
    await copy.look()
    assert told(copy) == [("replica-id", True)]
    await copy.close()
    await after.look()
    await after.look()
    assert told(after) == []


async def test_keys_on_a_machine_that_is_away_are_told(
    begin: Watching, database: Database, tmp_path: Path
) -> None:
    """Once the window is over, until the machine comes back or its rows go. Planted: windows that
    are open counted, or machines that are there -> fails.
    """
    dsn = postgres.shared().database()
    stores = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        store = await open_reports(await Database.open(dsn, ME), tmp_path / name, commit_ms=0)
        store.adopt(TASK, HASH, OPEN_ENDED, ROW, lambda _: HOP_KEY)
        stores.append(store)
    one, two = stores
    assert await one.append(rows(reports(3))) == [None] * 3
    ids = [bytes.fromhex((tmp_path / name / "replica-id").read_text()) for name in ("one", "two")]
    await one.close()  # with the key files of an open window
    ((window, _),) = two.records().items() if two.records() else [(rows([b""])[0].window, None)]
    await two.load()
    claim = await mine(two, window)
    async with await Database.open(dsn, ME) as shared:
        watch = FellowWatch(shared, ids[1], replicas=2)
        await watch.start(TWO, dict, dict)
        assert told(watch) == []
        await two.close_intake(claim)
        sealed = await two.seal(claim)
        await two.advance(claim, WindowState.CLOSING, WindowState.SEALED, sealed, 3, b"manifest")
        await watch.look()
        assert told(watch) == [(name_of(ids[0]), False)]
        back = FellowWatch(shared, ids[0], replicas=2)
        await back.start(ONE, dict, dict)
        await watch.look()
        assert told(watch) == []
        await back.close()
        async with shared.transaction() as connection:
            seen = await look_around(connection, b"")
            assert (len(seen.live), seen.keeping) == (1, {})  # it ended a moment ago
            await connection.execute("UPDATE replica SET seen = '-infinity' WHERE owner = $1", ONE)
        await watch.look()
        assert told(watch) == [(name_of(ids[0]), False)]
        await shared.execute("DELETE FROM holder WHERE replica = $1", ids[0])
        await watch.look()
        assert told(watch) == []
        await watch.close()
    await two.close()
