"""In which order steps on one database take what they need: tables, gates, connections, claims; and
what is looked at again before a step is final.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import Kind, ShoalError
from shoal.shuffler.core import Capacity, WindowId, WindowState
from shoal.shuffler.stores.claims import StaleClaimError
from shoal.shuffler.stores.postgresql import intake, rows
from shoal.shuffler.stores.postgresql import store as stores
from shoal.shuffler.stores.postgresql.batches import Sealing
from shoal.shuffler.stores.postgresql.store import PostgresStore
from tests.conformance.store.harness import (
    HOUR,
    ME,
    OTHER,
    ROW,
    TASK,
    devices,
    mine,
    of,
    reports,
    seal,
    submissions,
)
from tests.worlds import postgres
from tests.worlds.replica_stores import Replicas, replica_stores

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.LACKING)
ONE = WindowId(TASK, 0)
HUNDRED = Capacity(1, 100, 4_000)


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Replicas]:
    """One more replica on one database, where no deadlock is ended by the server: whoever waits
    for another who waits for it ends by its own patience, with UNAVAILABLE.
    """
    server = postgres.shared()
    dsn = server.database()
    server.sql(f"ALTER DATABASE {dsn.rpartition('/')[2]} SET deadlock_timeout = '1h'")

    async with replica_stores(tmp_path) as make:
        yield partial(make, dsn=dsn)


class Halt:
    """In place of a coroutine function: its first call is done, or waits ``before`` it is, and
    returns when ``go`` is set.
    """

    def __init__(self, real: Callable[..., Awaitable[Any]], *, before: bool = False) -> None:
        self._real, self._before, self._first = real, before, True
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    async def __call__(self, *args: Any, **more: Any) -> Any:
        first, self._first = self._first, False
        if first and self._before:
            await self._wait()
        done = await self._real(*args, **more)
        if first and not self._before:
            await self._wait()
        return done

    async def _wait(self) -> None:
        self.reached.set()
        await self.go.wait()


async def somebody_waits(store: PostgresStore) -> None:
    """For a lock of the store's database."""
    name = await store._db.fetchval("SELECT current_database()")
    look = (
        "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"  # noqa: S608 - a name of ours
        f" AND datname = '{name}'"
    )
    while await asyncio.to_thread(postgres.shared().sql, look) == []:
        pass


async def test_a_report_that_comes_while_its_window_is_emptied_waits(
    opened: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is stored after it. Planted: tables locked by whoever empties when they are dropped ->
    each waits for the other, fails.
    """
    one, two = await opened(), await opened()
    assert await one.append(submissions(reports(20))) == [None] * 20
    assert await two.append(submissions(reports(1))) == [None]  # it has seats
    claim, halt = await mine(one, ONE), Halt(rows.lock)
    monkeypatch.setattr(stores, "lock", halt)
    emptying = asyncio.create_task(one.shred(claim))
    await halt.reached.wait()
    sending = asyncio.create_task(two.append(submissions(reports(1))))
    await somebody_waits(one)
    halt.go.set()
    await emptying
    assert await sending == [None]
    assert (await seal(two))[0].rows == 1


@pytest.mark.parametrize("enrolled", [False, True], ids=["alone", "enrolled"])
async def test_a_window_is_emptied_after_those_who_are_at_it(
    opened: Replicas, monkeypatch: pytest.MonkeyPatch, enrolled: bool
) -> None:
    """Who stores alone, and who enters devices, has the gate before it writes. Planted, each: the
    tables not locked before the gate -> each waits for the other, fails.
    """
    one, two = await opened(), await opened()
    assert await one.append(submissions(reports(1))) == [None]
    if enrolled:
        assert await two.append(submissions(reports(1))) == [None]
        halt = Halt(two._enter, before=True)
        monkeypatch.setattr(two, "_enter", halt)
    else:
        halt = Halt(rows.lock)
        monkeypatch.setattr(intake, "lock", halt)
    sent = [of(devices(1)[0], reports(1)[0])] if enrolled else submissions(reports(1))
    sending = asyncio.create_task(two.append(sent))
    await halt.reached.wait()
    emptying = asyncio.create_task(one.shred(await mine(one, ONE)))
    await somebody_waits(one)
    halt.go.set()
    assert await sending == [None]
    await emptying
    assert await one.held(ONE) == 0


async def test_one_connection_is_enough_for_every_step(opened: Replicas) -> None:
    """Who holds one and asks for another may wait for ever. Planted: the window's keys read on
    another connection when it is closed -> UNAVAILABLE, fails.
    """
    store, state = await opened(HUNDRED, connections=1), WindowState
    assert await store.append(submissions(reports(90))) == [None] * 90
    kinds = await store.append([of(one, report) for one, report in zip(devices(5), reports(5))])  # noqa: B905
    assert kinds == [None] * 5
    kinds = await store.append(submissions(reports(9)))
    assert Counter(kinds) == {None: 5, Kind.WINDOW_FULL: 4}
    store._boxes.clear()  # as of a replica that took no report of this window
    sealed, _ = await seal(store)
    assert sealed.rows == 100
    claim = await mine(store, ONE)
    assert await store.mend(claim) is None
    await store.advance(claim, state.SEALED, state.EXPIRED)
    await store.shred(claim)
    await store.advance(claim, state.EXPIRED, state.SHREDDED)
    await store.lapse([await mine(store, WindowId(TASK, 1))])


async def test_a_claim_that_its_owner_made_anew_is_stale(opened: Replicas) -> None:
    """A task of its own goes on under the old fence, which another had taken over and given back.
    Planted, each: the fence not compared in a step, in a renewal, in a part of a batch -> it goes
    through, fails.
    """
    store = await opened()
    assert await store.append(submissions(reports(5))) == [None] * 5
    old = await store.claim(ONE, ME, 0.0)  # it runs out
    assert old is not None
    between = await store.claim(ONE, OTHER, HOUR)
    assert between is not None
    await store.release(between)
    new = await mine(store, ONE)
    assert (new.owner, new.fence) == (old.owner, old.fence + 2)
    with pytest.raises(StaleClaimError):
        await store.close_intake(old)
    with pytest.raises(StaleClaimError):
        await store.renew(old, HOUR)
    await store.release(old)
    assert await store.claim(ONE, OTHER, HOUR) is None  # it is still held
    await store.close_intake(new)
    await store.seal(new)
    late = Sealing(store._db, new, store._rows[ONE], ROW)
    late._claim = old
    with pytest.raises(StaleClaimError):
        await late.write(store._closing(store._rows[ONE]), 1, 1, bytes(ROW))
    with pytest.raises(StaleClaimError):
        await store.seal(old)


@pytest.mark.parametrize(
    ("loss", "left"),
    [
        ("DROP TABLE batch_1_{fence}", 50),
        ("DELETE FROM batch_1_{fence}", 50),
        ("DROP TABLE inbox_1", 0),
    ],
    ids=["batch", "part", "inbox"],
)
async def test_a_batch_that_the_database_lost_is_not_recorded(
    opened: Replicas, loss: str, left: int
) -> None:
    """It stepped back between writing and recording: then nothing else goes. Planted, each: the
    batch, the inbox not looked at -> SEALED, fails.
    """
    store, state = await opened(), WindowState
    assert await store.append(submissions(reports(50))) == [None] * 50
    claim = await mine(store, ONE)
    await store.close_intake(claim)
    sealed = await store.seal(claim)
    await store._db.execute(loss.format(fence=claim.fence))
    with pytest.raises(ShoalError) as refused:
        await store.advance(claim, state.CLOSING, state.SEALED, sealed, 50, b"m")
    assert refused.value.kind is Kind.MISMATCH
    again = await store.seal(claim)
    assert (again.rows, again.damaged) == (left, 50 - left)
    await store.advance(claim, state.CLOSING, state.SEALED, again, left, b"m")
    await store.destroy_inbox(claim)
    assert len(await store.read_rows(ONE, 0, 50)) == left * ROW


async def test_blocks_of_before_a_window_was_emptied_do_not_open(opened: Replicas) -> None:
    """Somebody kept them and puts them back. Planted: how often it was emptied not bound -> they
    are in the batch, fails.
    """
    store, before, after = await opened(), reports(10), reports(10)
    assert await store.append(submissions(before)) == [None] * 10
    await store._db.execute("CREATE TABLE kept AS TABLE inbox_1")
    await store.shred(await mine(store, ONE))
    assert await store.append(submissions(after)) == [None] * 10
    await store._db.execute("INSERT INTO inbox_1 TABLE kept")
    sealed, rows = await seal(store)
    assert sorted(rows) == sorted(after)
    assert sealed.damaged >= 10
