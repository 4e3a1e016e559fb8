"""What the stores on one database do when steps cross, a commit fails or its end is not known, and
the database lost what it had promised: each is brought about step by step.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shoal import failpoints
from shoal.crypto.hpke import generate
from shoal.crypto.suites import SuiteId
from shoal.errors import Kind, ShoalError
from shoal.ids import Digest
from shoal.shuffler.core import Capacity, WindowId, WindowState
from shoal.shuffler.stores.claims import Claim, StaleClaimError
from shoal.shuffler.stores.postgresql import intake, rows, windows
from shoal.shuffler.stores.postgresql.failures import lost
from shoal.shuffler.stores.postgresql.store import PostgresStore
from shoal.shuffler.stores.postgresql.window_keys import Purpose, derive
from shoal.shuffler.stores.store import SealedRows
from tests.conformance.store.harness import (
    ME,
    OTHER,
    TASK,
    mine,
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
async def replica(tmp_path: Path) -> AsyncIterator[Replicas]:
    async with replica_stores(tmp_path) as make:
        yield make


class Pause:
    """In place of a coroutine function: the first call waits until ``go`` is set."""

    def __init__(self, real: Callable[..., Awaitable[Any]]) -> None:
        self._real, self._first = real, True
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    async def __call__(self, *args: Any, **more: Any) -> Any:
        if self._first:
            self._first = False
            self.reached.set()
            await self.go.wait()
        return await self._real(*args, **more)


async def lose(*_args: Any, **_more: Any) -> Any:
    raise lost()


async def put(store: PostgresStore, count: int) -> list[Kind | None]:
    return await store.append(submissions(reports(count)))


async def seal_under(claim: Claim, store: PostgresStore) -> None:
    """Up to where the inbox is gone."""
    await store.close_intake(claim)
    sealed, state = await store.seal(claim), WindowState
    await store.advance(claim, state.CLOSING, state.SEALED, sealed, sealed.rows, b"m")
    await store.destroy_inbox(claim)


async def lose_a_part(store: PostgresStore) -> None:
    batch = store._rows[ONE].batch()
    await store._db.execute(f"DELETE FROM {batch} WHERE part = 0")  # noqa: S608 - a name of ours


async def test_a_group_that_waited_while_others_counted_is_seen_by_them(
    replica: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever counts knows of all numbers up to the largest that it saw. Planted: a block numbered
    before its window is locked -> 108 reports of 100, fails.
    """
    one, two = await replica(HUNDRED), await replica(HUNDRED)
    assert await put(one, 1) == [None]
    pause = Pause(rows.lock)
    monkeypatch.setattr(intake, "lock", pause)
    waiting = asyncio.create_task(put(one, 12))  # more than there are seats
    await pause.reached.wait()
    assert await put(one, 1) == [None]
    assert await put(two, 80) == [None] * 80
    assert await put(two, 10) == [None] * 10  # counts
    await one._look()
    pause.go.set()
    kinds = await waiting + await put(two, 8) + await put(one, 8)
    assert kinds.count(None) == 8
    assert (await seal(two))[0].rows == 100


async def test_a_count_that_was_not_committed_settles_nothing(
    replica: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block with a smaller number, which waited meanwhile, comes after it. Planted: numbers
    settled before the commit -> 101 reports of 100, fails.
    """
    one, two = await replica(HUNDRED), await replica(HUNDRED)
    assert await put(one, 1) == [None]
    pause = Pause(one._db.execute)
    with monkeypatch.context() as patch:
        patch.setattr(one._db, "execute", pause)
        waiting = asyncio.create_task(put(one, 1))
        await pause.reached.wait()
        assert await put(one, 1) == [None]  # a larger number
    assert await put(two, 80) == [None] * 80
    with monkeypatch.context() as patch:
        patch.setattr(two, "_insert", lose)
        assert await put(two, 10) == [Kind.UNAVAILABLE] * 10
    pause.go.set()
    assert await waiting == [None]
    kinds = await put(two, 10)
    kinds += [(await put(two, 1))[0] for _ in range(9)]
    assert kinds.count(None) == 17
    assert (await seal(one))[0].rows == 100


async def test_a_block_of_another_writer_bears_that_writers_count(
    replica: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that waits while another one's end becomes unknown. Planted: numbered before its
    window is locked -> it says that 90 rows more are there than are, fails.
    """
    one = await replica(HUNDRED)
    assert await put(one, 1) == [None]
    pause = Pause(rows.lock)
    with monkeypatch.context() as patch:
        patch.setattr(intake, "lock", pause)
        waiting = asyncio.create_task(put(one, 12))
        await pause.reached.wait()
        with monkeypatch.context() as broken:
            broken.setattr(one._db, "execute", lose)
            assert await put(one, 1) == [Kind.UNAVAILABLE]
        assert await put(one, 60) == [None] * 60
        pause.go.set()
        assert await waiting == [None] * 12
    assert (await seal(one))[0].damaged == 0


async def test_who_does_not_know_that_a_window_is_sealed_leaves_its_batch(
    replica: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit was made, and the answer lost: the same owner tries again from what it remembers,
    and dies in the midst of it. Planted: the state not read in the step -> the batch is empty,
    fails.
    """
    store = await replica()
    await put(store, 50)
    claim = await mine(store, ONE)
    await store.close_intake(claim)
    sealed, state = await store.seal(claim), WindowState
    with monkeypatch.context() as patch:
        patch.setattr(store, "_read", lose)
        with pytest.raises(ShoalError):
            await store.advance(claim, state.CLOSING, state.SEALED, sealed, 50, b"m")
    failpoints.arm("postgresql.seal-write=eio@1")
    try:
        with pytest.raises((ShoalError, OSError)):
            await store.seal(claim)
    finally:
        failpoints.arm("")
    await store.destroy_inbox(claim)
    await store._read(ONE)
    assert Digest.of(await store.read_rows(ONE, 0, 50)) == sealed.rows_hash


async def test_a_database_that_stepped_back_keeps_its_inbox(replica: Replicas) -> None:
    """A standby was promoted that had not heard of SEALED. Planted: the state taken from memory ->
    the inbox is dropped, and nothing is left to seal, fails.
    """
    store = await replica()
    await put(store, 50)
    claim = await mine(store, ONE)
    await store.close_intake(claim)
    sealed, state = await store.seal(claim), WindowState
    await store.advance(claim, state.CLOSING, state.SEALED, sealed, 50, b"m")
    await store._db.execute("UPDATE win SET state = 2, acked = 50")
    with pytest.raises(ShoalError):
        await store.destroy_inbox(claim)
    assert await store.held(ONE) == 50


async def test_whoever_sealed_a_batch_can_mend_it(replica: Replicas) -> None:
    """Under one claim, as a shuffler that seals and delivers does; twice. Planted: the rest written
    to a table of the same name -> INTERNAL, fails.
    """
    store, state = await replica(), WindowState
    for _ in range(4):
        await put(store, 3_000)
    claim = await mine(store, ONE)
    await seal_under(claim, store)
    assert await store.mend(claim) is None
    for _ in range(2):
        await lose_a_part(store)
        with pytest.raises(ShoalError):
            await store.read_rows(ONE, 0, 1)
        left = await store.mend(claim)
        assert left is not None
        assert (left.rows + left.damaged, left.rows > 0) == (12_000, True)
        await store.advance(claim, state.SEALED, state.SEALED, left, left.rows, b"another")
        assert Digest.of(await store.read_rows(ONE, 0, 12_000)) == left.rows_hash
    assert await store.mend(claim) is None


@pytest.mark.parametrize(
    ("damage", "left"),
    [("DELETE FROM inbox_1 WHERE number = 3", 20), ("DROP TABLE inbox_1", 0)],
    ids=["last", "all"],
)
async def test_what_was_lost_after_the_window_closed_is_counted(
    replica: Replicas, damage: str, left: int
) -> None:
    """No later block tells of it. Planted: ``acked`` of the row not looked at -> 0, fails."""
    store = await replica()
    for _ in range(3):
        await put(store, 10)
    await store.close_intake(await mine(store, ONE))
    await store._db.execute(damage)
    sealed = await store.seal(await mine(store, ONE))
    assert (sealed.rows, sealed.damaged) == (left, 30 - left)


async def test_what_a_promoted_standby_lacks_is_counted(
    replica: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last blocks of a replica that lives; it noticed no more than a lost connection. Planted:
    what a writer was told forgotten with it -> 0, fails.
    """
    store = await replica()
    for _ in range(3):
        assert await put(store, 10) == [None] * 10
    with monkeypatch.context() as broken:
        broken.setattr(store._db, "execute", lose)
        assert await put(store, 1) == [Kind.UNAVAILABLE]
    await store._db.execute("DELETE FROM inbox_1 WHERE number > 1")
    assert await put(store, 5) == [None] * 5
    sealed, _ = await seal(store)
    assert (sealed.rows, sealed.damaged) == (15, 20)


async def test_a_key_file_of_another_hop_key_seals_nothing(replica: Replicas) -> None:
    """It was there before the window was. Planted: the check value looked at only where a file is
    missing -> everything is damaged, fails.
    """
    one, other_key = await replica(), generate(SuiteId.X25519_AES128)
    other = await replica(hop_key=other_key)
    for purpose in Purpose:
        other._keys.keep(ONE, purpose, derive(other_key, ONE, purpose))
    await put(one, 5)
    await one.close_intake(await mine(one, ONE))
    claim = await mine(other, ONE)
    assert [condition.code for condition in other.damage()] == ["key"]
    with pytest.raises(ShoalError) as refused:
        await other.seal(claim)
    assert refused.value.kind is Kind.KEY_FILE


async def test_of_two_looks_that_cross_the_later_stays(
    replica: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the first of them has keys to write. Planted: not looked at again after that ->
    OPEN, fails.
    """
    one, two = await replica(), await replica()
    await put(one, 5)
    pause = Pause(two._make_safe)
    monkeypatch.setattr(two, "_make_safe", pause)
    waiting = asyncio.create_task(two._read(ONE))
    await pause.reached.wait()
    await one.close_intake(await mine(one, ONE))
    await two._read(ONE)
    pause.go.set()
    await waiting
    assert two.records()[ONE].state is WindowState.CLOSING


# --- what is seen of others, and is on no standby yet


async def cancelled(server: postgres.Server, step: Awaitable[Any]) -> Any:
    """How a step ends whose waits for the standby are cancelled, all of them."""
    running = asyncio.ensure_future(step)
    cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    while not running.done():
        await asyncio.to_thread(server.sql, cancel)
        await asyncio.wait([running], timeout=0.05)
    return running.exception() or running.result()


async def test_what_is_on_one_machine_alone_is_acknowledged_by_nobody(replica: Replicas) -> None:
    """A report whose wait was cancelled is seen by all: a replica that reads it answers its repeat
    only when the standby has it. Planted: blocks read without waiting -> None, fails. Nor are keys
    deleted on the word of a SEALED that may be lost. Planted: -> the file is gone, fails.
    """
    with postgres.Server() as server:
        one = await replica(dsn=server.database())
        two = await replica()
        kept, sent = reports(5), reports(1)
        assert await one.append(submissions(kept)) == [None] * 5
        await two._look()
        server.configure("synchronous_standby_names = 'nobody'")
        ends = [
            await cancelled(server, store.append(submissions(sent))) for store in (one, two, two)
        ]
        assert ends == [[Kind.UNAVAILABLE]] * 3
        three = await replica()
        assert await cancelled(server, three.append(submissions(sent))) == [Kind.UNAVAILABLE]
        server.configure("synchronous_standby_names = ''")
        claim = await one.claim(ONE, ME, 3600.0)
        assert claim is not None
        await one.close_intake(claim)
        sealed, state = await one.seal(claim), WindowState
        server.configure("synchronous_standby_names = 'nobody'")
        advance = one.advance(claim, state.CLOSING, state.SEALED, sealed, 6, b"m")
        assert isinstance(await cancelled(server, advance), ShoalError)
        assert isinstance(await cancelled(server, two._look()), ShoalError)
        assert two._keys.get(ONE, Purpose.INBOX) is not None
        server.configure("synchronous_standby_names = ''")
        await two._look()
        assert two._keys.get(ONE, Purpose.INBOX) is None


# --- a control: the same steps with and without the mechanism


Delivered = dict[bytes, int]  # by manifest, how many rows


async def deliver(store: PostgresStore, there: Delivered) -> None:
    """As an attempt does it whose answer is lost: an analyzer keeps what fits its manifest."""
    record = store.records()[ONE]
    rows = await store.read_rows(ONE, 0, record.rows)
    assert Digest.of(rows) == record.rows_hash
    there[record.manifest] = record.rows


def named(sealed: SealedRows) -> bytes:
    """Its manifest, as far as that matters here."""
    return b"manifest of " + sealed.rows_hash.raw


@pytest.mark.parametrize("fenced", [True, False])
async def test_a_zombie_delivers_no_second_batch(
    replica: Replicas, monkeypatch: pytest.MonkeyPatch, fenced: bool
) -> None:
    """An owner finds a part of a batch missing, writes what is left, and stands still. The part
    comes back, another owner delivers all of it, and the zombie goes on: the batch stays, and is
    what is offered again. And the control: with claims not looked at in a step the window is
    delivered a second time, as another batch.
    """

    @asynccontextmanager
    async def unchecked(self: PostgresStore, *_claims: Any) -> AsyncIterator[Any]:
        async with self._db.transaction() as connection:
            yield connection

    one, two, there = await replica(), await replica(), Delivered()
    for _ in range(4):
        await put(one, 3_000)
    zombie, state = await one.claim(ONE, ME, 0.0), WindowState
    assert zombie is not None
    await one.close_intake(zombie)
    sealed = await one.seal(zombie)
    await one.advance(zombie, state.CLOSING, state.SEALED, sealed, sealed.rows, named(sealed))
    await one.destroy_inbox(zombie)
    await one.advance(zombie, state.SEALED, state.DELIVERING)
    batch = one._rows[ONE].batch()
    part = await one._db.fetchrow(f"DELETE FROM {batch} WHERE part = 0 RETURNING *")  # noqa: S608 - a name of ours
    assert part is not None
    left = await one.mend(zombie)
    assert left is not None
    columns = ", ".join(f"${place + 1}" for place in range(len(part)))
    await one._db.execute(f"INSERT INTO {batch} VALUES ({columns})", *part)  # noqa: S608 - a name of ours
    owned = await two.claim(ONE, OTHER, 3600.0)
    assert owned is not None
    assert await two.mend(owned) is None
    await deliver(two, there)
    if not fenced:
        monkeypatch.setattr(windows.SharedWindows, "_step", unchecked)
    again = one.advance(zombie, state.DELIVERING, state.DELIVERING, left, left.rows, named(left))
    if fenced:
        with pytest.raises(StaleClaimError):
            await again
    else:
        await again
    await two._read(ONE)
    await deliver(two, there)
    whole = {named(sealed): 12_000}
    assert there == (whole if fenced else {**whole, named(left): left.rows})
    assert left.rows < 12_000
